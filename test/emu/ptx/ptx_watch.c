/* SPDX-License-Identifier: BSD-3-Clause */
#include "ptx_watch.h"
#include "ptx_warp.h"

#include <stdlib.h>
#include <string.h>

enum { READERS = 2, PLACES = 1024 };

/* Who did something, at which time of its own; 0: nobody. */
struct access {
	uint32_t time;
	uint16_t thread;
	bool visible;
	uint32_t line;
};

struct byte {
	bool stored;
	struct access write, reads[READERS]; /* reads since the write that nothing orders */
};

/* Where threads find what others have stored: the clocks of those who did. */
struct place {
	struct place *next;
	const unsigned char *at;
	uint32_t clock[];
};

struct ptx_watch {
	uint32_t threads;
	uint32_t *clocks;   /* a row for each thread */
	uint32_t *barriers; /* a row for each: of those who have come */
	struct byte *bytes;
	struct place *places[PLACES]; /* by address */
};

/* ---- clocks ---- */

static uint32_t *clock_of(const struct ptx_watch *watch, uint32_t thread)
{
	return &watch->clocks[(size_t)thread * watch->threads];
}

static uint32_t thread_of(const struct ptx_warp *warp, unsigned lane)
{
	return warp->number * PTX_LANES + lane;
}

static void join(const struct ptx_watch *watch, uint32_t *clock, const uint32_t *other)
{
	for (uint32_t i = 0; i < watch->threads; i++)
		clock[i] = clock[i] > other[i] ? clock[i] : other[i];
}

/* What the thread does from here on is later than what others learn of now. */
static void publish(const struct ptx_watch *watch, uint32_t thread, uint32_t *clock)
{
	join(watch, clock, clock_of(watch, thread));
	clock_of(watch, thread)[thread]++;
}

static struct place *place_at(struct ptx_warp *warp, const unsigned char *at)
{
	struct ptx_watch *watch = warp->block->watch;
	struct place **link, *place;

	/* Of accesses of several sizes to one word. */
	at = (const unsigned char *)((uintptr_t)at & ~(uintptr_t)7);
	link = &watch->places[((uintptr_t)at >> 3) % PLACES];

	while ((place = *link) && place->at != at)
		link = &place->next;
	if (place)
		return place;
	place = calloc(1, sizeof(*place) + watch->threads * sizeof(place->clock[0]));
	if (!place)
		longjmp(warp->block->failed, 1);
	place->at = at;
	return *link = place;
}

struct ptx_watch *ptx_watch_new(const struct ptx_block *block)
{
	struct ptx_watch *watch = calloc(1, sizeof(*watch));
	size_t threads = block->threads;

	if (!watch)
		return NULL;
	watch->threads = block->threads;
	watch->clocks = calloc(threads * threads, sizeof(*watch->clocks));
	watch->barriers = calloc(PTX_BARRIERS * threads, sizeof(*watch->barriers));
	watch->bytes = calloc(block->shared_bytes + (size_t)1, sizeof(*watch->bytes));
	if (!watch->clocks || !watch->barriers || !watch->bytes) {
		ptx_watch_free(watch);
		return NULL;
	}
	for (uint32_t i = 0; i < watch->threads; i++)
		clock_of(watch, i)[i] = 1;
	return watch;
}

void ptx_watch_free(struct ptx_watch *watch)
{
	struct place *place;

	if (!watch)
		return;
	for (int i = 0; i < PLACES; i++) {
		while ((place = watch->places[i])) {
			watch->places[i] = place->next;
			free(place);
		}
	}
	free(watch->clocks);
	free(watch->barriers);
	free(watch->bytes);
	free(watch);
}

/* ---- accesses ---- */

/* NULL: it is not shared memory. */
static struct byte *bytes_of(const struct ptx_block *block, const unsigned char *place)
{
	size_t offset = (uintptr_t)place - (uintptr_t)block->shared;

	return offset < block->shared_bytes ? &block->watch->bytes[offset] : NULL;
}

static bool is_ordered(const struct ptx_watch *watch, uint32_t thread, const struct access *before)
{
	return !before->time || before->thread == thread ||
	       clock_of(watch, thread)[before->thread] >= before->time;
}

static struct access access_of(const struct ptx_warp *warp, const struct ptx_instr *instr,
			       unsigned lane, bool visible)
{
	uint32_t thread = thread_of(warp, lane);

	return (struct access){clock_of(warp->block->watch, thread)[thread], (uint16_t)thread,
			       visible, instr->line};
}

static void check(struct ptx_warp *warp, const struct ptx_instr *instr, const struct access *mine,
		  const struct access *other, const char *did)
{
	if ((mine->visible && other->visible) ||
	    is_ordered(warp->block->watch, mine->thread, other))
		return;
	ptx_fail(warp, instr, mine->thread % PTX_LANES, LAUNCH_FAILED,
		 "a race in shared memory with thread %u, which %s it in line %u", other->thread,
		 did, other->line);
}

static void note_read(const struct ptx_watch *watch, struct byte *byte, const struct access *mine)
{
	struct access *first = &byte->reads[0];
	/* Who comes after the first stands for it. */
	struct access *to = is_ordered(watch, mine->thread, first) ? first : &byte->reads[1];
	bool visible = mine->visible && (to->visible || !to->time || to->thread != mine->thread);

	*to = *mine;
	to->visible = visible;
}

void ptx_watch_load(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned lane,
		    const unsigned char *place, unsigned bytes, bool visible)
{
	struct ptx_watch *watch = warp->block->watch;
	struct byte *byte = bytes_of(warp->block, place);
	struct access mine;
	bool stored = false;

	if (visible)
		join(watch, clock_of(watch, thread_of(warp, lane)), place_at(warp, place)->clock);
	if (!byte)
		return;
	mine = access_of(warp, instr, lane, visible);
	for (unsigned i = 0; i < bytes; i++) {
		stored |= byte[i].stored;
		check(warp, instr, &mine, &byte[i].write, "stores");
		note_read(watch, &byte[i], &mine);
	}
	/* Of a structure that is copied in words some bytes may be nobody's. */
	if (!stored)
		ptx_fail(warp, instr, lane, LAUNCH_FAILED,
			 "reads shared memory that nobody has stored to");
}

/* What stores what is there already changes nothing for anybody. */
static void note_write(struct ptx_warp *warp, const struct ptx_instr *instr, struct byte *byte,
		       const struct access *mine, bool changes)
{
	if (!changes)
		return;
	check(warp, instr, mine, &byte->write, "stores");
	for (int i = 0; i < READERS; i++)
		check(warp, instr, mine, &byte->reads[i], "reads");
	*byte = (struct byte){.stored = true, .write = *mine};
}

void ptx_watch_store(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned lane,
		     const unsigned char *place, unsigned bytes, uint64_t value, bool visible)
{
	struct ptx_watch *watch = warp->block->watch;
	struct byte *byte = bytes_of(warp->block, place);
	struct access mine = access_of(warp, instr, lane, visible);

	for (unsigned i = 0; byte && i < bytes; i++)
		note_write(warp, instr, &byte[i], &mine,
			   !byte[i].stored || place[i] != (unsigned char)(value >> 8 * i));
	if (visible)
		publish(watch, mine.thread, place_at(warp, place)->clock);
}

void ptx_watch_swap(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned lane,
		    const unsigned char *place, unsigned bytes)
{
	struct byte *byte = bytes_of(warp->block, place);
	struct access mine = access_of(warp, instr, lane, true);

	for (unsigned i = 0; byte && i < bytes; i++)
		note_write(warp, instr, &byte[i], &mine, true);
	publish(warp->block->watch, mine.thread, place_at(warp, place)->clock);
}

/* ---- barriers ---- */

static uint32_t *barrier_clock(const struct ptx_watch *watch, unsigned barrier)
{
	return &watch->barriers[(size_t)barrier * watch->threads];
}

void ptx_watch_come(struct ptx_warp *warp, unsigned lane, unsigned barrier)
{
	struct ptx_watch *watch = warp->block->watch;

	publish(watch, thread_of(warp, lane), barrier_clock(watch, barrier));
}

void ptx_watch_go_on(struct ptx_warp *warp, unsigned lane, unsigned barrier)
{
	struct ptx_watch *watch = warp->block->watch;

	join(watch, clock_of(watch, thread_of(warp, lane)), barrier_clock(watch, barrier));
}

void ptx_watch_release(struct ptx_block *block, unsigned barrier)
{
	memset(barrier_clock(block->watch, barrier), 0,
	       block->watch->threads * sizeof(block->watch->clocks[0]));
}

void ptx_watch_meet(struct ptx_warp *warp, uint32_t lanes)
{
	struct ptx_watch *watch = warp->block->watch;
	uint32_t *first = clock_of(watch, thread_of(warp, (unsigned)__builtin_ctz(lanes)));

	PTX_FOR_LANES(lane, lanes & (lanes - 1))
	join(watch, first, clock_of(watch, thread_of(warp, lane)));
	PTX_FOR_LANES(lane, lanes & (lanes - 1))
	join(watch, clock_of(watch, thread_of(warp, lane)), first);
	PTX_FOR_LANES(lane, lanes)
	clock_of(watch, thread_of(warp, lane))[thread_of(warp, lane)]++;
}
