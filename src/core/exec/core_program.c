/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/exec/core_program.h"
#include "algos/sched_carry.h"
#include "algos/sched_slots.h"

#include <stdlib.h>
#include <string.h>

/* A connection, as its two ends see it. */
struct link {
	uint16_t incoming, outgoing; /* its number among the receiver's and the sender's */
	uint32_t per_round;
	uint32_t sent, received; /* in this rank's lanes so far */
};

struct maker {
	const struct sched *sched;
	int rank;
	const int *peers;
	struct core_program *program;
	struct link *links;
	uint8_t *levels;       /* of all steps: see sched_carry.h */
	uint32_t most_places;  /* of a rank */
	uint32_t num_messages; /* of a round, of the rank's links so far */
};

/* ---- limits, which are the same for all ranks ---- */

/* False: no memory. */
static bool number_links(struct maker *m)
{
	uint32_t *numbers = calloc(2 * (size_t)m->sched->request.ranks, sizeof(*numbers));

	m->links = calloc(m->sched->num_connections + 1, sizeof(*m->links));
	for (uint32_t i = 0; numbers && m->links && i < m->sched->num_connections; i++) {
		const struct sched_connection *connection = &m->sched->connections[i];

		m->links[i].incoming = (uint16_t)numbers[2 * connection->to]++;
		m->links[i].outgoing = (uint16_t)numbers[2 * connection->from + 1]++;
	}
	free(numbers);
	return numbers && m->links;
}

static void look_at_step(struct maker *m, const struct sched_step *step)
{
	const struct sched_operand *o = sched_sources(m->sched, step);
	uint32_t num = (uint32_t)(step->num_sources + step->num_targets);

	for (uint32_t i = 0; i < num; i++) {
		m->program->has_links |= o[i].fifo;
		if (o[i].fifo && i < (uint32_t)step->num_sources)
			m->links[o[i].at].per_round++;
	}
}

static void look_at_lanes(struct maker *m)
{
	for (uint32_t i = 0; i < m->sched->num_lanes; i++) {
		const struct sched_lane *lane = &m->sched->lanes[i];

		for (uint32_t j = 0; j < lane->num; j++)
			look_at_step(m, &m->sched->steps[lane->first + j]);
		m->program->is_mapped |= sched_is_remote(m->sched, lane);
	}
}

/* False: no memory. */
static bool count_all(struct maker *m)
{
	m->program->most_links = sched_most_links(m->sched);
	m->program->most_lanes = sched_most_lanes(m->sched);
	m->most_places = sched_most_places(m->sched);
	return m->program->most_links < UINT32_MAX && m->program->most_lanes < UINT32_MAX &&
	       m->most_places < UINT32_MAX;
}

static enum core_reason check(struct maker *m)
{
	struct core_program *program = m->program;

	if (m->sched->phases > CORE_MAX_PHASES)
		return CORE_REASON_PHASES;
	if (m->sched->pieces > UINT16_MAX)
		return CORE_REASON_PIECES;
	look_at_lanes(m);
	for (uint32_t i = 0; i < m->sched->num_connections; i++) {
		if (m->links[i].per_round > program->most_messages)
			program->most_messages = m->links[i].per_round;
	}
	if (program->most_links > GPU_MAX_LINKS)
		return CORE_REASON_CONNECTIONS;
	if (program->most_lanes > GPU_MAX_LANES)
		return CORE_REASON_LANES;
	if (m->most_places > GPU_MAX_PLACES)
		return CORE_REASON_BLOCKS;
	return sched_most_operands(m->sched) > GPU_MAX_OPERANDS ? CORE_REASON_WIDE_STEPS
								: CORE_REASON_NONE;
}

/* ---- the rank's steps ---- */

/* The place's number. There are not too many: see check; and there is room: see allocate. */
static int number_of(struct core_program *program, const struct sched_operand *o)
{
	int i = 0;

	while (i < program->num_places &&
	       (program->places[i].buffer != o->buffer || program->places[i].rank != o->at ||
		program->places[i].block != o->block))
		i++;
	if (i == program->num_places)
		program->places[program->num_places++] =
			(struct core_place){(enum sched_buffer)o->buffer, o->at, o->block};
	return i;
}

static struct core_link *link_of(struct core_program *program, const struct gpu_operand *o)
{
	return o->kind == GPU_OPERAND_RECEIVE ? &program->incoming[o->index]
					      : &program->outgoing[o->index];
}

static void note_link(struct maker *m, const struct gpu_operand *o, int peer)
{
	struct core_link *link = link_of(m->program, o);

	if (link->per_round)
		return;
	*link = (struct core_link){(uint16_t)peer, o->theirs, o->per_round, m->num_messages};
	m->num_messages += o->per_round;
}

static struct gpu_operand link_operand(struct maker *m, int connection, bool receives)
{
	const struct sched_connection *ends = &m->sched->connections[connection];
	struct link *link = &m->links[connection];
	int peer = receives ? ends->from : ends->to;
	struct gpu_operand o = {
		.kind = receives ? GPU_OPERAND_RECEIVE : GPU_OPERAND_SEND,
		.index = receives ? link->incoming : link->outgoing,
		.peer = (uint16_t)(m->peers ? m->peers[peer] : peer),
		.theirs = receives ? link->outgoing : link->incoming,
		.message = receives ? link->received++ : link->sent++,
		.per_round = link->per_round,
	};

	note_link(m, &o, peer);
	return o;
}

static void add_operand(struct maker *m, struct gpu_step *step, const struct sched_operand *o,
			bool receives)
{
	struct core_program *program = m->program;
	struct gpu_operand *operand = &program->operands[program->num_operands++];
	int place;

	if (o->fifo) {
		*operand = link_operand(m, o->at, receives);
		return;
	}
	place = number_of(program, o);
	*operand = (struct gpu_operand){.kind = o->buffer == SCHED_SCRATCH ? GPU_OPERAND_SCRATCH
									   : GPU_OPERAND_PLACE,
					.index = (uint16_t)place};
	/* Every step has a place: messages of a step without one would have no size. */
	step->sized = (uint16_t)place;
}

static void add_step(struct maker *m, const struct sched_step *from)
{
	struct core_program *program = m->program;
	struct gpu_step *step = &program->steps[program->num_steps++];
	const struct sched_operand *o = sched_sources(m->sched, from);

	program->carries[program->num_steps - 1] = m->levels[from - m->sched->steps];
	program->can_carry |= m->levels[from - m->sched->steps];
	*step = (struct gpu_step){.first = program->num_operands,
				  .piece = (uint16_t)from->piece,
				  .span = (uint16_t)from->span,
				  .num_sources = (uint16_t)from->num_sources,
				  .num_targets = (uint16_t)from->num_targets,
				  .swap = from->swap};
	for (int i = 0; i < from->num_sources + from->num_targets; i++)
		add_operand(m, step, &o[i], i < from->num_sources);
}

static void add_lane(struct maker *m, const struct sched_lane *lane)
{
	struct core_program *program = m->program;
	struct gpu_work *work = &program->lanes[lane->phase][program->num_lanes[lane->phase]++];

	*work = (struct gpu_work){.first_step = program->num_steps, .num_steps = lane->num};
	for (uint32_t i = 0; i < lane->num; i++)
		add_step(m, &m->sched->steps[lane->first + i]);
}

static void add_lanes(struct maker *m)
{
	for (uint32_t i = 0; i < m->sched->num_lanes; i++) {
		const struct sched_lane *lane = &m->sched->lanes[i];

		if (lane->rank == m->rank && lane->num)
			add_lane(m, lane);
	}
}

/* Of a lane of copies or swaps that do not touch each other's places. */
static bool is_spread(const struct core_program *program, const struct gpu_work *lane)
{
	enum { READ = 1, WRITTEN = 2 };
	uint8_t uses[GPU_MAX_PLACES] = {0};

	for (uint32_t i = 0; i < lane->num_steps; i++) {
		const struct gpu_step *step = &program->steps[lane->first_step + i];
		const struct gpu_operand *o = &program->operands[step->first];

		if (step->num_sources + step->num_targets != 2)
			return false;
		for (int j = 0; j < 2; j++) {
			bool writes = step->swap || j == 1;

			if (uses[o[j].index] & (writes ? READ | WRITTEN : WRITTEN))
				return false;
			uses[o[j].index] |= writes ? WRITTEN : READ;
		}
	}
	return true;
}

static bool spreads(const struct core_program *program, int phase)
{
	for (uint32_t i = 0; i < program->num_lanes[phase]; i++) {
		if (!is_spread(program, &program->lanes[phase][i]))
			return false;
	}
	return !program->has_links;
}

/* Note which step has which message. */
static void list_messages(struct core_program *program)
{
	for (uint32_t i = 0; i < program->num_steps; i++) {
		const struct gpu_step *step = &program->steps[i];
		const struct gpu_operand *o = &program->operands[step->first];

		for (int j = 0; j < step->num_sources + step->num_targets; j++) {
			uint32_t number;

			if (!core_program_is_link(&o[j]))
				continue;
			number = link_of(program, &o[j])->first + o[j].message;
			program->messages[number] = i;
			if (o[j].kind == GPU_OPERAND_RECEIVE)
				program->carried[number] = program->carries[i];
		}
	}
}

static bool allocate_program(struct maker *m)
{
	struct core_program *program = m->program;
	size_t steps = 0, operands = 0;

	for (uint32_t i = 0; i < m->sched->num_lanes; i++) {
		const struct sched_lane *lane = &m->sched->lanes[i];

		for (uint32_t j = 0; lane->rank == m->rank && j < lane->num; j++) {
			const struct sched_step *step = &m->sched->steps[lane->first + j];

			steps++;
			operands += (size_t)(step->num_sources + step->num_targets);
		}
	}
	program->steps = calloc(1, steps * sizeof(struct gpu_step) +
					   operands * sizeof(struct gpu_operand) + 1);
	program->operands = (struct gpu_operand *)(program->steps + steps);
	program->messages = calloc(operands + 1, sizeof(*program->messages));
	program->places = calloc(operands + 1, sizeof(*program->places));
	program->carries = calloc(steps + 1, sizeof(*program->carries));
	program->carried = calloc(operands + 1, sizeof(*program->carried));
	return program->steps && program->messages && program->places && program->carries &&
	       program->carried;
}

static bool find_carried(struct maker *m)
{
	m->levels = malloc(m->sched->num_steps + (size_t)1);
	return m->levels && sched_find_carried(m->sched, m->levels);
}

/* Why it can't be done; CORE_REASON_NONE: it is. */
static enum core_reason fill(struct maker *m)
{
	enum core_reason why = check(m);

	if (why)
		return why;
	add_lanes(m);
	list_messages(m->program);
	for (int i = 0; i < CORE_MAX_PHASES; i++)
		m->program->spreads[i] = spreads(m->program, i);
	return CORE_REASON_NONE;
}

static bool make_entries(struct core_program *program)
{
	if (program->num_places <= GPU_FEW_PLACES)
		return true;
	program->entries = calloc((size_t)program->num_places, sizeof(*program->entries));
	return program->entries != NULL;
}

/* What fits a launch, and what fits an arena before its slots. */
_Static_assert(sizeof(struct gpu_execute_args) <= 4096, "CUDA's limit for a kernel's parameters");
_Static_assert(GPU_ARENA_SEEN + 8 * GPU_MAX_PROBED <= GPU_ARENA_SLOTS, "words before slots");
_Static_assert(GPU_MAX_PLACES <= UINT16_MAX, "operands have 16 bits for a place");

struct core_program *core_program_make(const struct sched *sched, int rank, const int *peers,
				       enum core_reason *why)
{
	struct maker m = {.sched = sched,
			  .rank = rank,
			  .peers = peers,
			  .program = calloc(1, sizeof(*m.program))};
	bool enough = m.program && count_all(&m) && number_links(&m) && allocate_program(&m) &&
		      find_carried(&m);

	*why = enough ? fill(&m) : CORE_REASON_NONE;
	free(m.links);
	free(m.levels);
	if (enough && !*why && make_entries(m.program))
		return m.program;
	core_program_free(m.program);
	return NULL;
}

static void release_program(struct core_program *program)
{
	if (program->memory)
		gpu_scratch_put(program->memory);
	if (program->pinned)
		gpu_staging_put(program->pinned);
	program->memory = NULL;
	program->pinned = NULL;
	program->address = program->table = 0;
}

void core_program_free(struct core_program *program)
{
	if (!program)
		return;
	release_program(program);
	free(program->messages);
	free(program->carries);
	free(program->carried);
	free(program->places);
	free(program->entries);
	free(program->steps);
	free(program);
}

const struct core_link *core_program_link(const struct core_program *program,
					  const struct gpu_operand *o)
{
	return link_of((struct core_program *)program, o);
}

static size_t table_bytes(const struct core_program *program)
{
	return program->entries ? (size_t)program->num_places * sizeof(*program->entries) : 0;
}

static enum util_status upload_to_device(struct core_program *program, size_t bytes,
					 struct gpu_stream *stream)
{
	if (gpu_scratch_get(bytes + table_bytes(program), stream, &program->memory) != UTIL_OK)
		return UTIL_ERR_NO_MEMORY;
	program->address = program->memory->address;
	return gpu_stream_copy(stream, (void *)program->address, program->steps, bytes);
}

/* The call has been agreed on, so it must not fail for lack of a little device memory. */
static enum util_status upload_to_host(struct core_program *program, size_t bytes,
				       struct gpu_stream *stream)
{
	enum util_status status = gpu_staging_get(bytes + table_bytes(program),
						  gpu_stream_where(stream), &program->pinned);

	if (status != UTIL_OK)
		return status;
	program->address = gpu_staging_device_address(program->pinned, stream);
	memcpy(program->pinned->base, program->steps, bytes);
	return program->address ? UTIL_OK : UTIL_ERR_NO_MEMORY;
}

bool core_program_is_there(const struct core_program *program, const struct gpu_stream *stream)
{
	return core_program_is_short(program) ||
	       (program->address && program->context_id == gpu_stream_context_id(stream));
}

enum util_status core_program_upload(struct core_program *program, struct gpu_stream *stream)
{
	size_t bytes = program->num_steps * sizeof(struct gpu_step) +
		       program->num_operands * sizeof(struct gpu_operand);
	enum util_status status;

	if (core_program_is_there(program, stream))
		return UTIL_OK;
	release_program(program);
	program->context_id = gpu_stream_context_id(stream);
	status = upload_to_device(program, bytes, stream);
	if (status == UTIL_ERR_NO_MEMORY)
		status = upload_to_host(program, bytes, stream);
	if (status != UTIL_OK)
		release_program(program);
	else if (program->entries)
		program->table = program->address + bytes;
	return status;
}

enum util_status core_program_fill(const struct core_program *program, struct gpu_stream *stream)
{
	size_t bytes = table_bytes(program);

	if (!bytes)
		return UTIL_OK;
	if (!program->pinned)
		return gpu_stream_copy(stream, (void *)program->table, program->entries, bytes);
	memcpy((char *)program->pinned->base + (program->table - program->address),
	       program->entries, bytes);
	return UTIL_OK;
}
