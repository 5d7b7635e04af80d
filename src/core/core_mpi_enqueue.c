/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_mpi_enqueue.h"
#include "core/call/core_flags.h"
#include "core/core_mpi_bound.h"
#include "core/core_mpi_check.h"
#include "core/core_mpi_comm.h"
#include "core/core_mpi_group.h"
#include "core/core_mpi_ordered.h"
#include "core/mpi/core_mpi.h"
#include "core/mpi/core_mpi_kept.h"
#include "core/mpi/core_mpi_name.h"
#include "core/mpi/core_mpi_raise.h"
#include "core/report/core_journal.h"
#include "core/report/core_stats.h"
#include "core/request/core_requests.h"
#include "core/stream/core_stream.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <stdlib.h>

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

static struct enqueued *enqueued_of(struct core_enqueued *part)
{
	return (struct enqueued *)part;
}

/* On a revoked communicator it may never end (core_op.c). */
static int begin_collective(struct core_enqueued *part)
{
	const struct core_hooks *hooks = &enqueued_of(part)->hooks;
	const struct core_call *call = &enqueued_of(part)->call;

	if (core_mpi_is_revoked(call->comm))
		return core_mpi_error_of(UTIL_ERR_REVOKED);
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

/* NULL: an error, which is in `*error`. */
static struct core_mpi_bound *admit(const struct core_call *call, void *stream,
				    enum gpu_capture *capture, int *error)
{
	struct core_mpi_bound *bound = core_mpi_bound_find(call->comm);
	int topology = MPI_UNDEFINED;
	char name[64];

	if (!bound) {
		core_mpi_name(call->comm, name, sizeof(name));
		*error = core_mpi_bound_refuse(
			call->comm, MPI_ERR_COMM,
			"%s was given the communicator %s, which is for no stream: "
			"gpucoll_stream_comm makes one",
			call->name, name);
		return NULL;
	}
	*error = __atomic_load_n(&bound->broken, __ATOMIC_RELAXED);
	if (*error) {
		core_mpi_bound_break_off(bound, UTIL_ERR_PEER);
		core_mpi_bound_refuse(call->comm, *error,
				      "%s was given a communicator on which an enqueued call has "
				      "failed, or which was revoked or aborted",
				      call->name);
		return NULL;
	}
	/* First: what else asks the driver of a stream breaks its capture. */
	*capture = gpu_stream_capture(core_stream_of(bound->stream));
	if (*capture == GPU_CAPTURE_BROKEN) {
		*error = core_mpi_bound_refuse(
			call->comm, MPI_ERR_OTHER,
			"%s can't be put on its stream while another is captured in a "
			"graph, or this one's capture has failed",
			call->name);
		return NULL;
	}
	if (!core_mpi_bound_is_for(bound, stream, *capture)) {
		*error = core_mpi_bound_refuse(
			call->comm, MPI_ERR_ARG,
			"%s was given the stream %p, which is not its communicator's", call->name,
			stream);
		return NULL;
	}
	if (core_coll_is_neighbor(call->coll))
		PMPI_Topo_test(core_mpi_as_comm(call->comm), &topology);
	if (core_coll_is_neighbor(call->coll) && topology == MPI_UNDEFINED) {
		*error = core_mpi_bound_refuse(call->comm, MPI_ERR_TOPOLOGY,
					       "%s was given a communicator without a topology",
					       call->name);
		return NULL;
	}
	return bound;
}

/*
 * Whether the call can go by the host; `why`: it is not a kernel. False: an error, which is in
 * `*error`.
 */
static bool may_stage(const struct core_mpi_bound *bound, const struct core_call *call,
		      enum gpu_capture capture, const char *why, int *error)
{
	if (capture != GPU_CAPTURE_NONE) {
		*error = core_mpi_bound_refuse(
			call->comm, MPI_ERR_OTHER,
			"%s can't be captured in a graph: the host takes part in it (%s)",
			call->name, why);
		return false;
	}
	if (!bound->may_call) {
		*error = core_mpi_bound_refuse(
			call->comm, MPI_ERR_OTHER,
			"%s needs an MPI that was started for MPI_THREAD_MULTIPLE: "
			"GPUCOLL_THREADS=multiple asks it for that",
			call->name);
		return false;
	}
	return true;
}

static enum util_status open_call(struct enqueued *enqueued, const struct core_mpi_bound *bound,
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

static void count_enqueued(const struct core_call *call, const struct core_mpi_bound *bound,
			   enum core_path path, const char *why, size_t bytes, uint64_t since)
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

static int fail_enqueued(struct core_mpi_bound *bound, const struct core_call *call,
			 enum util_status status)
{
	core_mpi_bound_break_off(bound, status);
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE, "%s failed: %s", call->name,
		 util_status_text(status));
	return core_mpi_raise_on(bound->comm, status);
}

/* ---- by kernels ---- */

/* A collective that is a group of messages. */
static enum util_status put_group(struct core_mpi_bound *bound, const struct core_call *call,
				  bool captured, struct core_standing_call *done)
{
	const struct core_graph *graph = core_mpi_comm_find(call->comm)->graph;
	struct core_group group = {.num = 0};
	enum core_reason why = CORE_REASON_NONE;
	enum util_status status;
	int rank, size;

	if (core_coll_is_neighbor(call->coll))
		why = graph ? graph->why : CORE_REASON_REFUSED;
	done->reason = core_reason_text(why);
	if (why != CORE_REASON_NONE)
		return UTIL_STAGE;
	PMPI_Comm_rank(bound->hidden, &rank);
	PMPI_Comm_size(bound->hidden, &size);
	status = core_group_of_call(&group, call, rank, size, graph);
	if (status == UTIL_OK)
		status = core_group_put(&bound->fused, &group, call->name, ++bound->fused.groups,
					captured, done);
	core_group_free(&group);
	return status;
}

static enum util_status put_kernel(struct core_mpi_bound *bound, const struct core_call *call,
				   bool apart, bool captured, struct core_standing_call *done)
{
	if (core_group_has_form_of(call->coll))
		return put_group(bound, call, captured, done);
	return core_fused_put(&bound->fused, call, apart, captured, done);
}

/* False: the call is to go by the host, for the reason `*why`. */
static bool run_kernel(struct core_mpi_bound *bound, const struct core_call *call, bool apart,
		       bool captured, const char **why, int *result)
{
	uint64_t since = util_now();
	struct core_standing_call done = {0};
	enum util_status status = put_kernel(bound, call, apart, captured, &done);

	*why = done.reason;
	if (status == UTIL_STAGE)
		return false;
	*result = MPI_SUCCESS;
	if (status == UTIL_OK)
		count_enqueued(call, bound, CORE_PATH_ACCEL, done.reason, done.bytes, since);
	else
		*result = fail_enqueued(bound, call, status);
	return true;
}

/* ---- by the host ---- */

/* Takes the operation. */
static int put_enqueued(struct enqueued *enqueued, struct core_mpi_bound *bound,
			const struct core_call *call, enum util_status status, uint64_t since)
{
	size_t bytes = enqueued->part.bytes;
	bool taken = false;

	if (status == UTIL_OK)
		status = core_stream_put(bound->stream, &enqueued->part, &taken);
	if (!taken)
		free_enqueued(&enqueued->part);
	if (status != UTIL_OK)
		return fail_enqueued(bound, call, status);
	count_enqueued(call, bound, CORE_PATH_STAGE, "enqueued", bytes, since);
	return MPI_SUCCESS;
}

/*
 * NULL: as of admit. What finds room is put even if an error has been found since: others may have
 * put theirs, which wait for this rank's in the real MPI.
 */
static struct enqueued *create(const struct core_mpi_bound *bound, int *error)
{
	bool room = core_stream_make_room(bound->stream, &bound->broken);
	struct enqueued *enqueued = room ? calloc(1, sizeof(*enqueued)) : NULL;

	if (!enqueued) {
		*error = core_mpi_raise_on(bound->comm, room ? UTIL_ERR_NO_MEMORY : UTIL_ERR_PEER);
		return NULL;
	}
	enqueued->part.test = test;
	enqueued->part.free = free_enqueued;
	return enqueued;
}

static int stage(struct core_mpi_bound *bound, const struct core_call *call,
		 const struct core_hooks *hooks)
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
	return put_enqueued(enqueued, bound, call, status, since);
}

static int put_on_stream(struct core_mpi_bound *bound, const struct core_call *call,
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
	struct core_mpi_bound *bound;

	next_hooks = (struct core_hooks){.before = NULL};
	bound = admit(call, stream, &capture, &result);
	if (!bound)
		return result;
	note = core_journal_begin_enqueued(call, core_mpi_comm_find(call->comm));
	/* What is captured is run when, and as often as, its graph is launched. */
	if (bound->check && capture == GPU_CAPTURE_NONE)
		core_check_enqueued(bound->check, call, core_mpi_comm_find(call->comm));
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

static int put_message(const struct core_message_call *message, const char *name, void *stream)
{
	uint64_t since = util_now();
	struct core_call call = call_of(message, name);
	bool sends = message->kind == CORE_ISEND;
	enum gpu_capture capture = GPU_CAPTURE_NONE;
	int error = MPI_SUCCESS;
	struct core_mpi_bound *bound = admit(&call, stream, &capture, &error);
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
	return put_enqueued(enqueued, bound, &call, status, since);
}

static void end_note(const struct core_note *note, enum core_path path, uint64_t bytes, int result)
{
	struct core_journal_end end = {.where = result ? CORE_WHERE_FAILED : CORE_WHERE_GIVEN,
				       .path = path,
				       .bytes = bytes};

	core_journal_end(note, &end);
}

/* In the journal without its communicator: only what all its ranks call has a number there. */
int core_enqueue_message(const struct core_message_call *message, const char *name, void *stream)
{
	struct core_note note = core_journal_begin_other(name, NULL, false);
	int result = put_message(message, name, stream);

	end_note(&note, CORE_PATH_STAGE, 0, result);
	return result;
}

void core_enqueue_give_up(core_handle comm)
{
	struct core_mpi_bound *bound = core_mpi_bound_find(comm);

	if (bound)
		core_mpi_bound_break_off(bound, UTIL_ERR_PEER);
}

bool core_enqueue_takes_groups(core_handle comm)
{
	const struct core_mpi_bound *bound = core_mpi_bound_find(comm);

	return bound && core_fused_is_open(&bound->fused);
}

static int put_parts(const struct core_group *group, const char *name, core_handle comm,
		     void *stream, uint64_t *bytes)
{
	struct core_call call = {.coll = CORE_ALLTOALLV, .name = name, .comm = comm};
	uint64_t since = util_now();
	struct core_standing_call done = {0};
	enum gpu_capture capture = GPU_CAPTURE_NONE;
	int error = MPI_SUCCESS;
	struct core_mpi_bound *bound = admit(&call, stream, &capture, &error);
	enum util_status status;

	if (!bound)
		return error;
	status =
		core_group_put(&bound->fused, group, name, 0, capture == GPU_CAPTURE_ACTIVE, &done);
	if (status != UTIL_OK)
		return fail_enqueued(bound, &call, status);
	count_enqueued(&call, bound, CORE_PATH_ACCEL, done.reason, done.bytes, since);
	*bytes = done.bytes;
	return MPI_SUCCESS;
}

/* In the journal as a message is. */
int core_enqueue_group(const struct core_message_part *parts, int num, const char *name,
		       core_handle comm, void *stream)
{
	struct core_group group = {.parts = (struct core_message_part *)parts, .num = num};
	struct core_note note = core_journal_begin_other(name, NULL, false);
	uint64_t bytes = 0;
	int result = put_parts(&group, name, comm, stream, &bytes);

	end_note(&note, CORE_PATH_ACCEL, bytes, result);
	return result;
}
