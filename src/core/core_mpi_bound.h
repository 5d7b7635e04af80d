/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators that are bound to a stream of the application's (gpucoll.h; src/core/stream). Under
 * the door's guard. What returns an int returns MPI's code, and has raised an error on the
 * communicator that it was given.
 */
#ifndef CORE_MPI_BOUND_H
#define CORE_MPI_BOUND_H

#include "core/call/core_mpi_handle.h"
#include "core/core_mpi_fused.h"

#include <stdbool.h>

/* A communicator for a stream. */
struct core_mpi_bound {
	struct core_mpi_bound *next;
	core_handle comm; /* the application's */
	MPI_Comm hidden;  /* on which the engine makes the real MPI's calls */
	struct core_stream *stream;
	struct core_fused fused;
	struct core_checks *check; /* see core_mpi_check.h; NULL: its calls are not checked */
	int found;                 /* MPI's code of what that has found, until told. Atomic */
	bool may_call;             /* as the MPI's level says */
	int broken;   /* MPI's code of a call that failed here, and perhaps not elsewhere. Atomic */
	bool drained; /* at the end: all of the engine's calls have ended */
};

/* The communicator's; NULL: it is for no stream. Thread-safe; it lives as long as that. */
struct core_mpi_bound *core_mpi_bound_find(core_handle comm);

/* Whether it is for this stream, on which the capture is found. */
bool core_mpi_bound_is_for(const struct core_mpi_bound *bound, void *stream,
			   enum gpu_capture capture);

/* Say the text, raise the error on the communicator, and return it. */
int core_mpi_bound_refuse(core_handle comm, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Make a duplicate of the communicator for a stream, by its handle. Collective. */
int core_mpi_bound_open(core_handle comm, void *stream, core_handle *newcomm);

/* Two numbers for a barrier on it: what is added up, and where the sum, which nobody reads, goes.
 */
void core_mpi_bound_barrier_words(core_handle comm, const int **from, int **to);

/* Whether the host has calls of it that have not ended. Thread-safe. */
bool core_mpi_bound_has_calls(core_handle comm);

/*
 * A call of this rank's has failed, or is refused: so are its later ones, and the others, whose
 * kernels would wait for them, are told. Any thread.
 */
void core_mpi_bound_break_off(struct core_mpi_bound *bound, enum util_status status);

/*
 * This rank makes no more calls on it: they are refused, and kernels that wait give up. The others
 * are told unless the streams are past all of its calls: then they may still be at what this rank
 * has done. Not `idle_too`: not in that case. Returns whether it is so. Thread-safe.
 */
bool core_mpi_bound_abandon(core_handle comm, bool idle_too);

/* The code of an enqueued call that has failed since this was last asked, or MPI_SUCCESS. */
int core_mpi_bound_take_error(core_handle comm, int *error);

/* Any communicator is revoked: what is enqueued on it ends. */
void core_mpi_bound_revoke(core_handle comm);

/* The communicator is about to be freed: what is enqueued on it ends before. Any communicator. */
void core_mpi_bound_end(core_handle comm);

/* Before MPI_Finalize: the same of all that are left. */
void core_mpi_bound_stop(void);

#endif
