/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What happens around the calls: late work on buffers, memory that is freed and allocated again,
 * pools and pieces of virtual memory, errors, threads, many communicators, resets, forks, exits.
 *
 *     test_life CASE        one of the names in the table at the end; some need 2 ranks or more
 */
#include "test.h"

#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* All elements of a device array have this value. */
static bool all_are(const int *device, int count, int value)
{
	int *host = malloc((size_t)count * sizeof(int));
	bool ok = true;

	cuda_check(cudaMemcpy(host, device, (size_t)count * sizeof(int), cudaMemcpyDeviceToHost),
		   "cudaMemcpy");
	for (int i = 0; i < count && ok; i++)
		ok = host[i] == value;
	free(host);
	return ok;
}

static void put_all(int *device, int count, int value)
{
	int *host = malloc((size_t)count * sizeof(int));

	for (int i = 0; i < count; i++)
		host[i] = value;
	cuda_check(cudaMemcpy(device, host, (size_t)count * sizeof(int), cudaMemcpyHostToDevice),
		   "cudaMemcpy");
	free(host);
}

static bool allreduce_works(int *send, int *recv, int count, MPI_Comm comm)
{
	int size, want = 0, rank;

	MPI_Comm_size(comm, &size);
	MPI_Comm_rank(comm, &rank);
	put_all(send, count, rank + 1);
	want = size * (size + 1) / 2;
	return MPI_Allreduce(send, recv, count, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS &&
	       all_are(recv, count, want);
}

/* cudaMemset returns before it is done; MPI is called right after, as OSU's benchmarks do. */
static void late_work(void)
{
	enum { COUNT = 1 << 20 };

	for (int i = 0; i < 20; i++) {
		int *send, *recv, value = 0x01010101 * (i % 7);

		snprintf(test_name, sizeof(test_name), "late memset %d", i);
		cuda_check(cudaMalloc((void **)&send, COUNT * sizeof(int)), "cudaMalloc");
		cuda_check(cudaMalloc((void **)&recv, COUNT * sizeof(int)), "cudaMalloc");
		cuda_check(cudaMemset(send, i % 7, COUNT * sizeof(int)), "cudaMemset");
		cuda_check(cudaMemset(recv, 0xff, COUNT * sizeof(int)), "cudaMemset");
		MPI_Allreduce(send, recv, COUNT, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
		bool ok = all_are(recv, COUNT, value);
		/*
		 * And again: by now the allocation is known, and the fill of the receive buffer
		 * must not come late.
		 */
		cuda_check(cudaMemset(send, (i + 1) % 7, COUNT * sizeof(int)), "cudaMemset");
		cuda_check(cudaMemset(recv, 0xff, COUNT * sizeof(int)), "cudaMemset");
		MPI_Allreduce(send, recv, COUNT, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
		test_result(ok && all_are(recv, COUNT, 0x01010101 * ((i + 1) % 7)));
		cuda_check(cudaFree(send), "cudaFree");
		cuda_check(cudaFree(recv), "cudaFree");
	}
}

/*
 * While a graph is captured, on a stream that the legacy stream waits for or on another, most calls
 * of the driver would break the capture: collectives go on all the same, also on new buffers.
 */
static void capture(void)
{
	enum { COUNT = 5000 };
	static const unsigned flags[] = {cudaStreamDefault, cudaStreamNonBlocking};
	int *send, *recv, *other;

	cuda_check(cudaMalloc((void **)&other, COUNT * sizeof(int)), "cudaMalloc");
	for (int i = 0; i < 4; i++) {
		cudaStream_t stream;
		cudaGraph_t graph;

		snprintf(test_name, sizeof(test_name), "capture %d", i);
		cuda_check(cudaMalloc((void **)&send, COUNT * sizeof(int)), "cudaMalloc");
		cuda_check(cudaMalloc((void **)&recv, COUNT * sizeof(int)), "cudaMalloc");
		cuda_check(cudaMemset(send, i + 1, COUNT * sizeof(int)), "cudaMemset");
		cuda_check(cudaMemset(recv, 0xff, COUNT * sizeof(int)), "cudaMemset");
		cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
		cuda_check(cudaStreamCreateWithFlags(&stream, flags[i % 2]), "cudaStreamCreate");
		cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal),
			   "cudaStreamBeginCapture");
		cuda_check(cudaMemsetAsync(other, 0, COUNT * sizeof(int), stream),
			   "cudaMemsetAsync");
		MPI_Allreduce(send, recv, COUNT, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
		MPI_Bcast(send, COUNT, MPI_INT, 0, MPI_COMM_WORLD);
		cuda_check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
		test_result(all_are(recv, COUNT, 0x01010101 * (i + 1)));
		cuda_check(cudaGraphDestroy(graph), "cudaGraphDestroy");
		cuda_check(cudaStreamDestroy(stream), "cudaStreamDestroy");
		cuda_check(cudaFree(send), "cudaFree");
		cuda_check(cudaFree(recv), "cudaFree");
	}
	cuda_check(cudaFree(other), "cudaFree");
}

/* The same addresses again and again, small and large, and host memory in between. */
static void reallocation(void)
{
	static const int counts[] = {1, 1000, 300000, 7, 70000};

	for (int i = 0; i < 50; i++) {
		int count = counts[i % 5], *send, *recv;

		snprintf(test_name, sizeof(test_name), "reallocation %d", i);
		cuda_check(cudaMalloc((void **)&send, (size_t)count * sizeof(int)), "cudaMalloc");
		cuda_check(cudaMalloc((void **)&recv, (size_t)count * sizeof(int)), "cudaMalloc");
		test_result(allreduce_works(send, recv, count, MPI_COMM_WORLD));
		cuda_check(cudaFree(send), "cudaFree");
		cuda_check(cudaFree(recv), "cudaFree");
	}
}

/* Memory without a context: from cudaMallocAsync's pool, and mapped by hand. */
static void pool_memory(void)
{
	enum { COUNT = 5000 };
	int *send, *recv;

	snprintf(test_name, sizeof(test_name), "pool memory");
	cuda_check(cudaMallocAsync((void **)&send, COUNT * sizeof(int), 0), "cudaMallocAsync");
	cuda_check(cudaMallocAsync((void **)&recv, COUNT * sizeof(int), 0), "cudaMallocAsync");
	for (int i = 0; i < 5; i++) {
		cuda_check(cudaMemset(send, i, COUNT * sizeof(int)), "cudaMemset");
		MPI_Allreduce(send, recv, COUNT, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
		test_result(all_are(recv, COUNT, 0x01010101 * i));
	}
	cuda_check(cudaFreeAsync(send, 0), "cudaFreeAsync");
	cuda_check(cudaFreeAsync(recv, 0), "cudaFreeAsync");
}

/* 8 MiB, which take one window each, or several rounds. */
static void pool_windows(void)
{
	enum { COUNT = 2 << 20 };
	int *send, *recv;
	bool ok = true;

	cuda_check(cudaMallocAsync((void **)&send, COUNT * sizeof(int), 0), "cudaMallocAsync");
	cuda_check(cudaMallocAsync((void **)&recv, COUNT * sizeof(int), 0), "cudaMallocAsync");
	for (int i = 0; i < 3; i++)
		ok &= allreduce_works(send, recv, COUNT, MPI_COMM_WORLD);
	test_result(ok);
	cuda_check(cudaFreeAsync(send, 0), "cudaFreeAsync");
	cuda_check(cudaFreeAsync(recv, 0), "cudaFreeAsync");
}

/*
 * Memory of the virtual memory API, which may or may not be made to be shared: `num` allocations of
 * `bytes` each, side by side.
 */
static bool vmm_on_host; /* on a NUMA node of the host's */

static void vmm_map(CUdeviceptr at, size_t bytes, bool shareable)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
	CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	int device;

	cuda_check(cudaGetDevice(&device), "cudaGetDevice");
	prop.location.id = device;
	if (shareable)
		prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	access.location = prop.location;
#if CUDA_VERSION >= 12020
	if (vmm_on_host)
		prop.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST_NUMA};
#endif
	cuda_check((cudaError_t)cuMemCreate(&handle, bytes, &prop, 0), "cuMemCreate");
	cuda_check((cudaError_t)cuMemMap(at, bytes, 0, handle, 0), "cuMemMap");
	cuda_check((cudaError_t)cuMemRelease(handle), "cuMemRelease");
	cuda_check((cudaError_t)cuMemSetAccess(at, bytes, &access, 1), "cuMemSetAccess");
}

static CUdeviceptr vmm_alloc(size_t bytes, int num, bool shareable)
{
	CUdeviceptr address;

	cuda_check((cudaError_t)cuMemAddressReserve(&address, (size_t)num * bytes, 0, 0, 0),
		   "cuMemAddressReserve");
	for (int i = 0; i < num; i++)
		vmm_map(address + (size_t)i * bytes, bytes, shareable);
	return address;
}

static void vmm_free(CUdeviceptr address, size_t bytes, int num)
{
	for (int i = 0; i < num; i++)
		cuda_check((cudaError_t)cuMemUnmap(address + (size_t)i * bytes, bytes),
			   "cuMemUnmap");
	cuda_check((cudaError_t)cuMemAddressFree(address, (size_t)num * bytes), "cuMemAddressFree");
}

/* As PyTorch's expandable segments: other memory comes to where some was given back. */
static void vmm_remapped(void)
{
	enum { ROUNDS = 6, COUNT = 200000 };
	size_t bytes = 2 << 20;
	CUdeviceptr send = vmm_alloc(bytes, 2, true), recv = vmm_alloc(bytes, 2, true);
	CUdeviceptr sent = send + bytes, received = recv + bytes;

	snprintf(test_name, sizeof(test_name), "other memory at the same address");
	for (int round = 0; round < ROUNDS; round++) {
		bool ok = true;

		for (int i = 0; i < 3; i++)
			ok &= allreduce_works((int *)sent, (int *)received, COUNT, MPI_COMM_WORLD);
		test_result(ok);
		if (round % test_size != test_rank)
			continue;
		/* Who still had what was there would see it. */
		put_all((int *)sent, COUNT, -77);
		cuda_check((cudaError_t)cuMemUnmap(sent, bytes), "cuMemUnmap");
		vmm_map(sent, bytes, true);
		cuda_check((cudaError_t)cuMemUnmap(received, bytes), "cuMemUnmap");
		vmm_map(received, bytes, true);
	}
	vmm_free(send, bytes, 2);
	vmm_free(recv, bytes, 2);
}

/* In place, the result in the first of `count` elements for each rank. */
static bool reduce_scatter_works(int *buffer, int count)
{
	int num = count * test_size, *values = malloc((size_t)num * sizeof(*values));
	bool ok = true;

	for (int i = 0; i < num; i++)
		values[i] = 1000 * test_rank + i % 977;
	cuda_check(cudaMemcpy(buffer, values, (size_t)num * sizeof(*values), cudaMemcpyDefault),
		   "cudaMemcpy");
	MPI_Reduce_scatter_block(MPI_IN_PLACE, buffer, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	cuda_check(cudaMemcpy(values, buffer, (size_t)count * sizeof(*values), cudaMemcpyDefault),
		   "cudaMemcpy");
	for (int i = 0; i < count; i++)
		ok &= values[i] == 1000 * (test_size * (test_size - 1) / 2) +
					   test_size * ((test_rank * count + i) % 977);
	free(values);
	return ok;
}

/* New memory in each round, so that descriptors are passed in each. */
static void vmm(bool shareable, int num, int count)
{
	enum { ROUNDS = 8 };
	size_t bytes = 2 << 20;

	snprintf(test_name, sizeof(test_name), "memory of the virtual memory API, %sshareable",
		 shareable ? "" : "not ");
	for (int round = 0; round < ROUNDS; round++) {
		CUdeviceptr send = vmm_alloc(bytes, num, shareable);
		CUdeviceptr recv = vmm_alloc(bytes, num, shareable);
		bool ok = true;

		for (int i = 0; i < 3; i++)
			ok &= allreduce_works((int *)send + i, (int *)recv, count + round,
					      MPI_COMM_WORLD);
		/* In one alone, and then in another, of which nobody has mapped anything. */
		for (int i = 0; i < num; i++)
			ok &= allreduce_works((int *)(send + (size_t)i * bytes),
					      (int *)(recv + (size_t)i * bytes), 200000,
					      MPI_COMM_WORLD);
		/* Of several, the result is in the first. */
		ok &= reduce_scatter_works((int *)send, count / test_size);
		test_result(ok);
		vmm_free(send, bytes, num);
		vmm_free(recv, bytes, num);
	}
}

/* The driver says that it is the host's, and the CPU may not touch it. */
static void vmm_host(void)
{
	vmm_on_host = true;
	vmm(false, 1, 5000);
}

/* Memory of a pool that was made to be shared. */
static void shared_pool(void)
{
	enum { COUNT = 50000 };
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				.location.type = CU_MEM_LOCATION_TYPE_DEVICE};
	CUmemoryPool pool;
	int device;

	snprintf(test_name, sizeof(test_name), "memory of a shared pool");
	cuda_check(cudaGetDevice(&device), "cudaGetDevice");
	props.location.id = device;
	cuda_check((cudaError_t)cuMemPoolCreate(&pool, &props), "cuMemPoolCreate");
	for (int round = 0; round < 8; round++) {
		CUdeviceptr send, recv;
		bool ok = true;

		cuda_check((cudaError_t)cuMemAllocFromPoolAsync(&send, 4 * COUNT + 8, pool, 0),
			   "cuMemAllocFromPoolAsync");
		cuda_check((cudaError_t)cuMemAllocFromPoolAsync(&recv, 4 * COUNT, pool, 0),
			   "cuMemAllocFromPoolAsync");
		cuda_check(cudaStreamSynchronize(0), "cudaStreamSynchronize");
		for (int i = 0; i < 3; i++)
			ok &= allreduce_works((int *)send + i % 2, (int *)recv, COUNT - round,
					      MPI_COMM_WORLD);
		/* On no communicator. */
		ok &= MPI_Reduce_local((int *)send, (int *)recv, 10, MPI_INT, MPI_SUM) ==
		      MPI_SUCCESS;
		test_result(ok);
		cuda_check((cudaError_t)cuMemFreeAsync(send, 0), "cuMemFreeAsync");
		cuda_check((cudaError_t)cuMemFreeAsync(recv, 0), "cuMemFreeAsync");
	}
	cuda_check((cudaError_t)cuMemPoolDestroy(pool), "cuMemPoolDestroy");
}

static void vmm_memory(void)
{
	vmm(true, 1, 200000);
}

static void vmm_private(void)
{
	vmm(false, 1, 200000);
}

/* As PyTorch's expandable segments: buffers that begin in one allocation and end in another. */
static void vmm_pieces(void)
{
	vmm(true, 3, 1000000);
}

static CUresult create_context(CUcontext *context, CUdevice device)
{
#if CUDA_VERSION >= 13000
	return cuCtxCreate(context, NULL, 0, device);
#else
	return cuCtxCreate(context, 0, device);
#endif
}

/*
 * Device memory inside another context than the one that is current, and a current context that
 * must stay.
 */
static void other_context(void)
{
	CUcontext before, created, after;
	CUdevice device;
	CUdeviceptr send, recv;

	snprintf(test_name, sizeof(test_name), "other context");
	cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
	cuCtxGetCurrent(&before);
	cuCtxGetDevice(&device);
	cuda_check((cudaError_t)create_context(&created, device), "cuCtxCreate");
	cuda_check((cudaError_t)cuMemAlloc(&send, 4000), "cuMemAlloc");
	cuda_check((cudaError_t)cuMemAlloc(&recv, 4000), "cuMemAlloc");
	cuCtxPopCurrent(&after);
	bool ok = allreduce_works((int *)send, (int *)recv, 1000, MPI_COMM_WORLD);
	cuCtxGetCurrent(&after);
	test_result(ok && after == before);
	cuda_check((cudaError_t)cuCtxDestroy(created), "cuCtxDestroy");
	/* The streams that were made in it are gone with it. */
	int *again_send, *again_recv;
	cuda_check(cudaMalloc((void **)&again_send, 4000), "cudaMalloc");
	cuda_check(cudaMalloc((void **)&again_recv, 4000), "cudaMalloc");
	test_result(allreduce_works(again_send, again_recv, 1000, MPI_COMM_WORLD));
}

/* The device's other context is at work, too: one of the two may map what other processes have. */
static void two_contexts(void)
{
	CUcontext created, ignored;
	CUdevice device;
	CUdeviceptr mine[2];
	int *others[2];
	bool ok = true;

	for (int i = 0; i < 2; i++)
		cuda_check(cudaMalloc((void **)&others[i], 400000), "cudaMalloc");
	cuCtxGetDevice(&device);
	cuda_check((cudaError_t)create_context(&created, device), "cuCtxCreate");
	for (int i = 0; i < 2; i++)
		cuda_check((cudaError_t)cuMemAlloc(&mine[i], 400000), "cuMemAlloc");
	cuCtxPopCurrent(&ignored);
	for (int i = 0; i < 30; i++) {
		ok &= allreduce_works(others[0], others[1], 100000 - i, MPI_COMM_WORLD);
		ok &= allreduce_works((int *)mine[0], (int *)mine[1], 100000 - i, MPI_COMM_WORLD);
	}
	test_result(ok);
	cuda_check((cudaError_t)cuCtxDestroy(created), "cuCtxDestroy");
}

/* A reset between collectives, and one before MPI_Finalize. */
static void reset(void)
{
	for (int i = 0; i < 3; i++) {
		int *send, *recv;

		snprintf(test_name, sizeof(test_name), "reset %d", i);
		cuda_check(cudaMalloc((void **)&send, 400000), "cudaMalloc");
		cuda_check(cudaMalloc((void **)&recv, 400000), "cudaMalloc");
		test_result(allreduce_works(send, recv, 100000, MPI_COMM_WORLD));
		cuda_check(cudaDeviceReset(), "cudaDeviceReset");
	}
}

/* Wrong arguments give the error class that the real MPI gives for the same call on host memory. */
static bool same_error(int host, int device, const char *what)
{
	int host_class, device_class;

	MPI_Error_class(host, &host_class);
	MPI_Error_class(device, &device_class);
	if (host_class != device_class)
		fprintf(stderr, "rank %d: %s: error class %d, on host buffers %d\n", test_rank,
			what, device_class, host_class);
	return host_class == device_class && host_class != MPI_SUCCESS;
}

static void errors(void)
{
	struct buffer a = buffer_new(PLACE_DEVICE, 64), b = buffer_new(PLACE_DEVICE, 64);
	unsigned char untouched[64], c[64], d[64];
	MPI_Comm comm;

	snprintf(test_name, sizeof(test_name), "errors");
	memset(untouched, POISON, sizeof(untouched));
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	bool ok = same_error(MPI_Allreduce(c, d, -1, MPI_INT, MPI_SUM, comm),
			     MPI_Allreduce(a.data, b.data, -1, MPI_INT, MPI_SUM, comm),
			     "negative count");
	ok &= same_error(MPI_Bcast(c, 1, MPI_INT, test_size, comm),
			 MPI_Bcast(a.data, 1, MPI_INT, test_size, comm), "root out of range");
	ok &= same_error(MPI_Allreduce(c, d, 1, MPI_DATATYPE_NULL, MPI_SUM, comm),
			 MPI_Allreduce(a.data, b.data, 1, MPI_DATATYPE_NULL, MPI_SUM, comm),
			 "null datatype");
	ok &= same_error(MPI_Allreduce(c, d, 1, MPI_INT, MPI_OP_NULL, comm),
			 MPI_Allreduce(a.data, b.data, 1, MPI_INT, MPI_OP_NULL, comm), "null op");
	ok &= buffer_equals(&b, untouched, "after errors");
	test_result(ok);
	MPI_Comm_free(&comm);
	buffer_free(&a);
	buffer_free(&b);
}

/*
 * Under CUEMU_FAULT: a driver call that the library makes fails. The call returns the right result,
 * or an MPI error with the receive buffer as it was.
 */
static void fault(void)
{
	enum { COUNT = 30000, BYTES = COUNT * sizeof(int) };
	struct buffer a = buffer_new(PLACE_DEVICE, BYTES), b = buffer_new(PLACE_DEVICE, BYTES);
	int *values = malloc(BYTES), result;

	snprintf(test_name, sizeof(test_name), "injected fault");
	for (int i = 0; i < COUNT; i++)
		values[i] = i;
	buffer_put(&a, values, BYTES);
	MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
	result = MPI_Allreduce(a.data, b.data, COUNT, MPI_INT, MPI_SUM, MPI_COMM_SELF);
	if (test_rank == 0)
		printf("fault: %s\n", result == MPI_SUCCESS ? "survived" : "error");
	if (result != MPI_SUCCESS)
		memset(values, POISON, BYTES);
	test_result(buffer_equals(&b, values, "after the fault"));
	free(values);
}

/* Calls on device memory of this rank alone. */
static bool fails_alone(struct buffer *buffer, int count, MPI_Comm comm)
{
	MPI_Request request = MPI_REQUEST_NULL;
	int packed[1000], position = 0;
	bool fails = MPI_Send(buffer->data, count, MPI_INT, 1, 7, comm) != MPI_SUCCESS;

	fails &= MPI_Isend(buffer->data, count, MPI_INT, 1, 7, comm, &request) != MPI_SUCCESS;
	fails &= MPI_Pack(buffer->data, 1000, MPI_INT, packed, sizeof(packed), &position, comm) !=
		 MPI_SUCCESS;
	return fails && position == 0;
}

/*
 * Rank 0's context is lost by a kernel of the application's, before the library hears of it: the
 * driver does not say any more what memory a buffer is in. Each call on device memory is an error
 * there, and collectives are on all ranks. Host memory still goes round. With TEST_FIRST the
 * library has not been on the device before.
 */
static void lost_before(void)
{
	enum { COUNT = 5000 };
	struct buffer buffer = buffer_new(PLACE_DEVICE, COUNT * sizeof(int));
	void (*add_faults)(const char *) = NULL;
	MPI_Request request = MPI_REQUEST_NULL;
	int error, sum = test_rank;
	bool alone = true;
	MPI_Comm comm;

	snprintf(test_name, sizeof(test_name), "a context that was lost before the call");
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	if (!getenv("TEST_FIRST"))
		test_result(MPI_Allreduce(MPI_IN_PLACE, buffer.data, COUNT, MPI_INT, MPI_MAX,
					  comm) == MPI_SUCCESS);
	*(void **)&add_faults = dlsym(RTLD_DEFAULT, "cuemu_add_faults");
	if (test_rank == 0) {
		add_faults("cuCtxSynchronize=700");
		alone = cudaDeviceSynchronize() != cudaSuccess;
	}
	error = MPI_Allreduce(MPI_IN_PLACE, buffer.data, COUNT, MPI_INT, MPI_MAX, comm);
	test_result(error != MPI_SUCCESS);
	test_result(MPI_Bcast(buffer.data, COUNT, MPI_INT, 0, comm) != MPI_SUCCESS);
	error = MPI_Iallreduce(MPI_IN_PLACE, buffer.data, COUNT, MPI_INT, MPI_MAX, comm, &request);
	if (error == MPI_SUCCESS)
		error = MPI_Wait(&request, MPI_STATUS_IGNORE);
	test_result(error != MPI_SUCCESS);
	if (test_rank == 0)
		alone &= fails_alone(&buffer, COUNT, comm);
	test_result(alone);
	MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, comm);
	test_result(sum == test_size * (test_size - 1) / 2);
}

enum { NUM_THREADS = 2, THREAD_CALLS = 200, THREAD_COUNT = 3000 };

static void *thread_main(void *argument)
{
	MPI_Comm comm = *(MPI_Comm *)argument;
	int *send, *recv;
	bool ok = true;

	cuda_check(cudaSetDevice(0), "cudaSetDevice");
	cuda_check(cudaMalloc((void **)&send, THREAD_COUNT * sizeof(int)), "cudaMalloc");
	cuda_check(cudaMalloc((void **)&recv, THREAD_COUNT * sizeof(int)), "cudaMalloc");
	for (int i = 0; i < THREAD_CALLS; i++)
		ok &= allreduce_works(send, recv, THREAD_COUNT, comm);
	cuda_check(cudaFree(send), "cudaFree");
	cuda_check(cudaFree(recv), "cudaFree");
	return ok ? argument : NULL;
}

/* Threads on communicators of their own, started in opposite order on odd ranks. */
static void threads(void)
{
	MPI_Comm comms[NUM_THREADS];
	pthread_t ids[NUM_THREADS];
	bool ok = true;

	snprintf(test_name, sizeof(test_name), "threads");
	for (int i = 0; i < NUM_THREADS; i++)
		MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
	for (int i = 0; i < NUM_THREADS; i++) {
		int which = test_rank % 2 ? NUM_THREADS - 1 - i : i;

		pthread_create(&ids[which], NULL, thread_main, &comms[which]);
	}
	for (int i = 0; i < NUM_THREADS; i++) {
		void *result;

		pthread_join(ids[i], &result);
		ok &= result != NULL;
	}
	test_result(ok);
	for (int i = 0; i < NUM_THREADS; i++)
		MPI_Comm_free(&comms[i]);
}

/* Rank 1 waits for a large message of rank 0, which is already in a collective on device memory. */
static void rendezvous(void)
{
	enum { BYTES = 64 << 20, COUNT = 1 << 20 };
	char *message = malloc(BYTES);
	int *send, *recv;
	MPI_Request request;

	snprintf(test_name, sizeof(test_name), "collective while a rendezvous is pending");
	memset(message, test_rank + 1, BYTES);
	cuda_check(cudaMalloc((void **)&send, COUNT * sizeof(int)), "cudaMalloc");
	cuda_check(cudaMalloc((void **)&recv, COUNT * sizeof(int)), "cudaMalloc");
	if (test_rank == 0)
		MPI_Isend(message, BYTES, MPI_BYTE, 1, 5, MPI_COMM_WORLD, &request);
	if (test_rank == 1)
		MPI_Recv(message, BYTES, MPI_BYTE, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	bool ok = allreduce_works(send, recv, COUNT, MPI_COMM_WORLD);
	if (test_rank == 0)
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	test_result(ok && (test_rank > 1 || (message[0] == 1 && message[BYTES - 1] == 1)));
	free(message);
}

/* More communicators than the board has slots and MPICH has context ids, in all constructors. */
static void communicators(void)
{
	enum { COUNT = 1200, LONG = 1 << 16 };
	int *send, *recv;
	bool ok = true;

	snprintf(test_name, sizeof(test_name), "communicators");
	cuda_check(cudaMalloc((void **)&send, LONG * sizeof(int)), "cudaMalloc");
	cuda_check(cudaMalloc((void **)&recv, LONG * sizeof(int)), "cudaMalloc");
	for (int i = 0; i < COUNT; i++) {
		int dims[1] = {test_size}, periods[1] = {1};
		MPI_Comm comm;

		if (i % 3 == 0)
			MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		else if (i % 3 == 1)
			MPI_Comm_split(MPI_COMM_WORLD, test_rank % 2, -test_rank, &comm);
		else
			MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &comm);
		ok &= allreduce_works(send, recv, 100, comm);
		/* Short calls over several nodes take no memory for messages. */
		if (i % 10 < 3)
			ok &= allreduce_works(send, recv, LONG, comm);
		MPI_Comm_free(&comm);
	}
	test_result(ok);
}

static size_t free_memory(void)
{
	size_t bytes, total;

	cuda_check(cudaMemGetInfo(&bytes, &total), "cudaMemGetInfo");
	return bytes;
}

/*
 * Communicators with messages between ranks, one after the other, most of which some member frees
 * while others are still in the last call: device memory does not get less. TEST_COMMS: how many.
 */
static void freed_communicators(void)
{
	enum { LONG = 1 << 14, WARM = 50, ARENAS = 64 << 20 };
	const char *wanted = getenv("TEST_COMMS");
	int num = wanted ? atoi(wanted) : 300, *send, *recv;
	size_t before = 0, after;
	bool ok = true;

	snprintf(test_name, sizeof(test_name), "%d freed communicators", num);
	cuda_check(cudaMalloc((void **)&send, LONG * sizeof(int)), "cudaMalloc");
	cuda_check(cudaMalloc((void **)&recv, LONG * sizeof(int)), "cudaMalloc");
	for (int i = 0; i < num; i++) {
		MPI_Comm comm;

		if (i == WARM)
			before = free_memory();
		MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		put_all(send, LONG, i);
		ok &= MPI_Allreduce(send, recv, LONG, MPI_INT, MPI_MAX, comm) == MPI_SUCCESS;
		ok &= MPI_Bcast(recv, LONG, MPI_INT, i % test_size, comm) == MPI_SUCCESS;
		MPI_Comm_free(&comm);
		ok &= all_are(recv, LONG, i);
	}
	after = free_memory();
	test_result(ok);
	if (after + ARENAS < before)
		fprintf(stderr, "rank %d: %zu MiB of the device are gone\n", test_rank,
			(before - after) >> 20);
	test_result(after + ARENAS >= before);
}

/* Short calls over several nodes take no device memory, but for the kernels; long ones do. */
static void short_calls(void)
{
	enum { LONG = 1 << 16, SOME = 1 << 20 };
	int *send, *recv;
	size_t before;
	bool ok;

	snprintf(test_name, sizeof(test_name), "short calls");
	cuda_check(cudaMalloc((void **)&send, LONG * sizeof(int)), "cudaMalloc");
	cuda_check(cudaMalloc((void **)&recv, LONG * sizeof(int)), "cudaMalloc");
	before = free_memory();
	ok = allreduce_works(send, recv, 100, MPI_COMM_WORLD);
	ok &= before - free_memory() < SOME;
	ok &= allreduce_works(send, recv, LONG, MPI_COMM_WORLD);
	ok &= before - free_memory() > SOME;
	test_result(ok && allreduce_works(send, recv, 100, MPI_COMM_WORLD));
}

/*
 * Communicators without an identity: never completed by a constructor that is collective in the
 * usual way.
 */
static void idup(void)
{
	MPI_Request request;
	MPI_Comm comm;
	int *send, *recv;

	snprintf(test_name, sizeof(test_name), "Comm_idup");
	cuda_check(cudaMalloc((void **)&send, 400), "cudaMalloc");
	cuda_check(cudaMalloc((void **)&recv, 400), "cudaMalloc");
	MPI_Comm_idup(MPI_COMM_WORLD, &comm, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	test_result(allreduce_works(send, recv, 100, comm));
	MPI_Comm_free(&comm);
}

/* A call of no elements, here or anywhere, of a type that is gone when the others come. */
static void begin_empty(int which, void *buffer, MPI_Request *request)
{
	int none[] = {0, 0}, some[] = {0, 3};
	MPI_Datatype type, copy, types[2];

	MPI_Type_contiguous(4, MPI_INT, &type);
	MPI_Type_commit(&type);
	MPI_Type_dup(type, &copy);
	types[0] = types[1] = type;
	switch (which) {
	case 0:
		MPI_Ibcast(buffer, 0, type, 0, MPI_COMM_WORLD, request);
		break;
	case 1:
		MPI_Igatherv((int *)buffer + 64, test_rank == 1 ? 3 : 0, copy, buffer, some, none,
			     type, 0, MPI_COMM_WORLD, request);
		break;
	case 2:
		MPI_Ialltoallv(buffer, none, none, type, (int *)buffer + 64, none, none, type,
			       MPI_COMM_WORLD, request);
		break;
	default:
		MPI_Ialltoallw(buffer, none, none, types, (int *)buffer + 64, none, none, types,
			       MPI_COMM_WORLD, request);
	}
	MPI_Type_free(&copy);
	MPI_Type_free(&type);
}

static void empty_types(void)
{
	static const struct timespec late = {.tv_nsec = 300000000};
	void *buffer, *blocks[256];

	cuda_check(cudaMalloc(&buffer, 4096), "cudaMalloc");
	for (int which = 0; which < 4; which++) {
		MPI_Request request;

		snprintf(test_name, sizeof(test_name), "freed types of no elements, %d", which);
		if (test_rank)
			nanosleep(&late, NULL);
		begin_empty(which, buffer, &request);
		/* What the MPI kept of the types is written over. */
		for (int i = 0; i < 256; i++)
			blocks[i] = memset(malloc(64 + 8 * (size_t)i), 0xff, 64 + 8 * (size_t)i);
		MPI_Barrier(MPI_COMM_WORLD); /* has it staged, where it is not begun */
		test_result(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
		for (int i = 0; i < 256; i++)
			free(blocks[i]);
	}
	cudaFree(buffer);
}

/* A message of one element without a gap, which the MPI counts in more than an int has bits for. */
static void large_element(void)
{
	enum { HALF = 1 << 30 };
	size_t bytes = 2 * (size_t)HALF;
	const size_t places[] = {0, HALF - 1, HALF, 2 * (size_t)HALF - 1};
	unsigned char *buffer, got;
	MPI_Datatype type;

	MPI_Type_vector(2, HALF, HALF, MPI_BYTE, &type);
	MPI_Type_commit(&type);
	cuda_check(cudaMalloc((void **)&buffer, bytes), "cudaMalloc");
	cuda_check(cudaMemset(buffer, test_rank ? 0 : 7, bytes), "cudaMemset");
	snprintf(test_name, sizeof(test_name), "an element of 2 GiB");
	if (test_rank == 0)
		MPI_Send(buffer, 1, type, 1, 0, MPI_COMM_WORLD);
	else if (test_rank == 1)
		MPI_Recv(buffer, 1, type, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	for (int i = 0; i < 4; i++) {
		cuda_check(cudaMemcpy(&got, buffer + places[i], 1, cudaMemcpyDefault),
			   "cudaMemcpy");
		test_result(got == 7);
	}
	MPI_Type_free(&type);
	cuda_check(cudaFree(buffer), "cudaFree");
}

/* Of the library's shared memory, pieces of a large page or more; how many ask for large pages. */
static int shared_pieces(int *advised)
{
	FILE *maps = fopen("/proc/self/smaps", "r");
	unsigned long start, end;
	bool ours = false;
	char line[512];
	int pieces = 0;

	*advised = 0;
	while (maps && fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			ours = strstr(line, "memfd:gpucoll") && end - start >= 2 << 20;
		else if (ours && !strncmp(line, "VmFlags:", 8)) {
			pieces++;
			*advised += strstr(line, " hg") != NULL;
		}
	}
	if (maps)
		fclose(maps);
	return pieces;
}

/* Mine and what is mapped of the other rank's. */
static void large_pages(void)
{
	enum { COUNT = 1 << 20 };
	int *send, *recv, pieces, advised;

	cuda_check(cudaMalloc((void **)&send, sizeof(int) * COUNT), "cudaMalloc");
	cuda_check(cudaMalloc((void **)&recv, sizeof(int) * COUNT), "cudaMalloc");
	snprintf(test_name, sizeof(test_name), "messages through the host's memory");
	for (int i = 0; i < 2; i++) /* the first finds that there has to be some */
		test_result(allreduce_works(send, recv, COUNT, MPI_COMM_WORLD));
	pieces = shared_pieces(&advised);
	snprintf(test_name, sizeof(test_name), "of %d pieces %d ask for large pages", pieces,
		 advised);
	test_result(pieces >= 2 && advised == pieces);
	cudaFree(send);
	cudaFree(recv);
}

/* The child of a fork uses no MPI and no CUDA; its exit must not disturb the parent. */
static void forks(void)
{
	int *send, *recv, status = -1;

	snprintf(test_name, sizeof(test_name), "fork");
	cuda_check(cudaMalloc((void **)&send, 40000), "cudaMalloc");
	cuda_check(cudaMalloc((void **)&recv, 40000), "cudaMalloc");
	bool ok = allreduce_works(send, recv, 10000, MPI_COMM_WORLD);
	pid_t child = fork();
	if (child == 0)
		_exit(7);
	waitpid(child, &status, 0);
	ok &= WIFEXITED(status) && WEXITSTATUS(status) == 7;
	test_result(ok && allreduce_works(send, recv, 10000, MPI_COMM_WORLD));
}

/* A count that an int holds, of more bytes than it does. */
static void huge(void)
{
	size_t count = ((size_t)1 << 29) + 1001; /* ints: more than 2 GiB */
	int *buffer, last = 41;

	snprintf(test_name, sizeof(test_name), "broadcast of more than 2 GiB");
	cuda_check(cudaMalloc((void **)&buffer, count * sizeof(int)), "cudaMalloc");
	cuda_check(cudaMemset(buffer, test_rank == 0 ? 7 : 0, count * sizeof(int)), "cudaMemset");
	if (test_rank == 0)
		cuda_check(cudaMemcpy(buffer + count - 1, &last, sizeof(int), cudaMemcpyDefault),
			   "cudaMemcpy");
	MPI_Bcast(buffer, (int)count, MPI_INT, 0, MPI_COMM_WORLD);
	int got[2];
	cuda_check(cudaMemcpy(got, buffer + count - 2, sizeof(got), cudaMemcpyDefault),
		   "cudaMemcpy");
	test_result(got[0] == 0x07070707 && got[1] == 41 && all_are(buffer, 1000, 0x07070707));
	cuda_check(cudaFree(buffer), "cudaFree");
}

/*
 * More elements than an int counts, through the large-count form of the call where the MPI has it.
 */
static void large_count(void)
{
#if MPI_VERSION >= 4
	size_t count = ((size_t)1 << 31) + 5; /* bytes */
	unsigned char *buffer, got[6];

	snprintf(test_name, sizeof(test_name), "broadcast of 2^31 + 5 elements");
	cuda_check(cudaMalloc((void **)&buffer, count), "cudaMalloc");
	cuda_check(cudaMemset(buffer, test_rank == 0 ? 7 : 0, count), "cudaMemset");
	MPI_Bcast_c(buffer, (MPI_Count)count, MPI_BYTE, 0, MPI_COMM_WORLD);
	cuda_check(cudaMemcpy(got, buffer + count - 6, sizeof(got), cudaMemcpyDefault),
		   "cudaMemcpy");
	for (int i = 0; i < 6; i++)
		test_result(got[i] == 7);
	cuda_check(cudaFree(buffer), "cudaFree");
#else
	snprintf(test_name, sizeof(test_name), "this MPI has no large-count calls");
	test_result(false);
#endif
}

/*
 * The last call, on host buffers, has not been made by a rank, which is late, when those that leave
 * it at once are in MPI_Finalize: they have memory for messages that was the late one's to touch.
 */
static void late_at_the_end(void)
{
	struct timespec late = {0, 500000000};
	int *send, *recv, one = 1;

	snprintf(test_name, sizeof(test_name), "late at the end");
	cuda_check(cudaMalloc((void **)&send, 400000), "cudaMalloc");
	cuda_check(cudaMalloc((void **)&recv, 400000), "cudaMalloc");
	test_result(allreduce_works(send, recv, 100000, MPI_COMM_WORLD));
	if (test_finish())
		exit(1);
	if (test_rank)
		nanosleep(&late, NULL);
	MPI_Bcast(&one, 1, MPI_INT, 0, MPI_COMM_WORLD);
	MPI_Finalize();
	exit(0);
}

#if MPI_VERSION >= 4
enum how { HOW_BLOCKING, HOW_NONBLOCKING, HOW_PERSISTENT, NUM_HOWS };

/* One element of a type that is freed at once: a call that goes on then has one of its own. */
static void broadcast(void *data, MPI_Datatype type, enum how how)
{
	MPI_Request request = MPI_REQUEST_NULL;

	if (how == HOW_BLOCKING)
		MPI_Bcast(data, 1, type, 0, MPI_COMM_WORLD);
	else if (how == HOW_NONBLOCKING)
		MPI_Ibcast(data, 1, type, 0, MPI_COMM_WORLD, &request);
	else
		MPI_Bcast_init(data, 1, type, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
	MPI_Type_free(&type);
	if (how == HOW_PERSISTENT)
		MPI_Start(&request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	if (how == HOW_PERSISTENT)
		MPI_Request_free(&request);
}

/*
 * One element of the type, whose data begin each with the root's rank, in this memory: what the
 * type covers has come, and nothing else has changed. The type is freed.
 */
static void one_element(MPI_Datatype type, enum place place, enum how how, const char *what)
{
	static const char *const hows[] = {"blocking", "nonblocking", "persistent"};
	enum { INTS = 64 };
	struct buffer buffer = buffer_new(place, INTS * sizeof(int));
	int values[INTS], want[INTS], *packed = calloc(INTS, sizeof(int)), at = 0;

	snprintf(test_name, sizeof(test_name), "%s, %s, %s", what, place ? "device" : "host",
		 hows[how]);
	MPI_Type_commit(&type);
	for (int i = 0; i < INTS; i++) {
		values[i] = 1000 * test_rank + i;
		want[i] = values[i];
	}
	/* The root's data, by the real MPI on host memory. */
	for (int i = 0; i < INTS; i++)
		values[i] = i;
	MPI_Pack(values, 1, type, packed, INTS * sizeof(int), &at, MPI_COMM_SELF);
	at = 0;
	MPI_Unpack(packed, INTS * sizeof(int), &at, want, 1, type, MPI_COMM_SELF);
	for (int i = 0; i < INTS; i++)
		values[i] = 1000 * test_rank + i;
	buffer_put(&buffer, values, sizeof(values));
	broadcast(buffer.data, type, how);
	test_result(buffer_equals(&buffer, want, what));
	buffer_free(&buffer);
	free(packed);
}

/*
 * Datatypes made by constructors with large counts, and others made of them: not to be asked about
 * as others are.
 */
static void all_makings(enum place place, enum how how)
{
	static const MPI_Count lengths[] = {2, 3}, at[] = {1, 10};
	MPI_Datatype type, inner;

	MPI_Type_contiguous_c(10, MPI_INT, &type);
	one_element(type, place, how, "contiguous_c");
	MPI_Type_vector_c(3, 2, 5, MPI_INT, &type);
	one_element(type, place, how, "vector_c");
	MPI_Type_indexed_c(2, lengths, at, MPI_INT, &type);
	one_element(type, place, how, "indexed_c");
	MPI_Type_contiguous_c(3, MPI_INT, &inner);
	MPI_Type_create_resized_c(inner, 0, 16, &type);
	MPI_Type_free(&inner);
	one_element(type, place, how, "resized_c of contiguous_c");
	MPI_Type_contiguous_c(3, MPI_INT, &inner);
	MPI_Type_dup(inner, &type);
	MPI_Type_free(&inner);
	one_element(type, place, how, "dup of contiguous_c");
	MPI_Type_contiguous_c(3, MPI_INT, &inner);
	MPI_Type_contiguous(4, inner, &type);
	MPI_Type_free(&inner);
	one_element(type, place, how, "contiguous of contiguous_c");
}
#endif

static void large_types(void)
{
#if MPI_VERSION >= 4
	for (enum how how = HOW_BLOCKING; how < NUM_HOWS; how++) {
		all_makings(PLACE_HOST, how);
		all_makings(PLACE_DEVICE, how);
	}
#else
	snprintf(test_name, sizeof(test_name), "this MPI has no large-count calls");
	test_result(false);
#endif
}

/* Killed in the middle: what is left behind is for the caller to see. */
static void killed(void)
{
	int *send, *recv;

	cuda_check(cudaMalloc((void **)&send, 10000 * sizeof(int)), "cudaMalloc");
	cuda_check(cudaMalloc((void **)&recv, 10000 * sizeof(int)), "cudaMalloc");
	test_result(allreduce_works(send, recv, 10000, MPI_COMM_WORLD));
	printf("killed: in the middle\n");
	fflush(stdout);
	if (test_rank == test_size - 1)
		raise(SIGKILL);
	MPI_Allreduce(send, recv, 10000, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

/* A large allocation, as programs take that divide it up themselves, and new small ones. */
static void large_memory(void)
{
	enum { COUNT = 1000, SMALL = 16, ROUNDS = 3 };
	int *large, *small[SMALL];
	bool ok = true;

	cuda_check(cudaMalloc((void **)&large, (size_t)20 << 30), "cudaMalloc");
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < SMALL; i++) {
			if (round == 0)
				cuda_check(cudaMalloc((void **)&small[i], 4 << 20), "cudaMalloc");
			ok &= allreduce_works(small[i], large, COUNT, MPI_COMM_WORLD);
		}
	}
	test_result(ok);
}

/* More at a time than there are slots, and then none too many. */
static void many_communicators(void)
{
	enum { MOST = 1100, COUNT = 1000 };
	static MPI_Comm comms[MOST];
	int *send, *recv;
	bool ok = true;

	cuda_check(cudaMalloc((void **)&send, COUNT * sizeof(int)), "cudaMalloc");
	cuda_check(cudaMalloc((void **)&recv, COUNT * sizeof(int)), "cudaMalloc");
	for (int i = 0; i < MOST; i++)
		MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
	for (int i = 0; i < MOST; i += 33)
		ok &= allreduce_works(send, recv, COUNT, comms[i]);
	ok &= allreduce_works(send, recv, COUNT, comms[MOST - 1]);
	for (int i = 0; i < MOST; i++)
		MPI_Comm_free(&comms[i]);
	MPI_Comm_dup(MPI_COMM_WORLD, &comms[0]);
	ok &= allreduce_works(send, recv, COUNT, comms[0]);
	MPI_Comm_free(&comms[0]);
	test_result(ok);
}

/* Rank 0 waits in a call and is stopped there, by a child; rank 1 comes late. */
static void stopped(void)
{
	enum { COUNT = 1000, SECONDS = 6 };
	pid_t parent = getpid(), child = 0;
	int *send, *recv;

	cuda_check(cudaMalloc((void **)&send, COUNT * sizeof(int)), "cudaMalloc");
	cuda_check(cudaMalloc((void **)&recv, COUNT * sizeof(int)), "cudaMalloc");
	allreduce_works(send, recv, COUNT, MPI_COMM_WORLD);
	if (test_rank == 0)
		child = fork();
	if (test_rank == 0 && !child) {
		sleep(1);
		kill(parent, SIGSTOP);
		sleep(SECONDS);
		kill(parent, SIGCONT);
		_exit(0);
	}
	if (test_rank == 1)
		sleep(SECONDS + 2);
	test_result(allreduce_works(send, recv, COUNT, MPI_COMM_WORLD));
	if (child)
		waitpid(child, NULL, 0);
}

enum { WRITTEN = 4000, QUEUED = 1 << 20 };

/* Work that keeps the default stream of the device's context busy for a while. */
static void keep_busy(int *memory)
{
	for (int i = 0; i < 40; i++)
		cuda_check(cudaMemsetAsync(memory, i, QUEUED, 0), "cudaMemsetAsync");
}

/*
 * The input is on one device, and written by synchronous calls while another is current, on whose
 * default stream they wait behind other work, and return before they are done. Cold: no collective
 * has seen the buffer.
 */
static void other_device_writes(void)
{
	for (int round = 0; round < 16; round++) {
		int *in, *out, *queue, *host = malloc(WRITTEN * sizeof(int));
		bool warm = round % 2, copies = round / 2 % 2;
		int value = round + test_rank, most = round + test_size - 1;

		cuda_check(cudaSetDevice(0), "cudaSetDevice");
		cuda_check(cudaMalloc((void **)&in, WRITTEN * sizeof(int)), "cudaMalloc");
		cuda_check(cudaMalloc((void **)&out, WRITTEN * sizeof(int)), "cudaMalloc");
		put_all(in, WRITTEN, -1);
		if (warm)
			MPI_Allreduce(in, out, WRITTEN, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
		cuda_check(cudaSetDevice(1), "cudaSetDevice");
		cuda_check(cudaMalloc((void **)&queue, QUEUED), "cudaMalloc");
		cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
		keep_busy(queue);
		for (int i = 0; i < WRITTEN; i++)
			host[i] = 0x01010101 * value;
		if (copies)
			cuda_check(
				cudaMemcpy(in, host, WRITTEN * sizeof(int), cudaMemcpyHostToDevice),
				"cudaMemcpy");
		else
			cuda_check(cudaMemset(in, value, WRITTEN * sizeof(int)), "cudaMemset");
		cuda_check(cudaSetDevice(0), "cudaSetDevice");
		MPI_Allreduce(in, out, WRITTEN, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
		test_result(all_are(out, WRITTEN, 0x01010101 * most));
		cuda_check(cudaFree(in), "cudaFree");
		cuda_check(cudaFree(out), "cudaFree");
		cuda_check(cudaFree(queue), "cudaFree");
		free(host);
	}
}

/*
 * Memory of a pool, which can't be made synchronous by itself, filled as programs do that are
 * compiled with --default-stream per-thread: by a synchronous call that returns before it is done.
 */
static void per_thread_writes(void)
{
	CUresult (*fill)(CUdeviceptr to, unsigned char value, size_t bytes);
	int *in, *out, *queue;

	*(void **)&fill = dlsym(RTLD_DEFAULT, "cuMemsetD8_v2_ptds");
	cuda_check(cudaMallocAsync((void **)&in, WRITTEN * sizeof(int), 0), "cudaMallocAsync");
	cuda_check(cudaMallocAsync((void **)&out, WRITTEN * sizeof(int), 0), "cudaMallocAsync");
	cuda_check(cudaMalloc((void **)&queue, QUEUED), "cudaMalloc");
	cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
	for (int round = 0; round < 8 && fill; round++) {
		for (int i = 0; i < 40; i++)
			cuda_check(cudaMemsetAsync(queue, i, QUEUED, cudaStreamPerThread),
				   "cudaMemsetAsync");
		fill((CUdeviceptr)in, (unsigned char)(round + test_rank), WRITTEN * sizeof(int));
		MPI_Allreduce(in, out, WRITTEN, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
		test_result(all_are(out, WRITTEN, 0x01010101 * (round + test_size - 1)));
	}
}

static const struct test_case cases[] = {
	{"many_communicators", many_communicators},
	{"stopped", stopped},
	{"other_device_writes", other_device_writes},
	{"per_thread_writes", per_thread_writes},
	{"large_memory", large_memory},
	{"late_work", late_work},
	{"capture", capture},
	{"reallocation", reallocation},
	{"pool_memory", pool_memory},
	{"pool_windows", pool_windows},
	{"shared_pool", shared_pool},
	{"vmm_memory", vmm_memory},
	{"vmm_private", vmm_private},
	{"vmm_pieces", vmm_pieces},
	{"vmm_host", vmm_host},
	{"vmm_remapped", vmm_remapped},
	{"other_context", other_context},
	{"two_contexts", two_contexts},
	{"reset", reset},
	{"errors", errors},
	{"fault", fault},
	{"lost_before", lost_before},
	{"threads", threads},
	{"rendezvous", rendezvous},
	{"communicators", communicators},
	{"freed_communicators", freed_communicators},
	{"short_calls", short_calls},
	{"idup", idup},
	{"fork", forks},
	{"huge", huge},
	{"large_element", large_element},
	{"large_pages", large_pages},
	{"empty_types", empty_types},
	{"late_at_the_end", late_at_the_end},
	{"large_count", large_count},
	{"large_types", large_types},
	{"killed", killed},
};

int main(int argc, char **argv)
{
	int provided;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
	test_start();
	return test_run_case(argv[1], cases, sizeof(cases) / sizeof(cases[0]));
}
