/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_mpi_ordered.h"
#include "core/job/core_mpi_job.h"
#include "core/call/core_coll.h"
#include "core/call/core_flags.h"
#include "core/call/core_mpi_handle.h"
#include "core/mpi/core_mpi.h"
#include "core/mpi/core_mpi_arithmetic.h"
#include "core/mpi/core_mpi_raise.h"
#include "core/request/core_requests.h"
#include "util/util_config.h"
#include "util/util_log.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of data that are on their way at a time, of a blocking call. */
enum { SLICE = 4 << 20 };

/* Contributions of several ranks to the same elements, one after the other, as in a buffer. */
struct table {
	MPI_Datatype type;
	MPI_Op op;
	MPI_Aint lb, extent, true_lb, true_extent;
	int num;       /* ranks */
	int64_t count; /* of elements of a rank */
	int64_t row;   /* elements from one rank's to the next: elements may reach into others */
	char *memory;
	char *base; /* the buffer's address, as MPI has it */
};

/* A call on its way. */
struct core_ordered {
	struct core_ordered_hold hold;
	struct table table;
	bool splits;   /* each rank has a part of all contributions */
	int last;      /* the last rank that is added up; -1: there is no result here */
	int64_t skip;  /* elements of the sum before the result */
	int64_t count; /* of the result */
	/* What each rank receives from others, and where, then what it sends; NULL: all alike. */
	int *counts;
};

/* What the program has freed while it was held. */
struct put_off {
	struct put_off *next;
	core_handle handle;
	bool op; /* else a datatype */
};

bool core_ordered_holds;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct core_ordered_hold *holds; /* under the lock, as what follows */
static struct put_off *put_offs;

/* ---- which calls ---- */

static MPI_Comm comm_of(const struct core_call *call)
{
	return core_mpi_as_comm(call->comm);
}

static MPI_Datatype type_of(const struct core_call *call)
{
	return core_mpi_as_type(call->recvtype);
}

static int size_of(const struct core_call *call)
{
	int size = 0;

	PMPI_Comm_size(comm_of(call), &size);
	return size;
}

static bool is_inter(const struct core_call *call)
{
	int inter = 0;

	PMPI_Comm_test_inter(comm_of(call), &inter);
	return inter;
}

static int64_t count_at(const struct core_call *call, int rank)
{
	if (call->coll == CORE_REDUCE_SCATTER_BLOCK)
		return call->recvcount;
	return call->wide_counts ? ((const MPI_Count *)call->recvcounts)[rank]
				 : ((const int *)call->recvcounts)[rank];
}

static bool scatters(const struct core_call *call)
{
	return call->coll == CORE_REDUCE_SCATTER || call->coll == CORE_REDUCE_SCATTER_BLOCK;
}

/* Elements of a rank's contribution. Negative: an argument that MPI refuses. */
static int64_t total_of(const struct core_call *call)
{
	int64_t total = 0;
	int size;

	if (!scatters(call))
		return call->recvcount;
	if (call->coll == CORE_REDUCE_SCATTER && !call->recvcounts)
		return -1;
	size = size_of(call);
	for (int i = 0; i < size; i++) {
		int64_t count = count_at(call, i);

		if (count < 0 || count > INT64_MAX - total)
			return -1;
		total += count;
	}
	return total;
}

static int combiner_of(MPI_Datatype type)
{
	int integers, addresses, types, combiner = MPI_COMBINER_NAMED;

	PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
	return combiner;
}

static bool is_predefined(MPI_Datatype type)
{
	return combiner_of(type) == MPI_COMBINER_NAMED;
}

/* Those that no kernel computes with. MPI would tell its error on another communicator. */
static bool is_floating(MPI_Datatype type, MPI_Op op)
{
	const MPI_Datatype reals[] = {MPI_LONG_DOUBLE, MPI_REAL16};
	const MPI_Datatype complexes[] = {MPI_C_LONG_DOUBLE_COMPLEX, MPI_COMPLEX32,
					  MPI_CXX_LONG_DOUBLE_COMPLEX};
	bool sum = op == MPI_SUM || op == MPI_PROD, order = op == MPI_MAX || op == MPI_MIN;
	int kind = combiner_of(type);

	for (size_t i = 0; i < sizeof(reals) / sizeof(reals[0]); i++) {
		if (type == reals[i])
			return sum || order;
	}
	for (size_t i = 0; i < sizeof(complexes) / sizeof(complexes[0]); i++) {
		if (type == complexes[i])
			return sum;
	}
	return kind == MPI_COMBINER_F90_REAL ? sum || order
					     : kind == MPI_COMBINER_F90_COMPLEX && sum;
}

static bool is_users(MPI_Op op)
{
	const MPI_Op predefined[] = {MPI_SUM,    MPI_MAX,    MPI_MIN,     MPI_PROD, MPI_LAND,
				     MPI_LOR,    MPI_LXOR,   MPI_BAND,    MPI_BOR,  MPI_BXOR,
				     MPI_MAXLOC, MPI_MINLOC, MPI_REPLACE, MPI_NO_OP};

	for (size_t i = 0; i < sizeof(predefined) / sizeof(predefined[0]); i++) {
		if (op == predefined[i])
			return false;
	}
	return true;
}

/* Integers give the same in any order. What MPI refuses is left to it. */
static bool order_counts(const struct core_call *call)
{
	MPI_Op op = (MPI_Op)call->op;
	struct core_shape shape = {0};
	const char *why;

	if (op == MPI_OP_NULL || op == MPI_REPLACE || op == MPI_NO_OP ||
	    type_of(call) == MPI_DATATYPE_NULL)
		return false;
	if (is_users(op))
		return true;
	why = core_mpi_find_arithmetic(call, &shape);
	if (!why)
		return gpu_type_is_floating(shape.type);
	return shape.type == GPU_TYPE_NONE && is_floating(type_of(call), op);
}

static bool are_of_job(MPI_Group group)
{
	MPI_Group world;
	int size = 0, *ranks;
	bool are = false;

	PMPI_Group_size(group, &size);
	ranks = malloc(2 * (size_t)size * sizeof(int) + 1);
	if (!ranks)
		return false;
	for (int i = 0; i < size; i++)
		ranks[i] = i;
	PMPI_Comm_group(MPI_COMM_WORLD, &world);
	are = PMPI_Group_translate_ranks(group, size, ranks, world, ranks + size) == MPI_SUCCESS;
	for (int i = 0; are && i < size; i++)
		are = ranks[size + i] != MPI_UNDEFINED;
	PMPI_Group_free(&world);
	free(ranks);
	return are;
}

/* Others have not been asked what they do, and may not have the library. */
static bool is_of_job(const struct core_call *call, const struct core_comm *comm)
{
	MPI_Group group;
	bool is;

	if (comm)
		return true;
	PMPI_Comm_group(comm_of(call), &group);
	is = are_of_job(group);
	PMPI_Group_free(&group);
	if (!is || !is_inter(call))
		return is;
	PMPI_Comm_remote_group(comm_of(call), &group);
	is = are_of_job(group);
	PMPI_Group_free(&group);
	return is;
}

/* What all ranks find alike that is not done here; NULL: it is. */
static const char *why_not(const struct core_call *call, const struct core_comm *comm)
{
	MPI_Aint lb, extent = 0;
	int size = size_of(call);

	for (int i = 0; scatters(call) && i < size; i++) {
		if (count_at(call, i) > INT_MAX / size)
			return "of more elements than an int counts, for all ranks together";
	}
	PMPI_Type_get_extent(type_of(call), &lb, &extent);
	if (extent <= 0)
		return "of elements of no extent, or a negative one";
	return is_of_job(call, comm) ? NULL : "with processes of another job";
}

/* Once for each reason, of which there are few. */
static void complain(const struct core_call *call, const char *why)
{
	enum { MOST = 16 };
	static const char *told[MOST];
	int i = 0;

	pthread_mutex_lock(&lock);
	while (i < MOST && told[i] && told[i] != why)
		i++;
	if (i < MOST && !told[i])
		told[i] = why;
	else
		i = MOST;
	pthread_mutex_unlock(&lock);
	if (i < MOST)
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
			 "GPUCOLL_REPRODUCIBLE: %s %s, where it is not accelerated, is the real "
			 "MPI's and may add in any order",
			 core_call_name(call), why);
}

/* Of a job without GPUs one says it. */
static void complain_asleep(void)
{
	static bool told;

	if (!__atomic_exchange_n(&told, true, __ATOMIC_RELAXED) && core_mpi_job.rank == 0)
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
			 "GPUCOLL_REPRODUCIBLE is without effect: the library is not at work in "
			 "this process (see gpucoll(7))");
}

/* MPI refuses a result without a buffer, but where the datatype may lead to one. */
static bool has_no_buffer(const struct core_call *call, int64_t total)
{
	int rank = 0;

	if (call->recvbuf || call->coll == CORE_REDUCE || !is_predefined(type_of(call)))
		return false;
	PMPI_Comm_rank(comm_of(call), &rank);
	if (call->coll == CORE_EXSCAN && !rank)
		return false;
	return (scatters(call) ? count_at(call, rank) : total) > 0;
}

static int make(const struct core_call *call);

void core_ordered_take(struct core_call *call, const struct core_comm *comm)
{
	const char *why;
	int64_t total;

	if (!util_config.reproducible || !core_coll_reduces(call->coll) ||
	    comm_of(call) == MPI_COMM_NULL)
		return;
	if (!core_awake) {
		complain_asleep();
		return;
	}
	if ((size_of(call) == 1 && !is_inter(call)) || !order_counts(call))
		return;
	total = total_of(call);
	if (total < 0 || has_no_buffer(call, total))
		return;
	why = why_not(call, comm);
	if (why) {
		complain(call, why);
		return;
	}
	call->in_order = true;
	if (!call->persistent)
		call->real = make;
}

void core_ordered_give_up(struct core_call *call, const char *why)
{
	complain(call, why);
	call->in_order = false;
}

/* ---- what is held ---- */

void core_ordered_keep(struct core_ordered_hold *hold, const struct core_call *call)
{
	pthread_mutex_lock(&lock);
	hold->type = call->recvtype;
	hold->op = call->op;
	hold->next = holds;
	holds = hold;
	__atomic_store_n(&core_ordered_holds, true, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&lock);
}

/* Under the lock. */
static bool is_held(core_handle handle, bool op)
{
	const struct core_ordered_hold *hold = holds;

	while (hold && (op ? hold->op : hold->type) != handle)
		hold = hold->next;
	return hold;
}

/* Under the lock: one that was put off and that nobody holds any more. NULL: there is none. */
static struct put_off *take_free(void)
{
	struct put_off **link = &put_offs, *found;

	while ((found = *link) && is_held(found->handle, found->op))
		link = &found->next;
	if (found)
		*link = found->next;
	return found;
}

static void free_put_off(struct put_off *found)
{
	MPI_Datatype type = core_mpi_as_type(found->handle);
	MPI_Op op = (MPI_Op)found->handle;

	if (found->op)
		PMPI_Op_free(&op);
	else
		PMPI_Type_free(&type);
	free(found);
}

void core_ordered_release(struct core_ordered_hold *hold)
{
	struct core_ordered_hold **link = &holds;
	struct put_off *found;

	if (!hold->type)
		return;
	pthread_mutex_lock(&lock);
	while (*link != hold)
		link = &(*link)->next;
	*link = hold->next;
	hold->type = 0;
	while ((found = take_free())) {
		pthread_mutex_unlock(&lock);
		free_put_off(found);
		pthread_mutex_lock(&lock);
	}
	__atomic_store_n(&core_ordered_holds, holds != NULL, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&lock);
}

static bool put_off(core_handle handle, bool op)
{
	struct put_off *one = malloc(sizeof(*one));
	bool held;

	pthread_mutex_lock(&lock);
	held = one && is_held(handle, op);
	if (held) {
		*one = (struct put_off){put_offs, handle, op};
		put_offs = one;
	}
	pthread_mutex_unlock(&lock);
	if (!held)
		free(one);
	return held;
}

bool core_ordered_put_off_op(core_handle op)
{
	return put_off(op, true);
}

bool core_ordered_put_off_type(core_handle type)
{
	return put_off(type, false);
}

/* ---- tables ---- */

static char *at(const struct table *t, int rank, int64_t element)
{
	return t->base + ((int64_t)rank * t->row + element) * t->extent;
}

/* An element has room as its extent says, or as its data do where that is more. */
static size_t bytes_of(const struct table *t)
{
	return t->num ? (size_t)(t->num * t->row * t->extent + t->true_extent) : 0;
}

static bool open_table(struct table *t, const struct core_call *call, int num, int64_t count)
{
	*t = (struct table){.type = type_of(call),
			    .op = (MPI_Op)core_mpi_real_op(call),
			    .num = num,
			    .count = count};
	PMPI_Type_get_extent(t->type, &t->lb, &t->extent);
	PMPI_Type_get_true_extent(t->type, &t->true_lb, &t->true_extent);
	t->row = count + (t->true_extent > t->extent ? (t->true_extent - 1) / t->extent : 0);
	if (num && t->row > INT64_MAX / 4 / num / (t->extent + t->true_extent + 1))
		return false;
	t->memory = malloc(bytes_of(t) + 1);
	t->base = t->memory - t->true_lb;
	return t->memory;
}

/*
 * Each rank's contribution becomes the sum of the first ranks' up to it: MPI_Reduce_local has the
 * earlier ones on the left.
 */
static int add_up(const struct table *t, int last)
{
	int result = MPI_SUCCESS;

	for (int rank = 1; rank <= last && !result; rank++) {
		for (int64_t i = 0; i < t->count && !result; i += INT_MAX) {
			int64_t num = t->count - i < INT_MAX ? t->count - i : INT_MAX;

			result = PMPI_Reduce_local(at(t, rank - 1, i), at(t, rank, i), (int)num,
						   t->type, t->op);
		}
	}
	return result;
}

/* Without what lies between an element's data, which is the program's. */
static int copy_packed(const struct table *t, char *to, const char *from, int64_t count)
{
	int packed = 0, result = PMPI_Pack_size(1, t->type, MPI_COMM_SELF, &packed);
	char *memory = result ? NULL : malloc((size_t)packed + 1);

	if (!result && !memory)
		return MPI_ERR_NO_MEM;
	for (int64_t i = 0; i < count && !result; i++) {
		int in = 0, out = 0;

		result = PMPI_Pack(from + i * t->extent, 1, t->type, memory, packed, &in,
				   MPI_COMM_SELF);
		if (!result)
			result = PMPI_Unpack(memory, in, &out, to + i * t->extent, 1, t->type,
					     MPI_COMM_SELF);
	}
	free(memory);
	return result;
}

static int copy(const struct table *t, void *to, const char *from, int64_t count)
{
	int bytes = 0;

	PMPI_Type_size(t->type, &bytes);
	if (bytes != t->extent || bytes != t->true_extent || t->true_lb)
		return copy_packed(t, to, from, count);
	memcpy(to, from, (size_t)count * (size_t)bytes);
	return MPI_SUCCESS;
}

/* ---- blocking calls ---- */

/* A part of a blocking call: some elements, of which each rank adds up a share. */
struct part {
	const struct core_call *call;
	struct table table; /* of this rank's share */
	const void *in;
	char *out;
	int rank;
	int *counts, *places; /* of ranks' shares */
	int *same, *rows;     /* of this rank's share, once for each rank */
};

static const void *input_of(const struct core_call *call)
{
	return core_mpi_is_in_place(call->sendbuf) ? call->recvbuf : call->sendbuf;
}

static void fill_rows(struct part *p)
{
	for (int i = 0; i < p->table.num; i++) {
		p->same[i] = (int)p->table.count;
		p->rows[i] = i * (int)p->table.row;
	}
}

static int collect(struct part *p)
{
	int result;

	fill_rows(p);
	result = PMPI_Alltoallv(p->in, p->counts, p->places, p->table.type, p->table.base, p->same,
				p->rows, p->table.type, comm_of(p->call));
	return result ? result : add_up(&p->table, p->table.num - 1);
}

/* To each rank the sum up to it, or up to the one before. */
static int return_prefixes(struct part *p)
{
	bool excludes = p->call->coll == CORE_EXSCAN;

	for (int i = 0; excludes && i < p->table.num; i++) {
		p->same[i] = i ? (int)p->table.count : 0;
		p->rows[i] = i ? (i - 1) * (int)p->table.row : 0;
		p->counts[i] = p->rank ? p->counts[i] : 0;
	}
	return PMPI_Alltoallv(p->table.base, p->same, p->rows, p->table.type, p->out, p->counts,
			      p->places, p->table.type, comm_of(p->call));
}

static int return_sums(struct part *p)
{
	const char *sum = at(&p->table, p->table.num - 1, 0);
	int count = (int)p->table.count;

	switch (p->call->coll) {
	case CORE_ALLREDUCE:
		return PMPI_Allgatherv(sum, count, p->table.type, p->out, p->counts, p->places,
				       p->table.type, comm_of(p->call));
	case CORE_REDUCE:
		return PMPI_Gatherv(sum, count, p->table.type, p->out, p->counts, p->places,
				    p->table.type, p->call->root, comm_of(p->call));
	case CORE_SCAN:
	case CORE_EXSCAN:
		return return_prefixes(p);
	default:
		return copy(&p->table, p->out, sum, count);
	}
}

static int make_part(struct part *p)
{
	int result;

	if (!open_table(&p->table, p->call, size_of(p->call), p->counts[p->rank]))
		return core_mpi_raise(p->call, UTIL_ERR_NO_MEMORY);
	result = collect(p);
	if (!result)
		result = return_sums(p);
	free(p->table.memory);
	return result;
}

/* Shares of so many elements. */
static void share_out(struct part *p, int size, int count)
{
	for (int i = 0, place = 0; i < size; i++) {
		p->counts[i] = count / size + (i < count % size);
		p->places[i] = place;
		place += p->counts[i];
	}
}

static int make_slices(struct part *p, int size)
{
	const struct core_call *call = p->call;
	MPI_Aint lb, extent;
	int result, bytes = 0;
	int64_t most;

	PMPI_Type_size(type_of(call), &bytes);
	result = PMPI_Type_get_extent(type_of(call), &lb, &extent);
	most = bytes && SLICE / bytes > size ? SLICE / bytes : size;
	/* One at least, in which MPI sees the arguments. */
	for (int64_t i = 0; !result && (i == 0 || i < call->recvcount); i += most) {
		int64_t left = call->recvcount - i;

		share_out(p, size, (int)(left < most ? left : most));
		p->in = (const char *)input_of(call) + i * extent;
		p->out = call->recvbuf ? (char *)call->recvbuf + i * extent : NULL;
		result = make_part(p);
	}
	return result;
}

static int make_blocks(struct part *p, int size)
{
	for (int i = 0, place = 0; i < size; i++) {
		p->counts[i] = (int)count_at(p->call, i);
		p->places[i] = place;
		place += p->counts[i];
	}
	p->in = input_of(p->call);
	p->out = p->call->recvbuf;
	return make_part(p);
}

static int make_alone(const struct core_call *call)
{
	struct core_call mine = *call;
	MPI_Request request = MPI_REQUEST_NULL;
	enum util_status status;
	int result;

	mine.request = &request;
	status = core_ordered_open(&mine);
	if (status != UTIL_OK)
		return core_mpi_raise(call, status);
	result = mine.real(&mine);
	if (!result) {
		core_requests_pass = true;
		result = PMPI_Wait(&request, MPI_STATUS_IGNORE);
	}
	if (!result)
		result = core_ordered_end(&mine);
	core_ordered_close(&mine);
	return result;
}

/* The groups of an intercommunicator each have the other's sum, which none of their own has. */
static int make(const struct core_call *call)
{
	struct part part = {.call = call};
	int size = size_of(call), result;

	if (is_inter(call))
		return make_alone(call);
	PMPI_Comm_rank(comm_of(call), &part.rank);
	part.counts = malloc(4 * (size_t)size * sizeof(int));
	if (!part.counts)
		return core_mpi_raise(call, UTIL_ERR_NO_MEMORY);
	part.places = part.counts + size;
	part.same = part.places + size;
	part.rows = part.same + size;
	result = scatters(call) ? make_blocks(&part, size) : make_slices(&part, size);
	free(part.counts);
	return result;
}

/* ---- one exchange ---- */

static int begin_gather(const struct core_call *call, const struct core_ordered *o)
{
	const struct table *t = &o->table;
	int count = (int)t->count;

	if (o->counts)
		return PMPI_Igatherv(input_of(call), count, t->type, t->base, o->counts,
				     o->counts + t->num, t->type, call->root, comm_of(call),
				     call->request);
	return PMPI_Igather(input_of(call), count, t->type, t->base, count, t->type, call->root,
			    comm_of(call), call->request);
}

static int begin_allgather(const struct core_call *call, const struct core_ordered *o)
{
	const struct table *t = &o->table;
	int count = (int)t->count;

	if (o->counts)
		return PMPI_Iallgatherv(input_of(call), count, t->type, t->base, o->counts,
					o->counts + t->num, t->type, comm_of(call), call->request);
	return PMPI_Iallgather(input_of(call), count, t->type, t->base, count, t->type,
			       comm_of(call), call->request);
}

static int begin_alltoall(const struct core_call *call, const struct core_ordered *o)
{
	const struct table *t = &o->table;
	int *sent = o->counts + 2 * t->num;

	return PMPI_Ialltoallv(input_of(call), sent, sent + t->num, t->type, t->base, o->counts,
			       o->counts + t->num, t->type, comm_of(call), call->request);
}

static int begin(const struct core_call *call)
{
	const struct core_ordered *o = call->ordered;

	if (o->splits)
		return begin_alltoall(call, o);
	return call->coll == CORE_REDUCE ? begin_gather(call, o) : begin_allgather(call, o);
}

/* Who contributes to what this rank is to have; what it has is `last` of it. */
static int num_contributions(const struct core_call *call, int rank, bool inter)
{
	int num = size_of(call);

	if (inter)
		PMPI_Comm_remote_size(comm_of(call), &num);
	if (call->coll == CORE_REDUCE && call->root != (inter ? MPI_ROOT : rank))
		return 0;
	return num;
}

static int last_of(const struct core_call *call, int rank, int num)
{
	if (call->coll == CORE_SCAN)
		return rank;
	return call->coll == CORE_EXSCAN ? rank - 1 : num - 1;
}

/* Where each rank's contribution goes, and, where it is split, what this one's goes to whom. */
static bool open_counts(struct core_ordered *o, const struct core_call *call)
{
	int num = o->table.num, *sent;

	o->counts = malloc(4 * (size_t)num * sizeof(int) + 1);
	sent = o->counts + 2 * num;
	for (int i = 0, place = 0; o->counts && i < num; i++) {
		o->counts[i] = (int)o->table.count;
		o->counts[num + i] = i * (int)o->table.row;
		sent[i] = o->splits ? (int)count_at(call, i) : 0;
		sent[num + i] = place;
		place += sent[i];
	}
	return o->counts;
}

/*
 * Whether an int counts the places of all contributions, as all ranks of both groups find. Gathers
 * of one size do without, but get derived types wrong in MPICH 4.0, and know no rows.
 */
static bool has_counts(const struct core_call *call, const struct core_ordered *o, bool inter)
{
	int most = size_of(call), remote = 0;

	if (inter)
		PMPI_Comm_remote_size(comm_of(call), &remote);
	return o->table.row <= INT_MAX / (most > remote ? most : remote);
}

static enum util_status open(struct core_ordered *o, const struct core_call *call, int64_t total)
{
	bool inter = is_inter(call);
	int rank = 0, num;

	PMPI_Comm_rank(comm_of(call), &rank);
	num = num_contributions(call, rank, inter);
	o->last = last_of(call, rank, num);
	o->count = total;
	o->splits = scatters(call) && !inter;
	if (scatters(call)) {
		o->count = count_at(call, rank);
		for (int i = 0; inter && i < rank; i++)
			o->skip += count_at(call, i);
	}
	if (!open_table(&o->table, call, num, o->splits ? o->count : total))
		return UTIL_ERR_NO_MEMORY;
	if (!has_counts(call, o, inter))
		return is_predefined(o->table.type) ? UTIL_OK : UTIL_ERR_UNSUPPORTED;
	return open_counts(o, call) ? UTIL_OK : UTIL_ERR_NO_MEMORY;
}

enum util_status core_ordered_open(struct core_call *call)
{
	enum util_status status;
	int64_t total;

	if (!call->in_order)
		return UTIL_OK;
	total = total_of(call);
	if (total > INT_MAX)
		return UTIL_ERR_UNSUPPORTED;
	call->ordered = calloc(1, sizeof(*call->ordered));
	if (!call->ordered)
		return UTIL_ERR_NO_MEMORY;
	status = open(call->ordered, call, total);
	if (status != UTIL_OK) {
		core_ordered_close(call);
		return status;
	}
	core_ordered_keep(&call->ordered->hold, call);
	call->real = begin;
	return UTIL_OK;
}

size_t core_ordered_bytes(const struct core_call *call)
{
	return call->ordered ? bytes_of(&call->ordered->table) : 0;
}

int core_ordered_end(struct core_call *call)
{
	struct core_ordered *o = call->ordered;
	int result;

	if (!o || o->last < 0)
		return MPI_SUCCESS;
	result = add_up(&o->table, o->last);
	if (!result)
		result = copy(&o->table, call->recvbuf, at(&o->table, o->last, o->skip), o->count);
	return result;
}

void core_ordered_close(struct core_call *call)
{
	if (!call->ordered)
		return;
	core_ordered_release(&call->ordered->hold);
	free(call->ordered->table.memory);
	free(call->ordered->counts);
	free(call->ordered);
	call->ordered = NULL;
}
