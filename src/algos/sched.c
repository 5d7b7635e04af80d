/* SPDX-License-Identifier: BSD-3-Clause */
#include "algos/sched.h"

#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	bool reduces, has_root, has_blocks;
} colls[SCHED_NUM_COLLS] = {
	[SCHED_ALLREDUCE] = {"allreduce", true, false, false},
	[SCHED_REDUCE] = {"reduce", true, true, false},
	[SCHED_REDUCE_SCATTER] = {"reduce_scatter", true, false, true},
	[SCHED_SCAN] = {"scan", true, false, false},
	[SCHED_EXSCAN] = {"exscan", true, false, false},
	[SCHED_BCAST] = {"bcast", false, true, false},
	[SCHED_ALLGATHER] = {"allgather", false, false, true},
	[SCHED_GATHER] = {"gather", false, true, true},
	[SCHED_SCATTER] = {"scatter", false, true, true},
	[SCHED_ALLTOALL] = {"alltoall", false, false, true},
};

/* ---- making one ---- */

struct sched *sched_new(const struct sched_request *request)
{
	struct sched *sched = calloc(1, sizeof(*sched));

	if (!sched)
		return NULL;
	sched->request = *request;
	sched->pieces = 1;
	sched->most_span = 1;
	sched->phases = 1;
	return sched;
}

void sched_free(struct sched *sched)
{
	if (!sched)
		return;
	sched_forget_steps(sched);
	free(sched->connections);
	free(sched);
}

void sched_forget_steps(struct sched *sched)
{
	free(sched->lanes);
	free(sched->steps);
	free(sched->operands);
	sched->lanes = NULL;
	sched->steps = NULL;
	sched->operands = NULL;
	sched->num_lanes = sched->num_steps = sched->num_operands = 0;
	sched->most_lanes = sched->most_steps = sched->most_operands = 0;
}

/* Room for one more in an array. False, and the schedule has failed: there is no memory. */
static bool grow_array(struct sched *sched, void **array, uint32_t num, uint32_t *most,
		       size_t bytes)
{
	uint32_t more = *most ? 2 * *most : 64;
	void *larger;

	if (sched->failed || num < *most)
		return !sched->failed;
	larger = realloc(*array, more * bytes);
	if (!larger) {
		sched->failed = true;
		return false;
	}
	*array = larger;
	*most = more;
	return true;
}

int sched_connect(struct sched *sched, int from, int to)
{
	if (!grow_array(sched, (void **)&sched->connections, sched->num_connections,
			&sched->most_connections, sizeof(*sched->connections)))
		return 0;
	sched->connections[sched->num_connections] = (struct sched_connection){from, to};
	return (int)sched->num_connections++;
}

void sched_next_phase(struct sched *sched)
{
	sched->phases++;
}

void sched_lane(struct sched *sched, int rank, int channel)
{
	if (sched->num_lanes && !sched->lanes[sched->num_lanes - 1].num)
		sched->num_lanes--;
	if (!grow_array(sched, (void **)&sched->lanes, sched->num_lanes, &sched->most_lanes,
			sizeof(*sched->lanes)))
		return;
	sched->lanes[sched->num_lanes++] =
		(struct sched_lane){rank, sched->phases - 1, channel, sched->num_steps, 0};
}

void sched_step(struct sched *sched, int piece)
{
	if (!grow_array(sched, (void **)&sched->steps, sched->num_steps, &sched->most_steps,
			sizeof(*sched->steps)))
		return;
	sched->steps[sched->num_steps++] =
		(struct sched_step){.piece = piece, .span = 1, .first = sched->num_operands};
	sched->lanes[sched->num_lanes - 1].num++;
}

static bool add_operand(struct sched *sched, struct sched_operand operand)
{
	if (!grow_array(sched, (void **)&sched->operands, sched->num_operands,
			&sched->most_operands, sizeof(*sched->operands)))
		return false;
	sched->operands[sched->num_operands++] = operand;
	if (!operand.fifo && operand.buffer == SCHED_HOLD)
		sched->holds = true;
	return true;
}

void sched_from(struct sched *sched, struct sched_operand source)
{
	if (add_operand(sched, source))
		sched->steps[sched->num_steps - 1].num_sources++;
}

void sched_to(struct sched *sched, struct sched_operand target)
{
	if (add_operand(sched, target))
		sched->steps[sched->num_steps - 1].num_targets++;
}

void sched_copy(struct sched *sched, int piece, struct sched_operand source,
		struct sched_operand target)
{
	sched_step(sched, piece);
	sched_from(sched, source);
	sched_to(sched, target);
}

void sched_reduce(struct sched *sched, int piece, struct sched_operand first,
		  struct sched_operand second, struct sched_operand target)
{
	sched_step(sched, piece);
	sched_from(sched, first);
	sched_from(sched, second);
	sched_to(sched, target);
}

void sched_swap(struct sched *sched, int piece, struct sched_operand a, struct sched_operand b)
{
	sched_step(sched, piece);
	sched_from(sched, a);
	sched_from(sched, b);
	if (!sched->failed)
		sched->steps[sched->num_steps - 1].swap = true;
}

void sched_widen(struct sched *sched, int span)
{
	if (sched->failed)
		return;
	sched->steps[sched->num_steps - 1].span = span;
	sched->most_span = span > sched->most_span ? span : sched->most_span;
}

struct sched_operand sched_place(enum sched_buffer buffer, int rank, int block)
{
	return (struct sched_operand){
		.fifo = false, .buffer = (uint8_t)buffer, .at = rank, .block = block};
}

struct sched_operand sched_fifo(int connection)
{
	return (struct sched_operand){.fifo = true, .at = connection};
}

/* ---- looking at one ---- */

const char *sched_coll_name(enum sched_coll coll)
{
	return colls[coll].name;
}

int sched_coll_of(const char *name)
{
	for (int i = 0; i < SCHED_NUM_COLLS; i++) {
		if (!strcmp(colls[i].name, name))
			return i;
	}
	return -1;
}

bool sched_coll_reduces(enum sched_coll coll)
{
	return colls[coll].reduces;
}

bool sched_coll_has_root(enum sched_coll coll)
{
	return colls[coll].has_root;
}

int sched_num_blocks(const struct sched_request *request)
{
	return colls[request->coll].has_blocks ? request->ranks : 1;
}

int sched_own_block(const struct sched_request *request, int rank)
{
	return sched_num_blocks(request) > 1 ? rank : 0;
}

static bool has_input(const struct sched_request *r, int rank, int block)
{
	switch (r->coll) {
	case SCHED_ALLTOALL:
		return !r->pairs || sched_pairs_have(r->pairs, rank, block);
	case SCHED_BCAST:
	case SCHED_SCATTER:
		return rank == r->root;
	case SCHED_ALLGATHER:
	case SCHED_GATHER:
		return block == rank;
	default:
		return true;
	}
}

static bool has_output(const struct sched_request *r, int rank, int block)
{
	switch (r->coll) {
	case SCHED_BCAST:
		return rank != r->root;
	case SCHED_REDUCE:
	case SCHED_GATHER:
		return rank == r->root;
	case SCHED_SCATTER:
	case SCHED_REDUCE_SCATTER:
		return block == rank;
	case SCHED_EXSCAN:
		return rank != 0;
	case SCHED_ALLTOALL:
		return !r->pairs || sched_pairs_have(r->pairs, block, rank);
	default:
		return true;
	}
}

int sched_worker(const struct sched_request *request, int rank)
{
	int worker = 0;

	if (!request->gpus)
		return rank;
	while (request->gpus[worker] != request->gpus[rank])
		worker++;
	return worker;
}

bool sched_has_block(const struct sched_request *request, int rank, enum sched_buffer buffer,
		     int block)
{
	if (block < 0 || block >= sched_num_blocks(request))
		return false;
	return buffer == SCHED_IN ? has_input(request, rank, block)
				  : has_output(request, rank, block);
}

bool sched_is_in_place(const struct sched_request *request, int rank)
{
	return request->in_place && (!colls[request->coll].has_root || rank == request->root);
}

bool sched_is_far(const struct sched *sched, const struct sched_connection *connection)
{
	const struct sched_request *r = &sched->request;

	return r->num_nodes && r->nodes[connection->from] != r->nodes[connection->to];
}

bool sched_has_near_messages(const struct sched *sched)
{
	for (uint32_t i = 0; i < sched->num_connections; i++) {
		if (!sched_is_far(sched, &sched->connections[i]))
			return true;
	}
	return false;
}

bool sched_is_remote(const struct sched *sched, const struct sched_lane *lane)
{
	for (uint32_t i = lane->first; i < lane->first + lane->num; i++) {
		const struct sched_step *step = &sched->steps[i];
		const struct sched_operand *o = sched_sources(sched, step);

		for (int j = 0; j < step->num_sources + step->num_targets; j++) {
			if (!o[j].fifo && o[j].at != lane->rank)
				return true;
		}
	}
	return false;
}

uint32_t *sched_sort_lanes(const struct sched *sched)
{
	uint32_t *next = calloc((size_t)sched->request.ranks + 1, sizeof(*next));
	uint32_t *order = malloc(((size_t)sched->num_lanes + 1) * sizeof(*order));

	for (uint32_t i = 0; next && order && i < sched->num_lanes; i++)
		next[sched->lanes[i].rank + 1]++;
	for (int rank = 0; next && rank < sched->request.ranks; rank++)
		next[rank + 1] += next[rank];
	for (uint32_t i = 0; next && order && i < sched->num_lanes; i++)
		order[next[sched->lanes[i].rank]++] = i;
	if (!next) {
		free(order);
		order = NULL;
	}
	free(next);
	return order;
}

const char *sched_buffer_name(enum sched_buffer buffer)
{
	static const char *const names[SCHED_NUM_BUFFERS] = {"IN", "OUT", "SCRATCH", "HOLD"};

	return names[buffer];
}

/* Where operands are: in FIFOs, in this rank's memory, in another's. */
struct sides {
	int fifo, own, other;
};

static struct sides count_sides(int rank, const struct sched_operand *operands, int num)
{
	struct sides sides = {0};

	for (int i = 0; i < num; i++) {
		if (operands[i].fifo)
			sides.fifo++;
		else if (operands[i].at == rank)
			sides.own++;
		else
			sides.other++;
	}
	return sides;
}

const char *sched_step_name(const struct sched *sched, int rank, const struct sched_step *step)
{
	struct sides from = count_sides(rank, sched_sources(sched, step), step->num_sources);
	struct sides to = count_sides(rank, sched_targets(sched, step), step->num_targets);
	bool reduce = step->num_sources > 1;

	if (step->swap)
		return "swap";
	if (from.other)
		return reduce ? to.other ? "readReduceWriteMany" : "readReduce" : "read";
	if (to.other)
		return step->num_targets > 1 ? "writeMany" : "write";
	if (!from.fifo)
		return to.fifo ? to.own ? "copySend" : "send" : reduce ? "reduce" : "copy";
	if (!reduce)
		return to.fifo && to.own ? "recvCopySend" : to.fifo ? "recvSend" : "recv";
	return to.fifo && to.own ? "recvReduceCopySend"
	       : to.fifo         ? "recvReduceSend"
				 : "recvReduceCopy";
}

struct sched_span sched_range(uint64_t bytes, uint64_t unit, int pieces, int first, int span)
{
	uint64_t units = (bytes + unit - 1) / unit;
	uint64_t start = units * (uint64_t)first / (uint64_t)pieces * unit;
	uint64_t end = units * (uint64_t)(first + span) / (uint64_t)pieces * unit;

	start = start < bytes ? start : bytes;
	end = end < bytes ? end : bytes;
	return (struct sched_span){start, end - start};
}

struct sched_span sched_span(uint64_t bytes, uint64_t unit, int pieces, int piece)
{
	return sched_range(bytes, unit, pieces, piece, 1);
}

uint64_t sched_unit(const struct sched *sched)
{
	return sched_coll_reduces(sched->request.coll) ? 8 << 10 : 16;
}

struct sched_span sched_chunk(const struct sched *sched, uint64_t bytes,
			      const struct sched_step *step)
{
	return sched_range(bytes, sched_unit(sched), sched->pieces, step->piece, step->span);
}
