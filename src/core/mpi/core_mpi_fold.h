/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contributions of several ranks to the same elements, one rank's after the other's as in a buffer,
 * and what they come to.
 */
#ifndef CORE_MPI_FOLD_H
#define CORE_MPI_FOLD_H

#include "core/call/core_call.h"
#include "core/call/core_mpi_handle.h"
#include "gpu/kernels/gpu_program.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct core_mpi_fold {
	MPI_Datatype type;
	MPI_Op op;
	enum gpu_type ours; /* where this is not GPU_TYPE_NONE `our_op` is made here, not by MPI */
	enum gpu_op our_op;
	MPI_Aint extent, true_lb, true_extent;
	int num;       /* ranks */
	int64_t count; /* of elements of a rank */
	int64_t row;   /* elements from one rank's to the next: elements may reach into others */
	char *memory;
	char *base; /* the buffer's address, as MPI has it */
};

/* So many elements beyond its own an element of the type, whose extent is positive, may reach. */
int64_t core_mpi_fold_reach(MPI_Datatype type);

/*
 * Take room for `count` elements of each of `num` ranks, of the call's type, whose extent is
 * positive. False: no memory. To be closed in any case.
 */
bool core_mpi_fold_open(struct core_mpi_fold *fold, const struct core_call *call, int num,
			int64_t count);
void core_mpi_fold_close(struct core_mpi_fold *fold);

/* Its memory. */
size_t core_mpi_fold_bytes(const struct core_mpi_fold *fold);

/* Where an element of a rank's is. */
char *core_mpi_fold_at(const struct core_mpi_fold *fold, int rank, int64_t element);

/*
 * Up to the last rank that is named each one's contribution becomes the sum of the first ranks' up
 * to it. Returns MPI's error code.
 */
int core_mpi_fold_add_up(const struct core_mpi_fold *fold, int last);

/* Copy elements into a buffer, without what is between their data. Returns MPI's error code. */
int core_mpi_fold_copy(const struct core_mpi_fold *fold, void *to, const char *from, int64_t count);

#endif
