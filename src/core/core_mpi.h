/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What core asks of the real MPI. The files core_mpi_*.c, which alone in src/core know mpi.h, are
 * compiled once for each MPI; everything else in core is compiled once for all.
 */
#ifndef CORE_MPI_H
#define CORE_MPI_H

#include "core/core_call.h"
#include "core/core_layout.h"
#include "core/core_mpi_job.h"
#include "core/core_shape.h"

enum { CORE_MAX_OPERANDS = 2 };

/*
 * Work out which buffers a call reads and writes on this rank, and which bytes of them. Arguments
 * that the real MPI will refuse give no operand at all, so that the call reaches it as it is and is
 * refused there.
 *
 * operands: CORE_MAX_OPERANDS, zeroed by the caller, who releases them also after an error.
 * Calls MPI functions that are local. Thread-safe.
 */
enum util_status core_mpi_operands(const struct core_call *call, struct core_operand *operands,
				   size_t *num_operands);

/*
 * Find the runs of the operand's types with gaps, where they are not known. UTIL_ERR_UNSUPPORTED
 * for an element of more data than MPI can unpack. Thread-safe.
 */
enum util_status core_mpi_find_runs(struct core_operand *operand);

/*
 * The call as the accelerated path takes it, into a shape that was cleared for the communicator's
 * ranks. Returns NULL, or the reason why that path can't take it. Cheap; thread-safe.
 */
struct core_comm;
const char *core_mpi_shape(const struct core_call *call, const struct core_comm *comm,
			   struct core_shape *shape);

/*
 * The datatypes of 16-bit floating point numbers (gpucoll.h), made when first asked for. Returns
 * MPI's error code. core_mpi_half_of: which of them a type is, CORE_NUM_HALVES if none.
 * core_mpi_real_op: the operation to give the real MPI, to which they are derived
 * types with which no predefined operation works. Thread-safe.
 */
enum core_half { CORE_FLOAT16, CORE_BFLOAT16, CORE_NUM_HALVES };
int core_mpi_half_type(enum core_half half, core_handle *type);
enum core_half core_mpi_half_of(core_handle type);
core_handle core_mpi_real_op(const struct core_call *call);
void core_mpi_free_halves(void);

/*
 * Whether it is one of the usual predefined types, whose elements lie one after the other from the
 * buffer's address on. Cheap; false says nothing.
 */
bool core_mpi_type_is_plain(core_handle type);

/* Whether the pointer is one of the constants that stand for no buffer (MPI_IN_PLACE). */
bool core_mpi_is_in_place(const void *buffer);

/*
 * Have `stop` called at the beginning of MPI_Finalize, after the callbacks of the application that
 * MPI calls there.
 */
void core_mpi_at_finalize(void (*stop)(void));

/* Collective over MPI_COMM_WORLD: make the private communicator and agree on the job. */
enum util_status core_mpi_start(const char *hostid, bool have_driver);

/* A number that no other process of this job, nor of another, is likely to draw; never 0. */
uint64_t core_mpi_draw_id(void);

/*
 * Share `bytes` bytes from the lowest rank of each node with the other processes of it. Collective.
 */
enum util_status core_mpi_node_bcast(void *data, int bytes);

/*
 * Whether a process of the node has ended, as far as this one can see; by local rank. Any thread.
 */
bool core_mpi_has_ended(int local_rank);

/* Whether all processes of the node, of the job, say yes. Collective over the node, the job. */
bool core_mpi_node_all(bool yes);
bool core_mpi_job_all(bool yes);

/* Whether all processes of the job have the same number. Collective over the job. */
bool core_mpi_job_same(uint64_t number);

/*
 * Wait for all processes of the job, and do something over and over meanwhile, if not NULL.
 * Collective over it.
 */
void core_mpi_job_barrier(void (*meanwhile)(void));

/*
 * Collect some bytes from each process of the job: one after the other in `*all`, with how many
 * they are in `*sizes`, by process; the caller frees both. Collective over the job.
 */
enum util_status core_mpi_job_gather(const void *mine, int bytes, void **all, int **sizes);

/* A wait: zeroed at its beginning. Times in ns. */
struct core_wait {
	uint64_t start; /* zeroed again whenever what is waited for has come nearer */
	uint64_t last_probe;
};

/*
 * Called over and over by every wait of ours: lets the real MPI make progress, at a bounded rate,
 * and other processes have the core.
 */
void core_mpi_drive(struct core_wait *wait);

/* Free the private communicator and all else that needs MPI. Collective. */
void core_mpi_stop(void);

/*
 * Give a communicator that was just made an identity: its lowest rank draws it, one broadcast
 * spreads it; and, if it has a topology, tell all its ranks who is whose neighbour. Collective over
 * it. Intercommunicators and MPI_COMM_NULL get none.
 */
void core_mpi_comm_identify(core_handle comm);

/* The communicator's state, or NULL when it has no identity. See core_comm.h. Any thread. */
struct core_comm *core_mpi_comm_find(core_handle comm);

/* The communicator's name into `name`, cut to what fits. */
void core_mpi_comm_name(core_handle comm, char *name, size_t bytes);

/* MPI_COMM_WORLD. */
core_handle core_mpi_world(void);

/*
 * The bytes that this rank's scalar count and type stand for, 0 where the call has none; for
 * statistics.
 */
size_t core_mpi_call_bytes(const struct core_call *call);

/*
 * Turn a status of ours into the MPI error of the same meaning, raised on the call's communicator.
 */
int core_mpi_raise(const struct core_call *call, enum util_status status);

#endif
