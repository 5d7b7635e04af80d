/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_mpi_fused.h"
#include "core/agree/core_meet.h"
#include "core/call/core_coll.h"
#include "core/call/core_mpi_handle.h"
#include "core/core_comm_life.h"
#include "core/core_mpi_comm.h"
#include "core/core_mpi_packed.h"
#include "core/job/core_mpi_drive.h"
#include "core/mpi/core_mpi.h"
#include "core/report/core_journal.h"
#include "core/request/core_requests.h"
#include "gpu/gpu_launch.h"
#include "util/util_config.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <stdlib.h>

enum util_status core_fused_agree(MPI_Comm comm, enum util_status status)
{
	int mine = status, all_have = UTIL_ERR_MPI;

	PMPI_Allreduce(&mine, &all_have, 1, MPI_INT, MPI_MIN, comm);
	return (enum util_status)all_have;
}

/* ---- the beginning ---- */

static void end_own(struct core_comm *own)
{
	core_journal_forget(own);
	core_comm_life_end(own);
}

static int call_nothing(const struct core_call *call)
{
	(void)call;
	return MPI_SUCCESS;
}

static void make_trial(struct core_call *call, const void *in, void *out, int64_t count)
{
	*call = (struct core_call){.coll = CORE_ALLREDUCE,
				   .name = "gpucoll_stream_comm",
				   .sendbuf = in,
				   .recvbuf = out,
				   .recvcount = count,
				   .recvtype = (core_handle)MPI_FLOAT,
				   .op = (core_handle)MPI_SUM,
				   .real = call_nothing};
}

/* What all ranks have, where the fewest count; and the first one's wishes. */
static void agree_on_terms(MPI_Comm comm, struct core_standing_terms *terms)
{
	unsigned mine = terms->blocks;

	PMPI_Allreduce(&mine, &terms->blocks, 1, MPI_UNSIGNED, MPI_MIN, comm);
	PMPI_Bcast(terms->wishes, sizeof(terms->wishes), MPI_BYTE, 0, comm);
}

static void drop_standing(struct core_fused *fused)
{
	if (fused->standing)
		core_standing_close(fused->standing, true);
	if (fused->own)
		end_own(fused->own);
	fused->standing = NULL;
	fused->own = NULL;
}

/* `why`: "" where another rank knows. */
static void tell_staged(const struct core_fused *fused, const char *why)
{
	int rank;

	PMPI_Comm_rank(fused->hidden, &rank);
	if (rank)
		return;
	util_log(util_config.stream_exec == UTIL_STREAM_EXEC_FUSED ? UTIL_LOG_WARN : UTIL_LOG_INFO,
		 UTIL_SUBSYS_CORE, "what is enqueued goes through the host's memory: %s",
		 *why ? why : "another rank can't do without");
}

/* The worst, where what can be tried again is better than an error. */
static enum util_status agree_on_trial(MPI_Comm comm, enum util_status status)
{
	int mine = status == UTIL_OK ? 2 : status == UTIL_STAGE ? 1 : 0, worst = 0;

	PMPI_Allreduce(&mine, &worst, 1, MPI_INT, MPI_MIN, comm);
	return worst == 2 ? UTIL_OK : worst ? UTIL_STAGE : UTIL_ERR_UNSUPPORTED;
}

/* Collective, at each step. NULL: it is well; else why it is not, "" where another rank knows. */
static const char *make_standing(struct core_fused *fused)
{
	struct core_standing_terms terms = {0};
	const char *why = NULL;
	enum util_status status = core_standing_open(fused->own, fused->on, &fused->standing);

	if (core_fused_agree(fused->hidden, status) != UTIL_OK)
		return status == UTIL_OK ? "" : "see above";
	status = UTIL_STAGE;
	for (int i = 0; i < CORE_STANDING_TRIALS && status == UTIL_STAGE; i++) {
		status = core_standing_try(fused->standing, make_trial, &terms, &why);
		status = agree_on_trial(fused->hidden, status);
	}
	if (status != UTIL_OK)
		return why ? why : "";
	agree_on_terms(fused->hidden, &terms);
	if (!terms.blocks)
		return "earlier communicators have all the blocks that may wait on the device";
	status = core_standing_settle(fused->standing, &terms);
	/* Behind this all have settled. */
	return core_fused_agree(fused->hidden, status) == UTIL_OK ? NULL : "";
}

/* NULL: this rank's kernels may wait for others' as long as these may take to come. */
static const char *why_not(const struct gpu_stream *on)
{
	if (!util_config.accel || util_config.stream_exec == UTIL_STREAM_EXEC_STAGED ||
	    gpu_launch_is_blocking())
		return "as is asked for";
	if (util_config.stream_exec != UTIL_STREAM_EXEC_FUSED &&
	    gpu_device_limits_kernels(gpu_stream_where(on)->device))
		return "the driver ends kernels that take long on a device with a display";
	return NULL;
}

void core_fused_open(struct core_fused *fused, MPI_Comm hidden, struct gpu_stream *on)
{
	const char *why = why_not(on);

	*fused = (struct core_fused){.hidden = hidden, .on = on, .barrier = MPI_REQUEST_NULL};
	if (core_fused_agree(hidden, why ? UTIL_ERR_UNSUPPORTED : UTIL_OK) != UTIL_OK) {
		tell_staged(fused, why ? why : "");
		return;
	}
	fused->own = core_mpi_comm_draw((core_handle)hidden, false);
	if (!fused->own || !fused->own->area || fused->own->spans) {
		tell_staged(fused, !fused->own           ? "the node's board is full"
				   : fused->own->no_area ? core_reason_text(fused->own->no_area)
							 : "ranks are on several nodes");
		drop_standing(fused);
		return;
	}
	why = make_standing(fused);
	if (!why)
		return;
	tell_staged(fused, why);
	drop_standing(fused);
}

/* What the stream is past is given back; what is in graphs stays. */
static void free_packed(struct core_fused *fused, bool all_of_them)
{
	struct core_mpi_packed **link = &fused->packed_calls, *packed;

	while ((packed = *link)) {
		if (!all_of_them &&
		    (!packed->number || !core_standing_has_come(fused->standing, packed->number))) {
			link = &packed->next;
			continue;
		}
		*link = packed->next;
		core_mpi_packed_free(packed);
	}
}

/* ---- calls ---- */

static size_t bytes_of(int64_t count, core_handle type)
{
	int size = 0;

	PMPI_Type_size(core_mpi_as_type(type), &size);
	return (size_t)count * (size_t)size;
}

/*
 * Of a call whose output may lie where its input does, as MPI has it in place only, and with its
 * own rules for where: in place as MPI has it, or with an output aside, which is copied to its
 * place behind it. Datatypes are predefined ones. Returns the bytes of that; 0: there is none.
 */
static size_t part_buffers(const struct core_fused *fused, struct core_call *call)
{
	size_t block = bytes_of(call->recvcount, call->recvtype);
	int rank, size;

	PMPI_Comm_rank(fused->hidden, &rank);
	PMPI_Comm_size(fused->hidden, &size);
	switch (call->coll) {
	case CORE_REDUCE:
	case CORE_ALLREDUCE:
		if (call->sendbuf == call->recvbuf &&
		    (call->coll == CORE_ALLREDUCE || rank == call->root))
			call->sendbuf = MPI_IN_PLACE;
		return 0;
	case CORE_ALLGATHER:
		if (call->sendbuf == (char *)call->recvbuf + (size_t)rank * block)
			call->sendbuf = MPI_IN_PLACE;
		return 0;
	case CORE_REDUCE_SCATTER_BLOCK:
		return call->recvbuf == (const char *)call->sendbuf + (size_t)rank * block ? block
											   : 0;
	case CORE_ALLTOALL:
		return call->recvbuf == call->sendbuf ? (size_t)size * block : 0;
	default:
		return 0;
	}
}

/* Bytes of the stages that the stream will be past; those in graphs stay. */
static size_t held(const struct core_fused *fused)
{
	size_t bytes = 0;

	for (const struct core_mpi_packed *packed = fused->packed_calls; packed;
	     packed = packed->next)
		bytes += packed->number ? core_mpi_packed_bytes(packed) : 0;
	return bytes;
}

/* As calls by the host do: a call waits for earlier ones. */
static void make_room_for_packed(struct core_fused *fused)
{
	struct core_wait wait = {0};

	free_packed(fused, false);
	while (held(fused) > util_config.staging_pool &&
	       !core_standing_is_in_vain(fused->standing)) {
		core_mpi_drive(&wait);
		free_packed(fused, false);
	}
}

void core_fused_keep_packed(struct core_fused *fused, struct core_mpi_packed *packed)
{
	make_room_for_packed(fused);
	/* Until the stream is known to be past it. */
	packed->next = fused->packed_calls;
	fused->packed_calls = packed;
}

enum util_status core_fused_follow(const struct core_fused *fused, bool captured, uint64_t *number)
{
	*number = 0;
	return captured ? UTIL_OK : core_standing_follow(fused->standing, fused->on, number);
}

/* The call has been refused as its buffers lie. */
static enum util_status put_packed(struct core_fused *fused, const struct core_call *call,
				   bool captured, struct core_standing_call *done)
{
	struct gpu_stream *on = fused->on;
	struct core_mpi_packed *packed = calloc(1, sizeof(*packed));
	struct core_call part = *call;
	enum util_status status;
	int rank, size;

	if (!packed)
		return UTIL_ERR_NO_MEMORY;
	PMPI_Comm_rank(fused->hidden, &rank);
	PMPI_Comm_size(fused->hidden, &size);
	core_fused_keep_packed(fused, packed);
	status = core_mpi_packed_open(packed, &part, rank, size, on);
	if (status == UTIL_OK)
		status = core_mpi_packed_pack(packed, on);
	if (status == UTIL_OK)
		status = core_standing_put(fused->standing, &part, on, captured, done);
	if (status == UTIL_OK)
		status = core_mpi_packed_unpack(packed, on);
	if (status == UTIL_OK)
		status = core_fused_follow(fused, captured, &packed->number);
	/* All find alike that it is not to be a kernel; what was put on the stream goes by. */
	if (status == UTIL_STAGE && !done->refused && !done->unreached &&
	    core_fused_follow(fused, captured, &packed->number) != UTIL_OK)
		status = UTIL_ERR_CUDA;
	/* What is still refused is for no kernel, and the others don't know that. */
	if (status != UTIL_STAGE || (!done->refused && !done->unreached))
		return status;
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
		 "%s was given arguments that no kernel takes (%s): GPUCOLL_STREAM_EXEC=staged, on "
		 "all ranks, takes any",
		 call->name, done->reason);
	return UTIL_ERR_UNSUPPORTED;
}

/* The output is where the input is, and goes there when the kernel has ended. */
static enum util_status put_aside(const struct core_fused *fused, const struct core_call *call,
				  size_t aside, bool captured, struct core_standing_call *done)
{
	struct gpu_stream *on = fused->on;
	struct core_call part = *call;
	enum util_status status = core_standing_aside(fused->standing, aside, &part.recvbuf);
	uint64_t number;

	if (status == UTIL_OK)
		status = core_standing_put(fused->standing, &part, on, captured, done);
	if (status == UTIL_OK)
		status = gpu_stream_copy(on, call->recvbuf, part.recvbuf, aside);
	return status == UTIL_OK ? core_fused_follow(fused, captured, &number) : status;
}

/* That a reduction is refused all find alike, as all give the same type and operation. */
enum util_status core_fused_put(struct core_fused *fused, const struct core_call *call, bool apart,
				bool captured, struct core_standing_call *done)
{
	struct core_call part = *call;
	size_t aside = apart ? part_buffers(fused, &part) : 0;
	enum util_status status;

	if (aside)
		status = put_aside(fused, &part, aside, captured, done);
	else
		status = core_standing_put(fused->standing, &part, fused->on, captured, done);
	if (status == UTIL_STAGE &&
	    (done->unreached || (done->refused && !core_coll_reduces(call->coll))))
		status = put_packed(fused, &part, captured, done);
	return status;
}

/* ---- the end ---- */

void core_fused_drain(struct core_fused *fused, const char *name)
{
	if (!fused->standing)
		return;
	fused->drained = core_standing_drain(fused->standing, name);
	if (fused->drained && !core_standing_is_lost(fused->standing) &&
	    PMPI_Ibarrier(fused->hidden, &fused->barrier) != MPI_SUCCESS)
		fused->barrier = MPI_REQUEST_NULL;
}

/* Ended processes' kernels have ended, too. */
static bool have_all_gone(struct core_comm *own)
{
	for (int i = 0; i < own->num_near; i++) {
		if (!core_meet_is_past(own, own->near[i], UINT64_MAX - 1) &&
		    !core_mpi_has_ended(core_comm_local_rank(own, own->near[i])))
			return false;
	}
	return true;
}

/*
 * On a revoked communicator there is no barrier. Each says that its kernels have ended, and who
 * does not free it soon has others leave their memory to it.
 */
static bool wait_for_all_gone(struct core_comm *own)
{
	static const uint64_t patience = UTIL_SECONDS(2); /* ns */
	uint64_t since = util_now();
	struct core_wait wait = {0};

	core_meet_retire(own);
	while (!have_all_gone(own)) {
		if (util_now() - since > patience)
			return false;
		core_mpi_drive(&wait);
	}
	return true;
}

/* Until all ranks are here; false: they do not all come. */
static bool wait_for_all(struct core_fused *fused)
{
	static const uint64_t moment = UTIL_SECONDS(1) / 10; /* ns */
	uint64_t looked = util_now();
	struct core_wait wait = {0};
	int done = 0;

	while (!done && !core_standing_is_lost(fused->standing)) {
		core_requests_pass = true;
		if (PMPI_Test(&fused->barrier, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
			return false;
		if (done)
			break;
		core_mpi_drive(&wait);
		if (util_now() - looked < moment)
			continue;
		looked = util_now();
		core_standing_look(fused->standing);
	}
	return done;
}

/* What others' kernels may yet touch is left alone. */
void core_fused_close(struct core_fused *fused)
{
	bool idle;

	if (!fused->standing)
		return;
	idle = fused->barrier != MPI_REQUEST_NULL && wait_for_all(fused);
	if (!idle && fused->drained && core_meet_is_revoked(fused->own))
		idle = wait_for_all_gone(fused->own);
	fused->left =
		!idle || fused->barrier != MPI_REQUEST_NULL; /* a revoked one's may be under way */
	if (idle)
		free_packed(fused, true);
	core_standing_close(fused->standing, idle);
	if (idle)
		end_own(fused->own);
	fused->standing = NULL;
}

void core_fused_stop(void)
{
	core_standing_stop();
}
