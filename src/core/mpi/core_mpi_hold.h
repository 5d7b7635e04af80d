/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Datatypes and operations that a call on its way adds up with (core_mpi_ordered.h). A program may
 * free them as soon as such a call has begun: MPI holds them by itself, and here that is put off.
 */
#ifndef CORE_MPI_HOLD_H
#define CORE_MPI_HOLD_H

#include "core/call/core_call.h"

struct core_mpi_hold {
	struct core_mpi_hold *next;
	core_handle type, op;
};

/* Whether anything is held: a hint, so that others' handles cost no lock. */
extern bool core_mpi_holds;

static inline bool core_mpi_hold_any(void)
{
	return __atomic_load_n(&core_mpi_holds, __ATOMIC_RELAXED);
}

/*
 * Hold both until that is released; the hold must not move in memory. A zeroed one may be released,
 * too. Thread-safe.
 */
void core_mpi_hold_keep(struct core_mpi_hold *hold, core_handle type, core_handle op);
void core_mpi_hold_release(struct core_mpi_hold *hold);

/*
 * The program frees an operation, or a datatype. False: it is for the real MPI. True: that is put
 * off, and the handle is to be MPI's null.
 */
bool core_mpi_hold_put_off_op(core_handle op);
bool core_mpi_hold_put_off_type(core_handle type);

#endif
