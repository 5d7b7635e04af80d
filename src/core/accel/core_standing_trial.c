/* SPDX-License-Identifier: BSD-3-Clause */
/* What all ranks agree on before calls are enqueued: by a call that is done, and its memory kept.
 */
#include "core/accel/core_standing.h"
#include "core/accel/core_standing_parts.h"
#include "core/agree/core_meet.h"
#include "core/choose/core_wish.h"
#include "core/job/core_mpi_drive.h"
#include "core/job/core_wait.h"
#include "core/wire/core_arena.h"
#include "core/wire/core_arena_layout.h"
#include "util/util_log.h"

#include <stdlib.h>
#include <string.h>

enum { TRIAL_FLOATS = 64 << 10 };

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
	if (!core_arena_layout_share(accel->facts.common.arena))
		return "there is too little memory for messages";
	return NULL;
}

/* The mappings are the standing's now. */
static void take_arenas(struct core_standing *standing)
{
	memcpy(standing->arenas, standing->accel.reached.arenas, sizeof(standing->arenas));
	for (int i = 0; i < GPU_NUM_SHARED; i++) {
		for (int j = 0; j < standing->comm->num_near; j++)
			standing->accel.reached.arenas[i][j].mapping = NULL;
	}
}

/* While the device is reserved for the trial, no other call offers blocks that are drawn now. */
static void draw_blocks(struct core_standing *standing)
{
	unsigned room = standing->accel.offer.blocks + gpu_launch_drawn(standing->device);

	standing->drawn = gpu_launch_draw(standing->device, room, GPU_EXCHANGE_MOST_BLOCKS);
}

static void learn(struct core_standing *standing)
{
	standing->facts = standing->accel.facts;
	standing->agree = standing->accel.agree;
	standing->half = core_arena_layout_share(standing->facts.common.arena);
	take_arenas(standing);
	draw_blocks(standing);
}

enum util_status core_standing_take_buffers(struct core_standing *standing)
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

void core_standing_put_buffers(struct core_standing *standing)
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

/* ---- settling ---- */

static void set_words(char *arena, int members)
{
	uint64_t *ended = (uint64_t *)(void *)(arena + GPU_ARENA_ENDED);
	struct gpu_own *own = (struct gpu_own *)(void *)(arena + GPU_ARENA_OWN);

	for (int i = 0; i < members; i++)
		ended[i] = CORE_STANDING_FIRST_CALL;
	own->number = CORE_STANDING_FIRST_CALL;
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
	memset(host + standing->fifos, 0, core_standing_fifo_words(standing));
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
		status = gpu_stream_clear(standing->own, (void *)(arena + standing->fifos),
					  core_standing_fifo_words(standing));
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

enum util_status core_standing_settle(struct core_standing *standing,
				      const struct core_standing_terms *terms)
{
	struct core_comm *comm = standing->comm;
	enum util_status status;

	core_standing_put_buffers(standing);
	gpu_launch_put_back(standing->device, standing->drawn - terms->blocks);
	standing->drawn = terms->blocks;
	core_standing_lay_out_fifos(standing, standing->facts.common.arena, terms->blocks);
	settle_facts(standing, terms->blocks);
	settle_wishes(standing, terms->wishes);
	/* No call changes these. */
	standing->accel.agree = standing->agree;
	memcpy(standing->accel.reached.arenas, standing->arenas, sizeof(standing->arenas));
	/* Flags have new places, which are clear. */
	comm->links.room = standing->half;
	comm->links.flags_moved = false;
	status = reset_arenas(standing);
	if (status == UTIL_OK)
		core_standing_watch(standing);
	return status;
}
