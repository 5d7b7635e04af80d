/* SPDX-License-Identifier: BSD-3-Clause */
#include "algos/sched_time.h"
#include "algos/sched_carry.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/*
 * Rounds that are looked at: as many as are seen with so many steps, so that pipelines are filled.
 * The others are like the last ones.
 */
enum { LEAST_ROUNDS = 3, MOST_ROUNDS = 24, MOST_STEPS = 2048, NOBODY = -1 };

/*
 * A FIFO's last messages: of message k, at k modulo the slots, when it can be read, when its slot
 * is free again, and what it has for a network that is simulated elsewhere. Those that have come
 * are known to have, in that network not all that were sent.
 */
struct line {
	double *arrived, *consumed, *bytes;
	uint64_t sent, left, come, read;
	int reader, writer; /* the lane that waits for the next one, or for room */
};

struct lane {
	double at;        /* it can begin its next step */
	double busy, end; /* its blocks are, until; and all of its steps are done */
	double work;      /* how long they have been */
	uint32_t step, round;
};

/*
 * A rank's launch where hosts wait for messages: lanes that are ready at its beginning are in it,
 * others wait for its end.
 */
struct launch {
	double begin, end;
};

/*
 * A lane's next step; or, above the lanes, a connection's next message leaves; or, above these, it
 * comes.
 */
struct event {
	double at;
	uint32_t lane;
};

struct run {
	const struct sched *sched;
	const struct sched_fabric *fabric;
	const struct sched_terms *terms;
	double *memory; /* of all that follows */
	double *free;   /* by way: from when on it is */
	double *work;   /* by way: how long it has been taken in the phase */
	double *hosts;  /* by rank: when its host has sent, and taken, what there was */
	struct line *lines;
	struct lane *lanes;
	struct launch *launches; /* by rank */
	int *lanes_of;           /* by rank */
	struct event *heap;
	uint32_t num_events;
	uint8_t *carried; /* by step: whether the network does it; NULL: none */
	uint32_t rounds;  /* that are looked at */
	double lane_rate;
	double *ends;      /* of rounds */
	uint64_t underway; /* messages in a network that is simulated elsewhere */
	bool links, remote;
	bool launched; /* hosts launch the phase's steps */
};

static double later(double a, double b)
{
	return a > b ? a : b;
}

/* ---- events, the first one first; of several the one of the lowest lane ---- */

static bool is_before(const struct event *a, const struct event *b)
{
	return a->at != b->at ? a->at < b->at : a->lane < b->lane;
}

static void push(struct run *run, double at, uint32_t lane)
{
	struct event event = {at, lane};
	uint32_t i = run->num_events++;

	for (; i > 0 && is_before(&event, &run->heap[(i - 1) / 2]); i = (i - 1) / 2)
		run->heap[i] = run->heap[(i - 1) / 2];
	run->heap[i] = event;
}

static struct event pop(struct run *run)
{
	struct event first = run->heap[0], last = run->heap[--run->num_events];
	uint32_t i = 0, child;

	while ((child = 2 * i + 1) < run->num_events) {
		if (child + 1 < run->num_events &&
		    is_before(&run->heap[child + 1], &run->heap[child]))
			child++;
		if (!is_before(&run->heap[child], &last))
			break;
		run->heap[i] = run->heap[child];
		i = child;
	}
	run->heap[i] = last;
	return first;
}

/* ---- ways ---- */

/* When the bytes, which can begin at `start`, are over the way. */
static double take_way(struct run *run, int way, double start, double bytes)
{
	double time = bytes / run->fabric->rates[way];

	run->work[way] += time;
	run->free[way] = later(run->free[way], start) + time;
	return run->free[way];
}

static double take_route(struct run *run, const struct sched_route *route, double start,
			 double bytes)
{
	double end = start;

	for (int i = 0; i < route->num; i++)
		end = later(end,
			    take_way(run, route->legs[i].way, start, route->legs[i].share * bytes));
	return end;
}

static const struct sched_home *home_of(const struct run *run, int rank)
{
	return &run->fabric->homes[run->fabric->sites[rank]];
}

static bool is_net(const struct run *run, int from, int to)
{
	return home_of(run, from)->node != home_of(run, to)->node;
}

/* Of ranks on one node. */
static const struct sched_route *route_between(const struct run *run, int from, int to)
{
	const struct sched_fabric *fabric = run->fabric;

	return &fabric->routes[sched_fabric_route(fabric, fabric->sites[from], fabric->sites[to])];
}

static double latency_between(const struct run *run, int from, int to)
{
	return is_net(run, from, to) ? run->fabric->net_latency
				     : route_between(run, from, to)->latency;
}

/* A kernel of rank `from`, or `to`, has bytes go between the memories of both. */
static double touch(struct run *run, int from, int to, int memory, double start, double bytes)
{
	double end = take_way(run, run->fabric->sites[memory], start, bytes);

	return later(end, take_route(run, route_between(run, from, to), start, bytes));
}

/* The same of what it loads from another's, which on some ways is more than the bytes. */
static double load_bytes(struct run *run, int from, int rank, double start, double bytes)
{
	const struct sched_route *route = route_between(run, from, rank);
	double end = take_way(run, run->fabric->sites[from], start, bytes);

	return later(end, take_route(run, route, start, (1 + route->read_more) * bytes));
}

/* ---- operands ---- */

static double read_source(struct run *run, int rank, const struct sched_operand *o, double start,
			  double bytes)
{
	const struct sched_connection *c = o->fifo ? &run->sched->connections[o->at] : NULL;

	if (!c)
		return load_bytes(run, o->at, rank, start, bytes);
	if (!is_net(run, c->from, rank) || run->terms->gdr)
		return touch(run, rank, rank, rank, start, bytes);
	return take_route(run, &home_of(run, rank)->from_host, start, bytes);
}

static double write_target(struct run *run, int rank, const struct sched_operand *o, double start,
			   double bytes)
{
	int to = o->fifo ? run->sched->connections[o->at].to : o->at;

	if (o->fifo && is_net(run, rank, to) && run->terms->gdr)
		return touch(run, rank, rank, rank, start, bytes);
	if (o->fifo && is_net(run, rank, to))
		return take_route(run, &home_of(run, rank)->to_host, start, bytes);
	return touch(run, rank, to, to, start, bytes);
}

/* With flags, on a node. */
static double bytes_over(const struct run *run, const struct sched_operand *o, double bytes)
{
	const struct sched_connection *c;

	if (!o->fifo)
		return bytes;
	c = &run->sched->connections[o->at];
	if (is_net(run, c->from, c->to))
		return bytes;
	return sched_proto_parts(run->terms->proto) * bytes;
}

/* What the receiver waits for besides the bytes. */
static double signal_of(const struct run *run)
{
	const struct sched_costs *costs = &run->fabric->costs;

	switch (run->terms->proto) {
	case SCHED_LL:
		return 0;
	case SCHED_LL128:
		return costs->line;
	default:
		return costs->fence;
	}
}

/*
 * How long the lane's blocks are at it: they load what they read, flags too, and stores are soon
 * forgotten.
 */
static double work_of(const struct run *run, const struct sched_step *step, double bytes)
{
	const struct sched_operand *o = sched_sources(run->sched, step);
	double loaded = 0, stored = 0;

	for (int i = 0; i < step->num_sources + step->num_targets; i++) {
		double all = bytes_over(run, &o[i], bytes);

		if (i < step->num_sources)
			loaded += all;
		else
			stored = later(stored, all);
	}
	return later(loaded, stored) / run->lane_rate;
}

/* From the rank's kernel to a place; 0: it is its own. */
static double latency_of(const struct run *run, int rank, const struct sched_operand *o)
{
	if (o->fifo || run->fabric->sites[o->at] == run->fabric->sites[rank])
		return 0;
	return latency_between(run, rank, o->at);
}

/*
 * Others' memory is asked, and answers, and is then written to; what a message takes on its way is
 * not the sender's time.
 */
static double move_bytes(struct run *run, int rank, const struct sched_step *step, double start,
			 double bytes)
{
	const struct sched_operand *o = sched_sources(run->sched, step);
	double end = start, asked = 0, written = 0;

	for (int i = 0; i < step->num_sources + step->num_targets; i++) {
		double all = bytes_over(run, &o[i], bytes), latency = latency_of(run, rank, &o[i]);

		if (i < step->num_sources) {
			end = later(end, read_source(run, rank, &o[i], start, all));
			asked = later(asked, 2 * latency);
		}
		if (i >= step->num_sources || step->swap) {
			end = later(end, write_target(run, rank, &o[i], start, all));
			written = later(written, latency);
		}
	}
	return end + asked + written;
}

/* ---- lanes ---- */

static const struct sched_step *step_of(const struct run *run, uint32_t lane)
{
	return &run->sched->steps[run->sched->lanes[lane].first + run->lanes[lane].step];
}

static bool has_messages(const struct run *run, const struct sched_step *step)
{
	const struct sched_operand *o = sched_sources(run->sched, step);

	for (int i = 0; i < step->num_sources + step->num_targets; i++) {
		if (o[i].fifo)
			return true;
	}
	return false;
}

/* False: there is no message yet, or no room; the lane is woken when there is. */
static bool is_possible(struct run *run, uint32_t lane, double *ready)
{
	const struct sched_step *step = step_of(run, lane);
	const struct sched_operand *o = sched_sources(run->sched, step);
	uint32_t slots = run->terms->slots.num;

	for (int i = 0; i < step->num_sources + step->num_targets; i++) {
		struct line *line = o[i].fifo ? &run->lines[o[i].at] : NULL;

		if (!line)
			continue;
		if (i < step->num_sources) {
			if (line->read == line->come) {
				line->reader = (int)lane;
				return false;
			}
			*ready = later(*ready, line->arrived[line->read % slots]);
		} else if (line->sent >= slots) {
			if (line->sent - line->read == slots) {
				line->writer = (int)lane;
				return false;
			}
			*ready = later(*ready, line->consumed[line->sent % slots]);
		}
	}
	return true;
}

/* Have the lane's next step begin when it can. */
static void look_at_lane(struct run *run, uint32_t lane)
{
	double ready = run->lanes[lane].at;

	if (run->lanes[lane].round < run->rounds && is_possible(run, lane, &ready))
		push(run, ready, lane);
}

static void wake(struct run *run, int *lane)
{
	int who = *lane;

	*lane = NOBODY;
	if (who != NOBODY)
		look_at_lane(run, (uint32_t)who);
}

static double take_wire(struct run *run, const struct sched_home *from, const struct sched_home *to,
			double start, double bytes)
{
	double out = take_way(run, from->out, start, bytes);

	return later(out, take_way(run, to->in, start, bytes));
}

/*
 * Whether a message between nodes is announced, and asked for, before its bytes are on their way.
 */
static bool is_fetched(const struct run *run, double bytes)
{
	double from = run->fabric->costs.fetched;

	return run->terms->gdr || (from > 0 && bytes >= from);
}

/*
 * How often both hosts have to do with it. All but the first time, hardware does what there is to
 * do, if there is any.
 */
static int times_handled(const struct run *run, double bytes)
{
	return run->fabric->costs.take > 0 && is_fetched(run, bytes) ? 3 : 1;
}

/* A host sends one message after the other. */
static double when_sent(struct run *run, int rank, double at, double bytes)
{
	const struct sched_costs *costs = &run->fabric->costs;
	double *host = &run->hosts[rank];

	*host = later(*host, at) + times_handled(run, bytes) * costs->post + bytes * costs->carry;
	return *host + (is_fetched(run, bytes) ? 2 * run->fabric->net_latency : 0);
}

/* In its turn among those it takes the ones that come. */
static double when_taken(struct run *run, int rank, double at, double bytes)
{
	const struct sched_costs *costs = &run->fabric->costs;
	double *host = &run->hosts[rank];

	if (costs->take <= 0)
		return at;
	*host = later(*host, at) + times_handled(run, bytes) * costs->take + bytes * costs->carry;
	return *host;
}

/* The line's next message can be read. */
static void come(const struct run *run, struct line *line, double at)
{
	line->arrived[line->come++ % run->terms->slots.num] = at;
}

/*
 * Whether hosts are kept busy by what they send and by what they take, so that when they get to a
 * message depends on all that there was by then.
 */
static bool are_hosts_busy(const struct run *run)
{
	return run->fabric->costs.take > 0 && !run->terms->net;
}

static void send_far(struct run *run, const struct sched_operand *o, double end, double bytes)
{
	const struct sched_connection *c = &run->sched->connections[o->at];
	const struct sched_home *from = home_of(run, c->from), *to = home_of(run, c->to);
	uint32_t leaves = run->sched->num_lanes + (uint32_t)o->at;

	if (are_hosts_busy(run)) {
		push(run, end, leaves);
		return;
	}
	end = when_sent(run, c->from, end, bytes);
	if (run->terms->net)
		push(run, end, leaves);
	else
		come(run, &run->lines[o->at],
		     run->fabric->net_latency + take_wire(run, from, to, end, bytes));
}

static void send_operand(struct run *run, const struct sched_operand *o, double end, double bytes)
{
	const struct sched_connection *c = &run->sched->connections[o->at];
	struct line *line = &run->lines[o->at];

	line->bytes[line->sent++ % run->terms->slots.num] = bytes;
	if (is_net(run, c->from, c->to))
		send_far(run, o, end, bytes);
	else if (run->terms->fused)
		come(run, line, end + latency_between(run, c->from, c->to) + signal_of(run));
	else
		come(run, line, end + run->fabric->costs.tell);
}

static void consume(struct run *run, const struct sched_operand *o, double end)
{
	const struct sched_connection *c = &run->sched->connections[o->at];
	struct line *line = &run->lines[o->at];
	bool hosts = !run->terms->fused && !is_net(run, c->to, c->from);

	line->consumed[line->read++ % run->terms->slots.num] =
		end + (hosts ? run->fabric->costs.tell : latency_between(run, c->to, c->from));
}

static void pass_on_result(struct run *run, const struct sched_step *step, double end, double bytes)
{
	const struct sched_operand *o = sched_sources(run->sched, step);

	for (int i = 0; i < step->num_sources + step->num_targets; i++) {
		if (o[i].fifo && i < step->num_sources)
			consume(run, &o[i], end);
		else if (o[i].fifo)
			send_operand(run, &o[i], end, bytes);
	}
	for (int i = 0; i < step->num_sources + step->num_targets; i++) {
		if (o[i].fifo)
			wake(run, i < step->num_sources ? &run->lines[o[i].at].writer
							: &run->lines[o[i].at].reader);
	}
}

/* What the step moves in the lane's round. */
static uint64_t bytes_of(const struct run *run, uint32_t lane)
{
	uint64_t bytes = run->terms->bytes, width = run->terms->slots.width, start;

	if (run->links && run->sched->lanes[lane].phase == 0) {
		start = run->lanes[lane].round * width;
		bytes = bytes > start ? bytes - start : 0;
		bytes = bytes < width ? bytes : width;
	}
	return sched_chunk(run->sched, bytes, step_of(run, lane)).bytes;
}

static void go_on_lane(struct run *run, uint32_t lane)
{
	struct lane *l = &run->lanes[lane];

	if (++l->step < run->sched->lanes[lane].num)
		return;
	run->ends[l->round] = later(run->ends[l->round], l->end);
	l->step = 0;
	l->round++;
}

static bool is_carried(const struct run *run, const struct sched_step *step)
{
	return run->carried && run->carried[step - run->sched->steps];
}

/* Whether the lane's next step goes on in the launch of the one before. */
static bool follows(const struct run *run, uint32_t lane)
{
	const struct sched_step *step = step_of(run, lane);

	return run->lanes[lane].step && !has_messages(run, step) && !is_carried(run, step - 1);
}

/*
 * Where hosts wait, a step with messages begins a launch, and so does the first one; others follow
 * in theirs, and the network's are in none. False: it waits for the next one.
 */
static bool is_launched(struct run *run, struct event event, double *start)
{
	struct launch *launch = &run->launches[run->sched->lanes[event.lane].rank];

	if (!run->launched || follows(run, event.lane))
		return true;
	if (event.at > launch->begin && event.at < launch->end) {
		push(run, launch->end, event.lane);
		return false;
	}
	launch->begin = event.at;
	*start = event.at + run->fabric->costs.launch;
	return true;
}

/* From `start` on, in a kernel. When it has ended. */
static double run_step(struct run *run, uint32_t number, const struct sched_step *step,
		       double start, double bytes)
{
	struct lane *lane = &run->lanes[number];
	struct launch *launch = &run->launches[run->sched->lanes[number].rank];
	double work = work_of(run, step, bytes), end;

	lane->work += work;
	lane->busy = later(lane->busy, start) + work;
	end = later(lane->busy,
		    move_bytes(run, run->sched->lanes[number].rank, step, start, bytes));
	launch->end = later(launch->end, end);
	return end;
}

static void do_step(struct run *run, struct event event)
{
	const struct sched_step *step = step_of(run, event.lane);
	struct lane *lane = &run->lanes[event.lane];
	double bytes = (double)bytes_of(run, event.lane), start = event.at, end = start;

	if (!is_carried(run, step)) {
		if (!is_launched(run, event, &start))
			return;
		start += run->fabric->costs.step;
		end = run_step(run, event.lane, step, start, bytes);
	}
	lane->end = later(lane->end, end);
	/* Blocks go on to what does not wait for anything. */
	lane->at = run->links ? end : start;
	go_on_lane(run, event.lane);
	pass_on_result(run, step, end, bytes);
	look_at_lane(run, event.lane);
}

/* ---- messages on their way ---- */

static void leave_rank(struct run *run, double at, uint32_t number)
{
	const struct sched_connection *c = &run->sched->connections[number];
	const struct sched_home *from = home_of(run, c->from), *to = home_of(run, c->to);
	const struct sched_net *net = run->terms->net;
	struct line *line = &run->lines[number];
	double bytes = line->bytes[line->left++ % run->terms->slots.num];

	if (net) {
		run->underway++;
		net->send(net->state, at, run->fabric->sites[c->from], run->fabric->sites[c->to],
			  bytes, (int)number);
		return;
	}
	at = when_sent(run, c->from, at, bytes);
	push(run, run->fabric->net_latency + take_wire(run, from, to, at, bytes),
	     run->sched->num_lanes + run->sched->num_connections + number);
}

static void take_one(struct run *run, double at, uint32_t number)
{
	struct line *line = &run->lines[number];
	double bytes = line->bytes[line->come % run->terms->slots.num];

	come(run, line, when_taken(run, run->sched->connections[number].to, at, bytes));
	wake(run, &line->reader);
}

/* Whether a message comes before anything else happens. */
static bool receive_one(struct run *run)
{
	const struct sched_net *net = run->terms->net;
	double until = run->num_events ? run->heap[0].at : INFINITY, at;
	int number = run->underway ? net->wait(net->state, until, &at) : SCHED_NO_MESSAGE;

	if (number == SCHED_NO_MESSAGE)
		return false;
	take_one(run, at, (uint32_t)number);
	run->underway--;
	return true;
}

/* ---- all ---- */

/* Of the rank that has most. */
static int lanes_in(const struct run *run, int phase)
{
	int most = 0;

	for (int rank = 0; rank < run->sched->request.ranks; rank++)
		run->lanes_of[rank] = 0;
	for (uint32_t i = 0; i < run->sched->num_lanes; i++) {
		const struct sched_lane *lane = &run->sched->lanes[i];

		if (lane->phase == phase && lane->num && ++run->lanes_of[lane->rank] > most)
			most = run->lanes_of[lane->rank];
	}
	return most;
}

/*
 * Without messages the blocks are there for one lane after the other, and a launch has all of the
 * GPU, or its turn on it. There are as many as their bytes are worth; parts of a block smooth what
 * would be steps.
 */
static double rate_of_lane(const struct run *run, int phase)
{
	const double worth = 4096; /* bytes, of a block */
	const struct sched_costs *costs = &run->fabric->costs;
	uint64_t width = run->terms->slots.width, bytes = run->terms->bytes;
	double all = (double)costs->blocks * sched_fabric_fullest(run->fabric);
	double blocks = !run->links ? all : run->terms->fused ? run->terms->blocks : costs->blocks;
	int lanes = lanes_in(run, phase);
	double most;

	if (run->links && bytes > width)
		bytes = width;
	most = (double)sched_longest_chunk(run->sched, bytes) / worth;
	blocks = lanes ? blocks / lanes : 1;
	blocks = most < blocks ? most : blocks;
	return later(blocks, 1) * costs->block_rate;
}

static uint32_t rounds_to_look_at(const struct run *run, double all)
{
	uint32_t steps = run->sched->num_steps ? run->sched->num_steps : 1;
	uint32_t rounds = MOST_STEPS / steps;

	rounds = rounds < LEAST_ROUNDS ? LEAST_ROUNDS : rounds;
	rounds = rounds < MOST_ROUNDS ? rounds : MOST_ROUNDS;
	return all < rounds || run->terms->whole ? (uint32_t)ceil(all) : rounds;
}

/*
 * How long the rounds take that are not looked at, each: as long as those that were last, or as
 * what has most work is at it.
 */
static double time_of_round(const struct run *run)
{
	uint32_t half = run->rounds / 2;
	double time = (run->ends[run->rounds - 1] - run->ends[half - 1]) / (run->rounds - half);
	double most = 0;

	for (int i = 0; i < run->fabric->num_ways; i++)
		most = later(most, run->work[i]);
	for (uint32_t i = 0; i < run->sched->num_lanes; i++)
		most = later(most, run->lanes[i].work);
	return later(time, most / run->rounds);
}

static void begin_phase(struct run *run, int phase, double start)
{
	const struct sched *sched = run->sched;

	run->lane_rate = rate_of_lane(run, phase);
	for (uint32_t i = 0; i < run->rounds; i++)
		run->ends[i] = start;
	memset(run->work, 0, (size_t)run->fabric->num_ways * sizeof(*run->work));
	for (uint32_t i = 0; i < sched->num_lanes; i++) {
		run->lanes[i] = (struct lane){.at = start, .busy = start, .end = start};
		if (sched->lanes[i].phase != phase || !sched->lanes[i].num)
			continue;
		run->remote |= sched_is_remote(sched, &sched->lanes[i]);
		look_at_lane(run, i);
	}
}

/* False: there is nothing more to do, or it is not worth it. */
static bool go_on_once(struct run *run)
{
	uint32_t lanes = run->sched->num_lanes, lines = run->sched->num_connections;
	struct event event;

	if (receive_one(run))
		return true;
	if (!run->num_events || run->heap[0].at > run->terms->most)
		return false;
	event = pop(run);
	if (event.lane < lanes)
		do_step(run, event);
	else if (event.lane < lanes + lines)
		leave_rank(run, event.at, event.lane - lanes);
	else
		take_one(run, event.at, event.lane - lanes - lines);
	return true;
}

static double num_rounds(const struct run *run, int phase)
{
	return run->links && phase == 0 && run->terms->bytes
		       ? (double)run->terms->bytes / (double)run->terms->slots.width
		       : 1;
}

/* When the phase, which begins at `start`, is over. */
static double run_phase(struct run *run, int phase, double start)
{
	double all = num_rounds(run, phase), end;

	run->rounds = rounds_to_look_at(run, all);
	begin_phase(run, phase, start);
	while (go_on_once(run))
		;
	if (run->num_events)
		return run->heap[0].at;
	end = run->ends[run->rounds - 1];
	return all > run->rounds ? end + (all - run->rounds) * time_of_round(run) : end;
}

static double run_all(struct run *run)
{
	const struct sched_costs *costs = &run->fabric->costs;
	double at = costs->call;

	for (int phase = 0; phase < run->sched->phases; phase++) {
		run->launched = run->links && !run->terms->fused && phase == 0;
		at += (phase ? costs->meet : 0) + (run->launched ? 0 : costs->launch);
		at = run_phase(run, phase, at);
		if (at > run->terms->most)
			return at;
	}
	return at + (run->remote ? costs->meet : 0);
}

/* False: no memory. */
static bool find_carried(struct run *run)
{
	const struct sched *sched = run->sched;
	uint8_t mask = sched->request.in_place ? SCHED_CARRY_ALWAYS : SCHED_CARRY_APART;

	if (!run->terms->gdr || run->terms->fused)
		return true;
	run->carried = malloc(sched->num_steps + (size_t)1);
	if (!run->carried || !sched_find_carried(sched, run->carried))
		return false;
	for (uint32_t i = 0; i < sched->num_steps; i++)
		run->carried[i] &= mask;
	return true;
}

static bool prepare_run(struct run *run)
{
	const struct sched *sched = run->sched;
	size_t slots = run->terms->slots.num, lines = sched->num_connections;
	size_t underway = run->terms->net || are_hosts_busy(run) ? slots * lines : 0;

	run->free = calloc((size_t)run->fabric->num_ways + 1, sizeof(*run->free));
	run->work = calloc((size_t)run->fabric->num_ways + 1, sizeof(*run->work));
	run->hosts = calloc((size_t)sched->request.ranks, sizeof(*run->hosts));
	run->lines = calloc(lines + 1, sizeof(*run->lines));
	run->lanes = calloc((size_t)sched->num_lanes + 1, sizeof(*run->lanes));
	run->launches = calloc((size_t)sched->request.ranks, sizeof(*run->launches));
	run->lanes_of = calloc((size_t)sched->request.ranks, sizeof(*run->lanes_of));
	run->heap = calloc((size_t)sched->num_lanes + underway + 1, sizeof(*run->heap));
	run->memory = calloc(3 * slots * lines + 1, sizeof(*run->memory));
	run->ends =
		calloc(rounds_to_look_at(run, num_rounds(run, 0)) + (size_t)1, sizeof(*run->ends));
	if (!run->free || !run->work || !run->hosts || !run->lines || !run->lanes ||
	    !run->launches || !run->lanes_of || !run->heap || !run->memory || !run->ends)
		return false;
	if (!find_carried(run))
		return false;
	for (size_t i = 0; i < lines; i++) {
		run->lines[i].arrived = &run->memory[3 * slots * i];
		run->lines[i].consumed = &run->memory[3 * slots * i + slots];
		run->lines[i].bytes = &run->memory[3 * slots * i + 2 * slots];
		run->lines[i].reader = run->lines[i].writer = NOBODY;
	}
	return true;
}

double sched_time(const struct sched *sched, const struct sched_fabric *fabric,
		  const struct sched_terms *terms)
{
	struct run run = {.sched = sched,
			  .fabric = fabric,
			  .terms = terms,
			  .links = sched->num_connections > 0};
	double time = prepare_run(&run) ? run_all(&run) : -1;

	free(run.free);
	free(run.work);
	free(run.hosts);
	free(run.lines);
	free(run.lanes);
	free(run.launches);
	free(run.lanes_of);
	free(run.heap);
	free(run.memory);
	free(run.ends);
	free(run.carried);
	return time;
}

enum sched_lines sched_fabric_lines(const struct sched_fabric *fabric, const struct sched *sched)
{
	enum sched_lines least = SCHED_LINES_WHOLE;

	for (uint32_t i = 0; i < sched->num_connections; i++) {
		const struct sched_connection *c = &sched->connections[i];
		int from = fabric->sites[c->from], to = fabric->sites[c->to];
		enum sched_lines lines = SCHED_LINES_CUT;

		if (fabric->homes[from].node == fabric->homes[to].node)
			lines = fabric->routes[sched_fabric_route(fabric, from, to)].lines;
		least = lines < least ? lines : least;
	}
	return least;
}

int sched_fabric_fullest(const struct sched_fabric *fabric)
{
	int fullest = 0;

	for (int site = 0; site < fabric->num_sites; site++) {
		int ranks = 0;

		for (int i = 0; i < fabric->ranks; i++)
			ranks += fabric->sites[i] == site;
		fullest = ranks > fullest ? ranks : fullest;
	}
	return fullest;
}

size_t sched_fabric_route(const struct sched_fabric *fabric, int from, int to)
{
	const struct sched_home *a = &fabric->homes[from], *b = &fabric->homes[to];
	const struct sched_fleet *node = &fabric->nodes[a->node];

	return node->first + (size_t)a->number * (size_t)node->num + (size_t)b->number;
}

void sched_fabric_free(struct sched_fabric *fabric)
{
	for (size_t i = 0; fabric->routes && i < fabric->num_routes; i++)
		free(fabric->routes[i].legs);
	for (int i = 0; fabric->homes && i < fabric->num_sites; i++) {
		free(fabric->homes[i].to_host.legs);
		free(fabric->homes[i].from_host.legs);
	}
	free(fabric->routes);
	free(fabric->homes);
	free(fabric->nodes);
	free(fabric->sites);
	free(fabric->rates);
	*fabric = (struct sched_fabric){0};
}
