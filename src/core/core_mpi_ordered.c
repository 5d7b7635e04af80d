/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_mpi_ordered.h"
#include "core/call/core_mpi_handle.h"
#include "core/core_mpi_order.h"
#include "core/mpi/core_mpi.h"
#include "core/mpi/core_mpi_blocks.h"
#include "core/mpi/core_mpi_fold.h"
#include "core/mpi/core_mpi_hold.h"
#include "core/mpi/core_mpi_raise.h"

#include <limits.h>
#include <stdlib.h>

/* A call on its way. */
struct core_ordered {
	struct core_mpi_hold hold;
	struct core_mpi_fold table;
	bool splits;   /* each rank has a part of all contributions */
	int last;      /* the last rank that is added up; -1: there is no result here */
	int64_t skip;  /* elements of the sum before the result */
	int64_t count; /* of the result */
	/* What each rank receives from others, and where, then what it sends; NULL: all alike. */
	int *counts;
};

static MPI_Comm comm_of(const struct core_call *call)
{
	return core_mpi_as_comm(call->comm);
}

static MPI_Datatype type_of(const struct core_call *call)
{
	return core_mpi_as_type(call->recvtype);
}

/* ---- blocking calls ---- */

/* A part of a blocking call: some elements, of which each rank adds up a share. */
struct part {
	const struct core_call *call;
	struct core_mpi_fold table; /* of this rank's share */
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
	return result ? result : core_mpi_fold_add_up(&p->table, p->table.num - 1);
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
	const char *sum = core_mpi_fold_at(&p->table, p->table.num - 1, 0);
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
		return core_mpi_fold_copy(&p->table, p->out, sum, count);
	}
}

static int make_part(struct part *p)
{
	int result;

	if (!core_mpi_fold_open(&p->table, p->call, core_order_size(p->call), p->counts[p->rank]))
		return core_mpi_raise(p->call, UTIL_ERR_NO_MEMORY);
	result = collect(p);
	if (!result)
		result = return_sums(p);
	core_mpi_fold_close(&p->table);
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
	most = bytes && CORE_ORDER_SLICE / bytes > size ? CORE_ORDER_SLICE / bytes : size;
	/* One at least, in which MPI sees the arguments. */
	for (int64_t i = 0; !result && (i == 0 || i < call->recvcount); i += most) {
		int64_t left = call->recvcount - i;

		share_out(p, size, (int)(left < most ? left : most));
		p->in = core_address(input_of(call), i * extent);
		p->out = core_address(call->recvbuf, i * extent);
		result = make_part(p);
	}
	return result;
}

static int make_blocks(struct part *p, int size)
{
	for (int i = 0, place = 0; i < size; i++) {
		p->counts[i] = (int)core_mpi_received_count(p->call, i);
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
	enum util_status status;
	int result;

	status = core_ordered_open(&mine);
	if (status != UTIL_OK)
		return core_mpi_raise(call, status);
	result = mine.real(&mine);
	if (!result)
		result = core_ordered_end(&mine);
	core_ordered_close(&mine);
	return result;
}

/* The groups of an intercommunicator each have the other's sum, which none of their own has. */
static int make_ordered(const struct core_call *call)
{
	struct part part = {.call = call};
	int size = core_order_size(call), result;

	if (core_order_is_inter(call))
		return make_alone(call);
	PMPI_Comm_rank(comm_of(call), &part.rank);
	part.counts = malloc(4 * (size_t)size * sizeof(int));
	if (!part.counts)
		return core_mpi_raise(call, UTIL_ERR_NO_MEMORY);
	part.places = part.counts + size;
	part.same = part.places + size;
	part.rows = part.same + size;
	result = core_order_scatters(call) ? make_blocks(&part, size) : make_slices(&part, size);
	free(part.counts);
	return result;
}

/* ---- one exchange: that of a call without a request is blocking ---- */

static int begin_gather(const struct core_call *call, const struct core_ordered *o)
{
	const struct core_mpi_fold *t = &o->table;
	int count = (int)t->count;

	if (!call->request && o->counts)
		return PMPI_Gatherv(input_of(call), count, t->type, t->base, o->counts,
				    o->counts + t->num, t->type, call->root, comm_of(call));
	if (!call->request)
		return PMPI_Gather(input_of(call), count, t->type, t->base, count, t->type,
				   call->root, comm_of(call));
	if (o->counts)
		return PMPI_Igatherv(input_of(call), count, t->type, t->base, o->counts,
				     o->counts + t->num, t->type, call->root, comm_of(call),
				     call->request);
	return PMPI_Igather(input_of(call), count, t->type, t->base, count, t->type, call->root,
			    comm_of(call), call->request);
}

static int begin_allgather(const struct core_call *call, const struct core_ordered *o)
{
	const struct core_mpi_fold *t = &o->table;
	int count = (int)t->count;

	if (!call->request && o->counts)
		return PMPI_Allgatherv(input_of(call), count, t->type, t->base, o->counts,
				       o->counts + t->num, t->type, comm_of(call));
	if (!call->request)
		return PMPI_Allgather(input_of(call), count, t->type, t->base, count, t->type,
				      comm_of(call));
	if (o->counts)
		return PMPI_Iallgatherv(input_of(call), count, t->type, t->base, o->counts,
					o->counts + t->num, t->type, comm_of(call), call->request);
	return PMPI_Iallgather(input_of(call), count, t->type, t->base, count, t->type,
			       comm_of(call), call->request);
}

/* Never of an intercommunicator, so there is a request. */
static int begin_alltoall(const struct core_call *call, const struct core_ordered *o)
{
	const struct core_mpi_fold *t = &o->table;
	int *sent = o->counts + 2 * t->num;

	return PMPI_Ialltoallv(input_of(call), sent, sent + t->num, t->type, t->base, o->counts,
			       o->counts + t->num, t->type, comm_of(call), call->request);
}

static int begin_ordered(const struct core_call *call)
{
	const struct core_ordered *o = call->ordered;

	if (o->splits)
		return begin_alltoall(call, o);
	return call->coll == CORE_REDUCE ? begin_gather(call, o) : begin_allgather(call, o);
}

/* Who contributes to what this rank is to have; what it has is `last` of it. */
static int num_contributions(const struct core_call *call, int rank, bool inter)
{
	int num = core_order_size(call);

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
		sent[i] = o->splits ? (int)core_mpi_received_count(call, i) : 0;
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
	int most = core_order_size(call), remote = 0;

	if (inter)
		PMPI_Comm_remote_size(comm_of(call), &remote);
	return o->table.row <= INT_MAX / (most > remote ? most : remote);
}

static enum util_status open_ordered(struct core_ordered *o, const struct core_call *call,
				     int64_t total)
{
	bool inter = core_order_is_inter(call);
	int rank = 0, num;

	PMPI_Comm_rank(comm_of(call), &rank);
	num = num_contributions(call, rank, inter);
	o->last = last_of(call, rank, num);
	o->count = total;
	o->splits = core_order_scatters(call) && !inter;
	if (core_order_scatters(call)) {
		o->count = core_mpi_received_count(call, rank);
		for (int i = 0; inter && i < rank; i++)
			o->skip += core_mpi_received_count(call, i);
	}
	if (!core_mpi_fold_open(&o->table, call, num, o->splits ? o->count : total))
		return UTIL_ERR_NO_MEMORY;
	if (!has_counts(call, o, inter))
		return core_order_is_predefined(o->table.type) ? UTIL_OK : UTIL_ERR_UNSUPPORTED;
	return open_counts(o, call) ? UTIL_OK : UTIL_ERR_NO_MEMORY;
}

enum util_status core_ordered_open(struct core_call *call)
{
	enum util_status status;
	int64_t total;

	if (!call->in_order)
		return UTIL_OK;
	total = core_order_total(call);
	if (total > INT_MAX)
		return UTIL_ERR_UNSUPPORTED;
	call->ordered = calloc(1, sizeof(*call->ordered));
	if (!call->ordered)
		return UTIL_ERR_NO_MEMORY;
	status = open_ordered(call->ordered, call, total);
	if (status != UTIL_OK) {
		core_ordered_close(call);
		return status;
	}
	core_mpi_hold_keep(&call->ordered->hold, call->recvtype, call->op);
	call->real = begin_ordered;
	return UTIL_OK;
}

size_t core_ordered_bytes(const struct core_call *call)
{
	return call->ordered ? core_mpi_fold_bytes(&call->ordered->table) : 0;
}

int core_ordered_end(struct core_call *call)
{
	struct core_ordered *o = call->ordered;
	int result;

	if (!o || o->last < 0)
		return MPI_SUCCESS;
	result = core_mpi_fold_add_up(&o->table, o->last);
	if (!result)
		result =
			core_mpi_fold_copy(&o->table, call->recvbuf,
					   core_mpi_fold_at(&o->table, o->last, o->skip), o->count);
	return result;
}

void core_ordered_close(struct core_call *call)
{
	if (!call->ordered)
		return;
	core_mpi_hold_release(&call->ordered->hold);
	core_mpi_fold_close(&call->ordered->table);
	free(call->ordered->counts);
	free(call->ordered);
	call->ordered = NULL;
}

/* ---- which calls ---- */

void core_ordered_take(struct core_call *call, const struct core_comm *comm)
{
	call->in_order = core_order_counts(call, comm);
	if (call->in_order && !call->persistent)
		call->real = make_ordered;
}

void core_ordered_give_up(struct core_call *call, const char *why)
{
	core_order_complain(call, why);
	call->in_order = false;
}
