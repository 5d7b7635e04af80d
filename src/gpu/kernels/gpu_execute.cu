/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu_execute: the executor. Each block takes one lane of the rank's program, and one part of every
 * piece in it, and goes through the lane's steps in order, in each round: wait for messages and for
 * room, combine, tell the others.
 *
 * Fused, the whole collective is one launch and the blocks of different ranks meet here. Stepped,
 * the host launches only steps that have nothing to wait for, and tells the others itself. Enqueued
 * on a stream, it is fused, and nobody but kernels knows which calls have ended.
 *
 * The pairs of type and operation that programs spend their time in have kernels of their own;
 * gpu_execute chooses at run time, which costs arithmetic that memory hides for all but the
 * narrowest types.
 */
#include "gpu/kernels/gpu_combine.h"
#include "gpu/kernels/gpu_ll.h"
#include "gpu/kernels/gpu_program.h"
#include "gpu/kernels/gpu_swap.h"

/* ---- combining by type and operation ---- */

template <typename T, typename F> struct known_type {
	GPU_DEVICE void combine(uint32_t, const struct gpu_chunk *c)
	{
		gpu_combine<T, F, true>(c);
	}

	GPU_DEVICE void copy(uint32_t, const struct gpu_chunk *c)
	{
		gpu_copy(*c);
	}

	GPU_DEVICE bool combine_ll(uint32_t, const struct gpu_ll *ll, const struct gpu_chunk *c)
	{
		return gpu_ll_combine<T, F, true>(*ll, *c);
	}
};

/* The chunk's address: by value it would take registers, of which there are none left. */
template <typename T, typename F> GPU_CALLED void combine_called(const struct gpu_chunk *c)
{
	gpu_combine<T, F, false>(c);
}

/* See gpu_for_type. */
struct combination {
	const struct gpu_chunk *chunk;

	template <typename T, typename F> GPU_MEMBER void run(void)
	{
		combine_called<T, F>(chunk);
	}
};

struct combination_ll {
	const struct gpu_ll *ll;
	const struct gpu_chunk *chunk;
	bool well;

	template <typename T, typename F> GPU_MEMBER void run(void)
	{
		well = gpu_ll_combine<T, F, false>(*ll, *chunk);
	}
};

struct any_type {
	GPU_DEVICE void combine(uint32_t type, const struct gpu_chunk *c)
	{
		struct combination what = {c};

		gpu_for_type(type, &what);
	}

	/* Combining one source is a copy by elements. */
	GPU_DEVICE void copy(uint32_t type, const struct gpu_chunk *c)
	{
		if (gpu_type_is_padded(type))
			combine(type, c);
		else
			gpu_copy(*c);
	}

	GPU_DEVICE bool combine_ll(uint32_t type, const struct gpu_ll *ll,
				   const struct gpu_chunk *c)
	{
		struct combination_ll what = {ll, c, true};

		gpu_for_type(type, &what);
		return what.well;
	}
};

/* ---- a step ---- */

/* Of a block, in shared memory. */
struct state {
	uint64_t addresses[GPU_MAX_OPERANDS]; /* of this block's part */
	uint64_t flags[GPU_MAX_OPERANDS];     /* of messages that bring their own, else 0 */
	uint64_t number;                      /* of an enqueued call; else 0 */
	uint64_t epoch;                       /* of the call's words */
	uint64_t half;                        /* where its part of an arena begins */
	uint64_t inner;                       /* see fixed_offset */
	uint32_t part;                        /* of its lane, which this block has */
	/*
	 * Given up while the messages of a piece were awaited; or while its data were. Two words,
	 * as all threads must see the same after a barrier, else they part at the next one: each is
	 * written between two barriers, and read after the second, before the next one, where
	 * others may already write the other word.
	 */
	uint32_t aborted_ready;
	uint32_t aborted_data;
	uint32_t is_last; /* of the call's blocks */
	/*
	 * Of the timeline, the first thread's: where its notes go at the end, 0: it takes none;
	 * how many there are, and were before.
	 */
	uint64_t ring, num_times, old_times;
	struct gpu_time times[GPU_MAX_TIMES];
};

/* What all threads of the block know of a piece of a step in a round. */
struct context {
	struct gpu_step step;
	uint64_t round;
	uint64_t index;  /* of the piece among the step's */
	uint64_t offset; /* of the round in a block */
	/* This block's part of the piece, from the beginning of the round on. */
	uint64_t first, bytes;
	uint64_t packed; /* where it is in the chunk */
	/* Where it is in memory that every round uses again, from its piece's place on. */
	uint64_t inner;
};

template <typename T> GPU_DEVICE T load_record(uint64_t address)
{
	struct gpu_vec vec = gpu_load_vec(address);
	T record;

	memcpy(&record, &vec, sizeof(record));
	return record;
}

GPU_DEVICE struct gpu_place place_at(const struct gpu_execute_args &args, uint32_t index)
{
	return args.table ? load_record<struct gpu_place>(args.table +
							  sizeof(struct gpu_place) * index)
			  : args.places[index];
}

/*
 * See sched_range: a block of `bytes` bytes is cut into pieces that begin at multiples of the unit.
 */
GPU_DEVICE uint64_t piece_start(const struct gpu_execute_args &args, uint64_t bytes, uint64_t piece)
{
	uint64_t units = (bytes + args.unit - 1) / args.unit;
	uint64_t start = units * piece / args.pieces * args.unit;

	return start < bytes ? start : bytes;
}

/*
 * Fused, a part's place in a slot must not depend on how long the message is: in a short one the
 * parts are shorter, and one block's would lie where another block, which nobody waits for, still
 * has to do with the last round's. Stepped, all blocks wait for all, and the parts of a message
 * follow on each other. So they do on their way to another node in any case: the network takes one
 * piece, and the host waits for all parts before it says that a slot is free.
 */
GPU_DEVICE uint64_t fixed_offset(const struct gpu_execute_args &args)
{
	return gpu_block() % args.parts * (args.piece_bytes / args.parts);
}

/*
 * Where a part begins among the units. Steps of short messages have one part, and their way to the
 * data is most of their time: no division stands on it.
 */
GPU_DEVICE uint64_t part_start(uint64_t units, uint64_t part, uint64_t parts)
{
	return parts == 1 ? units * part : units * part / parts;
}

/*
 * Which bytes of the step's blocks this block moves: those of the round, of them the index-th of
 * the step's pieces, of that the part. A piece is cut alike in all steps: what a block reads it has
 * written itself, or waited for.
 */
GPU_DEVICE struct context context_of(const struct gpu_execute_args &args, const struct state *state,
				     struct gpu_step step, uint64_t round, uint64_t index,
				     uint64_t part, uint64_t parts)
{
	struct context c = {step, round, index, round * args.width, 0, 0, 0, 0};
	uint64_t bytes = place_at(args, step.sized).bytes, chunk, start, units, first, end;

	bytes = bytes > c.offset ? bytes - c.offset : 0;
	bytes = args.width && bytes > args.width ? args.width : bytes;
	chunk = args.pieces > 1 ? piece_start(args, bytes, step.piece) : 0;
	start = index ? piece_start(args, bytes, step.piece + index) : chunk;
	bytes = (args.pieces > 1 ? piece_start(args, bytes, step.piece + index + 1) : bytes) -
		start;
	units = (bytes + GPU_PART_UNIT - 1) / GPU_PART_UNIT;
	first = part_start(units, part, parts) * GPU_PART_UNIT;
	end = part_start(units, part + 1, parts) * GPU_PART_UNIT;
	end = end < bytes ? end : bytes;
	c.first = start + first;
	c.bytes = end > first ? end - first : 0;
	c.packed = c.first - chunk;
	c.inner = args.waits ? state->inner : first;
	return c;
}

/* ---- links ---- */

GPU_DEVICE bool is_far(const struct gpu_operand *o)
{
	return o->peer == GPU_PEER_FAR;
}

/*
 * How the link's messages travel: to other nodes hosts pass them on, for whom words tell that they
 * are there.
 */
GPU_DEVICE uint32_t protocol_of(const struct gpu_execute_args &args, const struct gpu_operand *o)
{
	return is_far(o) ? (uint32_t)GPU_PROTOCOL_SIMPLE : args.protocol;
}

GPU_DEVICE uint32_t transport_of(const struct gpu_execute_args &args, const struct gpu_operand *o)
{
	if (is_far(o))
		return GPU_TRANSPORT_NET;
	return args.shm >> o->peer & 1 ? GPU_TRANSPORT_SHM : GPU_TRANSPORT_P2P;
}

/* The link's number in the arena that args.theirs has. */
GPU_DEVICE uint32_t far_index(const struct gpu_operand *o)
{
	return is_far(o) ? o->index : o->theirs;
}

GPU_DEVICE uint64_t mine(const struct gpu_execute_args &args, const struct gpu_operand *o)
{
	return args.mine[transport_of(args, o)];
}

/* A word of an arena, of this block's part of a link. */
GPU_DEVICE uint64_t word_of(const struct state *state, uint64_t arena, uint64_t words,
			    uint32_t link)
{
	return arena + state->half + words + 8 * ((uint64_t)link * GPU_MAX_PARTS + state->part);
}

GPU_DEVICE uint64_t message_of(const struct context *c, const struct gpu_operand *o)
{
	return c->round * o->per_round + o->message;
}

/* Calls of short messages have no more of them than slots; see part_start. */
GPU_DEVICE uint64_t slot_of(const struct gpu_execute_args &args, uint64_t message)
{
	return message < args.num_slots ? message : message % args.num_slots;
}

GPU_DEVICE uint64_t message_address(const struct gpu_execute_args &args, const struct state *state,
				    const struct context *c, const struct gpu_operand *o)
{
	bool receives = o->kind == GPU_OPERAND_RECEIVE;
	uint64_t arena = receives ? mine(args, o) : args.theirs[o->peer];
	uint64_t link = receives ? o->index : far_index(o);
	uint64_t slot = link * args.num_slots + slot_of(args, message_of(c, o));
	/*
	 * Flags and, in LL128, parts that fill no pair of lines: twice is enough, as parts begin at
	 * multiples of GPU_PART_UNIT.
	 */
	uint64_t scale = protocol_of(args, o) == GPU_PROTOCOL_SIMPLE ? 1 : 2;
	uint64_t inner =
		args.waits && !is_far(o) ? c->index * args.piece_bytes + c->inner : c->packed;

	return arena + state->half + args.slots[protocol_of(args, o)] +
	       scale * (slot * args.slot_bytes + inner);
}

GPU_DEVICE bool wait_until(const struct gpu_execute_args &args, uint64_t word, uint64_t value)
{
	uint32_t tries = 0;

	while (gpu_load_acquire(word) < value) {
		if (gpu_give_up(args.abort, &tries))
			return false;
	}
	return true;
}

/*
 * Wait until the message is there, or until there is room for it. Acquire, the pairs of pass_on's
 * releases: what the block reads of the message comes after its sender wrote it; what it writes
 * comes after the receiver read what was in the slot. The thread that waits has the block's other
 * threads wait for it at the barrier that follows.
 */
GPU_DEVICE bool wait_for_link(const struct gpu_execute_args &args, const struct state *state,
			      const struct context *c, const struct gpu_operand *o)
{
	uint64_t k = message_of(c, o), arena = mine(args, o);

	if (o->kind == GPU_OPERAND_RECEIVE)
		return protocol_of(args, o) != GPU_PROTOCOL_SIMPLE ||
		       wait_until(args, word_of(state, arena, GPU_ARENA_TAILS, o->index),
				  state->epoch + k + 1);
	return k < args.num_slots ||
	       wait_until(args, word_of(state, arena, GPU_ARENA_HEADS, o->index),
			  state->epoch + k + 1 - args.num_slots);
}

/* Whether a later message of the call, which has `rounds`, waits for the slot of this one. */
GPU_DEVICE bool is_slot_awaited(const struct gpu_execute_args &args, const struct context *c,
				const struct gpu_operand *o, uint64_t rounds)
{
	return message_of(c, o) + args.num_slots < o->per_round * rounds;
}

/*
 * The step is done. Release, after the block's barrier. To the receiver: writer, one thread, for
 * all that the block wrote into the slot; reader, the receiver's wait_for_link. To the sender: for
 * all that the block read from the slot.
 */
GPU_DEVICE void pass_on(const struct gpu_execute_args &args, const struct state *state,
			const struct context *c, const struct gpu_operand *o, uint64_t rounds)
{
	uint64_t words = o->kind == GPU_OPERAND_SEND ? GPU_ARENA_TAILS : GPU_ARENA_HEADS;

	if (o->kind == GPU_OPERAND_SEND && protocol_of(args, o) != GPU_PROTOCOL_SIMPLE)
		return;
	/* The host of a link to another node counts on every word. */
	if (o->kind == GPU_OPERAND_RECEIVE && !is_far(o) && !is_slot_awaited(args, c, o, rounds))
		return;
	gpu_store_release(word_of(state, args.theirs[o->peer], words, far_index(o)),
			  state->epoch + message_of(c, o) + 1);
}

/* ---- when ---- */

/*
 * By the first thread, of each lane's last part, or, of steps side by side, of each step's: where
 * there is little to do, the last one has it.
 */
GPU_DEVICE void begin_times(const struct gpu_execute_args &args, struct state *state,
			    const struct gpu_work *work)
{
	uint32_t lanes = gpu_blocks() / args.parts, part = state->part;
	uint32_t teams = args.spread ? work->num_steps : 1;
	uint32_t ring = part % teams * lanes + gpu_block() / args.parts;
	bool has_one = ring < GPU_MAX_RINGS && part + teams >= args.parts;

	state->ring = has_one ? args.times + sizeof(struct gpu_times) * ring : 0;
	state->num_times = state->old_times = has_one ? gpu_load_relaxed(state->ring) : 0;
}

/* For the first thread, the step that it is in; NULL: nobody asks. */
GPU_DEVICE struct gpu_time *time_of(const struct gpu_execute_args &args, struct state *state)
{
	return args.times && gpu_thread() == 0 && state->ring
		       ? &state->times[state->num_times % GPU_MAX_TIMES]
		       : NULL;
}

GPU_DEVICE void end_time(struct state *state, struct gpu_time *time, const struct context *c)
{
	time->first = c->step.first;
	time->round = (uint32_t)c->round;
	time->ended = gpu_now();
	state->num_times++;
}

/* To the host's memory at last, as stores there would hold up the steps that are timed. */
GPU_DEVICE void leave_times(const struct state *state)
{
	uint64_t num = state->num_times, k = num > GPU_MAX_TIMES ? num - GPU_MAX_TIMES : 0;

	if (!state->ring)
		return;
	for (k = (k > state->old_times ? k : state->old_times) + gpu_thread(); k < num;
	     k += gpu_threads()) {
		const struct gpu_time *time = &state->times[k % GPU_MAX_TIMES];
		uint64_t to = state->ring + offsetof(struct gpu_times, last) +
			      sizeof(*time) * (k % GPU_MAX_TIMES);

		gpu_store_relaxed(to, time->first | (uint64_t)time->round << 32);
		gpu_store_relaxed(to + offsetof(struct gpu_time, began), time->began);
		gpu_store_relaxed(to + offsetof(struct gpu_time, ready), time->ready);
		gpu_store_relaxed(to + offsetof(struct gpu_time, ended), time->ended);
	}
	if (gpu_thread() == 0)
		gpu_store_relaxed(state->ring, num);
}

/* ---- going through the steps ---- */

GPU_DEVICE struct gpu_operand load_operand(const struct gpu_execute_args &args,
					   const struct gpu_step *step, uint32_t index)
{
	index += step->first;
	return args.operands ? load_record<struct gpu_operand>(args.operands +
							       sizeof(struct gpu_operand) * index)
			     : args.few_operands[index];
}

GPU_DEVICE struct gpu_step load_step(const struct gpu_execute_args &args, uint32_t index)
{
	return args.steps
		       ? load_record<struct gpu_step>(args.steps + sizeof(struct gpu_step) * index)
		       : args.few_steps[index];
}

GPU_DEVICE bool is_link(const struct gpu_operand *o)
{
	return o->kind >= GPU_OPERAND_RECEIVE;
}

/*
 * 0: the message has none. That of LL has 32 bits, and the host sees to it that they are enough;
 * the other never comes again.
 */
GPU_DEVICE uint64_t flag_of(const struct gpu_execute_args &args, const struct state *state,
			    const struct context *c, const struct gpu_operand *o)
{
	uint64_t message = message_of(c, o);

	switch (protocol_of(args, o)) {
	case GPU_PROTOCOL_LL:
		return args.flag + (uint32_t)message + 1;
	case GPU_PROTOCOL_LL128:
		return state->epoch + message + 1;
	default:
		return 0;
	}
}

/* Where the operand is; and wait for it. */
GPU_DEVICE void prepare(const struct gpu_execute_args &args, struct state *state,
			const struct context *c, uint32_t index)
{
	struct gpu_operand o = load_operand(args, &c->step, index);

	state->flags[index] = 0;
	if (is_link(&o)) {
		state->addresses[index] = message_address(args, state, c, &o);
		state->flags[index] = flag_of(args, state, c, &o);
		if (args.waits && c->index == 0 && !wait_for_link(args, state, c, &o))
			state->aborted_ready = 1;
		return;
	}
	state->addresses[index] = place_at(args, o.index).address;
	if (o.kind == GPU_OPERAND_SCRATCH)
		state->addresses[index] +=
			state->half + (c->step.piece + c->index) * args.piece_bytes + c->inner;
	else
		state->addresses[index] += c->offset + c->first;
}

template <typename K>
GPU_DEVICE bool combine(const struct gpu_execute_args &args, const struct state *state,
			const struct context *c)
{
	struct gpu_chunk chunk = {state->addresses,
				  state->addresses + c->step.num_sources,
				  c->step.num_sources,
				  c->step.num_targets,
				  args.op,
				  c->bytes};
	struct gpu_ll ll = {state->flags, state->flags + c->step.num_sources, args.abort,
			    args.protocol == GPU_PROTOCOL_LL128};

	if (args.protocol != GPU_PROTOCOL_SIMPLE)
		return c->step.num_sources == 1 ? gpu_ll_copy(&ll, &chunk)
						: K::combine_ll(args.type, &ll, &chunk);
	if (c->step.swap)
		gpu_swap(chunk);
	else if (c->step.num_sources == 1 &&
		 (c->step.num_targets > 1 || state->addresses[0] != state->addresses[1]))
		K::copy(args.type, &chunk); /* in place, a block may be where it belongs */
	else if (c->step.num_sources == 1)
		return true;
	else
		K::combine(args.type, &chunk);
	return true;
}

/* False: given up. */
template <typename K>
GPU_DEVICE bool run_piece(const struct gpu_execute_args &args, struct state *state,
			  const struct context *c)
{
	uint32_t num = c->step.num_sources + c->step.num_targets;

	for (uint32_t i = gpu_thread(); i < num; i += gpu_threads())
		prepare(args, state, c, i);
	gpu_block_barrier();
	if (state->aborted_ready)
		return false;
	if (time_of(args, state) && !c->index)
		time_of(args, state)->ready = gpu_now();
	if (c->bytes && !combine<K>(args, state, c))
		state->aborted_data = 1;
	gpu_block_barrier();
	return !state->aborted_data;
}

/*
 * False: given up. A thread may wait for the next step's messages while another still passes on
 * this one's: threads of a block make progress independently of each other (compute capability 7.0
 * and later).
 */
template <typename K>
GPU_DEVICE bool run_step(const struct gpu_execute_args &args, struct state *state,
			 struct gpu_step step, uint64_t round, uint64_t rounds, uint64_t part,
			 uint64_t parts)
{
	struct context c = context_of(args, state, step, round, 0, part, parts);

	if (time_of(args, state))
		time_of(args, state)->began = gpu_now();
	if (!run_piece<K>(args, state, &c))
		return false;
	for (uint64_t index = 1; index < step.span; index++) {
		c = context_of(args, state, step, round, index, part, parts);
		if (c.bytes && !run_piece<K>(args, state, &c))
			return false;
	}
	for (uint32_t i = gpu_thread();
	     args.waits && i < (uint32_t)step.num_sources + step.num_targets; i += gpu_threads()) {
		struct gpu_operand o = load_operand(args, &step, i);

		if (is_link(&o))
			pass_on(args, state, &c, &o, rounds);
	}
	if (time_of(args, state))
		end_time(state, time_of(args, state), &c);
	return true;
}

/* Each step of a lane has some of the lane's blocks for itself, or all of them share each. */
template <typename K>
GPU_DEVICE bool run_work(const struct gpu_execute_args &args, struct state *state,
			 struct gpu_work work)
{
	uint32_t part = state->part, teams = args.spread ? work.num_steps : 1;
	uint32_t team = part % teams, size = (args.parts - team + teams - 1) / teams;
	uint64_t rounds = (uint64_t)work.first_round + work.num_rounds;
	struct gpu_step next = load_step(args, work.first_step + team), step;

	for (uint64_t round = work.first_round; round < rounds; round++) {
		for (uint32_t i = team; i < work.num_steps; i += teams) {
			/* It comes while this one waits. */
			step = next;
			next = load_step(args,
					 work.first_step +
						 (i + teams < work.num_steps ? i + teams : team));
			if (!run_step<K>(args, state, step, round, rounds, part / teams, size))
				return false;
		}
	}
	return true;
}

/* ---- enqueued calls ---- */

/* Where a member of the node tells another how many calls it has ended. */
GPU_DEVICE uint64_t ended_word(uint64_t arena, uint32_t of)
{
	return arena + GPU_ARENA_ENDED + 8 * (uint64_t)of;
}

GPU_DEVICE uint64_t arena_for(const struct gpu_execute_args &args, uint32_t peer)
{
	return args.mine[args.shm >> peer & 1 ? GPU_TRANSPORT_SHM : GPU_TRANSPORT_P2P];
}

/* The number that the last call on the stream has left. */
GPU_DEVICE void begin_call(const struct gpu_execute_args &args, struct state *state)
{
	state->number = args.enqueued
				? gpu_load_relaxed(args.mine[GPU_TRANSPORT_P2P] + GPU_ARENA_OWN +
						   offsetof(struct gpu_own, number))
				: 0;
	state->epoch = args.epoch + (state->number << GPU_EPOCH_SHIFT);
	state->half = state->number % 2 * args.half;
	if (args.enqueued)
		gpu_store_relaxed(args.enqueued + offsetof(struct gpu_enqueued, begun),
				  state->number + 1);
}

/*
 * Nobody reads any more what the call before the last one has left in this call's halves. Acquire:
 * the pair of end_call's release in each member's last block; what this block writes there comes
 * after all that the other read. False: given up.
 */
GPU_DEVICE bool wait_for_half(const struct gpu_execute_args &args, struct state *state)
{
	for (uint32_t i = gpu_thread(); i < args.ranks; i += gpu_threads()) {
		if (i != args.rank &&
		    !wait_until(args, ended_word(arena_for(args, i), i), state->number - 1))
			state->aborted_data = 1; /* as run_piece begins with the other */
	}
	gpu_block_barrier();
	return !state->aborted_data;
}

/*
 * Each block, when it has done with the call. The additions have the last one see what all have
 * done; it counts the call, and tells the others. Nobody reads the count before the next launch,
 * which begins when this one is over.
 */
GPU_DEVICE void end_call(const struct gpu_execute_args &args, struct state *state, bool well)
{
	uint64_t own = args.mine[GPU_TRANSPORT_P2P] + GPU_ARENA_OWN;

	gpu_block_barrier();
	if (gpu_thread() == 0) {
		if (!well)
			gpu_store_relaxed(args.enqueued + offsetof(struct gpu_enqueued, failed), 1);
		state->is_last =
			gpu_add(own + offsetof(struct gpu_own, blocks), 1) + 1 == gpu_blocks();
	}
	gpu_block_barrier();
	if (!state->is_last)
		return;
	for (uint32_t i = gpu_thread(); i < args.ranks; i += gpu_threads()) {
		if (i != args.rank)
			gpu_store_release(ended_word(args.theirs[i], args.rank), state->number + 1);
	}
	/* Who sees that the call has ended may give that memory to somebody else. */
	gpu_block_barrier();
	if (gpu_thread())
		return;
	gpu_store_relaxed(own + offsetof(struct gpu_own, blocks), 0);
	gpu_store_relaxed(own + offsetof(struct gpu_own, number), state->number + 1);
	if (args.ticket)
		gpu_store_release(args.enqueued + offsetof(struct gpu_enqueued, ended),
				  args.ticket);
	gpu_store_release(args.enqueued + offsetof(struct gpu_enqueued, number), state->number + 1);
}

template <typename K> GPU_DEVICE void execute(const struct gpu_execute_args &args)
{
	GPU_SHARED struct state state;
	uint32_t lane = gpu_block() / args.parts;
	struct gpu_work work;
	bool well;

	if (args.work)
		work = load_record<struct gpu_work>(args.work + sizeof(work) * lane);
	else
		work = args.few_work[lane];
	if (gpu_thread() == 0) {
		state.aborted_ready = state.aborted_data = state.is_last = 0;
		state.part = gpu_block() % args.parts;
		state.inner = fixed_offset(args);
		begin_call(args, &state);
		state.ring = state.num_times = state.old_times = 0;
		if (args.times)
			begin_times(args, &state, &work);
	}
	gpu_block_barrier();
	well = (!args.enqueued || wait_for_half(args, &state)) &&
	       (!work.num_steps || run_work<K>(args, &state, work));
	if (args.times) {
		gpu_block_barrier();
		leave_times(&state);
	}
	if (args.enqueued)
		end_call(args, &state, well);
	else if (args.done)
		gpu_block_done(args.done, well ? GPU_END_DONE : GPU_END_ABORTED);
}

GPU_KERNEL(gpu_execute, struct gpu_execute_args)
{
	execute<any_type>(args);
}

GPU_KERNEL(gpu_execute_float_sum, struct gpu_execute_args)
{
	execute<known_type<float, fixed_op<GPU_OP_SUM, float_op<float>, float>>>(args);
}

GPU_KERNEL(gpu_execute_double_sum, struct gpu_execute_args)
{
	execute<known_type<double, fixed_op<GPU_OP_SUM, float_op<double>, double>>>(args);
}

GPU_KERNEL(gpu_execute_int32_sum, struct gpu_execute_args)
{
	execute<known_type<int32_t, fixed_op<GPU_OP_SUM, integer_op<int32_t, uint32_t>, int32_t>>>(
		args);
}

GPU_KERNEL(gpu_execute_int64_sum, struct gpu_execute_args)
{
	execute<known_type<int64_t, fixed_op<GPU_OP_SUM, integer_op<int64_t, uint64_t>, int64_t>>>(
		args);
}

GPU_KERNEL(gpu_execute_float16_sum, struct gpu_execute_args)
{
	execute<known_type<float16, fixed_op<GPU_OP_SUM, float16_op, float16>>>(args);
}

GPU_KERNEL(gpu_execute_bfloat16_sum, struct gpu_execute_args)
{
	execute<known_type<bfloat16, fixed_op<GPU_OP_SUM, bfloat16_op, bfloat16>>>(args);
}

GPU_KERNEL(gpu_execute_float_max, struct gpu_execute_args)
{
	execute<known_type<float, fixed_op<GPU_OP_MAX, float_op<float>, float>>>(args);
}

GPU_KERNEL(gpu_execute_double_max, struct gpu_execute_args)
{
	execute<known_type<double, fixed_op<GPU_OP_MAX, float_op<double>, double>>>(args);
}
