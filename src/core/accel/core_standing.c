/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/accel/core_standing.h"
#include "core/accel/core_accel.h"
#include "core/accel/core_place.h"
#include "core/accel/core_plan.h"
#include "core/agree/core_lost.h"
#include "core/agree/core_meet.h"
#include "core/agree/core_terms.h"
#include "core/call/core_coll.h"
#include "core/choose/core_wish.h"
#include "core/job/core_mpi_drive.h"
#include "core/job/core_progress.h"
#include "core/job/core_wait.h"
#include "core/mpi/core_mpi.h"
#include "core/report/core_dump.h"
#include "core/wire/core_arena.h"
#include "core/wire/core_arena_layout.h"
#include "gpu/gpu_ipc.h"
#include "gpu/gpu_pointer.h"
#include "gpu/gpu_word.h"
#include "util/util_config.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Memory that a call needed and others may need, or find in use. */
struct held {
	struct held *next;
	struct gpu_scratch *memory;
};

struct core_standing {
	struct core_standing *next; /* under `lock` */
	struct core_comm *comm;
	struct gpu_stream *own; /* one of ours in the stream's context */
	int device;
	unsigned drawn; /* blocks */
	uint64_t half;  /* bytes of an arena */
	struct gpu_staging_block *block;
	struct gpu_enqueued *words; /* in it */
	uint64_t address;           /* of them, for kernels */
	/* What was agreed on in the trial, by whose offers ranks that share a GPU are known. */
	struct core_facts facts;
	struct core_agree agree;
	struct core_reach arenas[GPU_NUM_SHARED][CORE_MAX_NEAR];
	struct algo_wish wishes[SCHED_NUM_COLLS];
	struct gpu_scratch *trial_in, *trial_out; /* until it is settled */
	struct core_accel accel;                  /* the call that is being put */
	struct held *held; /* results that are moved last, the largest first */
	uint64_t tickets;  /* atomic: the last one given out */
	uint64_t behind;   /* atomic: the same of what was put behind kernels */
	bool repeats;      /* atomic: calls are in graphs */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct core_standing *all; /* under the lock */

/* ---- the trial ---- */

/* A program may have many such communicators, each with an arena to its end. */
enum { TRIAL_FLOATS = 64 << 10, MOST_BLOCKS = 32, MOST_ARENA = 16 << 20 };

/* UTIL_OK: it was done as enqueued calls are to be, and is not finished yet. */
static enum util_status try_once(struct core_standing *standing, const struct core_call *call)
{
	struct core_accel *accel = &standing->accel;
	struct core_comm *comm = standing->comm;
	enum util_status status = core_accel_start(accel, call, comm, comm->calls++);
	struct core_wait wait = {0};

	while (status == UTIL_OK && (status = core_accel_progress(accel)) == UTIL_IN_PROGRESS) {
		core_mpi_drive(&wait);
		status = UTIL_OK;
	}
	return status;
}

/* Why what was done is not as enqueued calls are to be; NULL: it is. */
static const char *why_not(const struct core_accel *accel)
{
	if (!accel->linked || !accel->steps.args.waits)
		return "kernels of its ranks can't wait for each other";
	if (!core_arena_layout_half(accel->facts.common.arena))
		return "there is too little memory for messages";
	return NULL;
}

/* The mappings are the standing's now. */
static void take_arenas(struct core_standing *standing)
{
	memcpy(standing->arenas, standing->accel.arenas, sizeof(standing->arenas));
	for (int i = 0; i < GPU_NUM_SHARED; i++) {
		for (int j = 0; j < standing->comm->num_near; j++)
			standing->accel.arenas[i][j].mapping = NULL;
	}
}

/* While the device is reserved for the trial, no other call offers blocks that are drawn now. */
static void draw_blocks(struct core_standing *standing)
{
	unsigned room = standing->accel.offer.blocks + gpu_launch_drawn(standing->device);

	standing->drawn = gpu_launch_draw(standing->device, room, MOST_BLOCKS);
}

static void learn(struct core_standing *standing)
{
	standing->facts = standing->accel.facts;
	standing->agree = standing->accel.agree;
	standing->half = core_arena_layout_half(standing->facts.common.arena);
	take_arenas(standing);
	draw_blocks(standing);
}

/* Buffers for it, in the context of the stream. */
static enum util_status take_buffers(struct core_standing *standing)
{
	const size_t bytes = TRIAL_FLOATS * sizeof(float);
	enum util_status status = gpu_scratch_get(bytes, standing->own, &standing->trial_in);

	if (status == UTIL_OK)
		status = gpu_scratch_get(bytes, standing->own, &standing->trial_out);
	if (status == UTIL_OK)
		status =
			gpu_stream_clear(standing->own, (void *)standing->trial_in->address, bytes);
	return status == UTIL_OK ? core_wait_stream(standing->own) : status;
}

static void put_buffers(struct core_standing *standing)
{
	if (standing->trial_in)
		gpu_scratch_put(standing->trial_in);
	if (standing->trial_out)
		gpu_scratch_put(standing->trial_out);
	standing->trial_in = standing->trial_out = NULL;
}

enum util_status core_standing_try(struct core_standing *standing, core_standing_trial *trial,
				   struct core_standing_terms *terms, const char **why)
{
	struct core_accel *accel = &standing->accel;
	enum util_status status;
	struct core_call call;

	trial(&call, (void *)standing->trial_in->address, (void *)standing->trial_out->address,
	      TRIAL_FLOATS);
	status = try_once(standing, &call);
	*why = accel->reason;
	if (status == UTIL_STAGE)
		core_meet_pass(standing->comm, accel->number);
	if (status == UTIL_OK && (*why = why_not(accel))) {
		util_log(UTIL_LOG_INFO, UTIL_SUBSYS_CORE,
			 "the trial of what enqueued calls need was done by %s", accel->reason);
		status = UTIL_STAGE;
	}
	if (status == UTIL_OK)
		learn(standing);
	core_accel_finish(accel);
	terms->blocks = standing->drawn;
	for (int coll = 0; coll < SCHED_NUM_COLLS; coll++)
		terms->wishes[coll] = *core_wish_of((enum sched_coll)coll);
	return status;
}

static enum util_status open_words(struct core_standing *standing)
{
	enum util_status status = gpu_staging_get_pinned(
		sizeof(*standing->words), gpu_stream_where(standing->own), &standing->block);

	if (status != UTIL_OK)
		return status;
	standing->words = standing->block->base;
	memset(standing->words, 0, sizeof(*standing->words));
	standing->address = gpu_staging_device_address(standing->block, standing->own);
	return standing->address ? UTIL_OK : UTIL_ERR_UNSUPPORTED;
}

enum util_status core_standing_open(struct core_comm *comm, struct gpu_stream *stream,
				    struct core_standing **out)
{
	struct core_standing *standing = calloc(1, sizeof(*standing));
	enum util_status status;

	*out = NULL;
	if (!standing)
		return UTIL_ERR_NO_MEMORY;
	standing->comm = comm;
	standing->device = gpu_stream_where(stream)->device;
	comm->standing = comm->wants_links = true;
	comm->most_arena = MOST_ARENA;
	status = gpu_stream_get(gpu_stream_where(stream), &standing->own);
	if (status == UTIL_OK)
		status = open_words(standing);
	if (status == UTIL_OK)
		status = gpu_launch_all(standing->own);
	if (status == UTIL_OK)
		status = take_buffers(standing);
	if (status != UTIL_OK) {
		core_standing_close(standing, true);
		return status;
	}
	*out = standing;
	return UTIL_OK;
}

/* ---- settling ---- */

/* Calls are counted from here on: so many have ended, as far as anybody asks. */
enum { FIRST_CALL = 2 };

static void set_words(char *arena, int members)
{
	uint64_t *ended = (uint64_t *)(void *)(arena + GPU_ARENA_ENDED);
	struct gpu_own *own = (struct gpu_own *)(void *)(arena + GPU_ARENA_OWN);

	for (int i = 0; i < members; i++)
		ended[i] = FIRST_CALL;
	own->number = FIRST_CALL;
}

/* Words, and slots with flags, of a half: where the trial's data may be. */
static size_t words_of(const struct core_standing *standing)
{
	return GPU_ARENA_SLOTS + core_arena_layout_flags(standing->half);
}

static void reset_shm(const struct core_standing *standing, char *words)
{
	const struct core_arena *arena = standing->comm->arena;
	char *host = arena->shm ? gpu_shm_host(arena->shm) : NULL;

	if (!host)
		return;
	for (size_t i = 0; i < 2; i++)
		memset(host + i * standing->half, 0, words_of(standing));
	memcpy(host, words, GPU_ARENA_SLOTS);
}

static enum util_status reset(const struct core_standing *standing, char *words)
{
	uint64_t arena = standing->comm->arena->device->address;
	enum util_status status = UTIL_OK;

	for (size_t i = 0; i < 2 && status == UTIL_OK; i++)
		status = gpu_stream_clear(standing->own, (void *)(arena + i * standing->half),
					  words_of(standing));
	if (status == UTIL_OK)
		status = gpu_stream_copy(standing->own, (void *)arena, words, GPU_ARENA_SLOTS);
	return status == UTIL_OK ? core_wait_stream(standing->own) : status;
}

static enum util_status reset_arenas(const struct core_standing *standing)
{
	char *words = calloc(1, GPU_ARENA_SLOTS);
	enum util_status status;

	if (!words)
		return UTIL_ERR_NO_MEMORY;
	set_words(words, standing->comm->num_near);
	reset_shm(standing, words);
	status = reset(standing, words);
	free(words);
	return status;
}

/* The facts of a call of which nothing but its size is known. */
static void settle_facts(struct core_standing *standing, unsigned blocks)
{
	struct core_summary *common = &standing->facts.common;

	standing->agree.vote = false;
	standing->facts.agree = &standing->agree;
	common->arena = standing->half;
	common->blocks = blocks;
	common->all &= CORE_OFFER_CAN_FUSE;
	common->any = CORE_OFFER_IN_PLACE; /* somebody may be */
}

/* What goes by LL has flags of 32 bits, which nobody could clear in between. */
static void settle_wishes(struct core_standing *standing, const struct algo_wish *wishes)
{
	static const uint16_t possible = 1 << SCHED_SIMPLE | 1 << SCHED_LL128;

	memcpy(standing->wishes, wishes, sizeof(standing->wishes));
	for (int coll = 0; coll < SCHED_NUM_COLLS; coll++) {
		uint16_t *protos = &standing->wishes[coll].protos;

		*protos = *protos ? *protos & possible : possible;
		*protos = *protos ? *protos : 1 << SCHED_SIMPLE;
	}
}

static void add(struct core_standing *standing)
{
	pthread_mutex_lock(&lock);
	standing->next = all;
	all = standing;
	pthread_mutex_unlock(&lock);
}

enum util_status core_standing_settle(struct core_standing *standing,
				      const struct core_standing_terms *terms)
{
	struct core_comm *comm = standing->comm;
	enum util_status status;

	put_buffers(standing);
	gpu_launch_put_back(standing->device, standing->drawn - terms->blocks);
	standing->drawn = terms->blocks;
	settle_facts(standing, terms->blocks);
	settle_wishes(standing, terms->wishes);
	/* No call changes these. */
	standing->accel.agree = standing->agree;
	memcpy(standing->accel.arenas, standing->arenas, sizeof(standing->arenas));
	/* Flags have new places, which are clear. */
	comm->room = standing->half;
	comm->flags_moved = false;
	status = reset_arenas(standing);
	if (status == UTIL_OK)
		add(standing);
	return status;
}

/* ---- whoever is lost ---- */

static uint64_t load(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static bool is_busy(const struct core_standing *standing)
{
	const struct gpu_enqueued *words = standing->words;

	return load(&words->ended) < load(&standing->tickets) ||
	       load(&words->begun) > load(&words->number) ||
	       load(&words->behind) < load(&standing->behind);
}

/* Repeated launches come without a word. */
static bool is_to_watch(const struct core_standing *standing)
{
	return __atomic_load_n(&standing->repeats, __ATOMIC_RELAXED) || is_busy(standing);
}

void core_standing_look(struct core_standing *standing)
{
	struct core_comm *comm = standing->comm;
	int rank;

	if (__atomic_load_n(&standing->words->abort, __ATOMIC_RELAXED))
		return;
	rank = core_lost_find(comm, comm->calls);
	if (rank >= 0)
		core_meet_lose(comm);
	if (!core_meet_is_lost(comm))
		return;
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
		 "enqueued calls on a communicator of %d ranks are given up: %s", comm->size,
		 rank >= 0 ? "a rank is lost" : "another rank could not go on, or is lost");
	/* Relaxed: it orders nothing. */
	__atomic_store_n(&standing->words->abort, 1, __ATOMIC_RELAXED);
}

static bool has_work(void)
{
	bool found = false;

	pthread_mutex_lock(&lock);
	for (struct core_standing *standing = all; standing && !found; standing = standing->next)
		found = is_to_watch(standing);
	pthread_mutex_unlock(&lock);
	return found;
}

/* The wait is the watch's pace: the host has no part in what goes well. */
static bool watch(void)
{
	static const struct timespec moment = {0, 20000000};

	nanosleep(&moment, NULL);
	pthread_mutex_lock(&lock);
	for (struct core_standing *standing = all; standing; standing = standing->next) {
		if (is_to_watch(standing))
			core_standing_look(standing);
	}
	pthread_mutex_unlock(&lock);
	return false;
}

static struct core_progress watcher = {
	.name = "gpucoll-watch", .is_there = has_work, .step = watch};

int *core_standing_barrier(const struct core_standing *standing)
{
	return standing->words->barrier;
}

bool core_standing_is_lost(const struct core_standing *standing)
{
	return __atomic_load_n(&standing->words->abort, __ATOMIC_RELAXED) ||
	       core_meet_is_lost(standing->comm);
}

bool core_standing_is_in_vain(const struct core_standing *standing)
{
	return core_standing_is_lost(standing) || gpu_stream_is_lost(standing->own);
}

bool core_standing_take_failure(struct core_standing *standing)
{
	return __atomic_exchange_n(&standing->words->failed, 0, __ATOMIC_RELAXED) != 0;
}

/* ---- calls ---- */

/*
 * Whether all ranks know all sizes of such a call, and nothing else is needed of each other.
 */
static bool is_for_kernels(enum core_coll coll)
{
	switch (coll) {
	case CORE_BCAST:
	case CORE_REDUCE:
	case CORE_ALLREDUCE:
	case CORE_REDUCE_SCATTER:
	case CORE_REDUCE_SCATTER_BLOCK:
	case CORE_SCAN:
	case CORE_EXSCAN:
	case CORE_GATHER:
	case CORE_SCATTER:
	case CORE_ALLGATHER:
	case CORE_ALLTOALL:
		return true;
	default:
		return false;
	}
}

/* Whether kernels on the standing's device reach the buffer. */
static bool is_reached(const struct core_standing *standing, const struct core_buffer *buffer)
{
	const struct gpu_pointer *by = gpu_stream_where(standing->own);
	void *base = (void *)buffer->address;

	return buffer->lo == buffer->hi ||
	       (gpu_pointer_is_reached(core_address(base, buffer->lo), by) &&
		gpu_pointer_is_reached(core_address(base, buffer->hi - 1), by));
}

static void set_facts(struct core_standing *standing)
{
	struct core_accel *accel = &standing->accel;
	const struct core_shape *shape = &accel->shape;
	uint64_t in = core_buffer_longest(&shape->in), out = core_buffer_longest(&shape->out);

	accel->facts = standing->facts;
	accel->facts.coll = shape->coll;
	accel->facts.knows_sizes = shape->coll != CORE_GATHER && shape->coll != CORE_SCATTER;
	accel->facts.common.longest = in > out ? in : out;
	accel->facts.common.wish = standing->wishes[core_coll_sched(shape->coll)];
	accel->facts.common.any |= shape->padded != GPU_TYPE_NONE ? CORE_OFFER_PADDED : 0;
}

enum util_status core_standing_follow(struct core_standing *standing, struct gpu_stream *on,
				      uint64_t *number)
{
	uint64_t words = standing->address + offsetof(struct gpu_enqueued, behind);
	enum util_status status;

	*number = load(&standing->behind) + 1;
	status = gpu_word_store(on, words, *number);
	if (status == UTIL_OK)
		__atomic_store_n(&standing->behind, *number, __ATOMIC_RELEASE);
	return status;
}

bool core_standing_has_come(const struct core_standing *standing, uint64_t number)
{
	return load(&standing->words->behind) >= number;
}

/* This rank's buffers. */
static void set_reach(struct core_standing *standing)
{
	struct core_accel *accel = &standing->accel;
	int me = core_comm_number(standing->comm, standing->comm->rank);

	accel->stream = standing->own;
	accel->in[me].address = accel->shape.in.address;
	accel->out[me].address = accel->shape.out.address;
}

/* What is too small stays, as launches that use it may be repeated. */
static enum util_status hold(struct core_standing *standing, size_t bytes, struct gpu_scratch **out)
{
	struct held *held = standing->held;
	enum util_status status;

	if (!held || held->memory->bytes < bytes) {
		held = calloc(1, sizeof(*held));
		status = held ? gpu_scratch_get(bytes, standing->own, &held->memory)
			      : UTIL_ERR_NO_MEMORY;
		if (status != UTIL_OK) {
			free(held);
			return status;
		}
		held->next = standing->held;
		standing->held = held;
	}
	*out = held->memory;
	return UTIL_OK;
}

enum util_status core_standing_aside(struct core_standing *standing, size_t bytes, void **out)
{
	struct gpu_scratch *memory = NULL;
	enum util_status status = hold(standing, bytes, &memory);

	*out = status == UTIL_OK ? (void *)memory->address : NULL;
	return status;
}

static void set_args(struct core_standing *standing, bool captured)
{
	struct gpu_execute_args *args = &standing->accel.steps.args;

	args->enqueued = standing->address;
	args->abort = standing->address + offsetof(struct gpu_enqueued, abort);
	args->half = standing->half;
	args->ranks = (uint32_t)standing->comm->num_near;
	args->rank = (uint32_t)core_comm_number(standing->comm, standing->comm->rank);
	args->ticket = captured ? 0 : load(&standing->tickets) + 1;
}

static enum util_status launch(struct core_standing *standing, struct gpu_stream *on, bool captured)
{
	struct core_accel *accel = &standing->accel;
	enum util_status status = UTIL_OK;
	uint64_t number;

	if (accel->shape.own.bytes && accel->shape.in_place)
		status = hold(standing, accel->shape.own.bytes, &accel->scratch);
	if (status == UTIL_OK)
		status = core_place_bring(accel);
	if (status != UTIL_OK)
		return status;
	set_args(standing, captured);
	status = core_place_leave(accel, on);
	if (status != UTIL_OK || captured)
		return status;
	__atomic_add_fetch(&standing->tickets, 1, __ATOMIC_RELEASE);
	/* The last steps' kernel, of which the first one's words know nothing. */
	return accel->schedule->program->num_lanes[1] ? core_standing_follow(standing, on, &number)
						      : UTIL_OK;
}

static void wake_watcher(struct core_standing *standing, bool captured)
{
	if (captured)
		__atomic_store_n(&standing->repeats, true, __ATOMIC_RELAXED);
	if (core_progress_start(&watcher))
		core_progress_wake(&watcher);
}

static enum util_status put(struct core_standing *standing, struct gpu_stream *on, bool captured)
{
	struct core_accel *accel = &standing->accel;
	enum util_status status;

	set_facts(standing);
	if (!accel->facts.common.longest) {
		accel->reason = "no data";
		return UTIL_OK;
	}
	set_reach(standing);
	status = core_plan_make_enqueued(accel);
	if (status == UTIL_OK)
		status = launch(standing, on, captured);
	if (status == UTIL_OK)
		wake_watcher(standing, captured);
	/* Launches of it may be repeated: one use is the standing's, and ends with its schedules.
	 */
	if (accel->schedule && accel->schedule->users > 1)
		core_schedule_put(accel->schedule);
	return status;
}

enum util_status core_standing_put(struct core_standing *standing, const struct core_call *call,
				   struct gpu_stream *on, bool captured,
				   struct core_standing_call *out)
{
	struct core_accel *accel = &standing->accel;
	enum util_status status;

	out->reason = "not all ranks know its sizes";
	out->bytes = 0;
	out->refused = out->unreached = false;
	if (!is_for_kernels(call->coll))
		return UTIL_STAGE;
	out->reason = "a rank is lost";
	if (core_standing_is_lost(standing))
		return UTIL_ERR_LOST;
	status = core_accel_start(accel, call, standing->comm, 0);
	out->refused = status != UTIL_OK;
	out->unreached = !out->refused && (!is_reached(standing, &accel->shape.in) ||
					   !is_reached(standing, &accel->shape.out));
	if (out->unreached)
		status = UTIL_STAGE;
	if (status == UTIL_OK) {
		out->bytes = core_accel_bytes(accel);
		status = put(standing, on, captured);
	}
	out->reason = out->unreached ? "memory that kernels don't reach" : accel->reason;
	core_shape_release(&accel->shape);
	return status;
}

void core_standing_give_up(struct core_standing *standing)
{
	core_meet_lose(standing->comm);
}

/* ---- the end ---- */

static void report(const struct core_standing *standing, const char *name)
{
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
		 "waiting for kernels of calls that are enqueued on communicator %s: %llu of them "
		 "have begun, %llu ended; goes on waiting",
		 name, (unsigned long long)load(&standing->words->begun) - FIRST_CALL,
		 (unsigned long long)load(&standing->words->number) - FIRST_CALL);
	core_dump("enqueued calls have waited long");
}

bool core_standing_drain(struct core_standing *standing, const char *name)
{
	static const uint64_t moment = UTIL_SECONDS(1) / 10; /* ns */
	uint64_t since = util_now(), looked = since;
	bool reported = util_config.timeout == 0;
	struct core_wait wait = {0};

	while (is_busy(standing)) {
		core_mpi_drive(&wait);
		if (util_now() - looked < moment)
			continue;
		looked = util_now();
		core_standing_look(standing);
		if (gpu_stream_is_lost(standing->own)) {
			core_meet_lose(standing->comm);
			return false;
		}
		if (reported || looked - since < util_config.timeout * UTIL_SECONDS(1))
			continue;
		report(standing, name);
		reported = true;
	}
	return !core_standing_is_lost(standing);
}

static void take_out(const struct core_standing *standing)
{
	struct core_standing **link = &all;

	pthread_mutex_lock(&lock);
	while (*link && *link != standing)
		link = &(*link)->next;
	if (*link)
		*link = standing->next;
	pthread_mutex_unlock(&lock);
}

static void put_mappings(const struct core_standing *standing)
{
	for (int i = 0; i < GPU_NUM_SHARED; i++) {
		for (int j = 0; j < standing->comm->num_near; j++) {
			if (standing->arenas[i][j].mapping)
				gpu_mapping_put(standing->arenas[i][j].mapping);
		}
	}
}

static void free_held(struct core_standing *standing, bool idle)
{
	struct held *held;

	while ((held = standing->held)) {
		standing->held = held->next;
		if (idle)
			gpu_scratch_put(held->memory);
		free(held);
	}
}

void core_standing_close(struct core_standing *standing, bool idle)
{
	take_out(standing);
	put_buffers(standing);
	free_held(standing, idle);
	if (idle) {
		gpu_launch_put_back(standing->device, standing->drawn);
		put_mappings(standing);
		if (standing->block)
			gpu_staging_put(standing->block);
		if (standing->own)
			gpu_stream_put(standing->own);
	}
	free(standing);
}

void core_standing_stop(void)
{
	core_progress_stop(&watcher);
}
