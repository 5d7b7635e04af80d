/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu_exchange: a group of messages. Its ends are dealt out to the blocks (gpu_exchange.h), and
 * each block goes round its own: it looks what each can do, moves a chunk of every one that can do
 * something, tells the other sides, and begins again. It waits for none of them, so a group comes
 * to its end in whatever order its messages can move, and with one block as well as with many.
 *
 * When: messages that other ranks know of only by their own calls, in an order that each pair has
 * for itself. Bytes that all ranks can foresee go better by a schedule (gpu_execute.cu), in which a
 * block never looks at what is not next.
 */
#include "gpu/kernels/gpu_exchange.h"
#include "gpu/kernels/gpu_combine.h"

/* Bytes that an end moves at a time: of a copy; of a FIFO, and a quarter of that at most. */
enum { COPIED = 256 << 10, CHUNK = 64 << 10 };

/* An end, and what is moved of it in this round. */
struct end {
	uint64_t from, to, bytes; /* 0: nothing */
	uint64_t advance;         /* what that is in the FIFO, with header and padding */
	uint64_t position;        /* bytes of the FIFO, since ever */
	uint64_t done;            /* bytes of this message's part */
	uint32_t has_header;      /* that has been moved */
	uint32_t next; /* the message, among the route's buffers; at its end: none is left */
	uint32_t lane;
	struct gpu_exchange_route route;
	/* Of that message. */
	struct gpu_exchange_buffer buffer;
	struct gpu_exchange_part part;
};

/*
 * Of a block, in shared memory. The three rounds: the last one in which an end had something left,
 * in which something was moved, and in which it was given up. They are written before a round's
 * first barrier and read behind it; the second one is between that and the next writing.
 */
struct state {
	uint64_t more, moved, aborted;
	uint64_t number;
	uint32_t dead; /* from the beginning */
	uint32_t num;
	uint32_t lanes[GPU_EXCHANGE_MOST_ROUTES]; /* of each route the one that is here, from 1 */
	struct end ends[GPU_EXCHANGE_MOST_ROUTES];
};

/* ---- places ---- */

GPU_DEVICE uint64_t mine(const struct gpu_exchange_args &args, uint32_t peer)
{
	return args.mine[args.shm >> peer & 1 ? GPU_TRANSPORT_SHM : GPU_TRANSPORT_P2P];
}

/* The number of a lane of a pair in the arena of one of them. */
GPU_DEVICE uint64_t index_at(const struct gpu_exchange_args &args, uint32_t owner, uint32_t other,
			     uint32_t lane)
{
	return (uint64_t)(other - (other > owner)) * args.lanes + lane;
}

GPU_DEVICE uint64_t num_lanes(const struct gpu_exchange_args &args)
{
	return (uint64_t)(args.ranks - 1) * args.lanes;
}

enum words { TAILS, HEADS, SENT, TAKEN };

GPU_DEVICE uint64_t word_of(const struct gpu_exchange_args &args, uint64_t arena, enum words words,
			    uint64_t index)
{
	return arena + args.words + GPU_EXCHANGE_WORDS +
	       8 * ((uint64_t)words * num_lanes(args) + index);
}

GPU_DEVICE uint64_t fifo_of(const struct gpu_exchange_args &args, uint64_t arena, uint64_t index)
{
	return arena + args.words + gpu_exchange_words(num_lanes(args)) + args.fifo_bytes * index;
}

/* Of the end, in this rank's arenas; in the other's. */
GPU_DEVICE uint64_t index_here(const struct gpu_exchange_args &args, const struct end *e)
{
	return index_at(args, args.rank, e->route.peer, e->lane);
}

GPU_DEVICE uint64_t index_there(const struct gpu_exchange_args &args, const struct end *e)
{
	return index_at(args, e->route.peer, args.rank, e->lane);
}

GPU_DEVICE uint64_t own_of(const struct gpu_exchange_args &args)
{
	return args.mine[GPU_TRANSPORT_P2P] + args.words;
}

/* This rank's own count, in its device's memory. */
GPU_DEVICE uint64_t count_of(const struct gpu_exchange_args &args, const struct end *e)
{
	return word_of(args, args.mine[GPU_TRANSPORT_P2P],
		       e->route.kind == GPU_EXCHANGE_SEND ? SENT : TAKEN, index_here(args, e));
}

GPU_DEVICE struct gpu_exchange_route load_route(const struct gpu_exchange_args &args, uint32_t i)
{
	return args.routes ? gpu_load<struct gpu_exchange_route>(args.routes +
								 sizeof(args.few_routes[0]) * i)
			   : args.few_routes[i];
}

GPU_DEVICE struct gpu_exchange_buffer load_buffer(const struct gpu_exchange_args &args, uint32_t i)
{
	return args.buffers ? gpu_load<struct gpu_exchange_buffer>(args.buffers +
								   sizeof(args.few_buffers[0]) * i)
			    : args.few_buffers[i];
}

GPU_DEVICE uint32_t buffers_of(const struct end *e)
{
	return e->route.kind == GPU_EXCHANGE_COPY ? 2 : 1;
}

/* ---- what can be moved ---- */

GPU_DEVICE uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

GPU_DEVICE uint64_t in_units(uint64_t bytes)
{
	return (bytes + GPU_EXCHANGE_UNIT - 1) / GPU_EXCHANGE_UNIT * GPU_EXCHANGE_UNIT;
}

/*
 * As much of the FIFO's `there` bytes, free or filled, as go in one chunk, behind the header if
 * that is yet to be moved. A header is never moved alone. Returns where the data are in the FIFO.
 */
GPU_DEVICE uint64_t set_chunk(const struct gpu_exchange_args &args, struct end *e, uint64_t there)
{
	uint64_t header = e->has_header ? 0 : GPU_EXCHANGE_UNIT;
	uint64_t at = (e->position + header) & (args.fifo_bytes - 1);

	if (there < header + GPU_EXCHANGE_UNIT)
		return at;
	e->bytes = least(least(e->part.bytes - e->done, there - header),
			 least(least(args.fifo_bytes / 4, CHUNK), args.fifo_bytes - at));
	e->advance = header + in_units(e->bytes);
	return at;
}

/*
 * The next message of the end that has a part for its lane, from this one on. `step`: buffers of a
 * message.
 */
GPU_DEVICE void find_message(const struct gpu_exchange_args &args, struct end *e, uint32_t step)
{
	e->done = 0;
	e->has_header = 0;
	for (; e->next < e->route.num; e->next += step) {
		e->buffer = load_buffer(args, e->route.first + e->next);
		e->part = gpu_exchange_part(e->buffer.bytes, args.lanes, e->lane);
		if (e->part.bytes)
			return;
	}
}

/* Where the header is, in the FIFO. */
GPU_DEVICE uint64_t header_at(const struct gpu_exchange_args &args, const struct end *e,
			      uint64_t fifo)
{
	return fifo + (e->position & (args.fifo_bytes - 1));
}

/*
 * Acquire, the pair of tell's release by the receiver: what this block writes comes after what that
 * one read there.
 */
GPU_DEVICE void plan_send(const struct gpu_exchange_args &args, struct end *e)
{
	uint64_t taken = gpu_load_acquire(
		word_of(args, mine(args, e->route.peer), HEADS, index_here(args, e)));
	uint64_t fifo = fifo_of(args, args.theirs[e->route.peer], index_there(args, e));
	uint64_t at = set_chunk(args, e, args.fifo_bytes - (e->position - taken));
	struct gpu_vec header = {{e->buffer.bytes, args.id}};

	if (!e->bytes)
		return;
	if (!e->has_header)
		gpu_store_vec(header_at(args, e, fifo), header);
	e->from = e->buffer.address + e->part.first + e->done;
	e->to = fifo + at;
}

/* The first that is found. Release: who sees the first word sees the others. */
GPU_DEVICE void tell_mismatch(const struct gpu_exchange_args &args, const struct end *e,
			      uint64_t sent)
{
	uint64_t words = args.enqueued;

	if (gpu_add(own_of(args) + offsetof(struct gpu_exchange_own, mismatches), 1))
		return;
	gpu_store_relaxed(words + offsetof(struct gpu_enqueued, mismatched_sent), sent);
	gpu_store_relaxed(words + offsetof(struct gpu_enqueued, mismatched_wanted),
			  e->buffer.bytes);
	gpu_store_release(words + offsetof(struct gpu_enqueued, mismatched),
			  (uint64_t)e->route.peer + 1);
}

/*
 * Acquire, the pair of tell's release by the sender: what the block reads comes after what that one
 * wrote. False: the message is not what is to be received.
 */
GPU_DEVICE bool plan_receive(const struct gpu_exchange_args &args, struct end *e)
{
	uint64_t arena = mine(args, e->route.peer);
	uint64_t sent = gpu_load_acquire(word_of(args, arena, TAILS, index_here(args, e)));
	uint64_t fifo = fifo_of(args, arena, index_here(args, e));
	uint64_t at = set_chunk(args, e, sent - e->position);
	struct gpu_vec header;

	if (!e->bytes)
		return true;
	e->from = fifo + at;
	e->to = e->buffer.address + e->part.first + e->done;
	if (e->has_header)
		return true;
	header = gpu_load_vec(header_at(args, e, fifo));
	if (header.w[0] == e->buffer.bytes && header.w[1] == args.id)
		return true;
	tell_mismatch(args, e, header.w[0]);
	return false;
}

/* Between two buffers of this rank's. */
GPU_DEVICE void plan_copy(const struct gpu_exchange_args &args, struct end *e)
{
	uint64_t to = load_buffer(args, e->route.first + e->next + 1).address;

	e->bytes = least(e->part.bytes - e->done, COPIED);
	e->from = e->buffer.address + e->part.first + e->done;
	e->to = to + e->part.first + e->done;
}

/* One thread, of its end. */
GPU_DEVICE void plan(const struct gpu_exchange_args &args, struct state *state, struct end *e,
		     uint64_t round)
{
	e->bytes = 0;
	if (e->next >= e->route.num)
		return;
	state->more = round;
	if (e->route.kind == GPU_EXCHANGE_SEND)
		plan_send(args, e);
	else if (e->route.kind == GPU_EXCHANGE_COPY)
		plan_copy(args, e);
	else if (!plan_receive(args, e))
		state->aborted = round;
	if (e->bytes)
		state->moved = round;
}

/*
 * Release, after the block's barrier. To the receiver: writer, one thread, for all that the block
 * wrote into the FIFO; reader, plan_receive. To the sender: for all that the block read from it;
 * reader, plan_send.
 */
GPU_DEVICE void tell(const struct gpu_exchange_args &args, const struct end *e)
{
	enum words words = e->route.kind == GPU_EXCHANGE_SEND ? TAILS : HEADS;

	if (e->route.kind == GPU_EXCHANGE_COPY)
		return;
	gpu_store_release(word_of(args, args.theirs[e->route.peer], words, index_there(args, e)),
			  e->position);
}

/* The thread of the end, when all have moved the round's chunk. */
GPU_DEVICE void advance(const struct gpu_exchange_args &args, struct end *e)
{
	uint32_t step = buffers_of(e);

	if (!e->bytes)
		return;
	e->position += e->advance;
	e->has_header = 1;
	e->done += e->bytes;
	tell(args, e);
	if (e->done < e->part.bytes)
		return;
	e->next += step;
	find_message(args, e, step);
}

/* ---- going round ---- */

/* Among those that have ends. */
GPU_DEVICE uint32_t number_of_block(const struct gpu_exchange_args &args)
{
	uint32_t before = gpu_block(), block = 0;

	while (!(args.used >> block & 1) || before--)
		block++;
	return block;
}

/* Of the route the block has a lane, or not. Returns that, from 1, or 0. */
GPU_DEVICE uint32_t lane_here(const struct gpu_exchange_args &args, uint32_t i, uint32_t block)
{
	struct gpu_exchange_route route = load_route(args, i);
	uint32_t lane = block < route.block ? block + args.blocks : block;

	lane -= route.block;
	return lane < route.lanes ? lane + 1 : 0;
}

GPU_DEVICE void begin_end(const struct gpu_exchange_args &args, struct end *e,
			  struct gpu_exchange_route route, uint32_t lane)
{
	e->route = route;
	e->lane = lane;
	e->next = 0;
	e->advance = 0;
	e->position = route.kind == GPU_EXCHANGE_COPY ? 0 : gpu_load_relaxed(count_of(args, e));
	find_message(args, e, buffers_of(e));
}

/* A thread has a route, and that route's end the place behind those of the routes before. */
GPU_DEVICE void begin_ends(const struct gpu_exchange_args &args, struct state *state)
{
	uint32_t block = number_of_block(args);

	for (uint32_t i = gpu_thread(); i < args.num_routes; i += gpu_threads())
		state->lanes[i] = lane_here(args, i, block);
	gpu_block_barrier();
	for (uint32_t i = gpu_thread(); i < args.num_routes; i += gpu_threads()) {
		uint32_t place = 0;

		for (uint32_t j = 0; j < i; j++)
			place += state->lanes[j] != 0;
		if (state->lanes[i])
			begin_end(args, &state->ends[place], load_route(args, i),
				  state->lanes[i] - 1);
		if (i == args.num_routes - 1)
			state->num = place + (state->lanes[i] != 0);
	}
}

GPU_DEVICE void move_chunks(struct state *state, uint32_t num)
{
	for (uint32_t i = 0; i < num; i++) {
		const struct end *e = &state->ends[i];
		struct gpu_chunk chunk = {&e->from, &e->to, 1, 1, GPU_OP_NONE, e->bytes};

		if (e->bytes)
			gpu_copy(chunk);
	}
}

/* False: given up. */
GPU_DEVICE bool go_round(const struct gpu_exchange_args &args, struct state *state, uint32_t num)
{
	uint64_t abort = args.enqueued + offsetof(struct gpu_enqueued, abort);
	uint32_t tries = 0;
	bool moved = true;

	for (uint64_t round = 1;; round++) {
		if (!moved && gpu_thread() == 0 && gpu_give_up(abort, &tries))
			state->aborted = round;
		for (uint32_t i = gpu_thread(); i < num; i += gpu_threads())
			plan(args, state, &state->ends[i], round);
		gpu_block_barrier();
		if (state->aborted == round || state->more != round)
			return state->aborted != round;
		moved = state->moved == round;
		if (moved)
			move_chunks(state, num);
		gpu_block_barrier();
		for (uint32_t i = gpu_thread(); i < num; i += gpu_threads())
			advance(args, &state->ends[i]);
	}
}

/* ---- the call ---- */

/* Behind one that was given up nothing is begun. */
GPU_DEVICE void begin(const struct gpu_exchange_args &args, struct state *state)
{
	struct gpu_vec own = gpu_load_pair(own_of(args)); /* number, dead */

	state->more = state->moved = state->aborted = 0;
	state->number = own.w[0];
	state->dead = own.w[1] != 0;
	gpu_store_relaxed(args.enqueued + offsetof(struct gpu_enqueued, exchanges_begun),
			  state->number + 1);
}

/*
 * Each block. The additions have the last one see what all have done; it counts the exchange. Who
 * sees that may give the memory to somebody else.
 */
GPU_DEVICE void finish(const struct gpu_exchange_args &args, const struct state *state, bool well)
{
	uint64_t own = own_of(args), words = args.enqueued;

	gpu_block_barrier();
	if (gpu_thread())
		return;
	if (!well) {
		gpu_store_relaxed(own + offsetof(struct gpu_exchange_own, dead), 1);
		gpu_store_relaxed(words + offsetof(struct gpu_enqueued, failed), 1);
	}
	if (gpu_add(own + offsetof(struct gpu_exchange_own, blocks), 1) + 1 < gpu_blocks())
		return;
	gpu_store_relaxed(own + offsetof(struct gpu_exchange_own, blocks), 0);
	gpu_store_relaxed(own + offsetof(struct gpu_exchange_own, number), state->number + 1);
	if (args.ticket)
		gpu_store_release(words + offsetof(struct gpu_enqueued, ended), args.ticket);
	gpu_store_release(words + offsetof(struct gpu_enqueued, exchanges), state->number + 1);
}

GPU_KERNEL(gpu_exchange, struct gpu_exchange_args)
{
	GPU_SHARED struct state state;
	uint32_t num;
	bool well;

	if (!args.num_routes)
		return;
	if (gpu_thread() == 0)
		begin(args, &state);
	begin_ends(args, &state);
	gpu_block_barrier();
	num = state.num;
	well = !state.dead && go_round(args, &state, num);
	/* For the next kernel of the communicator. */
	for (uint32_t i = gpu_thread(); i < num; i += gpu_threads()) {
		if (state.ends[i].route.kind != GPU_EXCHANGE_COPY)
			gpu_store_relaxed(count_of(args, &state.ends[i]), state.ends[i].position);
	}
	finish(args, &state, well);
}
