/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_MAX, MPI_MIN, MPI_MAXLOC and MPI_MINLOC of floating-point numbers as kernels have them
 * (gpu_ops.h), where the order of operands counts: what an MPI makes of numbers that are equal but
 * not alike, or not comparable, differs even within one call.
 */
#ifndef CORE_MPI_EXTREME_H
#define CORE_MPI_EXTREME_H

#include "gpu/kernels/gpu_program.h"
#include "gpu/kernels/gpu_types.h"

#include <stdbool.h>
#include <stdint.h>

/* Whether the operation on the type is one of these. */
bool core_extreme_is(enum gpu_type type, enum gpu_op op);

/* Of each element in `left`, which comes first, and its like in `into`, into the latter. */
void core_extreme_apply(enum gpu_type type, enum gpu_op op, const void *left, void *into,
			int64_t count);

#endif
