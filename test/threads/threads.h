/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks as threads of one process, so that ThreadSanitizer sees what they do to each other.
 *
 * A rank is a copy of the library of its own (threads-rank.so, loaded once for each), with
 * variables of its own as a process has them, above two inventions: MPI (threads_mpi.c) and the
 * CUDA driver (threads_driver.c). What processes share ranks share: shared memory is at one address
 * for all (threads_map), and messages of "MPI" go through groups. These are in the program that
 * loads the copies, test_threads.c and threads_group.c.
 */
#ifndef THREADS_H
#define THREADS_H

#include "core/core_run.h"
#include "gpu/kernels/gpu_program.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { THREADS_MOST = 8 };

#define THREADS_IN_PLACE ((void *)-1)

/* ---- of the program ---- */

/* Ranks that do something together: a communicator. */
struct threads_group {
	int size;
	int ranks[THREADS_MOST]; /* of the job */
	const void *given[THREADS_MOST];
	uint64_t arrived; /* at barriers, so far; atomic */
};

/* Who there is. */
struct threads_job {
	struct threads_group all, nodes[THREADS_MOST];
	int num_nodes, node_of[THREADS_MOST]; /* of each rank */
	int num_devices;
	bool apart;  /* devices do not reach each other's memory */
	bool hidden; /* what rank_allocate gives can't be mapped by others */
};
extern struct threads_job threads_job;

/* Wait for all of the group, and do something over and over meanwhile, if not NULL. */
void threads_barrier(struct threads_group *group, void (*meanwhile)(void));

/* Each gives a pointer, and gets all, which are good until the next barrier. */
const void *const *threads_exchange(struct threads_group *group, int index, const void *mine);

/* The index of the rank in the group. */
int threads_index(const struct threads_group *group, int rank);

/* mmap and munmap, but that a file which is shared is at one address, whoever maps it. */
void *threads_map(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
int threads_unmap(void *address, size_t bytes);

/* ---- of a rank, in its thread ---- */

#pragma GCC visibility push(default)

void rank_start(int rank);
void rank_stop(void);

/*
 * The state of a communicator of the group's ranks; collective over them. Its handle is the group.
 */
void rank_comm(struct threads_group *group);
void rank_comm_free(struct threads_group *group);

/* A collective of int, with GPU_OP_SUM if it reduces. Returns MPI's error code. */
int rank_call(struct core_call *call);
enum core_path rank_path(void);

/* The same while the rank does nothing for so many microseconds, and then waits. */
int rank_call_pending(struct core_call *call, int idle);

/*
 * How many kernels that carry out schedules the rank has launched: without messages, by hosts that
 * wait, by each protocol in kernels that wait (enum gpu_protocol, behind the others).
 */
enum {
	THREADS_DIRECT,
	THREADS_STEPPED,
	THREADS_FUSED,
	THREADS_WAYS = THREADS_FUSED + GPU_PROTOCOL_NUM
};
const long *rank_launches(void);

/* Memory of the rank's device, and host memory that the driver knows nothing of. */
void *rank_allocate(size_t bytes);
void rank_free(void *memory);

#pragma GCC visibility pop

/* Devices and memory of the driver; NULL: there is no memory. */
void *threads_driver_allocate(int device, size_t bytes, bool hidden);
void threads_driver_free(void *memory);
void threads_driver_set_device(int device);

#endif
