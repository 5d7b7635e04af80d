/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory: the arena, allocations of all kinds, what a pointer is, IPC. Copies are in emu_copy.c. */
#include "emu.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * As the hardware's driver: small allocations share blocks of 2 MiB and are aligned to 512 bytes.
 */
enum { BLOCK = 2 << 20, SMALL = 1 << 20, ALIGNMENT = 512 };

struct emu_region {
	struct emu_region *next; /* by address */
	uintptr_t address;
	size_t size, used; /* used: high-water mark of sub-allocation */
	int fd, device;
	unsigned allocs;
	bool small;
	CUcontext context;
	int exporter; /* process whose memory it is; 0: this one's */
	char *truth;  /* where copies find it, if that is elsewhere than for kernels */
};

struct entry {
	struct entry *next;
	struct emu_alloc alloc;
};

/* All below is under the lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uintptr_t arena;
static struct emu_region *regions; /* sorted */
static struct entry *entries;
static unsigned long long last_buffer_id;
static size_t memory_used[EMU_MAX_DEVICES];
static atomic_bool any_truth; /* not under the lock: some region has one, or had */

uint64_t emu_arena_start, emu_arena_bytes; /* set once, before the first address is given out */

static void reserve_arena(void)
{
	void *base;

	if (arena)
		return;
	emu_config_load();
	base = mmap(NULL, 2 * emu_config.arena, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		emu_die("can't reserve %zu bytes of address space (%s); CUEMU_ARENA sets less",
			2 * emu_config.arena, strerror(errno));
	arena = ((uintptr_t)base + BLOCK - 1) & ~(uintptr_t)(BLOCK - 1);
	emu_arena_start = arena;
	emu_arena_bytes = emu_config.arena;
}

bool emu_in_arena(uintptr_t address)
{
	return arena && address >= arena && address < arena + emu_config.arena - BLOCK;
}

void *emu_shadow(uintptr_t address)
{
	return (void *)(emu_in_arena(address) ? address + emu_config.arena : address);
}

static size_t round_up(size_t value, size_t to)
{
	return (value + to - 1) / to * to;
}

/* First fit over the gaps between regions. Returns 0 when the arena is full. */
static uintptr_t find_gap(size_t size, struct emu_region ***link)
{
	uintptr_t at = arena;

	for (*link = &regions; **link; *link = &(**link)->next) {
		if ((**link)->address - at >= size)
			return at;
		at = (**link)->address + (**link)->size;
	}
	return arena + emu_config.arena - BLOCK - at >= size ? at : 0;
}

static void map_shadow(struct emu_region *region)
{
	void *at = emu_shadow(region->address);

	if (mmap(at, region->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, region->fd, 0) ==
	    MAP_FAILED)
		emu_die("mmap of device memory: %s", strerror(errno));
}

static void unmap(uintptr_t address, size_t size)
{
	mmap((void *)address, size, PROT_NONE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/* Take address space; `fd` is owned by the region from now on, and -1 leaves it without memory. */
static struct emu_region *region_new(size_t size, int fd, int device, CUcontext context)
{
	struct emu_region *region, **link;
	uintptr_t address;

	reserve_arena();
	address = find_gap(size, &link);
	if (!address)
		return NULL;
	region = calloc(1, sizeof(*region));
	*region = (struct emu_region){.next = *link,
				      .address = address,
				      .size = size,
				      .fd = fd,
				      .device = device,
				      .context = context};
	*link = region;
	if (fd >= 0)
		map_shadow(region);
	return region;
}

static int memory_fd(size_t size)
{
	int fd = memfd_create("cuemu", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, (off_t)size))
		emu_die("memfd of %zu bytes: %s", size, strerror(errno));
	return fd;
}

static void region_free(struct emu_region *region)
{
	struct emu_region **link = &regions;

	while (*link != region)
		link = &(*link)->next;
	*link = region->next;
	unmap(region->address, region->size);
	unmap((uintptr_t)emu_shadow(region->address), region->size);
	if (region->fd >= 0)
		close(region->fd);
	if (region->truth)
		munmap(region->truth, region->size);
	free(region);
}

static struct entry *find(uintptr_t address)
{
	struct entry *entry = entries;

	while (entry && (address < entry->alloc.address ||
			 address - entry->alloc.address >= entry->alloc.size))
		entry = entry->next;
	return entry;
}

static struct emu_alloc *entry_new(uintptr_t address, size_t size, enum emu_kind kind,
				   CUcontext context, int device, struct emu_region *region)
{
	struct entry *entry = calloc(1, sizeof(*entry));

	entry->alloc = (struct emu_alloc){.address = address,
					  .size = size,
					  .kind = kind,
					  .device = device,
					  .context = context,
					  .buffer_id = ++last_buffer_id,
					  .region = region};
	entry->alloc.block_id = entry->alloc.buffer_id;
	entry->next = entries;
	entries = entry;
	if (region)
		region->allocs++;
	if (region && kind != EMU_IPC)
		memory_used[device] += size;
	return &entry->alloc;
}

atomic_uint emu_frees;

static void entry_free(struct entry *entry)
{
	struct emu_alloc *alloc = &entry->alloc;
	struct entry **link = &entries;

	while (*link != entry)
		link = &(*link)->next;
	*link = entry->next;
	atomic_fetch_add(&emu_frees, 1);
	if (alloc->kind == EMU_HOST || alloc->kind == EMU_REGISTERED)
		emu_forget_pinned();
	if (alloc->region && alloc->kind != EMU_IPC)
		memory_used[alloc->device] -= alloc->size;
	if (alloc->region && --alloc->region->allocs == 0)
		region_free(alloc->region);
	if (alloc->kind == EMU_HOST)
		munmap((void *)alloc->address, alloc->size);
	free(entry);
}

void *emu_copy_place(uintptr_t address)
{
	struct emu_region *region;
	char *place = emu_shadow(address);

	if (!atomic_load(&any_truth))
		return place;
	pthread_mutex_lock(&lock);
	for (region = regions; region; region = region->next) {
		if (region->truth && address - region->address < region->size)
			place = region->truth + (address - region->address);
	}
	pthread_mutex_unlock(&lock);
	return place;
}

bool emu_find(uintptr_t address, struct emu_alloc *out)
{
	pthread_mutex_lock(&lock);
	struct entry *entry = find(address);
	if (entry)
		*out = entry->alloc;
	pthread_mutex_unlock(&lock);
	return entry != NULL;
}

void *cuemu_reach(uintptr_t address, int change)
{
	struct entry *entry;

	pthread_mutex_lock(&lock);
	entry = find(address);
	if (entry)
		entry->alloc.uses += change;
	pthread_mutex_unlock(&lock);
	return emu_shadow(address);
}

bool emu_covers(const struct emu_alloc *alloc, uintptr_t address, size_t size)
{
	return size <= alloc->size - (address - alloc->address);
}

bool emu_range_is_valid(uintptr_t address, size_t size)
{
	struct emu_alloc alloc;
	size_t there;

	if (!emu_in_arena(address) || !size)
		return true;
	if (!emu_find(address, &alloc))
		return false;
	there = alloc.address + alloc.size - address;
	/* Of the virtual memory API several may be mapped side by side. */
	if (alloc.kind == EMU_VMM && there < size)
		return emu_range_is_valid(address + there, size - there);
	return emu_covers(&alloc, address, size);
}

void emu_free_context(CUcontext context)
{
	pthread_mutex_lock(&lock);
	for (struct entry *entry = entries, *next; entry; entry = next) {
		next = entry->next;
		if (entry->alloc.context == context)
			entry_free(entry);
	}
	pthread_mutex_unlock(&lock);
}

size_t emu_memory_used(int device)
{
	return memory_used[device];
}

/* ---- allocation ---- */

static uintptr_t take_small(size_t size, CUcontext context, struct emu_region **out)
{
	struct emu_region *region = regions;

	while (region && !(region->small && region->context == context &&
			   region->size - region->used >= size))
		region = region->next;
	if (!region) {
		region = region_new(BLOCK, memory_fd(BLOCK), context->device, context);
		if (!region)
			return 0;
		region->small = true;
	}
	*out = region;
	region->used += size;
	return region->address + region->used - size;
}

static CUresult allocate(CUdeviceptr *out, size_t size, enum emu_kind kind)
{
	CUcontext context = emu_current();
	struct emu_region *region = NULL;
	size_t rounded = round_up(size, size <= SMALL ? ALIGNMENT : BLOCK);
	uintptr_t address = 0;

	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!out || !size)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	if (size <= emu_config.memory && memory_used[context->device] <= emu_config.memory - size) {
		if (size <= SMALL && kind == EMU_DEVICE)
			address = take_small(rounded, context, &region);
		else if ((region = region_new(round_up(size, BLOCK),
					      memory_fd(round_up(size, BLOCK)), context->device,
					      context)))
			address = region->address;
	}
	if (address) {
		bool owned = kind == EMU_DEVICE || kind == EMU_MANAGED;

		entry_new(address, size, kind, owned ? context : NULL, context->device, region);
		*out = address;
	}
	pthread_mutex_unlock(&lock);
	return address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EMU_API CUresult CUDAAPI cuMemAlloc(CUdeviceptr *out, size_t size)
{
	EMU_ENTER();
	EMU_UNSAFE();
	return allocate(out, size, EMU_DEVICE);
}

EMU_API CUresult CUDAAPI cuMemAllocPitch(CUdeviceptr *out, size_t *pitch, size_t width,
					 size_t height, unsigned element)
{
	EMU_ENTER();
	EMU_UNSAFE();
	(void)element;
	*pitch = round_up(width, ALIGNMENT);
	return allocate(out, *pitch * height, EMU_DEVICE);
}

EMU_API CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned flags)
{
	struct emu_alloc alloc;
	CUresult result;

	EMU_ENTER();
	EMU_UNSAFE();
	(void)flags;
	result = allocate(out, size, EMU_MANAGED);
	/* The host may touch it: the same memory at the address itself. */
	if (result == CUDA_SUCCESS && emu_find(*out, &alloc) &&
	    mmap((void *)*out, alloc.region->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		 alloc.region->fd, 0) == MAP_FAILED)
		emu_die("mmap of managed memory: %s", strerror(errno));
	return result;
}

/* Freeing waits for the device, as the real call does. */
EMU_API CUresult CUDAAPI cuMemFree(CUdeviceptr address)
{
	struct emu_alloc alloc;
	struct entry *entry;
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	EMU_ENTER();
	EMU_UNSAFE();
	if (!address)
		return CUDA_SUCCESS;
	if (!emu_find(address, &alloc) || alloc.address != address)
		return CUDA_ERROR_INVALID_VALUE;
	if (alloc.context)
		emu_context_wait(alloc.context);
	pthread_mutex_lock(&lock);
	entry = find(address);
	if (entry && entry->alloc.address == address && entry->alloc.kind != EMU_HOST &&
	    entry->alloc.kind != EMU_REGISTERED && entry->alloc.kind != EMU_IPC) {
		if (entry->alloc.uses)
			emu_die("cuMemFree of memory that other hardware reads or writes");
		entry_free(entry);
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

CUresult emu_allocate_from(void *pool, CUdeviceptr *out, size_t size)
{
	CUresult result = allocate(out, size, EMU_POOL);

	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&lock);
	find(*out)->alloc.pool = pool;
	pthread_mutex_unlock(&lock);
	return result;
}

EMU_API CUresult CUDAAPI cuMemGetInfo(size_t *unused, size_t *total)
{
	EMU_ENTER();
	if (!emu_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	*total = emu_config.memory;
	*unused = emu_config.memory - memory_used[emu_current()->device];
	return CUDA_SUCCESS;
}

/* ---- host memory ---- */

EMU_API CUresult CUDAAPI cuMemHostAlloc(void **out, size_t size, unsigned flags)
{
	CUcontext context = emu_current();
	void *address;

	EMU_ENTER();
	EMU_UNSAFE();
	(void)flags;
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!size)
		return CUDA_ERROR_INVALID_VALUE;
	address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (address == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&lock);
	entry_new((uintptr_t)address, size, EMU_HOST, context, context->device, NULL);
	pthread_mutex_unlock(&lock);
	*out = address;
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuMemAllocHost(void **out, size_t size)
{
	return cuMemHostAlloc(out, size, 0);
}

static CUresult forget_host(void *address, enum emu_kind kind, CUresult missing)
{
	pthread_mutex_lock(&lock);
	struct entry *entry = find((uintptr_t)address);
	bool found =
		entry && entry->alloc.kind == kind && entry->alloc.address == (uintptr_t)address;
	if (found)
		entry_free(entry);
	pthread_mutex_unlock(&lock);
	return found ? CUDA_SUCCESS : missing;
}

EMU_API CUresult CUDAAPI cuMemFreeHost(void *address)
{
	EMU_ENTER();
	EMU_UNSAFE();
	return forget_host(address, EMU_HOST, CUDA_ERROR_INVALID_VALUE);
}

EMU_API CUresult CUDAAPI cuMemHostRegister(void *address, size_t size, unsigned flags)
{
	CUcontext context = emu_current();
	struct emu_alloc alloc;

	EMU_ENTER();
	EMU_UNSAFE();
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!address || !size)
		return CUDA_ERROR_INVALID_VALUE;
	if (emu_find((uintptr_t)address, &alloc))
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	pthread_mutex_lock(&lock);
	entry_new((uintptr_t)address, size, EMU_REGISTERED, context, context->device, NULL);
	find((uintptr_t)address)->alloc.unmapped = !(flags & CU_MEMHOSTREGISTER_DEVICEMAP);
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuMemHostUnregister(void *address)
{
	EMU_ENTER();
	EMU_UNSAFE();
	if (!emu_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	return forget_host(address, EMU_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

EMU_API CUresult CUDAAPI cuMemHostGetDevicePointer(CUdeviceptr *out, void *address, unsigned flags)
{
	struct emu_alloc alloc;

	EMU_ENTER();
	if (!emu_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	/* As documented; hardware is more lenient, and nobody should rely on that. */
	if (flags || !emu_find((uintptr_t)address, &alloc) || alloc.unmapped)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (CUdeviceptr)address;
	return CUDA_SUCCESS;
}

/* ---- what a pointer is ---- */

static bool is_host(const struct emu_alloc *alloc)
{
	return alloc->kind == EMU_HOST || alloc->kind == EMU_REGISTERED;
}

/*
 * `alloc` is all zero, with device -2, for memory that CUDA does not know: attributes are then zero
 * too.
 */
static void put_attribute(void *data, CUpointer_attribute attribute, const struct emu_alloc *alloc,
			  CUdeviceptr address)
{
	bool known = alloc->size > 0, host = known && is_host(alloc);

	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)data = alloc->context;
		return;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)data = !known                   ? 0
				    : host || alloc->on_host ? CU_MEMORYTYPE_HOST
							     : CU_MEMORYTYPE_DEVICE;
		return;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)data = known ? address : 0;
		return;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		*(void **)data = host || alloc->kind == EMU_MANAGED ? (void *)address : NULL;
		return;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*(unsigned *)data = alloc->sync_memops;
		return;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)data = alloc->buffer_id;
		return;
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		*(unsigned long long *)data = alloc->block_id;
		return;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned *)data = known && alloc->kind == EMU_MANAGED;
		return;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = alloc->on_host ? CU_DEVICE_INVALID : alloc->device;
		return;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*(unsigned *)data = known && alloc->kind == EMU_DEVICE;
		return;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)data = alloc->reserved ? alloc->reserved : alloc->address;
		return;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)data = alloc->reserved ? alloc->reserved_size : alloc->size;
		return;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*(void **)data = alloc->pool;
		return;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*(uint64_t *)data = CU_MEM_HANDLE_TYPE_NONE;
		return;
	default:
		emu_die("cuPointerGetAttributes: attribute %d is not emulated", (int)attribute);
	}
}

static void look_up(CUdeviceptr address, struct emu_alloc *alloc)
{
	if (!emu_find(address, alloc))
		*alloc = (struct emu_alloc){.device = CU_DEVICE_INVALID};
}

EMU_API CUresult CUDAAPI cuPointerGetAttributes(unsigned num, CUpointer_attribute *attributes,
						void **data, CUdeviceptr address)
{
	struct emu_alloc alloc;

	EMU_ENTER();
	if (!emu_is_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	look_up(address, &alloc);
	for (unsigned i = 0; i < num; i++)
		put_attribute(data[i], attributes[i], &alloc, address);
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
					       CUdeviceptr address)
{
	struct emu_alloc alloc;

	EMU_ENTER();
	if (!emu_is_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	look_up(address, &alloc);
	if (!alloc.size)
		return CUDA_ERROR_INVALID_VALUE;
	put_attribute(data, attribute, &alloc, address);
	return CUDA_SUCCESS;
}

/* Where managed memory is, nobody has said, and nobody has sent it there. */
EMU_API CUresult CUDAAPI cuMemRangeGetAttribute(void *data, size_t size,
						CUmem_range_attribute attribute,
						CUdeviceptr address, size_t bytes)
{
	struct emu_alloc alloc;

	EMU_ENTER();
	(void)bytes;
	look_up(address, &alloc);
	if (alloc.kind != EMU_MANAGED || size != sizeof(int))
		return CUDA_ERROR_INVALID_VALUE;
	switch (attribute) {
	case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
		*(int *)data = 0;
		return CUDA_SUCCESS;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
		*(int *)data = CU_DEVICE_INVALID;
		return CUDA_SUCCESS;
	default:
		emu_die("cuMemRangeGetAttribute: attribute %d is not emulated", (int)attribute);
	}
}

EMU_API CUresult CUDAAPI cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
					       CUdeviceptr address)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	uintptr_t start = 0;
	size_t size = 0;

	EMU_ENTER();
	if (attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	struct entry *entry = find(address);
	if (entry && entry->alloc.kind == EMU_DEVICE) {
		entry->alloc.sync_memops = *(const unsigned *)value != 0;
		start = entry->alloc.address;
		size = entry->alloc.sync_memops ? entry->alloc.size : 0;
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	/*
	 * "If there are some previously initiated synchronous memory operations that are pending
	 * when this attribute is set, the function does not return until [they] are complete."
	 */
	emu_copy_wait(start, size);
	return result;
}

EMU_API CUresult CUDAAPI cuMemGetAddressRange(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
	struct emu_alloc alloc;

	EMU_ENTER();
	if (!emu_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!emu_find(address, &alloc) || is_host(&alloc))
		return CUDA_ERROR_NOT_FOUND;
	if (base)
		*base = alloc.address;
	if (size)
		*size = alloc.size;
	return CUDA_SUCCESS;
}

/* ---- IPC ---- */

/*
 * What a CUipcMemHandle holds. The start time tells a process from a later one with the same
 * number.
 */
struct handle {
	uint64_t magic, node;
	uint64_t start_time;
	uint64_t offset, size, region_size;
	int32_t pid, fd;
	int32_t device;
};
_Static_assert(sizeof(struct handle) <= CU_IPC_HANDLE_SIZE, "the handle must fit");
static const uint64_t handle_magic = 0x6375656d75697063;

static uint64_t process_start_time(int pid)
{
	char name[64], text[1024];
	unsigned long long time = 0;
	FILE *file;

	snprintf(name, sizeof(name), "/proc/%d/stat", pid);
	file = fopen(name, "r");
	if (!file)
		return 0;
	size_t length = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[length] = 0;
	char *after_name = strrchr(text, ')');
	if (after_name)
		sscanf(after_name + 1,
		       " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
		       "%*d %llu",
		       &time);
	return time;
}

/* Process numbers mean something only inside one PID namespace. */
static uint64_t node_identity(void)
{
	struct stat status = {0};

	stat("/proc/self/ns/pid", &status);
	return status.st_ino;
}

void emu_describe(const struct emu_alloc *alloc, void *wire)
{
	struct handle handle = {.magic = handle_magic,
				.node = node_identity(),
				.pid = getpid(),
				.start_time = process_start_time(getpid()),
				.offset = alloc->address - alloc->region->address,
				.size = alloc->size,
				.region_size = alloc->region->size,
				.fd = alloc->region->fd,
				.device = alloc->device};

	memset(wire, 0, CU_IPC_HANDLE_SIZE);
	memcpy(wire, &handle, sizeof(handle));
}

EMU_API CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr address)
{
	struct emu_alloc alloc;

	EMU_ENTER();
	if (!emu_find(address, &alloc) || alloc.kind != EMU_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	emu_describe(&alloc, out);
	return CUDA_SUCCESS;
}

static int open_peer_memory(const struct handle *handle)
{
	char name[64];
	struct stat status;
	int fd;

	if (handle->magic != handle_magic || handle->node != node_identity() ||
	    handle->pid == getpid() || process_start_time(handle->pid) != handle->start_time)
		return -1;
	snprintf(name, sizeof(name), "/proc/%d/fd/%d", handle->pid, handle->fd);
	fd = open(name, O_RDWR | O_CLOEXEC);
	if (fd >= 0 && (fstat(fd, &status) || (uint64_t)status.st_size != handle->region_size)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* By other memory, which nobody else sees: who reads what he has written himself finds it. */
static int replace(int fd, size_t size, enum emu_p2p way, char **truth)
{
	if (way == EMU_P2P_LIES_TO_KERNELS) {
		*truth = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (*truth == MAP_FAILED)
			emu_die("mmap of device memory: %s", strerror(errno));
		atomic_store(&any_truth, true);
	}
	close(fd);
	return memory_fd(size);
}

/* "Memory handles [...] may only be opened by one CUcontext per CUdevice per other process." */
static bool is_open_elsewhere(int exporter, CUcontext context)
{
	bool found = false;

	pthread_mutex_lock(&lock);
	for (const struct emu_region *region = regions; region; region = region->next)
		found |= region->exporter == exporter && region->context != context &&
			 region->context->device == context->device && region->context->alive;
	pthread_mutex_unlock(&lock);
	return found;
}

CUresult emu_open(CUdeviceptr *out, const void *wire)
{
	CUcontext context = emu_current();
	struct emu_region *region;
	enum emu_p2p way = EMU_P2P_WORKS;
	struct handle handle;
	char *truth = NULL;
	int fd;

	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	memcpy(&handle, wire, sizeof(handle));
	fd = open_peer_memory(&handle);
	if (fd < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (handle.device != context->device)
		way = emu_config.p2p[context->device][handle.device];
	if (way == EMU_P2P_NONE) {
		close(fd);
		return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	}
	if (is_open_elsewhere(handle.pid, context)) {
		close(fd);
		return CUDA_ERROR_ALREADY_MAPPED;
	}
	if (way != EMU_P2P_WORKS)
		fd = replace(fd, handle.region_size, way, &truth);
	pthread_mutex_lock(&lock);
	region = region_new(handle.region_size, fd, handle.device, context);
	if (region) {
		*out = region->address + handle.offset;
		region->truth = truth;
		region->exporter = handle.pid;
		entry_new(*out, handle.size, EMU_IPC, context, handle.device, region);
	}
	pthread_mutex_unlock(&lock);
	return region ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EMU_API CUresult CUDAAPI cuIpcOpenMemHandle(CUdeviceptr *out, CUipcMemHandle wire, unsigned flags)
{
	EMU_ENTER();
	EMU_UNSAFE();
	(void)flags;
	return emu_open(out, &wire);
}

EMU_API CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr address)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	EMU_ENTER();
	EMU_UNSAFE();
	if (emu_current())
		emu_context_wait(emu_current());
	pthread_mutex_lock(&lock);
	struct entry *entry = find(address);
	if (entry && entry->alloc.kind == EMU_IPC && entry->alloc.address == address) {
		entry_free(entry);
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

/* ---- virtual memory management ---- */

struct physical {
	size_t size;
	int fd, device;
	bool exportable, on_host;
	unsigned refs; /* under the lock: handles and mappings */
	unsigned long long id;
};

static struct physical *physical_new(struct physical what)
{
	struct physical *physical = malloc(sizeof(*physical));

	*physical = what;
	physical->refs = 1;
	pthread_mutex_lock(&lock);
	physical->id = ++last_buffer_id;
	pthread_mutex_unlock(&lock);
	return physical;
}

static void physical_put(struct physical *physical)
{
	if (--physical->refs)
		return;
	close(physical->fd);
	free(physical);
}

EMU_API CUresult CUDAAPI cuMemGetAllocationGranularity(size_t *granularity,
						       const CUmemAllocationProp *prop,
						       CUmemAllocationGranularity_flags option)
{
	EMU_ENTER();
	(void)prop;
	(void)option;
	*granularity = BLOCK;
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *out, size_t size,
				     const CUmemAllocationProp *prop, unsigned long long flags)
{
	EMU_ENTER();
	EMU_UNSAFE();
	bool on_host = false;
#if CUDA_VERSION >= 12020
	on_host = prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
#endif
	if (!size || size % BLOCK || flags || (!on_host && prop->location.id >= emu_config.devices))
		return CUDA_ERROR_INVALID_VALUE;
	if (size > emu_config.memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*out = (CUmemGenericAllocationHandle)(uintptr_t)physical_new(
		(struct physical){.size = size,
				  .fd = memory_fd(size),
				  .device = on_host ? 0 : prop->location.id,
				  .exportable = (prop->requestedHandleTypes &
						 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0,
				  .on_host = on_host});
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct physical *physical = (struct physical *)(uintptr_t)handle;

	EMU_ENTER();
	pthread_mutex_lock(&lock);
	physical_put(physical);
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out,
						     void *address)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct entry *entry;

	EMU_ENTER();
	pthread_mutex_lock(&lock);
	entry = find((uintptr_t)address);
	if (entry && entry->alloc.kind == EMU_VMM) {
		((struct physical *)entry->alloc.physical)->refs++;
		*out = (CUmemGenericAllocationHandle)(uintptr_t)entry->alloc.physical;
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

EMU_API CUresult CUDAAPI cuMemExportToShareableHandle(void *out,
						      CUmemGenericAllocationHandle handle,
						      CUmemAllocationHandleType type,
						      unsigned long long flags)
{
	EMU_ENTER();
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags ||
	    !((struct physical *)(uintptr_t)handle)->exportable)
		return CUDA_ERROR_NOT_SUPPORTED;
	*(int *)out = fcntl(((struct physical *)(uintptr_t)handle)->fd, F_DUPFD_CLOEXEC, 0);
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out,
							void *os_handle,
							CUmemAllocationHandleType type)
{
	struct stat status;
	int fd = (int)(intptr_t)os_handle;

	EMU_ENTER();
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || fstat(fd, &status))
		return CUDA_ERROR_INVALID_VALUE;
	*out = (CUmemGenericAllocationHandle)(uintptr_t)physical_new(
		(struct physical){.size = (size_t)status.st_size,
				  .fd = fcntl(fd, F_DUPFD_CLOEXEC, 0),
				  .exportable = true});
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t alignment,
					     CUdeviceptr hint, unsigned long long flags)
{
	struct emu_region *region;

	EMU_ENTER();
	(void)hint;
	if (!size || size % BLOCK || alignment > BLOCK || flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	region = region_new(size, -1, 0, NULL);
	pthread_mutex_unlock(&lock);
	if (!region)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*out = region->address;
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuMemAddressFree(CUdeviceptr address, size_t size)
{
	struct emu_region *region;

	EMU_ENTER();
	pthread_mutex_lock(&lock);
	for (region = regions; region && region->address != address; region = region->next)
		;
	bool valid = region && region->size == size && region->fd < 0 && !region->allocs;
	if (valid)
		region_free(region);
	pthread_mutex_unlock(&lock);
	return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/*
 * Under the lock. Whether a buffer's id is a mapping's or its reservation's the driver's header
 * does not say: here it is what is worse.
 */
static void put_into_reservation(struct emu_alloc *alloc)
{
	const struct emu_region *region = regions;

	while (region && alloc->address - region->address >= region->size)
		region = region->next;
	if (!region)
		return;
	for (const struct entry *entry = entries; entry; entry = entry->next) {
		if (entry->alloc.reserved == region->address)
			alloc->buffer_id = entry->alloc.buffer_id;
	}
	alloc->reserved = region->address;
	alloc->reserved_size = region->size;
}

EMU_API CUresult CUDAAPI cuMemMap(CUdeviceptr address, size_t size, size_t offset,
				  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct physical *physical = (struct physical *)(uintptr_t)handle;
	struct emu_alloc *alloc;

	EMU_ENTER();
	EMU_UNSAFE();
	if (offset || flags || size != physical->size || address % BLOCK)
		return CUDA_ERROR_INVALID_VALUE;
	if (mmap(emu_shadow(address), size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		 physical->fd, 0) == MAP_FAILED)
		emu_die("mmap of device memory: %s", strerror(errno));
	pthread_mutex_lock(&lock);
	alloc = entry_new(address, size, EMU_VMM, NULL, physical->device, NULL);
	put_into_reservation(alloc);
	alloc->device = physical->device;
	alloc->on_host = physical->on_host;
	alloc->physical = physical;
	alloc->block_id = physical->id;
	physical->refs++;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuMemSetAccess(CUdeviceptr address, size_t size,
					const CUmemAccessDesc *desc, size_t count)
{
	EMU_ENTER();
	(void)desc;
	(void)count;
	return emu_range_is_valid(address, size) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EMU_API CUresult CUDAAPI cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
					CUdeviceptr address)
{
	struct emu_alloc alloc;

	EMU_ENTER();
	if (!emu_find(address, &alloc) || alloc.kind != EMU_VMM)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = location->type == CU_MEM_LOCATION_TYPE_DEVICE ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
							       : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuMemUnmap(CUdeviceptr address, size_t size)
{
	struct entry *entry;

	EMU_ENTER();
	EMU_UNSAFE();
	pthread_mutex_lock(&lock);
	entry = find(address);
	bool valid = entry && entry->alloc.kind == EMU_VMM && entry->alloc.address == address &&
		     entry->alloc.size == size;
	if (valid) {
		physical_put(entry->alloc.physical);
		entry_free(entry);
		unmap((uintptr_t)emu_shadow(address), size);
	}
	pthread_mutex_unlock(&lock);
	return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
