/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI's predefined types and operations as those that kernels compute with. */
#ifndef CORE_MPI_ARITHMETIC_H
#define CORE_MPI_ARITHMETIC_H

#include "core/call/core_call.h"
#include "core/call/core_reason.h"
#include "core/call/core_shape.h"

/*
 * The type and operation of a reduction, into its shape. Returns why kernels don't compute it,
 * or CORE_REASON_NONE. Thread-safe.
 */
enum core_reason core_mpi_find_arithmetic(const struct core_call *call, struct core_shape *shape);

#endif
