/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpu/gpu_shm.h"
#include "gpu/gpu_driver.h"
#include "util/util_limit.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The driver's buffer ids are small. */
static const uint64_t OUR_IDS = UINT64_C(1) << 63;

struct gpu_shm {
	struct gpu_shm *next;
	uint64_t id; /* 0: it is not to be exported, and not among all */
	int fd;
	void *base;
	size_t bytes;
	bool registered;
	int device;                    /* that it was registered on last */
	unsigned long long context_id; /* in which `address` was asked for */
	uint64_t address;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gpu_shm *all; /* under the lock */
static uint64_t next_id;    /* under the lock */

/*
 * Ids of what was freed and the others have not been told of; of more the oldest are forgotten, and
 * stay mapped there until GPUCOLL_IPC_CACHE is full. Under the lock.
 */
enum { MOST_FREED = 64 };
static uint64_t freed[MOST_FREED];
static unsigned next_freed;

/*
 * Where the system has large pages for shared memory on advice (shmem_enabled of
 * transparent_hugepage), a GPU that reads and writes these needs few entries of its TLB. Elsewhere
 * nothing comes of it.
 */
static void *map_file(size_t bytes, int flags, int fd)
{
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);

	if (base != MAP_FAILED)
		madvise(base, bytes, MADV_HUGEPAGE);
	return base;
}

/* Shared even if it is not to be exported: a fork must not make copies of pinned pages. */
static bool map(struct gpu_shm *shm, bool exported)
{
	int flags = MAP_SHARED;

	shm->fd = -1;
	if (exported)
		shm->fd = memfd_create("gpucoll", MFD_CLOEXEC);
	else
		flags |= MAP_ANONYMOUS;
	if (exported && (shm->fd < 0 || !util_file_may_have(shm->bytes) ||
			 ftruncate(shm->fd, (off_t)shm->bytes)))
		return false;
	shm->base = map_file(shm->bytes, flags, shm->fd);
	return shm->base != MAP_FAILED;
}

static void add_shm(struct gpu_shm *shm)
{
	pthread_mutex_lock(&lock);
	shm->id = OUR_IDS | ++next_id;
	shm->next = all;
	all = shm;
	pthread_mutex_unlock(&lock);
}

enum util_status gpu_shm_create(size_t bytes, bool exported, struct gpu_shm **out)
{
	struct gpu_shm *shm = calloc(1, sizeof(*shm));

	*out = NULL;
	if (!shm)
		return UTIL_ERR_UNSUPPORTED;
	shm->bytes = bytes;
	if (!map(shm, exported)) {
		if (shm->fd >= 0)
			close(shm->fd);
		free(shm);
		return UTIL_ERR_UNSUPPORTED;
	}
	if (exported)
		add_shm(shm);
	*out = shm;
	return UTIL_OK;
}

static void forget(struct gpu_shm *shm)
{
	struct gpu_shm **link = &all;

	pthread_mutex_lock(&lock);
	while (*link != shm)
		link = &(*link)->next;
	*link = shm->next;
	freed[next_freed++ % MOST_FREED] = shm->id;
	pthread_mutex_unlock(&lock);
}

void gpu_shm_free(struct gpu_shm *shm)
{
	if (shm->id)
		forget(shm);
	if (!shm->registered || gpu_context_unpin(shm->base, shm->device, shm->context_id))
		munmap(shm->base, shm->bytes);
	if (shm->fd >= 0)
		close(shm->fd);
	free(shm);
}

static CUresult pin(void *base, size_t bytes, CUdeviceptr *address)
{
	CUresult result = gpu_driver.cuMemHostRegister(
		base, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);

	if (result != CUDA_SUCCESS && result != CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
		return result;
	return gpu_driver.cuMemHostGetDevicePointer(address, base, 0);
}

/* A reset of the device undoes the registration, so each context makes it anew. */
uint64_t gpu_shm_address(struct gpu_shm *shm, const struct gpu_stream *stream)
{
	unsigned long long context_id = gpu_stream_context_id(stream);
	CUdeviceptr address = 0;
	struct gpu_scope scope;
	CUresult result;

	if (shm->context_id == context_id)
		return shm->address;
	if (gpu_scope_enter(&scope, gpu_stream_where(stream)) != UTIL_OK)
		return 0;
	result = pin(shm->base, shm->bytes, &address);
	gpu_scope_leave(&scope);
	if (result != CUDA_SUCCESS)
		return 0;
	shm->registered = true;
	shm->device = gpu_stream_where(stream)->device;
	shm->context_id = context_id;
	shm->address = address;
	return address;
}

void *gpu_shm_host(const struct gpu_shm *shm)
{
	return shm->base;
}

void gpu_shm_export(const struct gpu_shm *shm, struct gpu_export *out)
{
	*out = (struct gpu_export){.buffer_id = shm->id,
				   .kind = GPU_EXPORT_SHM,
				   .start = shm->address,
				   .bytes = shm->bytes};
}

int gpu_shm_fd(uint64_t buffer_id)
{
	int fd = -1;

	pthread_mutex_lock(&lock);
	for (struct gpu_shm *shm = all; shm; shm = shm->next) {
		if (shm->id == buffer_id)
			fd = fcntl(shm->fd, F_DUPFD_CLOEXEC, 0);
	}
	pthread_mutex_unlock(&lock);
	return fd;
}

/* A file that is too short would end the process when it is touched. */
static bool is_long_enough(int fd, size_t bytes)
{
	struct stat status;

	return !fstat(fd, &status) && (size_t)status.st_size >= bytes;
}

CUresult gpu_shm_map(int fd, size_t bytes, void **host, CUdeviceptr *device)
{
	CUresult result;

	if (!is_long_enough(fd, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	*host = map_file(bytes, MAP_SHARED, fd);
	if (*host == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = pin(*host, bytes, device);
	if (result != CUDA_SUCCESS)
		gpu_shm_unmap(*host, bytes, true);
	return result;
}

void gpu_shm_unmap(void *host, size_t bytes, bool pinned)
{
	if (pinned)
		gpu_driver.cuMemHostUnregister(host);
	munmap(host, bytes);
}

int gpu_shm_find_freed(uint64_t *ids, int most)
{
	int found = 0;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < MOST_FREED && found < most; i++) {
		if (freed[i])
			ids[found++] = freed[i];
	}
	pthread_mutex_unlock(&lock);
	return found;
}

void gpu_shm_forget_freed(const uint64_t *ids, int num)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < num * MOST_FREED; i++) {
		if (freed[i % MOST_FREED] == ids[i / MOST_FREED])
			freed[i % MOST_FREED] = 0;
	}
	pthread_mutex_unlock(&lock);
}
