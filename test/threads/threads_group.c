/* SPDX-License-Identifier: BSD-3-Clause */
#include "threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

struct threads_job threads_job;

/* ---- groups ---- */

void threads_barrier(struct threads_group *group, void (*meanwhile)(void))
{
	uint64_t size = (uint64_t)group->size;
	uint64_t mine = __atomic_fetch_add(&group->arrived, 1, __ATOMIC_ACQ_REL);
	uint64_t all = (mine / size + 1) * size;

	while (__atomic_load_n(&group->arrived, __ATOMIC_ACQUIRE) < all) {
		if (meanwhile)
			meanwhile();
		sched_yield();
	}
}

const void *const *threads_exchange(struct threads_group *group, int index, const void *mine)
{
	group->given[index] = mine;
	threads_barrier(group, NULL);
	return group->given;
}

int threads_index(const struct threads_group *group, int rank)
{
	int index = 0;

	while (group->ranks[index] != rank)
		index++;
	return index;
}

/* ---- shared memory ---- */

struct shared {
	struct shared *next;
	dev_t device;
	ino_t file;
	off_t offset;
	void *address;
	size_t bytes;
	int users;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shared *all; /* under the lock */

/* Under the lock. */
static void *map_shared(const struct stat *file, size_t bytes, int protection, int fd, off_t offset)
{
	struct shared *shared = all;

	while (shared && (shared->device != file->st_dev || shared->file != file->st_ino ||
			  shared->offset != offset || shared->bytes != bytes))
		shared = shared->next;
	if (!shared) {
		shared = calloc(1, sizeof(*shared));
		if (!shared)
			return MAP_FAILED;
		*shared = (struct shared){.next = all,
					  .device = file->st_dev,
					  .file = file->st_ino,
					  .offset = offset,
					  .bytes = bytes};
		shared->address = mmap(NULL, bytes, protection, MAP_SHARED, fd, offset);
		if (shared->address == MAP_FAILED) {
			free(shared);
			return MAP_FAILED;
		}
		all = shared;
	}
	shared->users++;
	return shared->address;
}

void *threads_map(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	struct stat file;
	void *mapped;

	if (!(flags & MAP_SHARED) || fd < 0 || fstat(fd, &file))
		return mmap(address, bytes, protection, flags, fd, offset);
	pthread_mutex_lock(&lock);
	mapped = map_shared(&file, bytes, protection, fd, offset);
	pthread_mutex_unlock(&lock);
	return mapped;
}

/* Whether it is nobody's any more. */
static bool release(const void *address)
{
	struct shared **link = &all, *shared;
	bool last = true;

	pthread_mutex_lock(&lock);
	while (*link && (*link)->address != address)
		link = &(*link)->next;
	shared = *link;
	if (shared && --shared->users) {
		last = false;
	} else if (shared) {
		*link = shared->next;
		free(shared);
	}
	pthread_mutex_unlock(&lock);
	return last;
}

int threads_unmap(void *address, size_t bytes)
{
	return release(address) ? munmap(address, bytes) : 0;
}
