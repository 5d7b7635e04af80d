/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/accel/core_accel.h"
#include "core/accel/core_eager.h"
#include "core/accel/core_links.h"
#include "core/agree/core_lost.h"
#include "core/mpi/core_mpi.h"
#include "core/agree/core_nodes.h"
#include "core/accel/core_plan.h"
#include "core/accel/core_prepare.h"
#include "core/accel/core_proof.h"
#include "core/exec/core_steps.h"
#include "core/accel/core_terms.h"
#include "core/accel/core_together.h"
#include "core/wire/core_wire.h"
#include "net/net_port.h"
#include "net/net_rest.h"
#include "util/util_fdpass.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum util_status core_accel_stage(struct core_accel *accel, const char *reason)
{
	accel->reason = reason;
	return UTIL_ERR_UNSUPPORTED;
}

/* The time since the last mark was spent with the stage. */
static void mark(struct core_accel *accel, enum core_stats_stage stage)
{
	uint64_t now;

	if (!util_config.stats)
		return;
	now = util_now();
	accel->spent[stage] += now - accel->since;
	accel->since = now;
}

static void init(struct core_accel *accel, struct core_comm *comm, uint64_t number)
{
	accel->state = CORE_ACCEL_READY;
	accel->comm = comm;
	accel->number = number;
	accel->shape.many = NULL;
	accel->inside = accel->launches = accel->truncates = false;
	accel->running = accel->copying = false;
	accel->stream = accel->copies = NULL;
	accel->scratch = accel->window_in = accel->window_out = NULL;
	accel->broken_off = accel->gdr = false;
	accel->proof = (struct core_proof){.state = CORE_PROOF_NONE};
	accel->clearing = accel->reserved = accel->linked = accel->tries = false;
	/* All members on the node are through the last probe's call. */
	if (comm && comm->together == CORE_TOGETHER_LATE)
		comm->together = CORE_TOGETHER_UNKNOWN;
	accel->fetching = accel->eager = accel->scattered = false;
	accel->waits = false;
	accel->touches = accel->plain = true;
	accel->polls = 0;
	accel->moves = accel->steps.moves = 0;
	accel->failed_at = accel->missed_at = 0;
	accel->rounds = 1;
	accel->round = 0;
	accel->schedule = NULL;
	accel->sched = NULL;
	accel->passed_to = 0;
	accel->reason = NULL;
	accel->result = UTIL_OK;
	memset(accel->spent, 0, sizeof(accel->spent));
	accel->since = util_config.stats ? util_now() : 0;
}

/* Memory that an offer names, and how this process reaches it. */
enum { FIRST_ARENA = 2, CARDS = FIRST_ARENA + GPU_NUM_SHARED, NUM_REGIONS };

static const struct core_region *region_of(const struct core_offer *offer, int index)
{
	return index == 0       ? &offer->in
	       : index == 1     ? &offer->out
	       : index == CARDS ? &offer->cards
				: &offer->arenas[index - FIRST_ARENA];
}

static struct core_reach *reach_of(struct core_accel *accel, int number, int index)
{
	return index == 0       ? &accel->in[number]
	       : index == 1     ? &accel->out[number]
	       : index == CARDS ? &accel->cards[number]
				: &accel->arenas[index - FIRST_ARENA][number];
}

/* The call may map memory from here on. */
static void enter(struct core_accel *accel)
{
	memset(accel->reach, 0xff, sizeof(accel->reach));
	for (int i = 0; i < NUM_REGIONS * accel->comm->num_near; i++)
		*reach_of(accel, i / NUM_REGIONS, i % NUM_REGIONS) = (struct core_reach){0};
	gpu_ipc_enter();
	accel->inside = true;
	accel->dropped = gpu_ipc_dropped();
}

/*
 * Once a member is lost no call is agreed on any more. It fails on all, as staging it would leave
 * to the real MPI, at once, what others, who have heard of the loss a call later or earlier, fail
 * in: they would wait for each other for ever, or take each other's calls for the same.
 */
static enum util_status refuse(struct core_accel *accel)
{
	struct core_comm *comm = accel->comm;

	comm->lost = true;
	if (comm->spans && !comm->told_loss)
		core_nodes_tell_failure(comm, accel->number);
	accel->reason = "a rank is lost";
	core_agree_pass(comm, accel->number);
	return UTIL_ERR_PEER;
}

enum util_status core_accel_start(struct core_accel *accel, const struct core_call *call,
				  struct core_comm *comm, uint64_t number)
{
	enum util_status status;
	const char *reason;

	init(accel, comm, number);
	if (!util_config.accel)
		return core_accel_stage(accel, "GPUCOLL_ACCEL=0");
	if (call->coll == CORE_REDUCE_LOCAL)
		return core_accel_stage(accel, "no accelerated form");
	if (!comm)
		return core_accel_stage(accel, "communicator without identity");
	if (!comm->area)
		return core_accel_stage(accel, comm->no_area);
	if (!core_shape_clear(&accel->shape, comm->size))
		return core_accel_stage(accel, "no memory");
	reason = core_mpi_shape(call, comm, &accel->shape);
	if (reason)
		return core_accel_stage(accel, reason);
	if (core_eager_is_left(accel))
		return core_accel_stage(accel, "short, better left to the real MPI");
	if (core_agree_is_lost(comm))
		return refuse(accel);
	/* A rank with no data goes with those that have some, where they may be on devices. */
	if (!core_shape_has_data(&accel->shape) && !gpu_context_is_current() && !comm->accelerated)
		return core_accel_stage(accel, "no data");
	enter(accel);
	status = core_prepare_offer(accel);
	mark(accel, CORE_STATS_CLASSIFY);
	return status;
}

static void put_mappings(struct core_accel *accel)
{
	for (int i = 0; i < NUM_REGIONS * accel->comm->num_near; i++) {
		struct core_reach *reach = reach_of(accel, i / NUM_REGIONS, i % NUM_REGIONS);

		if (reach->mapping)
			gpu_mapping_put(reach->mapping);
	}
	gpu_ipc_leave();
}

void core_accel_finish(struct core_accel *accel)
{
	core_shape_release(&accel->shape);
	if (!accel->inside) /* it was staged at once, and has nothing else */
		return;
	put_mappings(accel);
	if (accel->schedule)
		core_schedule_put(accel->schedule);
	if (accel->reserved)
		gpu_launch_release(gpu_stream_where(accel->stream)->device);
	if (accel->launches)
		gpu_launch_close(&accel->launch);
	if (accel->window_out && accel->window_out != accel->window_in)
		gpu_scratch_put(accel->window_out);
	if (accel->window_in)
		gpu_scratch_put(accel->window_in);
	if (accel->scratch)
		gpu_scratch_put(accel->scratch);
	if (accel->comm && accel->comm->spans)
		net_rest_leave();
	if (accel->copies)
		gpu_stream_put(accel->copies);
	if (accel->stream)
		gpu_stream_put(accel->stream);
}

uint64_t core_accel_moves(const struct core_accel *accel)
{
	return accel->moves + accel->steps.moves;
}

uint64_t core_accel_bytes(const struct core_accel *accel)
{
	const struct core_buffer *in = &accel->shape.in, *out = &accel->shape.out;
	uint64_t bytes = 0;

	for (int i = 0; i < in->num_blocks; i++)
		bytes += in->blocks[i].bytes;
	for (int i = 0; i < out->num_blocks; i++)
		bytes += out->blocks[i].bytes;
	return bytes;
}

/* ---- agreement ---- */

/* Who has a block for each rank tells the others where they are, if it is they who use them. */
static const struct core_block *table_of(const struct core_accel *accel)
{
	const struct core_shape *shape = &accel->shape;

	if (accel->comm->spans && !(accel->offer.flags & CORE_OFFER_EXPORTED))
		return NULL;
	switch (shape->coll) {
	case CORE_ALLGATHER:
	case CORE_ALLGATHERV:
		return accel->comm->spans ? shape->out.blocks : NULL;
	case CORE_REDUCE_SCATTER:
	case CORE_REDUCE_SCATTER_BLOCK:
		return NULL;
	default:
		break;
	}
	if (shape->in.num_blocks > 1)
		return shape->in.blocks;
	return shape->out.num_blocks > 1 ? shape->out.blocks : NULL;
}

/*
 * Earlier work on the buffers, and then what this call needs before it is announced. What comes to
 * the legacy stream in the meantime is not waited for, as it may wait for us.
 */
static enum util_status wait_for_stream(struct core_accel *accel)
{
	enum util_status status = UTIL_OK;

	if (!accel->fetching) {
		if (core_shape_has_data(&accel->shape))
			status = gpu_stream_poll_legacy(accel->stream);
		if (status == UTIL_OK) {
			accel->fetching = true;
			status = core_eager_fetch(accel);
		}
	}
	if (status != UTIL_OK || (!accel->clearing && !(accel->offer.flags & CORE_OFFER_EAGER)))
		return status;
	return gpu_stream_poll(accel->stream);
}

static enum util_status announce(struct core_accel *accel)
{
	enum util_status status = accel->stream ? wait_for_stream(accel) : UTIL_OK;

	if (status == UTIL_IN_PROGRESS)
		return status;
	if (status != UTIL_OK)
		return core_accel_stage(accel, "earlier work failed");
	if (!core_agree_open(&accel->agree, accel->comm, accel->number))
		return core_accel_stage(accel, "ranks too far apart");
	if (accel->comm->spans) {
		core_wire_begin(accel->comm->wire, accel->number);
		core_eager_publish(accel);
	}
	core_agree_announce(&accel->agree, &accel->offer, table_of(accel));
	return UTIL_OK;
}

/* Of comm->reach. */
static int kind_of(int index)
{
	return index < FIRST_ARENA ? CORE_REACH_BUFFERS
	       : index == CARDS    ? CORE_REACH_PROVEN
				   : index - FIRST_ARENA;
}

/*
 * The offers of a vote are there: pass the descriptors that go with this rank's, to one member
 * after the other. UTIL_IN_PROGRESS: somebody's queue is full.
 */
static enum util_status pass_fds(struct core_accel *accel)
{
	const struct core_comm *comm = accel->comm;

	for (; accel->passed_to < NUM_REGIONS * comm->num_near; accel->passed_to++) {
		const struct core_region *region =
			region_of(&accel->offer, accel->passed_to % NUM_REGIONS);
		int rank = comm->near[accel->passed_to / NUM_REGIONS], fd;
		enum util_status status;

		if (rank == comm->rank || !region->memory.buffer_id ||
		    !gpu_export_has_fd(&region->memory))
			continue;
		fd = gpu_ipc_export_fd(&region->memory, gpu_stream_where(accel->stream));
		if (fd < 0)
			return UTIL_ERR_CUDA;
		status = util_fdpass_send(core_comm_local_rank(comm, rank),
					  region->memory.buffer_id, fd);
		close(fd);
		if (status != UTIL_OK)
			return status;
	}
	return UTIL_OK;
}

static enum util_status reach_region(struct core_accel *accel, int rank,
				     const struct core_region *region, struct core_reach *reach)
{
	int owner = core_comm_local_rank(accel->comm, rank), fd;
	enum util_status status;

	if (rank == accel->comm->rank) {
		reach->address = region->address;
		return UTIL_OK;
	}
	if (!region->memory.buffer_id || reach->mapping)
		return UTIL_OK;
	status = gpu_ipc_map(owner, &region->memory, -1, accel->stream, &reach->mapping);
	if (status == UTIL_IN_PROGRESS) {
		fd = util_fdpass_take(owner, region->memory.buffer_id);
		reach->took = fd != UTIL_FDPASS_NONE;
		if (fd == UTIL_FDPASS_LOST) {
			util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
				 "no room for one more descriptor (ulimit -n): memory of another "
				 "process can't be mapped");
			return UTIL_ERR_SYSTEM;
		}
		if (fd < 0)
			return UTIL_IN_PROGRESS;
		status = gpu_ipc_map(owner, &region->memory, fd, accel->stream, &reach->mapping);
		close(fd);
	}
	if (status == UTIL_OK)
		reach->address = gpu_mapping_address(reach->mapping, region->address);
	return status;
}

/* What a vote found out of reach is not tried again without one. */
static bool is_hopeless(const struct core_comm *comm, int number, int index)
{
	int mine = core_comm_number(comm, comm->rank);

	return !(comm->reach[kind_of(index)][mine] >> number & 1);
}

/* A descriptor that was sent is there, or is lost: a vote that is not over soon has no end. */
static bool has_waited_long(struct core_accel *accel)
{
	static const uint64_t patience = 5000000000; /* ns */

	if (!accel->missed_at)
		accel->missed_at = util_now();
	if (util_now() - accel->missed_at < patience)
		return false;
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
		 "a descriptor of another process's memory has not come: it can't be mapped");
	return true;
}

/*
 * What fails now need not fail in the next call: an old mapping is in the way that another thread's
 * call uses, the device is short of memory. Then this call is staged, and the next one votes again.
 */
static bool may_vote_again(struct core_comm *comm)
{
	enum { MOST_VOTES = 8 };

	return comm->failed_votes < MOST_VOTES && ++comm->failed_votes < MOST_VOTES;
}

/*
 * Map what can be mapped, and note the rest. UTIL_IN_PROGRESS: a descriptor has not come yet, in a
 * vote; at other times none comes.
 */
static enum util_status reach_all(struct core_accel *accel, bool votes)
{
	for (int i = 0; accel->stream && i < NUM_REGIONS * accel->comm->num_near; i++) {
		int number = i / NUM_REGIONS, index = i % NUM_REGIONS;
		int rank = accel->comm->near[number];
		const struct core_offer *offer = core_agree_offer(&accel->agree, rank);
		enum util_status status = UTIL_ERR_UNSUPPORTED;

		if (votes && !(accel->reach[kind_of(index)] >> number & 1))
			continue; /* found in an earlier look of the same vote */
		if (!votes && index == CARDS)
			continue;
		if (votes || !is_hopeless(accel->comm, number, index))
			status = reach_region(accel, rank, region_of(offer, index),
					      reach_of(accel, number, index));
		if (status == UTIL_IN_PROGRESS && votes && !has_waited_long(accel))
			return status;
		if (status == UTIL_ERR_CUDA && votes && may_vote_again(accel->comm))
			return status;
		if (status != UTIL_OK)
			accel->reach[kind_of(index)] &= ~(UINT64_C(1) << number);
	}
	return UTIL_OK;
}

/* What goes on failing is not tried again and again in the votes for other memory. */
static bool reaches_all(const struct core_accel *accel)
{
	uint64_t all = UINT64_MAX;

	for (int i = 0; i < CORE_NUM_REACHES; i++)
		all &= accel->reach[i];
	return all == UINT64_MAX;
}

/*
 * After a vote that was won: all have mapped all that was offered, and nothing else is sure where
 * somebody forgot.
 */
static void learn(struct core_accel *accel)
{
	struct core_comm *comm = accel->comm;

	if (reaches_all(accel))
		comm->failed_votes = 0;
	if (accel->agree.forget)
		core_known_clear(&comm->known);
	gpu_ipc_forget_exports(accel->offer.freed, accel->offer.num_freed);
	core_known_add(&comm->known, accel->offer.in.memory.buffer_id);
	core_known_add(&comm->known, accel->offer.out.memory.buffer_id);
	for (int i = 0; i < GPU_NUM_SHARED; i++)
		core_known_add(&comm->known, accel->offer.arenas[i].memory.buffer_id);
	/* Who asks for all has another context, and perhaps another device. */
	if (accel->agree.forget) {
		comm->together = CORE_TOGETHER_UNKNOWN;
		memset(comm->reach, 0xff, sizeof(comm->reach));
	}
	/* What some call could not map will be offered again, without a vote. */
	for (int i = 0; i < comm->num_near; i++) {
		const uint64_t *reach = core_agree_reach(&accel->agree, comm->near[i]);

		for (int j = 0; j < CORE_NUM_REACHES; j++)
			comm->reach[j][i] &= reach[j];
	}
	comm->dropped = accel->dropped;
	core_proof_learn(accel);
	/* Without data it has mapped nothing, and must ask for all when it has some. */
	comm->context_id = accel->stream ? gpu_stream_context_id(accel->stream) : 0;
}

/* Let go of what the others have freed: their memory is in use as long as it is mapped here. */
static void drop_freed(struct core_accel *accel)
{
	const struct core_comm *comm = accel->comm;

	for (int i = 0; i < comm->num_near; i++) {
		int rank = comm->near[i];
		const struct core_offer *offer = core_agree_offer(&accel->agree, rank);

		for (int j = 0; rank != comm->rank && j < offer->num_freed; j++)
			gpu_ipc_drop_freed(core_comm_local_rank(comm, rank), offer->freed[j],
					   accel->stream);
	}
}

/*
 * The vote is over, and all that was sent for it has come: what nobody has asked for is of memory
 * that was mapped already, and keeps that memory.
 */
static void drop_descriptors(struct core_accel *accel)
{
	const struct core_comm *comm = accel->comm;

	util_fdpass_receive();
	for (int i = 0; i < NUM_REGIONS * comm->num_near; i++) {
		int rank = comm->near[i / NUM_REGIONS];
		const struct core_region *region =
			region_of(core_agree_offer(&accel->agree, rank), i % NUM_REGIONS);

		if (rank != comm->rank && region->memory.buffer_id &&
		    gpu_export_has_fd(&region->memory) &&
		    !reach_of(accel, i / NUM_REGIONS, i % NUM_REGIONS)->took)
			util_fdpass_drop(core_comm_local_rank(comm, rank),
					 region->memory.buffer_id);
	}
}

/* UTIL_OK: this rank has all that it needs for the call. UTIL_IN_PROGRESS: not yet. */
static enum util_status prepare(struct core_accel *accel)
{
	enum util_status status = UTIL_OK;

	if (accel->agree.vote) {
		drop_freed(accel);
		status = pass_fds(accel);
		/* Who has come and is gone has ended, which shows a little later. */
		if (status == UTIL_ERR_PEER && !has_waited_long(accel))
			return UTIL_IN_PROGRESS;
	}
	if (status == UTIL_OK)
		status = reach_all(accel, accel->agree.vote);
	return status == UTIL_OK && accel->agree.vote ? core_proof_progress(accel) : status;
}

/* All answer alike, and say in a vote what they reach. */
static enum util_status answer(struct core_accel *accel)
{
	enum util_status status = UTIL_OK;
	bool fit;

	core_agree_summarize(&accel->agree, &accel->common);
	fit = accel->common.fits && !(accel->common.any & CORE_OFFER_BEHIND);
	if (fit)
		status = prepare(accel);
	if (status == UTIL_IN_PROGRESS && accel->agree.vote)
		return status;
	if (!accel->common.fits)
		accel->reason = "arguments that differ between ranks";
	else if (!fit)
		accel->reason = "another node that is far behind";
	else if (status != UTIL_OK)
		accel->reason = "memory that can't be passed on, or mapped now";
	core_agree_answer(&accel->agree, fit && (status == UTIL_OK || !accel->agree.vote),
			  accel->reach);
	return UTIL_OK;
}

/* Look at what costs a system call or more only now and then; true then. */
static bool is_time_to_look(struct core_accel *accel)
{
	enum { POLLS = 256 };

	return ++accel->polls % POLLS == 0;
}

static void log_loss(const struct core_accel *accel, int rank)
{
	const struct core_comm *comm = accel->comm;

	if (rank < 0)
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
			 "communicator %#llx has lost a rank in call %llu, as another rank says",
			 (unsigned long long)comm->id, (unsigned long long)accel->number);
	else
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
			 "rank %d of communicator %#llx, rank %d of MPI_COMM_WORLD, is lost in "
			 "call %llu",
			 rank, (unsigned long long)comm->id, comm->members[rank].process,
			 (unsigned long long)accel->number);
}

/* Found here, or told by another. */
static bool has_lost_member(struct core_accel *accel)
{
	struct core_comm *comm = accel->comm;
	int rank;

	if (comm->lost)
		return true;
	rank = core_lost_find(comm, accel->number);
	if (rank >= 0)
		core_agree_lose(comm);
	if (!core_agree_is_lost(comm))
		return false;
	log_loss(accel, rank);
	comm->lost = true;
	return true;
}

/*
 * What who has failed, or is gone, was to do will not be done. Who is gone will not be past the
 * call either, so that is to be known even where another has told of a failure already.
 */
static bool is_in_vain(struct core_accel *accel)
{
	bool lost = has_lost_member(accel);

	return lost || core_agree_failed(accel->comm, accel->number);
}

/* What can be said of all members of this node together. */
static uint32_t flags_of_node(const struct core_accel *accel)
{
	uint32_t flags = core_terms_are_whole(accel) ? CORE_OFFER_WHOLE : 0;

	return core_terms_are_mapped(accel) ? flags | CORE_OFFER_MAPPED : flags;
}

static enum core_agree_state agree_with_nodes(struct core_accel *accel)
{
	if (!core_nodes_has_begun(&accel->agree))
		core_nodes_begin(&accel->agree, flags_of_node(accel));
	core_nodes_progress(&accel->agree);
	return core_agree_poll(&accel->agree);
}

static enum util_status agree(struct core_accel *accel)
{
	enum core_agree_state state = core_agree_poll(&accel->agree);

	/* Also after this rank's answer: what is sent to it must not hold up the sender. */
	if (accel->agree.vote)
		util_fdpass_receive();
	if (state == CORE_AGREE_ANNOUNCED) {
		if (answer(accel) == UTIL_IN_PROGRESS) {
			if (is_time_to_look(accel) && is_in_vain(accel))
				core_agree_give_up(&accel->agree);
			return UTIL_IN_PROGRESS;
		}
		state = core_agree_poll(&accel->agree);
	}
	/* The stream and the launch's memory go to other calls. */
	if (core_proof_settle(accel) == UTIL_IN_PROGRESS)
		return UTIL_IN_PROGRESS;
	if (state == CORE_AGREE_READY && core_comm_speaks(accel->comm))
		state = agree_with_nodes(accel);
	/* Over several nodes nobody finds out later what is missing for links. */
	if (state == CORE_AGREE_STAGE && accel->comm->spans && accel->agree.vote &&
	    accel->offer.arenas[GPU_TRANSPORT_P2P].bytes)
		accel->comm->wants_links = accel->comm->wants_shm = true;
	if (state == CORE_AGREE_STAGE && accel->agree.vote)
		core_proof_doubt(accel);
	if (state == CORE_AGREE_STAGE)
		return core_accel_stage(accel,
					accel->reason ? accel->reason : "another rank's choice");
	if (state != CORE_AGREE_ACCEL) {
		if (is_time_to_look(accel) && is_in_vain(accel))
			core_agree_give_up(&accel->agree);
		return UTIL_IN_PROGRESS;
	}
	accel->comm->accelerated = true;
	/* Another member may have decided before this one looked at the offers. */
	if (accel->comm->spans)
		accel->common = *core_agree_common(&accel->agree);
	else
		core_agree_summarize(&accel->agree, &accel->common);
	/* An eager call needs no links; a longer one will. */
	if (accel->comm->spans && accel->common.arena && !accel->common.any_without_data &&
	    !(accel->common.all & CORE_OFFER_WHOLE))
		accel->comm->wants_links = accel->comm->wants_shm = true;
	/* After a loss, or another node's failure, not all have come, nor voted. */
	if (accel->agree.vote && !core_agree_is_lost(accel->comm) &&
	    !core_agree_failed(accel->comm, accel->number)) {
		drop_descriptors(accel);
		learn(accel);
	}
	return UTIL_OK;
}

/* ---- the call, once it is agreed on ---- */

/*
 * A rank that has failed goes on through the states without doing anything, for the others' sake.
 */
static void keep(struct core_accel *accel, enum util_status status)
{
	if (accel->result == UTIL_OK)
		accel->result = status;
}

static void go(struct core_accel *accel, enum core_accel_state state)
{
	accel->state = state;
	accel->moves++;
}

static void look_for_failures(struct core_accel *accel)
{
	if (!is_time_to_look(accel))
		return;
	if (accel->linked && accel->schedule)
		core_links_miss(accel);
	if (!is_in_vain(accel))
		return;
	if (accel->running)
		gpu_launch_abort(&accel->launch);
	keep(accel, UTIL_ERR_PEER);
}

/*
 * UTIL_IN_PROGRESS, or UTIL_OK when there is nothing more to wait for. Also after an error: what
 * was started uses memory that goes to other calls when this one ends.
 */
static enum util_status wait_for_steps(struct core_accel *accel)
{
	enum util_status status;

	if (!accel->running)
		return UTIL_OK;
	if (accel->result == UTIL_OK) {
		status = core_steps_progress(&accel->steps);
		if (status == UTIL_IN_PROGRESS) {
			if (accel->linked)
				look_for_failures(accel);
			return status;
		}
		keep(accel, status);
	}
	if (core_steps_settle(&accel->steps) == UTIL_IN_PROGRESS)
		return UTIL_IN_PROGRESS;
	accel->truncates |= accel->steps.truncates;
	accel->running = false;
	return UTIL_OK;
}

static void start_steps(struct core_accel *accel,
			enum util_status (*begin)(struct core_accel *accel))
{
	if (accel->result == UTIL_OK)
		keep(accel, begin(accel));
	/* The first launch, at once. */
	if (accel->running)
		wait_for_steps(accel);
}

/* Of several copies the first ones may be under way where a later one fails. */
static void start_copies(struct core_accel *accel, uint64_t round,
			 enum util_status (*copy)(struct core_accel *accel, uint64_t round))
{
	if (accel->result != UTIL_OK)
		return;
	accel->copying = accel->copies != NULL;
	keep(accel, copy(accel, round));
}

/* The round's kernel, and beside it, in the other half of the windows, copies. */
static void start_round(struct core_accel *accel)
{
	start_steps(accel, core_plan_begin);
	if (accel->round > 0)
		start_copies(accel, accel->round - 1, core_plan_drain);
	if (accel->round + 1 < accel->rounds)
		start_copies(accel, accel->round + 1, core_plan_fill);
	go(accel, CORE_ACCEL_RUN);
}

static void begin(struct core_accel *accel)
{
	if (accel->width) {
		start_copies(accel, 0, core_plan_fill);
		go(accel, CORE_ACCEL_FILL);
	} else {
		start_round(accel);
	}
}

/* What a vote found to be in reach is so still, unless it was dropped in between. */
static bool has_lost(const struct core_accel *accel)
{
	const struct core_comm *comm = accel->comm;

	for (int i = 0; accel->stream && !accel->eager && i < comm->num_near; i++) {
		bool there = true;

		if (accel->linked)
			there = accel->reach[core_terms_transport(comm, comm->near[i])] >> i & 1;
		if (accel->touches)
			there &= accel->reach[CORE_REACH_BUFFERS] >> i & 1;
		if (!there)
			return true;
	}
	return false;
}

static enum util_status start(struct core_accel *accel)
{
	enum util_status status;

	mark(accel, CORE_STATS_AGREE);
	/* What was decided when somebody was lost may not have been agreed on by all. */
	if (core_agree_failed(accel->comm, accel->number)) {
		accel->linked = true;
		accel->reason = "another rank's failure";
		keep(accel, UTIL_ERR_PEER);
		go(accel, CORE_ACCEL_RUN);
		return UTIL_OK;
	}
	reach_all(accel, false);
	status = core_plan_make(accel);
	if (status == UTIL_ERR_UNSUPPORTED)
		return status;
	if (has_lost(accel)) {
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
			 "memory of another process, which was mapped, can't be mapped again");
		accel->result = UTIL_ERR_CUDA;
	}
	keep(accel, status);
	if (accel->tries) {
		if (accel->result == UTIL_OK)
			keep(accel, core_together_try(accel));
		go(accel, CORE_ACCEL_TRY);
	} else {
		begin(accel);
	}
	mark(accel, CORE_STATS_LAUNCH);
	return UTIL_OK;
}

/* `status`: of the kernel. */
static enum core_together what_probe_says(const struct core_accel *accel, enum util_status status)
{
	if (status == UTIL_OK && accel->result == UTIL_OK)
		return CORE_TOGETHER_YES;
	return status == UTIL_ERR_PEER && accel->launch.late ? CORE_TOGETHER_LATE
							     : CORE_TOGETHER_NO;
}

/* The kernel first, then the others' answers. */
static enum util_status wait_for_try(struct core_accel *accel)
{
	enum util_status status = UTIL_OK;
	enum core_together together;

	if (accel->running)
		status = gpu_launch_poll(&accel->launch);
	if (status == UTIL_IN_PROGRESS)
		return status;
	if (accel->tries) {
		accel->tries = accel->running = false;
		if (status != UTIL_OK && status != UTIL_ERR_PEER)
			keep(accel, status);
		core_agree_try(accel->comm, accel->number, what_probe_says(accel, status));
	}
	status = core_agree_tried(accel->comm, accel->number, &together);
	if (status == UTIL_OK)
		core_together_set(accel->comm, together);
	/* Who failed before it came here has nothing to tell. */
	if (status == UTIL_IN_PROGRESS) {
		look_for_failures(accel);
		if (accel->result != UTIL_OK)
			status = UTIL_OK;
	}
	return status;
}

static enum util_status wait_for_copies(struct core_accel *accel)
{
	enum util_status status = accel->copying ? gpu_stream_poll(accel->copies) : UTIL_OK;

	if (status == UTIL_IN_PROGRESS)
		return status;
	accel->copying = false;
	keep(accel, status);
	return UTIL_OK;
}

/* What other nodes should hear of a failure does not leave for ever, if it is they who are gone. */
static enum util_status tell_failure(struct core_accel *accel)
{
	static const uint64_t patience = 2000000000; /* ns */

	if (!accel->failed_at) {
		accel->failed_at = util_now();
		core_nodes_tell_failure(accel->comm, accel->number);
	}
	return core_nodes_has_told(accel->comm) || util_now() - accel->failed_at > patience
		       ? UTIL_OK
		       : UTIL_IN_PROGRESS;
}

/*
 * What UCX reads from and writes to the application's memory must end before the application has
 * it back. Who is alive lets go of it soon; a connection to who does not is broken off.
 */
static enum util_status recall_memory(struct core_accel *accel)
{
	/* ns; and as much again for what was broken off */
	static const uint64_t patience = 2000000000;
	uint64_t waited = util_now() - accel->failed_at;

	if (!core_wire_has_memory(accel->comm->wire))
		return UTIL_OK;
	if (waited > patience && !accel->broken_off) {
		accel->broken_off = true;
		core_lost_break_off(accel->comm);
	}
	if (waited <= 2 * patience)
		return UTIL_IN_PROGRESS;
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
		 "UCX does not let go of the buffers of call %llu of communicator %#llx, which has "
		 "failed",
		 (unsigned long long)accel->number, (unsigned long long)accel->comm->id);
	return UTIL_OK;
}

/* Messages to other nodes move no further when this process has left. */
static enum util_status drain(struct core_accel *accel)
{
	enum util_status status;

	if (!accel->comm->spans)
		return UTIL_OK;
	if (accel->result == UTIL_OK && accel->eager)
		return UTIL_OK;
	if (accel->result == UTIL_OK) {
		status = core_wire_drain(accel->comm->wire);
		if (status == UTIL_IN_PROGRESS)
			look_for_failures(accel);
		else
			keep(accel, status);
	} else {
		status = UTIL_OK;
	}
	if (accel->result == UTIL_OK)
		return status;
	status = tell_failure(accel);
	return status == UTIL_OK ? recall_memory(accel) : status;
}

static void start_last(struct core_accel *accel)
{
	if (core_agree_failed(accel->comm, accel->number))
		keep(accel, UTIL_ERR_PEER);
	start_steps(accel, core_plan_begin_last);
	start_copies(accel, accel->round, core_plan_drain);
	go(accel, CORE_ACCEL_LAST);
}

/* In a gather, of what comes for the root: if that is too long it is the root's error. */
static bool is_carrier(const struct core_accel *accel)
{
	return accel->touches && accel->linked && accel->schedule &&
	       accel->sched->request.coll == SCHED_GATHER && accel->comm->rank != accel->shape.root;
}

/*
 * A rank whose device is lost takes part in nothing any more. Who had its part of the call done
 * learns of that in the next one, in which it would wait for this rank.
 */
static void give_up_device(struct core_accel *accel)
{
	if (accel->result == UTIL_ERR_CUDA && accel->stream && gpu_stream_is_lost(accel->stream))
		core_agree_lose(accel->comm);
}

/* This rank's part is done or has failed: say so, which the others wait for. */
static void pass(struct core_accel *accel)
{
	if (accel->result != UTIL_OK) {
		give_up_device(accel);
		accel->comm->links_failed = true;
		core_agree_fail(accel->comm, accel->number);
	}
	if (accel->truncates && is_carrier(accel)) {
		core_agree_cut(accel->comm, accel->number);
		accel->truncates = false;
	}
	core_agree_pass(accel->comm, accel->number);
	if (accel->touches)
		go(accel, CORE_ACCEL_MEET);
	else
		start_last(accel);
}

static void muster(struct core_accel *accel)
{
	core_agree_arrive(accel->comm, accel->number, accel->round + 1);
	go(accel, CORE_ACCEL_MUSTER);
}

static void end_round(struct core_accel *accel)
{
	if (accel->round + 1 == accel->rounds) {
		pass(accel);
		return;
	}
	accel->round++;
	muster(accel);
}

/* Go through one state. UTIL_OK: the next one is due. */
static enum util_status step(struct core_accel *accel)
{
	struct core_comm *comm = accel->comm;
	enum util_status status = UTIL_OK;

	switch (accel->state) {
	case CORE_ACCEL_READY:
		status = announce(accel);
		if (status == UTIL_OK)
			go(accel, CORE_ACCEL_AGREE);
		break;
	case CORE_ACCEL_AGREE:
		status = agree(accel);
		if (status == UTIL_OK)
			status = start(accel);
		break;
	case CORE_ACCEL_TRY:
		status = wait_for_try(accel);
		if (status == UTIL_OK) {
			core_links_decide(accel);
			begin(accel);
		}
		break;
	case CORE_ACCEL_FILL:
		status = wait_for_copies(accel);
		if (status == UTIL_OK)
			muster(accel);
		break;
	case CORE_ACCEL_MUSTER:
		if (!core_agree_all_arrived(comm, accel->number, accel->round + 1)) {
			look_for_failures(accel);
			if (!comm->lost)
				return UTIL_IN_PROGRESS;
		}
		start_round(accel);
		break;
	case CORE_ACCEL_RUN:
		status = wait_for_steps(accel);
		if (status == UTIL_OK)
			status = wait_for_copies(accel);
		if (status == UTIL_OK)
			status = drain(accel);
		if (status == UTIL_OK)
			end_round(accel);
		break;
	case CORE_ACCEL_MEET:
		if (!core_agree_all_passed(comm, accel->number)) {
			look_for_failures(accel);
			if (accel->result == UTIL_OK || core_lost_find_behind(&accel->agree) >= 0)
				return UTIL_IN_PROGRESS;
		}
		accel->truncates |=
			core_agree_was_cut(comm, accel->number) && comm->rank == accel->shape.root;
		start_last(accel);
		break;
	case CORE_ACCEL_LAST:
		status = wait_for_steps(accel);
		if (status == UTIL_OK)
			status = wait_for_copies(accel);
		if (status == UTIL_OK)
			go(accel, CORE_ACCEL_DONE);
		break;
	case CORE_ACCEL_DONE:
		break;
	}
	return status;
}

/* Through the states, until something is to be waited for. */
static enum util_status go_on(struct core_accel *accel)
{
	static const enum core_stats_stage stages[CORE_ACCEL_DONE] = {
		[CORE_ACCEL_READY] = CORE_STATS_READY, [CORE_ACCEL_AGREE] = CORE_STATS_LAUNCH,
		[CORE_ACCEL_FILL] = CORE_STATS_RUN,    [CORE_ACCEL_MUSTER] = CORE_STATS_RUN,
		[CORE_ACCEL_TRY] = CORE_STATS_RUN,     [CORE_ACCEL_RUN] = CORE_STATS_RUN,
		[CORE_ACCEL_MEET] = CORE_STATS_MEET,   [CORE_ACCEL_LAST] = CORE_STATS_LAST,
	};

	while (accel->state != CORE_ACCEL_DONE) {
		enum core_accel_state before = accel->state;
		enum util_status status = step(accel);

		if (status != UTIL_OK)
			return status;
		mark(accel, stages[before]);
	}
	if (accel->result == UTIL_OK && accel->truncates)
		accel->result = UTIL_ERR_TRUNCATE;
	return accel->result;
}

/*
 * What there is to send goes first; there is time to look for what has come in a wait, and as long
 * as something comes the caller need not be asked for more of it.
 */
enum util_status core_accel_progress(struct core_accel *accel)
{
	enum { MOST_LOOKS = 16 };
	enum util_status status;
	int looks = 0;
	bool moved;

	do {
		moved = accel->waits && accel->comm->spans && net_progress(NET_MAIN);
		status = go_on(accel);
		accel->waits = status == UTIL_IN_PROGRESS;
	} while (accel->waits && moved && ++looks < MOST_LOOKS);
	return status;
}

static int missing(const struct core_accel *accel)
{
	int rank = core_agree_missing(&accel->agree);

	return rank < 0 && accel->comm->spans ? core_nodes_missing(accel->comm) : rank;
}

void core_accel_describe(const struct core_accel *accel, char *text, size_t bytes)
{
	switch (accel->state) {
	case CORE_ACCEL_READY:
		snprintf(text, bytes, "earlier work on the buffers to finish");
		break;
	case CORE_ACCEL_AGREE:
		if (core_proof_missing(accel) >= 0) {
			snprintf(text, bytes,
				 "rank %d of %d to try whether devices reach each other's memory",
				 core_proof_missing(accel), accel->comm->size);
			break;
		}
		snprintf(text, bytes, "rank %d of %d to come to call %llu of communicator %#llx",
			 missing(accel), accel->comm->size, (unsigned long long)accel->number,
			 (unsigned long long)accel->comm->id);
		break;
	case CORE_ACCEL_FILL:
		snprintf(text, bytes, "a copy on the device");
		break;
	case CORE_ACCEL_TRY:
		snprintf(text, bytes,
			 "ranks that share a GPU to try whether their kernels run together");
		break;
	case CORE_ACCEL_RUN:
		if (accel->linked)
			core_steps_describe(&accel->steps, text, bytes);
		else
			snprintf(text, bytes, "its kernel or copies");
		break;
	case CORE_ACCEL_LAST:
		snprintf(text, bytes, "its kernel or copies");
		break;
	case CORE_ACCEL_MUSTER:
		snprintf(text, bytes, "rank %d of %d to be ready for round %llu of %llu",
			 core_agree_not_arrived(accel->comm, accel->number, accel->round + 1),
			 accel->comm->size, (unsigned long long)accel->round + 1,
			 (unsigned long long)accel->rounds);
		break;
	default:
		snprintf(text, bytes, "rank %d of %d to do its part in round %llu of %llu",
			 core_agree_behind(accel->comm, accel->number), accel->comm->size,
			 (unsigned long long)accel->round + 1, (unsigned long long)accel->rounds);
		break;
	}
}
