/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_mpi_enqueue.h"
#include "core/call/core_flags.h"
#include "core/call/core_mpi_handle.h"
#include "core/comm/core_comm.h"
#include "core/comm/core_mpi_graph.h"
#include "core/core_mpi_comm.h"
#include "core/core_mpi_fused.h"
#include "core/core_mpi_ordered.h"
#include "core/mpi/core_mpi.h"
#include "core/mpi/core_mpi_kept.h"
#include "core/mpi/core_mpi_name.h"
#include "core/mpi/core_mpi_raise.h"
#include "core/report/core_journal.h"
#include "core/report/core_stats.h"
#include "core/request/core_requests.h"
#include "core/stream/core_stream.h"
#include "gpu/gpu_driver.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* A communicator for a stream. */
struct bound {
	struct bound *next;
	core_handle comm; /* the application's */
	MPI_Comm hidden;  /* on which the engine makes the real MPI's calls */
	struct core_stream *stream;
	struct core_fused fused;
	bool may_call; /* as the MPI's level says */
	bool broken;   /* a call has failed here, and perhaps not elsewhere. Atomic */
	bool drained;  /* at the end: all of the engine's calls have ended */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct bound *all; /* under the lock; the newest first */

/* A call that is enqueued. */
struct enqueued {
	struct core_enqueued part; /* first */
	struct core_call call;     /* on the hidden communicator, and on the stages */
	struct core_mpi_kept kept;
	struct core_message_call message; /* for what knows no messages, `call` is a broadcast */
	struct core_hooks hooks;
	MPI_Request request;
};

/* Of the thread's next collective. */
static _Thread_local struct core_hooks next_hooks;

void core_enqueue_hook(const struct core_hooks *hooks)
{
	next_hooks = *hooks;
}

static int refuse(core_handle comm, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static int refuse(core_handle comm, int error, const char *format, ...)
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

/* ---- communicators ---- */

static struct bound *find(core_handle comm)
{
	struct bound *bound;

	pthread_mutex_lock(&lock);
	for (bound = all; bound && bound->comm != comm;)
		bound = bound->next;
	pthread_mutex_unlock(&lock);
	return bound;
}

static struct bound *take(core_handle comm)
{
	struct bound **link = &all, *bound;

	pthread_mutex_lock(&lock);
	while (*link && (*link)->comm != comm)
		link = &(*link)->next;
	bound = *link;
	if (bound)
		*link = bound->next;
	pthread_mutex_unlock(&lock);
	return bound;
}

static void add(struct bound *bound)
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

	return refuse(comm, core_mpi_error_of(worst), "gpucoll_stream_comm failed: %s", why);
}

/* A thread of the library's makes the calls. */
static bool may_call(void)
{
	int level = MPI_THREAD_SINGLE;

	PMPI_Query_thread(&level);
	return level == MPI_THREAD_MULTIPLE;
}

void core_enqueue_barrier_words(core_handle comm, const int **from, int **to)
{
	static int words[2]; /* the second is written by the engine */
	struct bound *bound = find(comm);
	int *pair = bound && core_fused_is_open(&bound->fused)
			    ? core_standing_barrier(bound->fused.standing)
			    : words;

	*from = &pair[0];
	*to = &pair[1];
}

/* ---- the beginning and the end ---- */

int core_enqueue_open(core_handle comm, void *stream, core_handle *newcomm)
{
	struct bound *bound = NULL;
	MPI_Comm made = MPI_COMM_NULL, hidden = MPI_COMM_NULL;
	const char *why = why_not(core_mpi_as_comm(comm));
	struct core_stream *opened = NULL;
	enum util_status status, worst;
	int result;

	if (why)
		return refuse(comm, MPI_ERR_COMM, "gpucoll_stream_comm failed: %s", why);
	result = dup(core_mpi_as_comm(comm), &made, &hidden);
	if (result != MPI_SUCCESS)
		return result;
	/* No call may have looked for the driver yet, which the program has loaded since. */
	status = gpu_driver_present() ? core_stream_open(stream, &opened) : UTIL_ERR_UNSUPPORTED;
	if (status == UTIL_OK && !(bound = calloc(1, sizeof(*bound))))
		status = UTIL_ERR_NO_MEMORY;
	worst = core_fused_agree(hidden, status);
	if (worst != UTIL_OK) {
		if (opened)
			core_stream_close(opened);
		free(bound);
		PMPI_Comm_free(&hidden);
		PMPI_Comm_free(&made);
		return fail_to_open(comm, status, worst);
	}
	*bound = (struct bound){.comm = (core_handle)made,
				.hidden = hidden,
				.stream = opened,
				.may_call = may_call()};
	core_fused_open(&bound->fused, hidden, core_stream_of(opened));
	add(bound);
	*newcomm = (core_handle)made;
	return MPI_SUCCESS;
}

/* This rank's calls have ended, or never will; begin to find out whether all ranks' have. */
static void begin_end(struct bound *bound)
{
	char name[64];

	core_mpi_name(bound->comm, name, sizeof(name));
	bound->drained = core_stream_drain(bound->stream, name);
	core_fused_drain(&bound->fused, name);
}

/* Where the device is lost the engine may yet look at it. */
static void end(struct bound *bound)
{
	core_fused_close(&bound->fused);
	if (!bound->drained)
		return;
	core_stream_close(bound->stream);
	if (!bound->fused.left)
		PMPI_Comm_free(&bound->hidden);
	free(bound);
}

void core_enqueue_end(core_handle comm)
{
	struct bound *bound = take(comm);

	if (!bound)
		return;
	begin_end(bound);
	end(bound);
}

/* Ranks may have made their communicators in different orders. */
void core_enqueue_stop(void)
{
	struct bound *bound;

	for (bound = all; bound; bound = bound->next)
		begin_end(bound);
	while ((bound = all)) {
		all = bound->next;
		end(bound);
	}
	core_fused_stop();
	core_stream_stop();
}

int core_enqueue_take_error(core_handle comm, int *error)
{
	struct bound *bound = find(comm);

	if (!bound)
		return refuse(
			comm, MPI_ERR_COMM,
			"gpucoll_stream_error was given a communicator that is for no stream");
	*error = core_stream_take_error(bound->stream);
	if (!*error && core_fused_is_open(&bound->fused) &&
	    core_standing_take_failure(bound->fused.standing))
		*error = core_mpi_error_of(UTIL_ERR_PEER);
	return MPI_SUCCESS;
}

/* ---- calls ---- */

static struct enqueued *enqueued_of(struct core_enqueued *part)
{
	return (struct enqueued *)part;
}

static int begin_collective(struct core_enqueued *part)
{
	const struct core_hooks *hooks = &enqueued_of(part)->hooks;
	const struct core_call *call = &enqueued_of(part)->call;

	if (hooks->before)
		hooks->before(core_mpi_is_in_place(call->sendbuf) ? call->recvbuf
								  : (void *)call->sendbuf,
			      hooks->data);
	return call->real(call);
}

static int begin_message(struct core_enqueued *part)
{
	struct core_message_call *message = &enqueued_of(part)->message;
	const struct core_call *call = &enqueued_of(part)->call;

	message->sendbuf = message->recvbuf = call->recvbuf;
	message->sendtype = message->recvtype = call->recvtype;
	message->comm = call->comm;
	message->request = &enqueued_of(part)->request;
	return message->real(message);
}

/* MPICH raises an error on MPI_COMM_WORLD, whose handler is the application's. */
static int test(struct core_enqueued *part, bool *done)
{
	MPI_Status *status = enqueued_of(part)->message.status;
	int flag = 0, result;

	core_requests_pass = true;
	result = PMPI_Test(&enqueued_of(part)->request, &flag, status ? status : MPI_STATUS_IGNORE);
	*done = flag;
	if (flag && !result)
		result = core_ordered_end(&enqueued_of(part)->call);
	if (flag && !result && enqueued_of(part)->hooks.after)
		enqueued_of(part)->hooks.after(enqueued_of(part)->call.recvbuf,
					       enqueued_of(part)->hooks.data);
	return result;
}

static void free_enqueued(struct core_enqueued *part)
{
	core_staging_close(&part->staging);
	core_ordered_close(&enqueued_of(part)->call);
	core_mpi_kept_release(&enqueued_of(part)->kept);
	free(part);
}

/* To ask the driver who a stream is that is captured breaks the capture. */
static bool is_stream_of(const struct bound *bound, void *stream, enum gpu_capture capture)
{
	if (capture == GPU_CAPTURE_NONE)
		return core_stream_is(bound->stream, stream);
	return gpu_stream_handle(core_stream_of(bound->stream)) == stream;
}

/* NULL: an error, which is in `*error`. */
static struct bound *admit(const struct core_call *call, void *stream, enum gpu_capture *capture,
			   int *error)
{
	struct bound *bound = find(call->comm);
	char name[64];

	if (!bound) {
		core_mpi_name(call->comm, name, sizeof(name));
		*error = refuse(call->comm, MPI_ERR_COMM,
				"%s was given the communicator %s, which is for no stream: "
				"gpucoll_stream_comm makes one",
				call->name, name);
		return NULL;
	}
	if (__atomic_load_n(&bound->broken, __ATOMIC_RELAXED)) {
		*error = refuse(call->comm, MPI_ERR_OTHER,
				"%s was given a communicator on which an enqueued call has failed: "
				"ranks may have come to different calls",
				call->name);
		return NULL;
	}
	/* First: what else asks the driver of a stream breaks its capture. */
	*capture = gpu_stream_capture(core_stream_of(bound->stream));
	if (*capture == GPU_CAPTURE_BROKEN) {
		*error = refuse(call->comm, MPI_ERR_OTHER,
				"%s can't be put on its stream while another is captured in a "
				"graph, or this one's capture has failed",
				call->name);
		return NULL;
	}
	if (!is_stream_of(bound, stream, *capture)) {
		*error = refuse(call->comm, MPI_ERR_ARG,
				"%s was given the stream %p, which is not its communicator's",
				call->name, stream);
		return NULL;
	}
	return bound;
}

/*
 * Whether the call can go by the host; `why`: it is not a kernel. False: an error, which is in
 * `*error`.
 */
static bool may_stage(const struct bound *bound, const struct core_call *call,
		      enum gpu_capture capture, const char *why, int *error)
{
	if (capture != GPU_CAPTURE_NONE) {
		*error = refuse(call->comm, MPI_ERR_OTHER,
				"%s can't be captured in a graph: the host takes part in it (%s)",
				call->name, why);
		return false;
	}
	if (!bound->may_call) {
		*error = refuse(call->comm, MPI_ERR_OTHER,
				"%s needs an MPI that was started for MPI_THREAD_MULTIPLE: "
				"GPUCOLL_THREADS=multiple asks it for that",
				call->name);
		return false;
	}
	return true;
}

static enum util_status open_call(struct enqueued *enqueued, const struct bound *bound,
				  const struct core_call *call)
{
	enum util_status status;

	enqueued->call = *call;
	core_ordered_take(&enqueued->call, core_mpi_comm_find(call->comm));
	enqueued->call.request = &enqueued->request;
	enqueued->part.error = MPI_ERR_OTHER;
	status = core_mpi_keep(&enqueued->kept, &enqueued->call, core_mpi_comm_find(call->comm));
	if (status != UTIL_OK)
		return status;
	enqueued->call.comm = (core_handle)bound->hidden;
	enqueued->call.op = core_mpi_real_op(&enqueued->call);
	enqueued->part.staging.on = core_stream_of(bound->stream);
	status = core_staging_open(&enqueued->part.staging, &enqueued->call);
	enqueued->part.bytes = core_staging_bytes(&enqueued->part.staging);
	if (status == UTIL_OK)
		status = core_ordered_open(&enqueued->call);
	enqueued->part.bytes += core_ordered_bytes(&enqueued->call);
	return status;
}

static void count(const struct core_call *call, const struct bound *bound, enum core_path path,
		  const char *why, size_t bytes, uint64_t since)
{
	struct core_stats_call stats = {.coll = call->coll,
					.name = call->name,
					.path = path,
					.why = why,
					.comm = bound->comm,
					.bytes = bytes};

	core_last_path = path;
	core_stats_add_since(&stats, since);
}

static int fail(struct bound *bound, const struct core_call *call, enum util_status status)
{
	__atomic_store_n(&bound->broken, true, __ATOMIC_RELAXED);
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE, "%s failed: %s", call->name,
		 util_status_text(status));
	return core_mpi_raise_on(bound->comm, status);
}

/* ---- by kernels ---- */

/* False: the call is to go by the host, for the reason `*why`. */
static bool run_kernel(struct bound *bound, const struct core_call *call, bool apart, bool captured,
		       const char **why, int *result)
{
	uint64_t since = util_now();
	struct core_standing_call done = {0};
	enum util_status status = core_fused_put(&bound->fused, call, apart, captured, &done);

	*why = done.reason;
	if (status == UTIL_STAGE)
		return false;
	*result = MPI_SUCCESS;
	if (status == UTIL_OK)
		count(call, bound, CORE_PATH_ACCEL, done.reason, done.bytes, since);
	else
		*result = fail(bound, call, status);
	return true;
}

/* ---- by the host ---- */

/* Takes the operation. */
static int put(struct enqueued *enqueued, struct bound *bound, const struct core_call *call,
	       enum util_status status, uint64_t since)
{
	size_t bytes = enqueued->part.bytes;
	bool taken = false;

	if (status == UTIL_OK)
		status = core_stream_put(bound->stream, &enqueued->part, &taken);
	if (!taken)
		free_enqueued(&enqueued->part);
	if (status != UTIL_OK)
		return fail(bound, call, status);
	count(call, bound, CORE_PATH_STAGE, "enqueued", bytes, since);
	return MPI_SUCCESS;
}

/* NULL: as of admit. */
static struct enqueued *create(const struct bound *bound, int *error)
{
	struct enqueued *enqueued;

	core_stream_make_room(bound->stream);
	enqueued = calloc(1, sizeof(*enqueued));
	if (!enqueued) {
		*error = core_mpi_raise_on(bound->comm, UTIL_ERR_NO_MEMORY);
		return NULL;
	}
	enqueued->part.test = test;
	enqueued->part.free = free_enqueued;
	return enqueued;
}

static int stage(struct bound *bound, const struct core_call *call, const struct core_hooks *hooks)
{
	uint64_t since = util_now();
	int error = MPI_SUCCESS;
	struct enqueued *enqueued = create(bound, &error);
	enum util_status status;

	if (!enqueued)
		return error;
	enqueued->hooks = *hooks;
	enqueued->part.begin = begin_collective;
	enqueued->part.staging.apart = hooks->apart;
	status = open_call(enqueued, bound, call);
	/* The program's own memory is not for the host to work on. */
	if (status == UTIL_OK && (hooks->before || hooks->after) &&
	    !core_staging_is_whole(&enqueued->part.staging)) {
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
			 "%s: a scaled reduction of memory of the host", call->name);
		status = UTIL_ERR_UNSUPPORTED;
	}
	return put(enqueued, bound, call, status, since);
}

static int put_on_stream(struct bound *bound, const struct core_call *call,
			 const struct core_hooks *hooks, enum gpu_capture capture)
{
	const char *why = "calls of this communicator go through its memory";
	int result = MPI_SUCCESS;

	if (hooks->before || hooks->after)
		why = "it works on the buffers";
	else if (core_fused_is_open(&bound->fused) &&
		 run_kernel(bound, call, hooks->apart, capture == GPU_CAPTURE_ACTIVE, &why,
			    &result))
		return result;
	return may_stage(bound, call, capture, why, &result) ? stage(bound, call, hooks) : result;
}

int core_enqueue_run(const struct core_call *call, void *stream)
{
	struct core_hooks hooks = next_hooks;
	enum gpu_capture capture = GPU_CAPTURE_NONE;
	struct core_journal_end end = {.where = CORE_WHERE_FAILED};
	int result = MPI_SUCCESS;
	struct core_note note;
	struct bound *bound;

	next_hooks = (struct core_hooks){.before = NULL};
	bound = admit(call, stream, &capture, &result);
	if (!bound)
		return result;
	note = core_journal_begin_enqueued(call, core_mpi_comm_find(call->comm));
	result = put_on_stream(bound, call, &hooks, capture);
	if (!result)
		end = (struct core_journal_end){.where = CORE_WHERE_GIVEN, .path = core_last_path};
	core_journal_end(&note, &end);
	return result;
}

/* Its one buffer, as that of a broadcast from this rank, which is read. */
static struct core_call call_of(const struct core_message_call *message, const char *name)
{
	bool sends = message->kind == CORE_ISEND;
	struct core_call call = {.coll = CORE_BCAST,
				 .name = name,
				 .recvbuf = sends ? (void *)message->sendbuf : message->recvbuf,
				 .recvcount = sends ? message->sendcount : message->recvcount,
				 .recvtype = sends ? message->sendtype : message->recvtype,
				 .comm = message->comm};

	PMPI_Comm_rank(core_mpi_as_comm(message->comm), &call.root);
	return call;
}

int core_enqueue_message(const struct core_message_call *message, const char *name, void *stream)
{
	uint64_t since = util_now();
	struct core_call call = call_of(message, name);
	bool sends = message->kind == CORE_ISEND;
	enum gpu_capture capture = GPU_CAPTURE_NONE;
	int error = MPI_SUCCESS;
	struct bound *bound = admit(&call, stream, &capture, &error);
	struct enqueued *enqueued = NULL;
	enum util_status status;

	if (bound && may_stage(bound, &call, capture, "it is a message", &error))
		enqueued = create(bound, &error);
	if (!enqueued)
		return error;
	enqueued->part.begin = begin_message;
	enqueued->message = *message;
	status = open_call(enqueued, bound, &call);
	/*
	 * What is sent from memory of the host is the program's again when the stream has come
	 * past; what has a stage may be received, and so end, much later.
	 */
	enqueued->part.sends = sends && enqueued->part.staging.num_stages;
	if (sends)
		enqueued->part.bytes = 0;
	/* What is received is read before, too: a short message leaves the rest as it was. */
	if (!sends && enqueued->part.staging.num_operands)
		enqueued->part.staging.operands[0].out = true;
	return put(enqueued, bound, &call, status, since);
}
