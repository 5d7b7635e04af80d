/* SPDX-License-Identifier: BSD-3-Clause */
/* The emulated CUDA driver keeps the promises that the tests of the library rest on. */
#include <cuda.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static CUcontext context;

static void ok(CUresult result)
{
	assert_int_equal(result, CUDA_SUCCESS);
}

static int set_up(void **state)
{
	(void)state;
	return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context);
}

static CUdeviceptr make(size_t size)
{
	CUdeviceptr address;

	ok(cuMemAlloc(&address, size));
	return address;
}

/* The signal that ends a child which does this. */
static int signal_of(void (*body)(void *), void *argument)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		signal(SIGSEGV, SIG_DFL);
		signal(SIGABRT, SIG_DFL);
		close(STDERR_FILENO);
		body(argument);
		_exit(0);
	}
	waitpid(child, &status, 0);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void touch(void *address)
{
	*(volatile char *)address = 1;
}

static void host_access_faults(void **state)
{
	CUdeviceptr address = make(100), large = make(5 << 20);

	(void)state;
	assert_int_equal(signal_of(touch, (void *)address), SIGSEGV);
	assert_int_equal(signal_of(touch, (void *)(large + (4 << 20))), SIGSEGV);
	/* A system call gets an error instead. */
	assert_int_equal(write(memfd_create("x", 0), (void *)address, 10), -1);
	ok(cuMemFree(address));
	ok(cuMemFree(large));
}

static void host_access_to_managed_memory_works(void **state)
{
	CUdeviceptr address;
	char copy[10];

	(void)state;
	ok(cuMemAllocManaged(&address, 4096, CU_MEM_ATTACH_GLOBAL));
	strcpy((char *)address, "managed");
	ok(cuMemcpyDtoH(copy, address, 8));
	assert_string_equal(copy, "managed");
	ok(cuMemFree(address));
}

static void small_allocations_share_a_block(void **state)
{
	CUdeviceptr a = make(1), b = make(1), base;
	size_t size;

	(void)state;
	assert_int_equal(a % 512, 0);
	assert_int_equal(b - a, 512);
	ok(cuMemGetAddressRange(&base, &size, a));
	assert_true(base == a && size == 1);
	ok(cuMemFree(a));
	ok(cuMemFree(b));
}

static void copies_outside_an_allocation_are_refused(void **state)
{
	CUdeviceptr address = make(100);
	char host[200];

	(void)state;
	assert_int_equal(cuMemcpyDtoH(host, address, 101), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemcpyDtoH(host, address + 99, 2), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemFree(address));
	assert_int_equal(cuMemcpyDtoH(host, address, 1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
}

static sem_t gate;

static void wait_at_gate(void *unused)
{
	(void)unused;
	sem_wait(&gate);
}

/* Nothing that is put on the stream from now on runs before open_gate. */
static void close_gate(CUstream stream)
{
	sem_init(&gate, 0, 0);
	ok(cuLaunchHostFunc(stream, wait_at_gate, NULL));
}

static void open_gate(void)
{
	sem_post(&gate);
}

/* A fill returns before it is done, and reads in the stream's order see it. */
static void fills_are_late(void **state)
{
	CUdeviceptr address = make(1000);
	char host[1000];

	(void)state;
	close_gate(CU_STREAM_LEGACY);
	ok(cuMemsetD8(address, 2, 1000));
	assert_int_equal(cuStreamQuery(CU_STREAM_LEGACY), CUDA_ERROR_NOT_READY);
	open_gate();
	ok(cuMemcpyDtoH(host, address, 1000));
	assert_int_equal(host[999], 2);
	ok(cuMemFree(address));
}

static void fills_wait_with_sync_memops(void **state)
{
	CUdeviceptr address = make(1000);
	unsigned on = 1;

	(void)state;
	ok(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
	ok(cuMemsetD8(address, 3, 1000));
	assert_int_equal(cuStreamQuery(CU_STREAM_LEGACY), CUDA_SUCCESS);
	ok(cuMemFree(address));
}

/* A non-blocking stream does not wait for the legacy stream; a blocking one does. */
static void streams_are_ordered_as_promised(void **state)
{
	CUdeviceptr address = make(4);
	CUstream blocking, free_running;
	unsigned *pinned;

	(void)state;
	ok(cuMemAllocHost((void **)&pinned, 8));
	ok(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	ok(cuStreamCreate(&free_running, CU_STREAM_NON_BLOCKING));
	ok(cuMemsetD32(address, 1, 1));
	ok(cuCtxSynchronize());
	close_gate(CU_STREAM_LEGACY);
	ok(cuMemsetD32Async(address, 2, 1, CU_STREAM_LEGACY));
	ok(cuMemcpyDtoHAsync(&pinned[0], address, 4, free_running));
	ok(cuMemcpyDtoHAsync(&pinned[1], address, 4, blocking));
	ok(cuStreamSynchronize(free_running));
	assert_int_equal(pinned[0], 1);
	assert_int_equal(cuStreamQuery(blocking), CUDA_ERROR_NOT_READY);
	open_gate();
	ok(cuStreamSynchronize(blocking));
	assert_int_equal(pinned[1], 2);
	ok(cuStreamDestroy(blocking));
	ok(cuStreamDestroy(free_running));
	ok(cuMemFreeHost(pinned));
	ok(cuMemFree(address));
}

static void events_order_streams(void **state)
{
	CUdeviceptr address = make(4);
	CUstream first, second;
	CUevent event;
	unsigned *pinned;
	float time;

	(void)state;
	ok(cuMemAllocHost((void **)&pinned, 4));
	ok(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
	ok(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
	ok(cuEventCreate(&event, CU_EVENT_DEFAULT));
	close_gate(first);
	ok(cuMemsetD32Async(address, 4, 1, first));
	ok(cuEventRecord(event, first));
	assert_int_equal(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	ok(cuStreamWaitEvent(second, event, 0));
	ok(cuMemcpyDtoHAsync(pinned, address, 4, second));
	assert_int_equal(cuStreamQuery(second), CUDA_ERROR_NOT_READY);
	open_gate();
	ok(cuStreamSynchronize(second));
	assert_int_equal(*pinned, 4);
	ok(cuEventElapsedTime(&time, event, event));
	ok(cuEventDestroy(event));
	ok(cuStreamDestroy(first));
	ok(cuStreamDestroy(second));
	ok(cuMemFreeHost(pinned));
	ok(cuMemFree(address));
}

/*
 * Another process opens the memory; one's own handle, and one of a process that has ended, are
 * refused.
 */
static void ipc_between_processes(void **state)
{
	int to_parent[2], to_child[2], status;
	CUipcMemHandle handle;
	CUdeviceptr mapped;
	char text[16] = "";
	pid_t child;

	(void)state;
	assert_false(pipe(to_parent) || pipe(to_child));
	/*
	 * The emulator's threads do not survive a fork, so the exporter is a new program: this one,
	 * with an argument.
	 */
	child = fork();
	if (child == 0) {
		dup2(to_parent[1], 10);
		dup2(to_child[0], 11);
		execl("/proc/self/exe", "test_emu", "export", NULL);
		_exit(9);
	}
	assert_int_equal(read(to_parent[0], &handle, sizeof(handle)), sizeof(handle));
	ok(cuIpcOpenMemHandle(&mapped, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	ok(cuMemcpyDtoH(text, mapped, 9));
	assert_string_equal(text, "exported");
	ok(cuMemcpyHtoD(mapped, "answered", 9));
	ok(cuCtxSynchronize());
	assert_int_equal(write(to_child[1], "x", 1), 1);
	waitpid(child, &status, 0);
	assert_int_equal(WEXITSTATUS(status), 0);
	/* The bytes outlive the exporter while they are mapped. */
	ok(cuMemcpyDtoH(text, mapped, 9));
	assert_string_equal(text, "answered");
	ok(cuIpcCloseMemHandle(mapped));
	assert_int_not_equal(cuIpcOpenMemHandle(&mapped, handle, 0), CUDA_SUCCESS);

	CUdeviceptr own = make(100);
	ok(cuIpcGetMemHandle(&handle, own));
	assert_int_not_equal(cuIpcOpenMemHandle(&mapped, handle, 0), CUDA_SUCCESS);
	ok(cuMemFree(own));
}

static int export_memory(void)
{
	CUipcMemHandle handle;
	CUdeviceptr block, address;
	char text[16], byte;

	if (set_up(NULL) || cuMemAlloc(&block, 700) || cuMemAlloc(&address, 100) ||
	    cuMemcpyHtoD(address, "exported", 9) || cuCtxSynchronize() ||
	    cuIpcGetMemHandle(&handle, address) ||
	    write(10, &handle, sizeof(handle)) != sizeof(handle) || read(11, &byte, 1) != 1 ||
	    cuMemcpyDtoH(text, address, 9))
		return 1;
	return strcmp(text, "answered") != 0;
}

/* A fatbin's first bytes are all that the emulator looks at. */
static const unsigned char image[16] = {0x50, 0xed, 0x55, 0xba};

/* Run emu_rotate on 3 blocks of 2 threads. */
static void rotate(uint64_t array, bool with_barrier)
{
	struct {
		uint64_t array, barrier;
	} args = {array, with_barrier};
	void *parameters[] = {&args};
	CUfunction function;
	CUmodule module;

	ok(cuModuleLoadData(&module, image));
	ok(cuModuleGetFunction(&function, module, "emu_rotate"));
	ok(cuLaunchKernel(function, 3, 1, 1, 2, 1, 1, 0, NULL, parameters, NULL));
}

/* Whether each block was shifted round by one. */
static bool rotates(bool with_barrier)
{
	uint64_t numbers[6] = {1, 2, 3, 4, 5, 6}, want[6] = {2, 1, 4, 3, 6, 5}, array = make(48);

	ok(cuMemcpyHtoD(array, numbers, sizeof(numbers)));
	rotate(array, with_barrier);
	ok(cuMemcpyDtoH(numbers, array, sizeof(numbers)));
	ok(cuMemFree(array));
	return !memcmp(numbers, want, sizeof(want));
}

static void a_missing_barrier_shows(void **state)
{
	(void)state;
	assert_true(rotates(true));
	assert_false(rotates(false));
}

/*
 * In a process of its own: kernels on memory that is pinned, and, if told to, on what is pinned no
 * longer.
 */
static int touch_pinned(bool to_the_end)
{
	static _Alignas(4096) uint64_t registered[512];
	uint64_t *allocated;

	ok(cuMemAllocHost((void **)&allocated, 4096));
	for (int i = 0; i < 2; i++) {
		ok(cuMemHostRegister(registered, sizeof(registered), 0));
		rotate((uintptr_t)allocated, true);
		rotate((uintptr_t)registered, true);
		ok(cuCtxSynchronize());
		ok(cuMemHostUnregister(registered));
	}
	rotate((uintptr_t)allocated, true);
	if (!to_the_end)
		rotate((uintptr_t)registered, true);
	ok(cuCtxSynchronize());
	return 0;
}

static void run_again(void *argument)
{
	execl("/proc/self/exe", "test_emu", argument, NULL);
}

/* They remember where it is, but no longer than it is. */
static void kernels_touch_pinned_memory_only(void **state)
{
	(void)state;
	assert_int_equal(signal_of(run_again, "pinned"), 0);
	assert_int_equal(signal_of(run_again, "unpinned"), SIGABRT);
}

static void unknown_kernels_and_images_are_refused(void **state)
{
	CUfunction function;
	CUmodule module;

	(void)state;
	assert_int_not_equal(cuModuleLoadData(&module, "no image at all"), CUDA_SUCCESS);
	ok(cuModuleLoadData(&module, image));
	assert_int_equal(cuModuleGetFunction(&function, module, "nonsense"), CUDA_ERROR_NOT_FOUND);
}

static const char library_text[] =
	".version 8.0\n.target sm_80\n.address_size 64\n"
	".visible .global .align 4 .u32 total;\n"
	".visible .entry adds(.param .u32 adds_param_0)\n{\n.reg .b32 %r<4>;\n"
	"ld.param.u32 %r1, [adds_param_0]; ld.global.u32 %r2, [total];\n"
	"add.u32 %r2, %r2, %r1; st.global.u32 [total], %r2; ret;\n}\n"
	".visible .entry clears()\n{\n.reg .b32 %r<4>;\n"
	"mov.u32 %r1, 0; st.global.u32 [total], %r1; ret;\n}\n";

static uint32_t total_of(CUlibrary library)
{
	CUdeviceptr address;
	uint32_t total = 99;
	size_t bytes = 0;

	ok(cuLibraryGetGlobal(&address, &bytes, library, "total"));
	assert_int_equal(bytes, sizeof(total));
	ok(cuMemcpyDtoH(&total, address, sizeof(total)));
	return total;
}

/* A launch may be given the kernel as it is, or its function. */
static void add_to_total(CUkernel kernel, uint32_t number)
{
	void *parameters[] = {&number};
	CUfunction function;

	ok(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
	ok(cuKernelGetFunction(&function, kernel));
	ok(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
	ok(cuCtxSynchronize());
}

/* What came with later versions of CUDA 12. */
static void look_at_kernels(CUlibrary library, CUkernel first)
{
#if CUDA_VERSION >= 12050
	CUkernel kernels[4] = {NULL};
	CUlibrary owner;
	const char *name;
	unsigned num = 0;

	ok(cuLibraryGetKernelCount(&num, library));
	assert_int_equal(num, 2);
	ok(cuLibraryEnumerateKernels(kernels, 4, library));
	assert_ptr_equal(kernels[0], first);
	ok(cuKernelGetName(&name, kernels[1]));
	assert_string_equal(name, "clears");
	ok(cuKernelGetLibrary(&owner, first));
	assert_ptr_equal(owner, library);
#else
	(void)library;
	(void)first;
#endif
}

static CUcontext another_context(void)
{
	CUcontext other;

#if CUDA_VERSION >= 13000
	ok(cuCtxCreate(&other, NULL, 0, 0));
#else
	ok(cuCtxCreate(&other, 0, 0));
#endif
	return other;
}

static void libraries_are_for_all_contexts(void **state)
{
	char path[] = "/tmp/test_emu_XXXXXX";
	CUkernel kernel;
	CUlibrary library, from_file;
	CUcontext other;
	int threads = 0, fd;

	(void)state;
	assert_int_not_equal(cuLibraryLoadData(&library, "no image", NULL, NULL, 0, NULL, NULL, 0),
			     CUDA_SUCCESS);
	ok(cuLibraryLoadData(&library, library_text, NULL, NULL, 0, NULL, NULL, 0));
	assert_int_equal(cuLibraryGetKernel(&kernel, library, "total"), CUDA_ERROR_NOT_FOUND);
	ok(cuLibraryGetKernel(&kernel, library, "adds"));
	look_at_kernels(library, kernel);
	ok(cuKernelGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, 0));
	assert_int_equal(threads, 1024);
	add_to_total(kernel, 5);
	assert_int_equal(total_of(library), 10);
	/* Another context has variables of its own. */
	other = another_context();
	add_to_total(kernel, 1);
	assert_int_equal(total_of(library), 2);
	ok(cuCtxDestroy(other));
	ok(cuCtxSetCurrent(context));
	assert_int_equal(total_of(library), 10);
	ok(cuLibraryUnload(library));

	fd = mkstemp(path);
	assert_int_equal(write(fd, library_text, strlen(library_text)), strlen(library_text));
	close(fd);
	ok(cuLibraryLoadFromFile(&from_file, path, NULL, NULL, 0, NULL, NULL, 0));
	unlink(path);
	ok(cuLibraryGetKernel(&kernel, from_file, "adds"));
	add_to_total(kernel, 7);
	assert_int_equal(total_of(from_file), 14);
	ok(cuLibraryUnload(from_file));
	assert_int_equal(cuLibraryLoadFromFile(&from_file, path, NULL, NULL, 0, NULL, NULL, 0),
			 CUDA_ERROR_FILE_NOT_FOUND);
}

static void pool_memory_has_no_legacy_ipc(void **state)
{
	CUdeviceptr address;
	CUipcMemHandle handle;
	unsigned capable = 9, on = 1;
	CUcontext owner = context;

	(void)state;
	ok(cuMemAllocAsync(&address, 100, 0));
	assert_int_not_equal(cuIpcGetMemHandle(&handle, address), CUDA_SUCCESS);
	ok(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
				 address));
	assert_int_equal(capable, 0);
	ok(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, address));
	assert_null(owner);
	assert_int_not_equal(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address),
			     CUDA_SUCCESS);
	ok(cuMemFreeAsync(address, 0));
}

static void virtual_memory(void **state)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes =
					    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle handle, imported;
	CUdeviceptr first, second;
	size_t size = 4 << 20;
	int fd;
	char text[8];

	(void)state;
	ok(cuMemCreate(&handle, size, &prop, 0));
	ok(cuMemAddressReserve(&first, size, 0, 0, 0));
	ok(cuMemAddressReserve(&second, size, 0, 0, 0));
	assert_int_not_equal(cuMemcpyHtoD(first, "vmm", 4), CUDA_SUCCESS);
	ok(cuMemMap(first, size, 0, handle, 0));
	ok(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	ok(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd,
					  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	ok(cuMemMap(second, size, 0, imported, 0));
	ok(cuMemcpyHtoD(first, "vmm", 4));
	ok(cuMemcpyDtoH(text, second, 4));
	assert_string_equal(text, "vmm");
	ok(cuMemUnmap(first, size));
	ok(cuMemUnmap(second, size));
	ok(cuMemAddressFree(first, size));
	ok(cuMemAddressFree(second, size));
	ok(cuMemRelease(handle));
	ok(cuMemRelease(imported));
}

static void a_reset_context_is_another(void **state)
{
	unsigned long long before, after;
	CUdeviceptr address = make(10);

	(void)state;
	ok(cuCtxGetId(NULL, &before));
	ok(cuDevicePrimaryCtxReset(0));
	assert_int_equal(cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
	ok(cuDevicePrimaryCtxRetain(&context, 0));
	ok(cuCtxSetCurrent(context));
	ok(cuCtxGetId(NULL, &after));
	assert_true(before != after);
}

static void a_context_is_needed(void **state)
{
	CUcontext saved;
	CUdeviceptr address;
	CUstream stream;

	(void)state;
	ok(cuCtxPopCurrent(&saved));
	assert_int_equal(cuMemAlloc(&address, 1), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(cuStreamCreate(&stream, 0), CUDA_ERROR_INVALID_CONTEXT);
	ok(cuCtxPushCurrent(saved));
}

static void memory_is_finite(void **state)
{
	size_t unused, total;
	CUdeviceptr address;

	(void)state;
	ok(cuMemGetInfo(&unused, &total));
	assert_int_equal(cuMemAlloc(&address, total + 1), CUDA_ERROR_OUT_OF_MEMORY);
}

static void look_up_honours_versions(void **state)
{
	void *old, *new, *missing;

	(void)state;
	ok(cuGetProcAddress("cuCtxCreate", &old, 11000, 0, NULL));
	ok(cuGetProcAddress("cuCtxCreate", &new, 13000, 0, NULL));
	assert_true(old && new &&old != new);
	assert_int_equal(cuGetProcAddress("cuNoSuchThing", &missing, 13000, 0, NULL),
			 CUDA_ERROR_NOT_FOUND);
}

static void call_by_name(void *name)
{
	void (*function)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, name);

	if (function)
		function();
}

static void what_is_not_covered_ends_the_program(void **state)
{
	(void)state;
	assert_int_equal(signal_of(call_by_name, "cuTexRefCreate"), SIGABRT);
	assert_int_equal(signal_of(call_by_name, "cuGraphCreate"), SIGABRT);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(host_access_faults),
		cmocka_unit_test(host_access_to_managed_memory_works),
		cmocka_unit_test(small_allocations_share_a_block),
		cmocka_unit_test(copies_outside_an_allocation_are_refused),
		cmocka_unit_test(fills_are_late),
		cmocka_unit_test(fills_wait_with_sync_memops),
		cmocka_unit_test(streams_are_ordered_as_promised),
		cmocka_unit_test(events_order_streams),
		cmocka_unit_test(ipc_between_processes),
		cmocka_unit_test(a_missing_barrier_shows),
		cmocka_unit_test(kernels_touch_pinned_memory_only),
		cmocka_unit_test(unknown_kernels_and_images_are_refused),
		cmocka_unit_test(libraries_are_for_all_contexts),
		cmocka_unit_test(pool_memory_has_no_legacy_ipc),
		cmocka_unit_test(virtual_memory),
		cmocka_unit_test(a_reset_context_is_another),
		cmocka_unit_test(a_context_is_needed),
		cmocka_unit_test(memory_is_finite),
		cmocka_unit_test(look_up_honours_versions),
		cmocka_unit_test(what_is_not_covered_ends_the_program),
	};

	if (argc > 1 && !strcmp(argv[1], "export"))
		return export_memory();
	if (argc > 1)
		return set_up(NULL) || touch_pinned(!strcmp(argv[1], "pinned"));
	return cmocka_run_group_tests(tests, set_up, NULL);
}
