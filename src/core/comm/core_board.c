/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/comm/core_board.h"
#include "core/job/core_mpi_job.h"
#include "util/util_cache.h"
#include "util/util_limit.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

/*
 * One process's counter alone on its line: the writer is on its way to the real MPI and must not
 * wait.
 */
struct counter {
	_Alignas(UTIL_CACHE_LINE) _Atomic uint64_t passed;
};

/*
 * A slot is free when its id is 0. All but the counters is read and written under the board's lock.
 */
struct core_board_slot {
	_Alignas(UTIL_CACHE_LINE) uint64_t id;
	uint32_t members, left;
	bool has_area;
	size_t backed;             /* bytes of its area that have memory, and keep it */
	struct counter counters[]; /* local_size of them */
};

/*
 * A communicator of several nodes that all here have left. Members elsewhere may still be in a call
 * of it, and ask, however many others have come and gone meanwhile: so graves are kept, behind the
 * areas, where they get memory a block at a time.
 */
struct grave {
	uint64_t id, ready[CORE_BOARD_REMEMBERED];
};

enum { MOST_GRAVES = 1 << 20, GRAVES_OF_BLOCK = 4096, PAGE = 4096 };

struct header {
	pthread_mutex_t lock; /* process-shared and robust; guards which slot is whose, and: */
	uint64_t buried;
	uint64_t room; /* graves that have memory; the last `buried` of so many are there */
};

enum { HEADER_BYTES = (sizeof(struct header) + PAGE - 1) / PAGE * PAGE };

/* Of each process, behind the header. */
typedef _Atomic uint64_t gpu_word;

static char *board;
static size_t board_bytes, area_bytes, journal_bytes;
static int board_fd = -1;

static size_t slot_bytes(void)
{
	return sizeof(struct core_board_slot) +
	       (size_t)core_mpi_job.local_size * sizeof(struct counter);
}

static size_t journals_offset(void)
{
	size_t bytes = (size_t)core_mpi_job.local_size * sizeof(gpu_word);

	return HEADER_BYTES + (bytes + UTIL_CACHE_LINE - 1) / UTIL_CACHE_LINE * UTIL_CACHE_LINE;
}

static size_t slots_offset(void)
{
	return journals_offset() + (size_t)core_mpi_job.local_size * journal_bytes;
}

static size_t areas_offset(void)
{
	return slots_offset() + CORE_BOARD_SLOTS * slot_bytes();
}

static size_t graves_offset(void)
{
	return areas_offset() + CORE_BOARD_SLOTS * area_bytes;
}

static struct grave *grave_at(uint64_t index)
{
	return (struct grave *)(board + graves_offset()) + index;
}

static struct core_board_slot *slot_at(uint64_t index)
{
	return (struct core_board_slot *)(board + slots_offset() + index * slot_bytes());
}

static off_t area_offset(const struct core_board_slot *slot)
{
	size_t index = (size_t)((const char *)slot - (board + slots_offset())) / slot_bytes();

	return (off_t)(areas_offset() + index * area_bytes);
}

void *core_board_area(const struct core_board_slot *slot)
{
	return slot->has_area ? board + area_offset(slot) : NULL;
}

void *core_board_journal(int local_rank)
{
	return board ? board + journals_offset() + (size_t)local_rank * journal_bytes : NULL;
}

static struct header *header(void)
{
	return (struct header *)board;
}

static void fail_board(const char *what, const char *name)
{
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
		 "the node's shared memory %s: %s: %s (%zu MiB; ulimit -f, the size of /dev/shm); "
		 "collectives will be staged",
		 name, what, strerror(errno), board_bytes >> 20);
}

/* Give the part of the file memory. Returns errno's value. A profiler's timer may interrupt it. */
static int allocate_file(int fd, off_t offset, size_t bytes)
{
	int error;

	do {
		error = posix_fallocate(fd, offset, (off_t)bytes);
	} while (error == EINTR);
	return error;
}

/* A name that nobody can have taken before: /dev/shm is open to all users. */
static int open_new(char *name, size_t bytes)
{
	uint64_t number = 0;

	if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
		number = (uint64_t)getpid() << 32 ^ util_now();
	snprintf(name, bytes, "/gpucoll-%016llx", (unsigned long long)number);
	return shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
}

static int create_memory(char *name, size_t name_bytes, size_t bytes)
{
	int fd = util_file_may_have(board_bytes) ? open_new(name, name_bytes) : -1;

	if (fd < 0)
		return -1;
	/*
	 * posix_fallocate, not ftruncate: a full /dev/shm is an error now rather than SIGBUS later.
	 */
	errno = allocate_file(fd, 0, bytes);
	if (!errno && !ftruncate(fd, (off_t)board_bytes)) /* the areas follow, without memory yet */
		return fd;
	close(fd);
	shm_unlink(name);
	return -1;
}

static void init_lock(void)
{
	pthread_mutexattr_t attributes;

	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&header()->lock, &attributes);
	pthread_mutexattr_destroy(&attributes);
}

static char *map_memory(int fd, const char *name)
{
	char *memory = mmap(NULL, board_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (memory != MAP_FAILED)
		return memory;
	fail_board("map", name);
	return NULL;
}

/* By the leader: the board with its lock ready, before anybody else learns its name. */
static int create_board(char *name, size_t name_bytes)
{
	int fd = create_memory(name, name_bytes, areas_offset());

	if (fd < 0) {
		fail_board("create", name);
		return -1;
	}
	board = map_memory(fd, name);
	if (board)
		init_lock();
	return fd;
}

enum util_status core_board_start(size_t area, size_t journal)
{
	char name[64] = "";
	bool leader = core_mpi_job.local_rank == 0, all;
	int fd = -1;

	area_bytes = area;
	journal_bytes = journal;
	board_bytes = graves_offset() + MOST_GRAVES * sizeof(struct grave);
	if (leader) {
		fd = create_board(name, sizeof(name));
		if (fd < 0)
			name[0] = 0;
	}
	core_mpi_node_bcast(name, sizeof(name));
	if (!leader && name[0]) {
		fd = shm_open(name, O_RDWR, 0600);
		if (fd >= 0)
			board = map_memory(fd, name);
		else
			fail_board("open", name);
	}
	/* All or none: a process without the board would never be seen to pass a call. */
	all = core_mpi_node_all(board != NULL);
	if (leader && fd >= 0)
		shm_unlink(name);
	board_fd = fd;
	if (!all)
		core_board_stop();
	return all ? UTIL_OK : UTIL_ERR_SYSTEM;
}

void core_board_stop(void)
{
	if (board)
		munmap(board, board_bytes);
	board = NULL;
	if (board_fd >= 0)
		close(board_fd);
	board_fd = -1;
}

bool core_board_is_up(void)
{
	return board != NULL;
}

/*
 * A process may die inside, and then the job is about to be ended; until it is, the others go on
 * with a table that at worst has a slot too many in use.
 */
static void lock_table(void)
{
	if (pthread_mutex_lock(&header()->lock) == EOWNERDEAD)
		pthread_mutex_consistent(&header()->lock);
}

/* Under the lock. The id's own slot, else a free one, else NULL. */
static struct core_board_slot *find_slot(uint64_t id)
{
	struct core_board_slot *unused = NULL;

	for (uint64_t i = 0; i < CORE_BOARD_SLOTS; i++) {
		struct core_board_slot *slot = slot_at(i);

		if (slot->id == id)
			return slot;
		if (!slot->id && !unused)
			unused = slot;
	}
	return unused;
}

/* The other pages of the area are never touched, which would give them memory. */
static void back(struct core_board_slot *slot, size_t bytes)
{
	if (slot->backed < bytes && !allocate_file(board_fd, area_offset(slot), bytes))
		slot->backed = bytes;
	slot->has_area = slot->backed >= bytes;
}

struct core_board_slot *core_board_join(uint64_t id, uint32_t members, size_t bytes)
{
	struct core_board_slot *slot;

	if (!board)
		return NULL;
	lock_table();
	slot = find_slot(id);
	if (slot && slot->id != id) {
		slot->id = id;
		slot->members = members;
		back(slot, bytes);
	}
	pthread_mutex_unlock(&header()->lock);
	return slot;
}

void core_board_cancel(uint64_t id)
{
	struct core_board_slot *slot;

	if (!board)
		return;
	lock_table();
	slot = find_slot(id);
	if (slot && slot->id == id)
		slot->id = 0;
	pthread_mutex_unlock(&header()->lock);
}

/* More room for graves. Where there is none, the oldest one is to go. */
static void dig(void)
{
	enum { BYTES = GRAVES_OF_BLOCK * sizeof(struct grave) };
	struct header *h = header();
	off_t offset = (off_t)(graves_offset() + h->room * sizeof(struct grave));

	if (h->buried == h->room && h->room < MOST_GRAVES &&
	    !allocate_file(board_fd, offset, BYTES))
		h->room += GRAVES_OF_BLOCK;
}

static void bury(const struct core_board_slot *slot, const uint64_t *ready)
{
	struct header *h = header();
	struct grave *grave;

	dig();
	if (!h->room)
		return;
	grave = grave_at(h->buried++ % h->room);
	grave->id = slot->id;
	memcpy(grave->ready, ready, sizeof(grave->ready));
}

bool core_board_find_left(uint64_t id, uint64_t ready[CORE_BOARD_REMEMBERED])
{
	bool found = false;
	uint64_t num;

	lock_table();
	num = header()->buried < header()->room ? header()->buried : header()->room;
	for (uint64_t i = 0; i < num && !found; i++) {
		const struct grave *grave = grave_at(num - 1 - i);

		found = grave->id == id;
		if (found)
			memcpy(ready, grave->ready, sizeof(grave->ready));
	}
	pthread_mutex_unlock(&header()->lock);
	return found;
}

bool core_board_visit(uint64_t id,
		      void (*visit)(const struct core_board_slot *slot, void *area, void *argument),
		      void *argument)
{
	struct core_board_slot *slot;
	bool found;

	lock_table();
	slot = find_slot(id);
	found = slot && slot->id == id;
	if (found)
		visit(slot, core_board_area(slot), argument);
	pthread_mutex_unlock(&header()->lock);
	return found;
}

void core_board_leave(struct core_board_slot *slot, const uint64_t ready[CORE_BOARD_REMEMBERED])
{
	lock_table();
	/*
	 * A member leaves after it joined: when all have left, all have joined, and no one can come
	 * late.
	 */
	if (++slot->left == slot->members) {
		if (ready)
			bury(slot, ready);
		for (int i = 0; i < core_mpi_job.local_size; i++)
			atomic_store_explicit(&slot->counters[i].passed, 0, memory_order_relaxed);
		memset(board + area_offset(slot), 0, slot->backed);
		slot->left = 0;
		slot->id = 0;
	}
	pthread_mutex_unlock(&header()->lock);
}

void core_board_publish(struct core_board_slot *slot, uint64_t calls)
{
	atomic_store_explicit(&slot->counters[core_mpi_job.local_rank].passed, calls,
			      memory_order_release);
}

uint64_t core_board_passed(const struct core_board_slot *slot, int local_rank)
{
	return atomic_load_explicit(&slot->counters[local_rank].passed, memory_order_acquire);
}

/*
 * Relaxed: the words order nothing. A count that is out of date is too high, as words change once,
 * from 0: who was counted as one of whom nothing is known may turn out to be elsewhere.
 */
int core_board_share_gpu(uint64_t gpu, bool comes)
{
	gpu_word *words = (gpu_word *)(board + HEADER_BYTES);
	gpu_word *mine = &words[core_mpi_job.local_rank];
	uint64_t first = 0, other;
	int sharers = 0;

	if (comes)
		atomic_compare_exchange_strong_explicit(mine, &first, gpu, memory_order_relaxed,
							memory_order_relaxed);
	if (atomic_load_explicit(mine, memory_order_relaxed) != gpu)
		return 0;
	for (int i = 0; i < core_mpi_job.local_size; i++) {
		other = atomic_load_explicit(&words[i], memory_order_relaxed);
		sharers += !other || other == gpu;
	}
	return sharers;
}

uint64_t core_board_gpu(int local_rank)
{
	return atomic_load_explicit(&((gpu_word *)(board + HEADER_BYTES))[local_rank],
				    memory_order_relaxed);
}

unsigned core_board_used(void)
{
	unsigned used = 0;

	if (!board)
		return 0;
	lock_table();
	for (uint64_t i = 0; i < CORE_BOARD_SLOTS; i++)
		used += slot_at(i)->id != 0;
	pthread_mutex_unlock(&header()->lock);
	return used;
}
