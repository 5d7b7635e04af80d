/* SPDX-License-Identifier: BSD-3-Clause */
#include "algos/sched_verify.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 2, NOBODY = -1, NOTHING = -1, LANES_AT_ONCE = 8 };

/* What a chunk holds. */
struct value {
	int32_t block, piece, round; /* of the input that it stands for */
	int32_t origin;              /* whose input, where nothing is reduced */
	int32_t set;                 /* whose contributions it holds: an index; NOTHING: garbage */
};

struct access {
	int32_t lane, phase;
	uint32_t time;
	uint32_t next; /* the last read before this; 0: none */
};

/* A chunk of memory. */
struct place {
	struct value value;
	struct access write;
	uint32_t reads; /* since then, a list in the pool; 0: none */
};

struct message {
	struct message *next;
	int span;
	struct value *values; /* of each piece; behind the clock */
	uint32_t clock[];
};

struct queue {
	struct message *first, *last;
	int num, sender, receiver;
};

struct room {         /* of a rank's buffer */
	size_t first; /* place */
	int blocks;
};

struct runner { /* of a lane */
	uint32_t next, round;
};

struct proof {
	const struct sched *sched;
	const struct sched_request *request;
	int slots, phase;
	char *why;
	size_t why_bytes;
	bool wrong;
	/* The step that is looked at, for messages. */
	const struct sched_lane *lane;
	const struct sched_step *step;
	int piece; /* of it */
	struct runner *runners;
	struct queue *queues;
	uint32_t *clocks; /* a row for each lane */
	size_t width;     /* of a row, with what pads it */
	struct place *places;
	struct room *rooms; /* of each rank, of each buffer */
	struct access *reads;
	uint32_t num_reads, most_reads;
	uint64_t *sets;
	int32_t num_sets, most_sets;
	size_t words; /* of a set */
};

/* ---- what is wrong ---- */

__attribute__((format(printf, 2, 3))) static bool refute(struct proof *p, const char *format, ...)
{
	va_list args;
	int length = 0;

	if (p->wrong)
		return false;
	p->wrong = true;
	if (p->step)
		length = snprintf(p->why, p->why_bytes,
				  "rank %d, channel %d, step %u (%s, piece %d): ", p->lane->rank,
				  p->lane->channel, p->runners[p->lane - p->sched->lanes].next,
				  sched_step_name(p->sched, p->lane->rank, p->step), p->piece);
	va_start(args, format);
	if (length >= 0 && (size_t)length < p->why_bytes)
		vsnprintf(p->why + length, p->why_bytes - (size_t)length, format, args);
	va_end(args);
	return false;
}

static bool no_memory(struct proof *p)
{
	p->step = NULL;
	return refute(p, "there is no memory to prove it with");
}

/* ---- sets of ranks ---- */

static int32_t new_set(struct proof *p)
{
	if (p->num_sets == p->most_sets) {
		int32_t more = 2 * p->most_sets;
		uint64_t *larger = realloc(p->sets, (size_t)more * p->words * sizeof(*larger));

		if (!larger) {
			no_memory(p);
			return NOTHING;
		}
		p->sets = larger;
		p->most_sets = more;
	}
	memset(&p->sets[(size_t)p->num_sets * p->words], 0, p->words * sizeof(*p->sets));
	return p->num_sets++;
}

static uint64_t *set_words(const struct proof *p, int32_t set)
{
	return &p->sets[(size_t)set * p->words];
}

/* The first so many of a word's bits. */
static uint64_t first_bits(int num)
{
	return num <= 0 ? 0 : num >= 64 ? UINT64_MAX : ((uint64_t)1 << num) - 1;
}

/* Whether the set is that of ranks [first, end). */
static bool set_is(const struct proof *p, int32_t set, int first, int end)
{
	const uint64_t *words = set_words(p, set);

	for (int i = 0; i < (int)p->words; i++) {
		if (words[i] != (first_bits(end - 64 * i) & ~first_bits(first - 64 * i)))
			return false;
	}
	return true;
}

/* How many there are in the set where they are the first ranks; NOTHING: they are others. */
static int first_ranks(const struct proof *p, int32_t set)
{
	const uint64_t *words = set_words(p, set);
	int num = 0;

	for (size_t i = 0; i < p->words; i++) {
		if (words[i] & (words[i] + 1) || (words[i] && (size_t)num != 64 * i))
			return NOTHING;
		num += __builtin_popcountll(words[i]);
	}
	return num;
}

/* Whether nobody but the rank is in the set. */
static bool is_only(const struct proof *p, int32_t set, int rank)
{
	const uint64_t *words = set_words(p, set);

	for (size_t i = 0; i < p->words; i++) {
		if (words[i] != (i == (size_t)rank / 64 ? (uint64_t)1 << (rank % 64) : 0))
			return false;
	}
	return true;
}

/*
 * Where order counts a set stands for a sequence. That of one rank has one order; that of several
 * is made here, of the first ranks, in their order, as was proved when it was made, and the one
 * that comes next.
 */
static bool is_next(const struct proof *p, int32_t a, int32_t b)
{
	int num = first_ranks(p, a);

	return num > 0 && is_only(p, b, num);
}

/* Of sets that have nobody in common; NOTHING where they do. */
static int32_t unite(struct proof *p, int32_t a, int32_t b)
{
	int32_t both = new_set(p);

	if (both != NOTHING && p->request->ordered && !is_next(p, a, b)) {
		refute(p, "does not add the contribution of the next rank to those before it");
		return NOTHING;
	}
	for (size_t i = 0; both != NOTHING && i < p->words; i++) {
		if (set_words(p, a)[i] & set_words(p, b)[i]) {
			refute(p, "adds a contribution twice");
			return NOTHING;
		}
		set_words(p, both)[i] = set_words(p, a)[i] | set_words(p, b)[i];
	}
	return both;
}

/* ---- memory ---- */

/* Blocks that there is to be room for in a rank's buffer. */
static int find_blocks(const struct proof *p, int rank, int buffer)
{
	const struct sched_request *request = p->request;
	int blocks = sched_num_blocks(request), num = 0;

	if (buffer == SCHED_SCRATCH)
		return p->sched->scratch_blocks;
	if (buffer == SCHED_HOLD)
		return p->sched->holds ? 1 : 0;
	for (int i = 0; i < blocks && num < 2; i++)
		num += sched_has_block(request, rank, (enum sched_buffer)buffer, i);
	return num > 1 ? blocks : num;
}

static bool exists(const struct proof *p, int rank, int buffer, int block)
{
	if (buffer == SCHED_SCRATCH)
		return block >= 0 && block < p->sched->scratch_blocks;
	if (buffer == SCHED_HOLD)
		return p->sched->holds && block == sched_own_block(p->request, rank);
	return sched_has_block(p->request, rank, (enum sched_buffer)buffer, block);
}

static struct room *room_of(const struct proof *p, int rank, int buffer)
{
	return &p->rooms[rank * SCHED_NUM_BUFFERS + buffer];
}

/*
 * In place, the result of a reduce_scatter is written to the beginning of the input: over the first
 * block, or, where sizes differ, over blocks that depend on all sizes.
 */
static bool begins_input(const struct proof *p)
{
	return p->request->coll == SCHED_REDUCE_SCATTER && p->request->in_place &&
	       p->request->ranks > 1;
}

static bool overlaps_input(const struct proof *p)
{
	return begins_input(p) && !p->sched->uniform;
}

static struct place *place_of(const struct proof *p, uint32_t round, int rank, int buffer,
			      int block, int piece)
{
	const struct room *room = room_of(p, rank, buffer);
	size_t at;

	/* In place, both buffers are one. */
	if (buffer == SCHED_OUT && sched_is_in_place(p->request, rank) && !overlaps_input(p) &&
	    exists(p, rank, SCHED_IN, block))
		return place_of(p, round, rank, SCHED_IN, begins_input(p) ? 0 : block, piece);
	at = (size_t)(room->blocks > 1 ? block : 0);
	if (buffer != SCHED_SCRATCH)
		at += (size_t)room->blocks * round;
	return &p->places[room->first + at * (size_t)p->sched->pieces + (size_t)piece];
}

static bool is_before(const struct proof *p, const struct access *access, const uint32_t *clock)
{
	return access->lane == NOBODY || access->phase < p->phase ||
	       clock[access->lane] >= access->time;
}

static uint32_t *this_clock(const struct proof *p)
{
	return &p->clocks[(size_t)(p->lane - p->sched->lanes) * p->width];
}

static struct access this_access(const struct proof *p)
{
	int32_t lane = (int32_t)(p->lane - p->sched->lanes);

	return (struct access){lane, p->phase, this_clock(p)[lane], 0};
}

static bool note_read(struct proof *p, struct place *place)
{
	struct access access = this_access(p);

	if (place->reads && p->reads[place->reads].lane == access.lane) {
		p->reads[place->reads].time = access.time;
		p->reads[place->reads].phase = access.phase;
		return true;
	}
	if (p->num_reads == p->most_reads) {
		uint32_t more = 2 * p->most_reads;
		struct access *larger = realloc(p->reads, more * sizeof(*larger));

		if (!larger)
			return no_memory(p);
		p->reads = larger;
		p->most_reads = more;
	}
	access.next = place->reads;
	p->reads[p->num_reads] = access;
	place->reads = p->num_reads++;
	return true;
}

/* That it can't be written; NULL: it is of the rank's own input. */
static bool refute_write(struct proof *p, const struct sched_operand *o, const char *how, int lane)
{
	if (!o)
		return refute(p, "writes over its own input while lane %d %s it", lane, how);
	return refute(p, "writes %s block %d of rank %d while lane %d %s it",
		      sched_buffer_name((enum sched_buffer)o->buffer), o->block, o->at, lane, how);
}

static bool check_write(struct proof *p, struct place *place, const struct sched_operand *o)
{
	const uint32_t *clock = this_clock(p);

	if (!is_before(p, &place->write, clock))
		return refute_write(p, o, "writes", place->write.lane);
	for (uint32_t i = place->reads; i; i = p->reads[i].next) {
		if (!is_before(p, &p->reads[i], clock))
			return refute_write(p, o, "reads", p->reads[i].lane);
	}
	place->write = this_access(p);
	place->reads = 0;
	return true;
}

/*
 * The result of a reduce_scatter in place is written to the beginning of the input, over blocks
 * that depend on all sizes and rounds: none of the input is of use any more.
 */
static bool clobber_input(struct proof *p)
{
	struct place *place = &p->places[room_of(p, p->lane->rank, SCHED_IN)->first];
	size_t num = (size_t)p->request->ranks * (size_t)p->sched->pieces * ROUNDS;

	for (size_t i = 0; i < num; i++) {
		if (!check_write(p, &place[i], NULL))
			return false;
		place[i].value.set = NOTHING;
	}
	return true;
}

/* ---- operands ---- */

/* Of the step's sources, or of its targets. */
static bool uses_twice(const struct sched_operand *o, int num)
{
	for (int i = 0; i < num; i++) {
		for (int j = 0; o[i].fifo && j < i; j++) {
			if (o[j].fifo && o[j].at == o[i].at)
				return true;
		}
	}
	return false;
}

static bool check_operand(struct proof *p, const struct sched_operand *o)
{
	const struct sched *s = p->sched;

	if (o->fifo) {
		if (o->at < 0 || (uint32_t)o->at >= s->num_connections)
			return refute(p, "there is no connection %d", o->at);
		return true;
	}
	if (o->at < 0 || o->at >= p->request->ranks || o->buffer >= SCHED_NUM_BUFFERS ||
	    !exists(p, o->at, o->buffer, o->block))
		return refute(p, "there is no block %d of buffer %d of rank %d", o->block,
			      o->buffer, o->at);
	if (p->step->piece < 0 || p->step->span < 1 || p->step->span > s->most_span ||
	    p->step->piece > s->pieces - p->step->span)
		return refute(p, "there are no pieces %d to %d", p->step->piece,
			      p->step->piece + p->step->span - 1);
	if (o->at != p->lane->rank && (o->buffer == SCHED_SCRATCH || o->buffer == SCHED_HOLD))
		return refute(p, "reaches into %s of rank %d",
			      sched_buffer_name((enum sched_buffer)o->buffer), o->at);
	return true;
}

/* A FIFO belongs to one lane at each end. */
static bool claim(struct proof *p, const struct sched_operand *o, bool sends)
{
	const struct sched_connection *connection = &p->sched->connections[o->at];
	struct queue *queue = &p->queues[o->at];
	int *lane = sends ? &queue->sender : &queue->receiver;
	int me = (int)(p->lane - p->sched->lanes);

	if ((sends ? connection->from : connection->to) != p->lane->rank)
		return refute(p, "uses connection %d from %d to %d", o->at, connection->from,
			      connection->to);
	if (*lane != NOBODY && *lane != me)
		return refute(p, "uses connection %d, as lane %d does", o->at, *lane);
	*lane = me;
	return true;
}

/*
 * Whether the chunk has the place's size, whatever the sizes of blocks are. What two ranks exchange
 * in an alltoall in place has one size both ways.
 */
static bool fits(const struct proof *p, const struct sched_operand *o, const struct value *value)
{
	bool sent = o->at == value->origin && o->block == value->block;
	bool received = o->block == value->origin && o->at == value->block;

	if (p->sched->uniform || sched_num_blocks(p->request) == 1)
		return true;
	if (p->request->coll != SCHED_ALLTOALL)
		return o->block == value->block;
	if (o->buffer == SCHED_SCRATCH || o->buffer == SCHED_HOLD)
		return false;
	return p->request->in_place ? sent || received : o->buffer == SCHED_IN ? sent : received;
}

static bool read_place(struct proof *p, uint32_t round, const struct sched_operand *o,
		       struct value *value)
{
	struct place *place = place_of(p, round, o->at, o->buffer, o->block, p->piece);

	if (!is_before(p, &place->write, this_clock(p)))
		return refute(p, "reads %s block %d of rank %d while lane %d writes it",
			      sched_buffer_name((enum sched_buffer)o->buffer), o->block, o->at,
			      place->write.lane);
	if (place->value.set == NOTHING)
		return refute(p, "reads %s block %d of rank %d, where there is nothing",
			      sched_buffer_name((enum sched_buffer)o->buffer), o->block, o->at);
	*value = place->value;
	return note_read(p, place);
}

static bool write_place(struct proof *p, uint32_t round, const struct sched_operand *o,
			const struct value *value)
{
	struct place *place = place_of(p, round, o->at, o->buffer, o->block, p->piece);

	if (o->buffer == SCHED_IN)
		return refute(p, "writes IN block %d of rank %d, which is only for reading",
			      o->block, o->at);
	if (!fits(p, o, value))
		return refute(p, "writes a chunk of another size to %s block %d of rank %d",
			      sched_buffer_name((enum sched_buffer)o->buffer), o->block, o->at);
	if (!check_write(p, place, o))
		return false;
	if (o->buffer == SCHED_OUT && overlaps_input(p) &&
	    (o->at != p->lane->rank ? !refute(p, "writes another's result in place")
				    : !clobber_input(p)))
		return false;
	place->value = *value;
	return true;
}

/* Some at a time, which compilers make vectors of: much of a proof's time is here. */
static void join(uint32_t *restrict clock, const uint32_t *restrict other, size_t width)
{
	for (size_t i = 0; i < width; i += LANES_AT_ONCE) {
		for (size_t j = i; j < i + LANES_AT_ONCE; j++)
			clock[j] = clock[j] > other[j] ? clock[j] : other[j];
	}
}

/* All messages of a step are there before it reads anything. */
static void wait_for_messages(struct proof *p)
{
	const struct sched_operand *from = sched_sources(p->sched, p->step);

	for (int i = 0; i < p->step->num_sources; i++) {
		if (from[i].fifo)
			join(this_clock(p), p->queues[from[i].at].first->clock, p->width);
	}
}

static struct value received(struct proof *p, const struct sched_operand *o)
{
	return p->queues[o->at].first->values[p->piece - p->step->piece];
}

/* A message is taken when all of its pieces were used. */
static void take_messages(struct proof *p)
{
	const struct sched_operand *from = sched_sources(p->sched, p->step);

	for (int i = 0; i < p->step->num_sources; i++) {
		struct queue *queue = from[i].fifo ? &p->queues[from[i].at] : NULL;
		struct message *message = queue ? queue->first : NULL;

		if (!message)
			continue;
		queue->first = message->next;
		queue->num--;
		free(message);
	}
}

/* Messages as long as the step's, to be filled with values. */
static bool post_messages(struct proof *p)
{
	const struct sched_operand *to = sched_targets(p->sched, p->step);
	size_t clock = p->width * sizeof(uint32_t);

	for (int i = 0; i < p->step->num_targets; i++) {
		struct queue *queue = to[i].fifo ? &p->queues[to[i].at] : NULL;
		struct message *message;

		if (!queue)
			continue;
		message = malloc(sizeof(*message) + clock +
				 (size_t)p->step->span * sizeof(struct value));
		if (!message)
			return no_memory(p);
		message->next = NULL;
		message->span = p->step->span;
		message->values = (struct value *)((char *)message->clock + clock);
		memcpy(message->clock, this_clock(p), clock);
		if (queue->num++)
			queue->last->next = message;
		else
			queue->first = message;
		queue->last = message;
	}
	return true;
}

static void send_value(struct proof *p, const struct sched_operand *o, const struct value *value)
{
	p->queues[o->at].last->values[p->piece - p->step->piece] = *value;
}

/* ---- steps ---- */

/* Whether the step has what it waits for; also true where something is wrong. */
static bool can_run(struct proof *p)
{
	const struct sched_operand *o = sched_sources(p->sched, p->step);

	if (uses_twice(o, p->step->num_sources) ||
	    uses_twice(o + p->step->num_sources, p->step->num_targets)) {
		refute(p, "uses a connection twice");
		return true;
	}
	for (int i = 0; i < p->step->num_sources + p->step->num_targets; i++) {
		bool sends = i >= p->step->num_sources;

		if (!check_operand(p, &o[i]) || (o[i].fifo && !claim(p, &o[i], sends)))
			return true;
	}
	for (int i = 0; i < p->step->num_sources + p->step->num_targets; i++) {
		const struct queue *queue = o[i].fifo ? &p->queues[o[i].at] : NULL;

		if (queue && (i < p->step->num_sources ? !queue->num : queue->num == p->slots))
			return false;
	}
	return true;
}

static bool combine(struct proof *p, struct value *sum, const struct value *value)
{
	if (value->block != sum->block || value->piece != sum->piece ||
	    value->round != sum->round || value->origin != sum->origin)
		return refute(p, "adds block %d piece %d to block %d piece %d", value->block,
			      value->piece, sum->block, sum->piece);
	sum->set = unite(p, sum->set, value->set);
	return sum->set != NOTHING;
}

static bool is_of_step(struct proof *p, uint32_t round, const struct value *value)
{
	if (value->piece == p->piece && value->round == (int32_t)round)
		return true;
	return refute(p, "moves piece %d of round %d", value->piece, value->round);
}

/* All sources of a piece, into one value. */
static bool read_sources(struct proof *p, uint32_t round, struct value *sum)
{
	const struct sched_operand *from = sched_sources(p->sched, p->step);
	struct value value;

	for (int i = 0; i < p->step->num_sources; i++) {
		if (from[i].fifo)
			value = received(p, &from[i]);
		else if (!read_place(p, round, &from[i], &value))
			return false;
		if (i == 0)
			*sum = value;
		else if (!combine(p, sum, &value))
			return false;
	}
	return is_of_step(p, round, sum);
}

static bool move_piece(struct proof *p, uint32_t round)
{
	const struct sched_operand *to = sched_targets(p->sched, p->step);
	struct value sum = {0};

	if (!read_sources(p, round, &sum))
		return false;
	for (int i = 0; i < p->step->num_targets; i++) {
		if (to[i].fifo)
			send_value(p, &to[i], &sum);
		else if (!write_place(p, round, &to[i], &sum))
			return false;
	}
	return true;
}

static bool are_as_long(struct proof *p)
{
	const struct sched_operand *from = sched_sources(p->sched, p->step);

	for (int i = 0; i < p->step->num_sources; i++) {
		int span = from[i].fifo ? p->queues[from[i].at].first->span : p->step->span;

		if (span != p->step->span)
			return refute(p, "takes a message of %d pieces for %d", span,
				      p->step->span);
	}
	return true;
}

static bool has_place(struct proof *p)
{
	const struct sched_operand *o = sched_sources(p->sched, p->step);

	for (int i = 0; i < p->step->num_sources + p->step->num_targets; i++) {
		if (!o[i].fifo)
			return true;
	}
	return refute(p, "has no place, so its size is not known");
}

static bool move_round(struct proof *p, uint32_t round)
{
	if (p->step->num_sources > 1 && !sched_coll_reduces(p->request->coll))
		return refute(p, "reduces, which the collective does not");
	wait_for_messages(p);
	if (!are_as_long(p) || !post_messages(p))
		return false;
	for (int i = 0; i < p->step->span; i++) {
		p->piece = p->step->piece + i;
		if (!move_piece(p, round))
			return false;
	}
	take_messages(p);
	return has_place(p);
}

static bool swap(struct proof *p, uint32_t round)
{
	const struct sched_operand *o = sched_sources(p->sched, p->step);
	struct value values[2];

	if (p->step->num_sources != 2 || p->step->num_targets || o[0].fifo || o[1].fifo ||
	    p->step->span > 1)
		return refute(p, "is not a swap of two places of one piece");
	for (int i = 0; i < 2; i++) {
		if (!read_place(p, round, &o[i], &values[i]) || !is_of_step(p, round, &values[i]))
			return false;
	}
	for (int i = 0; i < 2; i++) {
		if (!write_place(p, round, &o[i], &values[1 - i]))
			return false;
	}
	return true;
}

static bool run_step(struct proof *p, uint32_t round)
{
	this_clock(p)[p->lane - p->sched->lanes]++;
	if (p->step->swap)
		return swap(p, round);
	if (!p->step->num_sources || !p->step->num_targets)
		return refute(p, "has nothing to read, or nothing to write");
	return move_round(p, round);
}

/* As far as the lane gets. Whether it got any further. */
static bool run_lane(struct proof *p, uint32_t index)
{
	const struct sched_lane *lane = &p->sched->lanes[index];
	struct runner *runner = &p->runners[index];
	bool moved = false;

	p->lane = lane;
	while (!p->wrong && runner->round < ROUNDS && lane->num) {
		p->step = &p->sched->steps[lane->first + runner->next];
		p->piece = p->step->piece;
		if (!can_run(p) || p->wrong || !run_step(p, runner->round))
			break;
		moved = true;
		if (++runner->next == lane->num) {
			runner->next = 0;
			runner->round++;
		}
	}
	return moved;
}

static bool run_phase(struct proof *p)
{
	const struct sched *s = p->sched;
	bool moved = true;

	while (moved && !p->wrong) {
		moved = false;
		for (uint32_t i = 0; i < s->num_lanes && !p->wrong; i++) {
			if (s->lanes[i].phase == p->phase)
				moved |= run_lane(p, i);
		}
	}
	for (uint32_t i = 0; i < s->num_lanes && !p->wrong; i++) {
		if (s->lanes[i].phase != p->phase || p->runners[i].round == ROUNDS ||
		    !s->lanes[i].num)
			continue;
		p->lane = &s->lanes[i];
		p->step = &s->steps[s->lanes[i].first + p->runners[i].next];
		p->piece = p->step->piece;
		refute(p, "waits for ever, with %d slots", p->slots);
	}
	p->step = NULL;
	for (uint32_t i = 0; i < s->num_connections && !p->wrong; i++) {
		if (p->queues[i].num)
			refute(p, "what was sent on connection %u is not received", i);
	}
	return !p->wrong;
}

/* ---- beginning and end ---- */

static void put_input(struct proof *p, int rank)
{
	const struct sched_request *request = p->request;
	bool reduces = sched_coll_reduces(request->coll);

	for (int block = 0; block < sched_num_blocks(request); block++) {
		if (!sched_has_block(request, rank, SCHED_IN, block))
			continue;
		for (int i = 0; i < ROUNDS * p->sched->pieces; i++) {
			int round = i / p->sched->pieces, piece = i % p->sched->pieces;

			place_of(p, (uint32_t)round, rank, SCHED_IN, block, piece)->value =
				(struct value){block, piece, round, reduces ? 0 : rank, rank};
		}
	}
}

/* What MPI says that a chunk of the rank's output is. */
static bool is_result(const struct proof *p, int rank, int block, const struct value *value)
{
	int ranks = p->request->ranks, root = p->request->root;

	switch (p->request->coll) {
	case SCHED_SCAN:
		return set_is(p, value->set, 0, rank + 1);
	case SCHED_EXSCAN:
		return set_is(p, value->set, 0, rank);
	case SCHED_BCAST:
		return value->origin == root;
	case SCHED_ALLGATHER:
	case SCHED_GATHER:
		return value->origin == block && value->block == block;
	case SCHED_SCATTER:
		return value->origin == root && value->block == block;
	case SCHED_ALLTOALL:
		return value->origin == block && value->block == rank;
	default:
		return value->block == block && set_is(p, value->set, 0, ranks);
	}
}

static bool check_output(struct proof *p, int rank)
{
	for (int block = 0; block < sched_num_blocks(p->request); block++) {
		if (!sched_has_block(p->request, rank, SCHED_OUT, block))
			continue;
		for (int i = 0; i < ROUNDS * p->sched->pieces; i++) {
			int round = i / p->sched->pieces, piece = i % p->sched->pieces;
			const struct value *value =
				&place_of(p, (uint32_t)round, rank, SCHED_OUT, block, piece)->value;

			if (value->set == NOTHING)
				return refute(
					p, "nothing is in piece %d of block %d of rank %d's output",
					piece, block, rank);
			if (value->piece != piece || value->round != round ||
			    !is_result(p, rank, block, value))
				return refute(p,
					      "piece %d of block %d of rank %d's output is wrong",
					      piece, block, rank);
		}
	}
	return true;
}

static bool lay_out(struct proof *p)
{
	size_t total = 0, ranks = (size_t)p->request->ranks;

	p->rooms = calloc(ranks * SCHED_NUM_BUFFERS, sizeof(*p->rooms));
	if (!p->rooms)
		return no_memory(p);
	for (int rank = 0; rank < p->request->ranks; rank++) {
		for (int buffer = 0; buffer < SCHED_NUM_BUFFERS; buffer++) {
			struct room *room = room_of(p, rank, buffer);

			room->first = total;
			room->blocks = find_blocks(p, rank, buffer);
			total += (size_t)room->blocks * (size_t)p->sched->pieces *
				 (buffer == SCHED_SCRATCH ? 1 : ROUNDS);
		}
	}
	p->places = calloc(total + 1, sizeof(*p->places));
	if (!p->places)
		return no_memory(p);
	for (size_t i = 0; i < total; i++) {
		p->places[i].value.set = NOTHING;
		p->places[i].write.lane = NOBODY;
	}
	return true;
}

static bool make_sets(struct proof *p)
{
	p->words = ((size_t)p->request->ranks + 63) / 64;
	p->most_sets = 2 * p->request->ranks;
	p->sets = calloc((size_t)p->most_sets * p->words, sizeof(*p->sets));
	p->most_reads = 1024;
	p->reads = calloc(p->most_reads, sizeof(*p->reads));
	p->num_reads = 1; /* 0 ends a list */
	if (!p->sets || !p->reads)
		return no_memory(p);
	for (int i = 0; i < p->request->ranks; i++)
		set_words(p, new_set(p))[i / 64] = (uint64_t)1 << (i % 64);
	return true;
}

/* That ranks, phases, steps and operands are there at all. */
static bool has_bounds(struct proof *p)
{
	const struct sched *s = p->sched;
	int ranks = p->request->ranks;

	if (p->request->root < 0 || p->request->root >= ranks)
		return refute(p, "root %d of %d ranks", p->request->root, ranks);
	for (uint32_t i = 0; i < s->num_lanes; i++) {
		const struct sched_lane *lane = &s->lanes[i];

		if (lane->rank < 0 || lane->rank >= ranks || lane->phase < 0 ||
		    lane->phase >= s->phases || lane->first + lane->num > s->num_steps)
			return refute(p, "lane %u is of rank %d, phase %d", i, lane->rank,
				      lane->phase);
	}
	for (uint32_t i = 0; i < s->num_steps; i++) {
		const struct sched_step *step = &s->steps[i];

		if (step->num_sources < 0 || step->num_targets < 0 ||
		    step->first + (uint64_t)step->num_sources + (uint64_t)step->num_targets >
			    s->num_operands)
			return refute(p, "step %u has operands that are not there", i);
	}
	for (uint32_t i = 0; i < s->num_connections; i++) {
		const struct sched_connection *c = &s->connections[i];

		if (c->from < 0 || c->from >= ranks || c->to < 0 || c->to >= ranks)
			return refute(p, "connection %u is from %d to %d", i, c->from, c->to);
	}
	return true;
}

static bool set_up(struct proof *p)
{
	const struct sched *s = p->sched;

	if (s->failed)
		return no_memory(p);
	if (p->slots < 1 || s->pieces < 1 || p->request->ranks < 1)
		return refute(p, "%d slots, %d pieces, %d ranks", p->slots, s->pieces,
			      p->request->ranks);
	if (!has_bounds(p))
		return false;
	p->runners = calloc(s->num_lanes + 1, sizeof(*p->runners));
	p->queues = calloc(s->num_connections + 1, sizeof(*p->queues));
	p->width = ((size_t)s->num_lanes + LANES_AT_ONCE - 1) / LANES_AT_ONCE * LANES_AT_ONCE;
	p->clocks = calloc((size_t)s->num_lanes * p->width + 1, sizeof(*p->clocks));
	if (!p->runners || !p->queues || !p->clocks)
		return no_memory(p);
	for (uint32_t i = 0; i < s->num_connections; i++)
		p->queues[i].sender = p->queues[i].receiver = NOBODY;
	return lay_out(p) && make_sets(p);
}

static void clean_up(struct proof *p)
{
	for (uint32_t i = 0; p->queues && i < p->sched->num_connections; i++) {
		while (p->queues[i].num--) {
			struct message *message = p->queues[i].first;

			p->queues[i].first = message->next;
			free(message);
		}
	}
	free(p->runners);
	free(p->queues);
	free(p->clocks);
	free(p->rooms);
	free(p->places);
	free(p->sets);
	free(p->reads);
}

static void prove(struct proof *p)
{
	for (int rank = 0; rank < p->request->ranks; rank++)
		put_input(p, rank);
	for (p->phase = 0; p->phase < p->sched->phases; p->phase++) {
		if (!run_phase(p))
			return;
	}
	for (int rank = 0; rank < p->request->ranks; rank++) {
		if (!check_output(p, rank))
			return;
	}
}

bool sched_verify(const struct sched *sched, int slots, char *why, size_t bytes)
{
	struct proof p = {.sched = sched,
			  .request = &sched->request,
			  .slots = slots,
			  .why = why,
			  .why_bytes = bytes};

	if (bytes)
		why[0] = 0;
	if (set_up(&p))
		prove(&p);
	clean_up(&p);
	return !p.wrong;
}
