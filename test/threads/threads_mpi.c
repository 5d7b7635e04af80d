/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * core_mpi.h over threads_group.c: collectives of int in one piece of memory, which is enough for
 * all that core decides. Handles of communicators are groups.
 */
#include "core/accel/core_ready.h"
#include "core/agree/core_agree.h"
#include "core/comm/core_comm.h"
#include "core/core_comm_life.h"
#include "core/call/core_flags.h"
#include "core/p2p/core_message.h"
#include "core/mpi/core_mpi.h"
#include "core/core_mpi_check.h"
#include "core/core_mpi_comm.h"
#include "core/core_mpi_ordered.h"
#include "core/mpi/core_mpi_name.h"
#include "core/mpi/core_mpi_predefined.h"
#include "core/job/core_drive.h"
#include "core/job/core_mpi_clock.h"
#include "core/job/core_mpi_drive.h"
#include "core/job/core_mpi_job.h"
#include "core/mpi/core_mpi_raise.h"
#include "core/core_number.h"
#include "core/core_queue.h"
#include "core/core_run.h"
#include "threads.h"
#include "util/util_hash.h"
#include "util/util_time.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_COMMS = 64 };

struct core_mpi_job core_mpi_job;

static struct core_member processes[THREADS_MOST];
/* The rank's thread makes and frees communicators; the service thread does not look here. */
static struct {
	struct threads_group *group;
	struct core_comm *state;
} comms[MOST_COMMS];

static struct threads_group *group_of(core_handle comm)
{
	return (struct threads_group *)comm;
}

static struct threads_group *node_group(void)
{
	return &threads_job.nodes[core_mpi_job.node];
}

/* ---- the job ---- */

enum util_status core_mpi_start(const char *hostid, bool have_driver, bool may_use)
{
	struct core_mpi_job *job = &core_mpi_job;

	(void)hostid;
	(void)may_use;
	job->id = 1;
	job->size = threads_job.all.size;
	job->num_nodes = threads_job.num_nodes;
	job->node = threads_job.node_of[job->rank];
	job->any_driver = have_driver;
	for (int i = 0; i < job->size; i++) {
		bool near = threads_job.node_of[i] == job->node;

		processes[i] = (struct core_member){i, threads_job.node_of[i],
						    near ? job->local_size++ : -1};
	}
	job->local_rank = processes[job->rank].local_rank;
	return UTIL_OK;
}

void core_mpi_stop(void)
{
	threads_barrier(&threads_job.all, NULL);
}

void core_mpi_at_finalize(void (*stop)(void))
{
	(void)stop; /* rank_stop does it */
}

bool core_mpi_node_may_use(int node)
{
	return core_mpi_node_has_driver(node);
}

bool core_mpi_node_has_driver(int node)
{
	(void)node;
	return true;
}

/* Each is a machine of its own. */
uint64_t core_mpi_node_machine(int node)
{
	return (uint64_t)node + 1;
}

struct core_member core_mpi_member(int process)
{
	return processes[process];
}

int core_mpi_node_leader(int node)
{
	return threads_job.nodes[node].ranks[0];
}

uint64_t core_mpi_draw_id(void)
{
	static uint64_t drawn;

	return ((uint64_t)core_mpi_job.rank + 1) << 32 |
	       __atomic_add_fetch(&drawn, 1, __ATOMIC_RELAXED);
}

bool core_mpi_has_ended(int local_rank)
{
	(void)local_rank;
	return false;
}

void core_mpi_job_barrier(void (*meanwhile)(void))
{
	threads_barrier(&threads_job.all, meanwhile);
}

/* From the group's first to all. */
static void spread(struct threads_group *group, void *data, size_t bytes)
{
	int index = threads_index(group, core_mpi_job.rank);
	const void *const *given = threads_exchange(group, index, data);

	if (index)
		memcpy(data, given[0], bytes);
	threads_barrier(group, NULL);
}

int64_t core_mpi_clock_offset(uint64_t *round_trip)
{
	*round_trip = 0;
	return 0;
}

enum util_status core_mpi_job_bcast(void *data, int bytes)
{
	(void)data;
	(void)bytes;
	return UTIL_ERR_UNSUPPORTED;
}

enum util_status core_mpi_node_bcast(void *data, int bytes)
{
	spread(node_group(), data, (size_t)bytes);
	return UTIL_OK;
}

static bool all_say(struct threads_group *group, bool yes)
{
	const void *const *given =
		threads_exchange(group, threads_index(group, core_mpi_job.rank), &yes);
	bool all = true;

	for (int i = 0; i < group->size; i++)
		all &= *(const bool *)given[i];
	threads_barrier(group, NULL);
	return all;
}

bool core_mpi_node_all(bool yes)
{
	return all_say(node_group(), yes);
}

bool core_mpi_job_all(bool yes)
{
	return all_say(&threads_job.all, yes);
}

bool core_mpi_job_same(uint64_t number)
{
	uint64_t first = number;

	spread(&threads_job.all, &first, sizeof(first));
	return all_say(&threads_job.all, first == number);
}

struct gathered {
	const void *data;
	int bytes;
};

enum util_status core_mpi_job_gather(const void *mine, int bytes, void **all, int **sizes)
{
	struct gathered gathered = {mine, bytes};
	const void *const *given = threads_exchange(&threads_job.all, core_mpi_job.rank, &gathered);
	size_t total = 0;

	*sizes = malloc((size_t)core_mpi_job.size * sizeof(**sizes));
	for (int i = 0; i < core_mpi_job.size; i++)
		total += (size_t)((const struct gathered *)given[i])->bytes;
	*all = malloc(total + 1);
	if (!*sizes || !*all)
		abort();
	total = 0;
	for (int i = 0; i < core_mpi_job.size; i++) {
		const struct gathered *part = given[i];

		memcpy((char *)*all + total, part->data, (size_t)part->bytes);
		(*sizes)[i] = part->bytes;
		total += (size_t)part->bytes;
	}
	threads_barrier(&threads_job.all, NULL);
	return UTIL_OK;
}

void core_mpi_drive(struct core_wait *wait)
{
	(void)wait;
	core_drive_step();
	sched_yield();
}

/* ---- communicators ---- */

void core_mpi_comm_start(void)
{
}

void core_mpi_comm_stop(void)
{
}

void core_mpi_forget_types(void)
{
}

struct core_comm *core_mpi_comm_find(core_handle comm)
{
	for (int i = 0; i < MOST_COMMS; i++) {
		if (comms[i].group == group_of(comm))
			return comms[i].state;
	}
	return NULL;
}

/*
 * As core_mpi_comm.c does it: on one node who draws the id takes the slot, on several one on each.
 */
void core_mpi_comm_identify(core_handle comm)
{
	struct threads_group *group = group_of(comm);
	struct core_member members[THREADS_MOST];
	int index = threads_index(group, core_mpi_job.rank), i = 0;
	uint64_t id = index ? 0 : core_mpi_draw_id();
	bool first = true, well = true;
	enum core_reason why;

	for (int j = 0; j < group->size; j++) {
		members[j] = processes[group->ranks[j]];
		first &= j >= index || members[j].node != core_mpi_job.node;
	}
	spread(group, &id, sizeof(id));
	why = core_comm_life_why_no_slot(group->size, members);
	if (!why && first)
		well = core_comm_life_take_slot(id, group->size, members);
	if (!all_say(group, well) && !why)
		why = CORE_REASON_BOARD_FULL;
	while (comms[i].group)
		i++;
	comms[i].state = core_comm_life_begin(id, index, group->size, members, why);
	comms[i].group = group;
}

/* There is no MPI_Comm_idup. */
void core_mpi_late_look(core_handle comm)
{
	(void)comm;
}

void core_mpi_late_stop(void)
{
}

void rank_comm(struct threads_group *group)
{
	core_mpi_comm_identify((core_handle)group);
}

void rank_comm_free(struct threads_group *group)
{
	int i = 0;

	while (comms[i].group != group)
		i++;
	core_comm_life_end(comms[i].state);
	comms[i].group = NULL;
	comms[i].state = NULL;
}

core_handle core_mpi_world(void)
{
	return (core_handle)&threads_job.all;
}

uint64_t core_check_pending;

int core_check_run(const struct core_call *call, struct core_comm *comm,
		   const struct core_note *note)
{
	(void)call;
	(void)comm;
	(void)note;
	return 0;
}

int core_check_raise(core_handle comm, int error)
{
	(void)comm;
	return error;
}

void core_check_look(void)
{
}

void core_check_finish(void)
{
}

uint8_t core_mpi_type_number(core_handle type)
{
	(void)type;
	return 0;
}

uint8_t core_mpi_op_number(core_handle op)
{
	(void)op;
	return 0;
}

const char *core_mpi_type_word(uint8_t number)
{
	(void)number;
	return "int";
}

const char *core_mpi_op_word(uint8_t number)
{
	(void)number;
	return "sum";
}

void core_mpi_name(core_handle comm, char *name, size_t bytes)
{
	snprintf(name, bytes, "%d ranks", group_of(comm)->size);
}

/* ---- calls ---- */

bool core_mpi_is_in_place(const void *buffer)
{
	return buffer == THREADS_IN_PLACE;
}

static bool is_root(const struct core_call *call)
{
	return group_of(call->comm)->ranks[call->root] == core_mpi_job.rank;
}

/* A buffer of a call: `num` blocks of the call's count. */
struct side {
	void *address;
	int num;
};

/* What this rank reads and writes, not in place. */
static void sides_of(const struct core_call *call, struct side *in, struct side *out)
{
	int n = group_of(call->comm)->size;
	bool root = is_root(call);

	*in = (struct side){(void *)(uintptr_t)call->sendbuf, 1};
	*out = (struct side){call->recvbuf, 1};
	switch (call->coll) {
	case CORE_BCAST:
		*in = (struct side){call->recvbuf, root};
		out->num = !root;
		break;
	case CORE_REDUCE:
		out->num = root;
		break;
	case CORE_REDUCE_SCATTER_BLOCK:
		in->num = n;
		break;
	case CORE_GATHER:
		out->num = root ? n : 0;
		break;
	case CORE_SCATTER:
		in->num = root ? n : 0;
		break;
	case CORE_ALLGATHER:
		out->num = n;
		break;
	case CORE_ALLTOALL:
		in->num = out->num = n;
		break;
	default:
		break;
	}
}

/* The test has no scatters in place. */
static bool works_in_place(const struct core_call *call)
{
	return call->sendbuf == THREADS_IN_PLACE;
}

static enum util_status add(struct core_operand *operand, const struct side *side, size_t count)
{
	static struct core_typemap map = {
		.extent = 4, .hi = 4, .size = 4, .num_runs = 1, .only_run = {0, 4}};

	__atomic_store_n(&map.runs, &map.only_run, __ATOMIC_RELAXED);
	operand->address = side->address;
	return core_operand_add(operand, 0, count * (size_t)side->num, &map);
}

enum util_status core_mpi_operands(const struct core_call *call, struct core_operand *operands,
				   size_t *num_operands)
{
	size_t count = (size_t)call->recvcount, num = 0;
	enum util_status status = UTIL_OK;
	struct side in, out;

	sides_of(call, &in, &out);
	if (in.num && !works_in_place(call) && call->coll != CORE_BCAST) {
		operands[num].in = operands[num].is_send = true;
		status = add(&operands[num++], &in, count);
	}
	if (status == UTIL_OK && (out.num || works_in_place(call) || call->coll == CORE_BCAST)) {
		struct side both = {call->recvbuf, out.num > in.num ? out.num : in.num};

		operands[num].in =
			works_in_place(call) || (call->coll == CORE_BCAST && is_root(call));
		operands[num].out = call->coll != CORE_BCAST || !is_root(call);
		status = add(&operands[num++], works_in_place(call) ? &both : &out, count);
		if (call->coll == CORE_BCAST && is_root(call))
			status = add(&operands[num - 1], &in, count);
	}
	*num_operands = num;
	return status;
}

enum util_status core_mpi_find_runs(struct core_operand *operand)
{
	(void)operand;
	return UTIL_OK;
}

static void set_buffer(struct core_buffer *buffer, const struct side *side, uint64_t bytes)
{
	buffer->address = (uintptr_t)side->address;
	buffer->num_blocks = side->num;
	buffer->hi = (int64_t)bytes * side->num;
	for (int i = 0; i < side->num; i++)
		buffer->blocks[i] = (struct core_block){i * (int64_t)bytes, bytes};
}

static void set_in_place(const struct core_call *call, int index, struct core_shape *shape)
{
	struct core_buffer *in = &shape->in;

	shape->in_place = true;
	in->address = (uintptr_t)call->recvbuf;
	if (call->coll == CORE_ALLTOALL) {
		in->num_blocks = 0;
		in->hi = 0;
	}
	if (call->coll != CORE_ALLGATHER && call->coll != CORE_GATHER)
		return;
	in->address += (uintptr_t)shape->out.blocks[index].offset;
	in->blocks[0] = (struct core_block){0, shape->out.blocks[index].bytes};
	in->hi = (int64_t)in->blocks[0].bytes;
}

enum core_reason core_mpi_shape(const struct core_call *call, const struct core_comm *comm,
				struct core_shape *shape)
{
	uint64_t bytes = 4 * (uint64_t)call->recvcount;
	struct side in, out;

	shape->coll = call->coll;
	shape->root = call->root;
	shape->in_place = false;
	shape->bytes = bytes;
	sides_of(call, &in, &out);
	set_buffer(&shape->in, &in, bytes);
	set_buffer(&shape->out, &out, bytes);
	if (call->coll == CORE_ALLREDUCE || call->coll == CORE_REDUCE ||
	    call->coll == CORE_REDUCE_SCATTER_BLOCK) {
		shape->type = GPU_TYPE_INT32;
		shape->op = GPU_OP_SUM;
	}
	if (call->coll == CORE_REDUCE_SCATTER_BLOCK) {
		shape->own = shape->in.blocks[comm->rank];
		shape->counts = bytes + 1;
		shape->bytes = bytes * (uint64_t)comm->size;
	}
	if (call->coll == CORE_ALLGATHER)
		shape->counts = bytes;
	if (works_in_place(call))
		set_in_place(call, comm->rank, shape);
	return CORE_REASON_NONE;
}

core_handle core_mpi_real_op(const struct core_call *call)
{
	return call->op;
}

/* Nobody asks for sums in order, which would be the MPI's. */
enum util_status core_ordered_open(struct core_call *call)
{
	(void)call;
	return UTIL_OK;
}

int core_ordered_end(struct core_call *call)
{
	(void)call;
	return 0;
}

void core_ordered_close(struct core_call *call)
{
	(void)call;
}

void core_mpi_free_halves(void)
{
}

void core_requests_describe(char *text, size_t bytes)
{
	(void)bytes;
	*text = '\0';
}

void core_requests_finish(void)
{
}

size_t core_mpi_call_bytes(const struct core_call *call)
{
	return 4 * (size_t)call->recvcount;
}

int core_mpi_raise(const struct core_call *call, enum util_status status)
{
	(void)call;
	return (int)status;
}

bool core_mpi_is_revoked(core_handle comm)
{
	(void)comm;
	return false;
}

/* ---- the real MPI ---- */

/* What the rank with that call gives to the one with the index: `count` ints. */
static const int *given_by(const struct core_call *call, int from, int to)
{
	bool in_place = works_in_place(call);
	const int *in = in_place ? call->recvbuf : call->sendbuf;

	switch (call->coll) {
	case CORE_BCAST:
		return call->recvbuf;
	case CORE_REDUCE_SCATTER_BLOCK:
	case CORE_SCATTER:
	case CORE_ALLTOALL:
		return in + to * call->recvcount;
	case CORE_GATHER:
	case CORE_ALLGATHER:
		return in_place ? in + from * call->recvcount : in;
	default:
		return in;
	}
}

static bool reduces(enum core_coll coll)
{
	return coll == CORE_ALLREDUCE || coll == CORE_REDUCE || coll == CORE_REDUCE_SCATTER_BLOCK;
}

/* The result's blocks, one after the other. */
static void compute(const struct core_call *call, const struct core_call *const *calls, int index,
		    int *result)
{
	int n = group_of(call->comm)->size;
	size_t count = (size_t)call->recvcount;
	bool one = call->coll == CORE_BCAST || call->coll == CORE_SCATTER;

	for (int i = 0; i < n; i++) {
		const int *from;

		if (one && i != call->root)
			continue;
		from = given_by(calls[i], i, index);
		for (size_t k = 0; k < count; k++) {
			if (reduces(call->coll))
				result[k] = (i ? result[k] : 0) + from[k];
			else
				result[(one ? 0 : (size_t)i * count) + k] = from[k];
		}
	}
}

static int real(const struct core_call *call)
{
	struct threads_group *group = group_of(call->comm);
	int index = threads_index(group, core_mpi_job.rank);
	size_t bytes = 4 * (size_t)call->recvcount;
	const void *const *calls = threads_exchange(group, index, call);
	int *result = malloc(bytes * (size_t)group->size + 1);
	struct side in, out;

	if (!result)
		abort();
	sides_of(call, &in, &out);
	if (out.num)
		compute(call, (const struct core_call *const *)calls, index, result);
	threads_barrier(group, NULL);
	memcpy(call->recvbuf, result, bytes * (size_t)out.num);
	free(result);
	threads_barrier(group, NULL);
	return 0;
}

int rank_call(struct core_call *call)
{
	call->real = real;
	return core_run(call);
}

/* One that goes on while its rank does something else. */
struct pending {
	struct core_queued queued;
	atomic_bool ended;
};

static void complete(struct core_queued *queued)
{
	atomic_store_explicit(&((struct pending *)queued)->ended, true, memory_order_release);
}

int rank_call_pending(struct core_call *call, int idle)
{
	struct pending *pending = calloc(1, sizeof(*pending));
	struct core_comm *comm = core_mpi_comm_find(call->comm);
	enum util_status status;
	uint64_t number;

	if (!pending)
		abort();
	call->real = real;
	if (!comm || !core_queue_takes(comm)) {
		free(pending);
		return core_run(call);
	}
	core_number(call, &number);
	core_op_start(&pending->queued.op, call, comm, number);
	core_ready_mark(&pending->queued.op.accel);
	pending->queued.complete = complete;
	core_queue_add(&pending->queued);
	usleep((useconds_t)idle);
	while (!atomic_load_explicit(&pending->ended, memory_order_acquire)) {
		core_drive_step();
		sched_yield();
	}
	status = pending->queued.status;
	core_last_path = pending->queued.op.path;
	free(pending);
	return status != UTIL_OK;
}

enum core_path rank_path(void)
{
	return core_last_path;
}

/* ---- the rank ---- */

static void stop(void)
{
}

void rank_start(int rank)
{
	core_mpi_job.rank = rank;
	threads_driver_set_device(rank % threads_job.num_devices);
	core_start(stop);
}

void rank_stop(void)
{
	for (int i = 0; i < MOST_COMMS; i++) {
		if (comms[i].group)
			core_comm_life_end(comms[i].state);
		comms[i].group = NULL;
	}
	core_stop(false);
}

void *rank_allocate(size_t bytes)
{
	return threads_driver_allocate(core_mpi_job.rank % threads_job.num_devices, bytes,
				       threads_job.hidden);
}

void rank_free(void *memory)
{
	threads_driver_free(memory);
}
