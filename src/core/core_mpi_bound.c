/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_mpi_bound.h"
#include "core/accel/core_failure.h"
#include "core/agree/core_meet.h"
#include "core/call/core_flags.h"
#include "core/comm/core_comm.h"
#include "core/comm/core_mpi_graph.h"
#include "core/core_mpi_check.h"
#include "core/core_mpi_comm.h"
#include "core/mpi/core_mpi_name.h"
#include "core/mpi/core_mpi_raise.h"
#include "core/stream/core_stream.h"
#include "gpu/gpu_driver.h"
#include "util/util_log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct core_mpi_bound *all; /* under the lock; the newest first */

/* To ask the driver who a stream is that is captured breaks the capture. */
bool core_mpi_bound_is_for(const struct core_mpi_bound *bound, void *stream,
			   enum gpu_capture capture)
{
	if (capture == GPU_CAPTURE_NONE)
		return core_stream_is(bound->stream, stream);
	return gpu_stream_handle(core_stream_of(bound->stream)) == stream;
}

int core_mpi_bound_refuse(core_handle comm, int error, const char *format, ...)
{
	char text[300];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE, "%s", text);
	PMPI_Comm_call_errhandler(core_mpi_as_comm(comm), error);
	return error;
}

struct core_mpi_bound *core_mpi_bound_find(core_handle comm)
{
	struct core_mpi_bound *bound;

	pthread_mutex_lock(&lock);
	for (bound = all; bound && bound->comm != comm;)
		bound = bound->next;
	pthread_mutex_unlock(&lock);
	return bound;
}

static struct core_mpi_bound *take_bound(core_handle comm)
{
	struct core_mpi_bound **link = &all, *bound;

	pthread_mutex_lock(&lock);
	while (*link && (*link)->comm != comm)
		link = &(*link)->next;
	bound = *link;
	if (bound)
		*link = bound->next;
	pthread_mutex_unlock(&lock);
	return bound;
}

static void add_bound(struct core_mpi_bound *bound)
{
	pthread_mutex_lock(&lock);
	bound->next = all;
	all = bound;
	pthread_mutex_unlock(&lock);
}

/* Why the communicator can't be had for streams, as all its ranks find; NULL: it can. */
static const char *why_not(MPI_Comm comm)
{
	int inter = 0;

	if (!core_awake)
		return "the library is not at work in this job: there is no CUDA driver, or it is "
		       "disabled";
	PMPI_Comm_test_inter(comm, &inter);
	if (inter)
		return "an intercommunicator can't be for a stream";
	if (!core_mpi_comm_find((core_handle)comm))
		return "the communicator has processes of another job";
	return NULL;
}

/* Also one that is not accelerated has to know how long the arrays of a call are. */
static void identify(MPI_Comm comm)
{
	struct core_comm *state;

	core_mpi_comm_identify((core_handle)comm);
	state = core_mpi_comm_find((core_handle)comm);
	if (state && !state->graph && !core_mpi_find_graph(comm, state))
		PMPI_Abort(comm, 1); /* who has no memory for that would leave the others waiting */
}

static int dup(MPI_Comm comm, MPI_Comm *made, MPI_Comm *hidden)
{
	int result = PMPI_Comm_dup(comm, made);

	if (result != MPI_SUCCESS)
		return result;
	identify(*made);
	result = PMPI_Comm_dup(*made, hidden);
	if (result == MPI_SUCCESS)
		PMPI_Comm_set_errhandler(*hidden, MPI_ERRORS_RETURN);
	else
		PMPI_Comm_free(made);
	return result;
}

static int fail_to_open(core_handle comm, enum util_status mine, enum util_status worst)
{
	const char *why = mine == UTIL_ERR_UNSUPPORTED
				  ? "the device of the stream can't write words "
				    "and wait for them in stream order"
			  : mine == UTIL_OK ? "another rank can't"
					    : "see above";

	return core_mpi_bound_refuse(comm, core_mpi_error_of(worst),
				     "gpucoll_stream_comm failed: %s", why);
}

/* A thread of the library's makes the calls. */
static bool may_call(void)
{
	int level = MPI_THREAD_SINGLE;

	PMPI_Query_thread(&level);
	return level == MPI_THREAD_MULTIPLE;
}

/*
 * Ranks have come to different calls. Calls nothing of the MPI. A call that the other rank had
 * given up already says less.
 */
static void fail(void *argument, int error)
{
	struct core_mpi_bound *bound = argument;
	int broken = __atomic_load_n(&bound->broken, __ATOMIC_RELAXED);

	/* It may be revoked, or broken off, meanwhile. */
	while ((!broken || broken == core_mpi_error_of(UTIL_ERR_PEER)) &&
	       !__atomic_compare_exchange_n(&bound->broken, &broken, error, false, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED))
		;
	__atomic_store_n(&bound->found, error, __ATOMIC_RELAXED);
	if (core_fused_is_open(&bound->fused))
		core_standing_give_up(bound->fused.standing);
}

/* ---- the beginning and the end ---- */

int core_mpi_bound_open(core_handle comm, void *stream, core_handle *newcomm)
{
	struct core_mpi_bound *bound = NULL;
	MPI_Comm made = MPI_COMM_NULL, hidden = MPI_COMM_NULL;
	const char *why = why_not(core_mpi_as_comm(comm));
	struct core_stream *opened = NULL;
	enum util_status status, worst;
	int result;

	if (why)
		return core_mpi_bound_refuse(comm, MPI_ERR_COMM, "gpucoll_stream_comm failed: %s",
					     why);
	result = dup(core_mpi_as_comm(comm), &made, &hidden);
	if (result != MPI_SUCCESS)
		return result;
	/* No call may have looked for the driver yet, which the program has loaded since. */
	status = gpu_driver_present() ? core_stream_open(stream, &opened) : UTIL_ERR_UNSUPPORTED;
	if (status == UTIL_OK && !(bound = calloc(1, sizeof(*bound))))
		status = UTIL_ERR_NO_MEMORY;
	worst = core_fused_agree(hidden, status);
	if (worst == UTIL_OK) {
		/* All ranks have loaded what they need, and begin at the same time. */
		status = core_stream_choose_wait(opened);
		worst = core_fused_agree(hidden, status);
	}
	if (worst != UTIL_OK) {
		if (opened)
			core_stream_close(opened);
		free(bound);
		PMPI_Comm_free(&hidden);
		PMPI_Comm_free(&made);
		return fail_to_open(comm, status, worst);
	}
	*bound = (struct core_mpi_bound){.comm = (core_handle)made,
					 .hidden = hidden,
					 .stream = opened,
					 .may_call = may_call()};
	core_fused_open(&bound->fused, hidden, core_stream_of(opened));
	bound->check =
		core_check_open_enqueued(core_mpi_comm_find(bound->comm), bound->comm, fail, bound);
	add_bound(bound);
	*newcomm = (core_handle)made;
	return MPI_SUCCESS;
}

/* This rank's calls have ended, or never will; begin to find out whether all ranks' have. */
static void begin_end(struct core_mpi_bound *bound)
{
	char name[64];

	core_mpi_name(bound->comm, name, sizeof(name));
	bound->drained = core_stream_drain(bound->stream, name);
	core_fused_drain(&bound->fused, name);
}

/* Where the device is lost the engine may yet look at it. */
static void end_bound(struct core_mpi_bound *bound)
{
	core_check_close_enqueued(bound->check);
	core_fused_close(&bound->fused);
	if (!bound->drained)
		return;
	core_stream_close(bound->stream);
	if (!bound->fused.left)
		PMPI_Comm_free(&bound->hidden);
	free(bound);
}

void core_mpi_bound_end(core_handle comm)
{
	struct core_mpi_bound *bound = take_bound(comm);

	if (!bound)
		return;
	begin_end(bound);
	end_bound(bound);
}

/* Ranks may have made their communicators in different orders. */
void core_mpi_bound_stop(void)
{
	struct core_mpi_bound *bound;

	for (bound = all; bound; bound = bound->next)
		begin_end(bound);
	while ((bound = all)) {
		all = bound->next;
		end_bound(bound);
	}
	core_fused_stop();
	core_stream_stop();
}

bool core_mpi_bound_has_calls(core_handle comm)
{
	const struct core_mpi_bound *bound = core_mpi_bound_find(comm);

	return bound && !core_stream_is_idle(bound->stream);
}

/* Of several reasons the first is kept. */
static void refuse_calls(struct core_mpi_bound *bound, enum util_status status)
{
	int none = 0;

	__atomic_compare_exchange_n(&bound->broken, &none, core_mpi_error_of(status), false,
				    __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

void core_mpi_bound_break_off(struct core_mpi_bound *bound, enum util_status status)
{
	refuse_calls(bound, status);
	if (core_fused_is_open(&bound->fused))
		core_standing_give_up(bound->fused.standing);
}

/* Asks the driver nothing of the application's stream, which may be captured. */
static bool is_busy(const struct core_mpi_bound *bound)
{
	return !core_stream_is_past_all(bound->stream) ||
	       (core_fused_is_open(&bound->fused) && core_standing_is_busy(bound->fused.standing));
}

bool core_mpi_bound_abandon(core_handle comm, bool idle_too)
{
	struct core_mpi_bound *bound = core_mpi_bound_find(comm);

	if (!bound || (!idle_too && !is_busy(bound)))
		return false;
	refuse_calls(bound, UTIL_ERR_PEER);
	if (!core_fused_is_open(&bound->fused))
		return true;
	core_standing_abandon(bound->fused.standing);
	if (is_busy(bound))
		core_standing_give_up(bound->fused.standing);
	return true;
}

int core_mpi_bound_take_error(core_handle comm, int *error)
{
	struct core_mpi_bound *bound = core_mpi_bound_find(comm);
	int mine, found;
	bool failed;

	if (!bound)
		return core_mpi_bound_refuse(
			comm, MPI_ERR_COMM,
			"gpucoll_stream_error was given a communicator that is for no stream");
	failed = core_fused_is_open(&bound->fused) &&
		 core_standing_take_failure(bound->fused.standing);
	found = __atomic_exchange_n(&bound->found, 0, __ATOMIC_RELAXED);
	mine = core_stream_take_error(bound->stream);
	/* All are taken: the next question is about what comes after this one. */
	*error = found ? found : mine;
	if (!*error && failed)
		*error = core_mpi_error_of(core_failure_of_loss(bound->fused.own));
	return MPI_SUCCESS;
}

void core_mpi_bound_revoke(core_handle comm)
{
	struct core_mpi_bound *bound = core_mpi_bound_find(comm);

	if (!bound)
		return;
	__atomic_store_n(&bound->broken, core_mpi_error_of(UTIL_ERR_REVOKED), __ATOMIC_RELAXED);
	if (core_fused_is_open(&bound->fused))
		core_meet_revoke(bound->fused.own);
	core_check_revoke(bound->check);
	core_mpi_revoke_real((core_handle)bound->hidden);
}

void core_mpi_bound_barrier_words(core_handle comm, const int **from, int **to)
{
	static int words[2]; /* the second is written by the engine */
	struct core_mpi_bound *bound = core_mpi_bound_find(comm);
	int *pair = bound && core_fused_is_open(&bound->fused)
			    ? core_standing_barrier(bound->fused.standing)
			    : words;

	*from = &pair[0];
	*to = &pair[1];
}
