/* SPDX-License-Identifier: BSD-3-Clause */
/* Collective calls that the real MPI gets. */
#ifndef CORE_REAL_H
#define CORE_REAL_H

#include "core/call/core_call.h"
#include "core/comm/core_comm.h"

/*
 * A call in the real MPI. One that is refused here may not have been refused elsewhere, so that no
 * others of `comm`, as it was numbered, are accelerated; NULL afterwards: an error handler of the
 * application has freed it. Returns MPI's result.
 */
int core_real_make(const struct core_call *call, struct core_comm **comm);

/*
 * The same of a call as the application made it: the real MPI knows no 16-bit floating point.
 * `comm`: as it was numbered, or NULL.
 */
int core_real_call(const struct core_call *call, struct core_comm *comm);

#endif
