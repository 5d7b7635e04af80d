/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the arguments of MPI's calls mean. The files core_mpi_*.c, which alone in src/core know
 * mpi.h, are compiled once for each MPI; everything else in core is compiled once for all.
 */
#ifndef CORE_MPI_H
#define CORE_MPI_H

#include "core/call/core_call.h"
#include "core/call/core_layout.h"
#include "core/call/core_reason.h"
#include "core/call/core_shape.h"

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
 * for an element that can't be taken apart, of more data than MPI can unpack. Thread-safe.
 */
enum util_status core_mpi_find_runs(struct core_operand *operand);

struct core_comm;

/*
 * The call as the accelerated path takes it, into a shape that was cleared for the communicator's
 * ranks. Returns why that path can't take it, or CORE_REASON_NONE. Cheap; thread-safe.
 */
enum core_reason core_mpi_shape(const struct core_call *call, const struct core_comm *comm,
				struct core_shape *shape);

enum core_half { CORE_FLOAT16, CORE_BFLOAT16, CORE_NUM_HALVES };

/*
 * The datatype of a kind of 16-bit floating point numbers (gpucoll.h), made when first asked for.
 * Returns MPI's error code. Thread-safe.
 */
int core_mpi_half_type(enum core_half half, core_handle *type);

/* Which of them the type is; CORE_NUM_HALVES: none. Thread-safe. */
enum core_half core_mpi_half_of(core_handle type);

/*
 * The operation to give the real MPI, to which those are derived types with which no predefined
 * operation works. Thread-safe.
 */
core_handle core_mpi_real_op(const struct core_call *call);

/* Free those types, and the operations. */
void core_mpi_free_halves(void);

/*
 * Whether it is one of the usual predefined types, whose elements lie one after the other from the
 * buffer's address on. Cheap; false says nothing.
 */
bool core_mpi_type_is_plain(core_handle type);

/* Whether the pointer is one of the constants that stand for no buffer (MPI_IN_PLACE). */
bool core_mpi_is_in_place(const void *buffer);

/*
 * The bytes that this rank's scalar count and type stand for, 0 where the call has none; for
 * statistics.
 */
size_t core_mpi_call_bytes(const struct core_call *call);

/* Give back what derived types remember; at the end. */
void core_mpi_forget_types(void);

#endif
