/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every collective, on every mix of host, device, managed and empty buffers over the ranks, against
 * the real MPI on host copies: the same call is made twice, and afterwards all bytes of both
 * buffers must be equal, also those that the call must not touch.
 *
 *     test_coll [ROUNDS [COLLECTIVES [nonblocking | persistent | enqueued]]]
 *
 * ROUNDS of random residency for each case, 2 if not given. COLLECTIVES: only these and their
 * variants, as in "gather,scan", of MPI_COMM_WORLD and with an algorithm's usual arguments; "all"
 * and all that there is otherwise. The reference is a blocking call also of the other forms, and
 * comes between a nonblocking one and its completion. Enqueued ones are on communicators without
 * the others' company: duplicates for a stream, which is waited for.
 */
#include "test.h"
#include "gpucoll_weak.h"

enum coll {
	BCAST,
	REDUCE,
	ALLREDUCE,
	REDUCE_SCATTER,
	REDUCE_SCATTER_BLOCK,
	SCAN,
	EXSCAN,
	GATHER,
	GATHERV,
	SCATTER,
	SCATTERV,
	ALLGATHER,
	ALLGATHERV,
	ALLTOALL,
	ALLTOALLV,
	ALLTOALLW,
	NEIGHBOR_ALLGATHER,
	NEIGHBOR_ALLGATHERV,
	NEIGHBOR_ALLTOALL,
	NEIGHBOR_ALLTOALLV,
	NEIGHBOR_ALLTOALLW,
	REDUCE_LOCAL,
	NUM_COLLS
};

static const char *const names[NUM_COLLS] = {"Bcast",
					     "Reduce",
					     "Allreduce",
					     "Reduce_scatter",
					     "Reduce_scatter_block",
					     "Scan",
					     "Exscan",
					     "Gather",
					     "Gatherv",
					     "Scatter",
					     "Scatterv",
					     "Allgather",
					     "Allgatherv",
					     "Alltoall",
					     "Alltoallv",
					     "Alltoallw",
					     "Neighbor_allgather",
					     "Neighbor_allgatherv",
					     "Neighbor_alltoall",
					     "Neighbor_alltoallv",
					     "Neighbor_alltoallw",
					     "Reduce_local"};

enum form { BLOCKING, NONBLOCKING, PERSISTENT, ENQUEUED };

enum { MAX_PEERS = 64 };

/*
 * A case: everything that a call needs. Sizes in elements; a block of the v forms is count + peer %
 * 3 long.
 */
struct test {
	enum coll coll;
	MPI_Comm comm;
	int rank, size, peers_in, peers_out, root, count;
	bool in_place, inter,
		active; /* active: this rank's group has the root, or the call has none */
	MPI_Datatype type;
	MPI_Aint extent;
	MPI_Op op;
	bool inverse_displs; /* blocks of the v forms in falling order, with gaps */
	int sendcounts[MAX_PEERS], recvcounts[MAX_PEERS], sdispls[MAX_PEERS], rdispls[MAX_PEERS];
	MPI_Aint sdispls_wide[MAX_PEERS], rdispls_wide[MAX_PEERS];
	MPI_Datatype types[MAX_PEERS];
};

static uint64_t random_state = 1;
static enum form test_form;
static cudaStream_t stream;

/* The call of a collective in a form, with these arguments before the communicator. */
#define FORM(name, lower, ...)                                                                     \
	(form == BLOCKING      ? MPI_##name(__VA_ARGS__, t->comm)                                  \
	 : form == NONBLOCKING ? MPI_I##lower(__VA_ARGS__, t->comm, request)                       \
	 : form == ENQUEUED ? gpucoll_##lower##_enqueue(__VA_ARGS__, stream_comm(t->comm), stream) \
			    : INIT(name)(__VA_ARGS__, t->comm, MPI_INFO_NULL, request))

static MPI_Comm bound_to = MPI_COMM_NULL, bound = MPI_COMM_NULL;

/* The communicator's duplicate for the stream, until another's is asked for. */
static MPI_Comm stream_comm(MPI_Comm comm)
{
	if (comm == bound_to)
		return bound;
	if (bound != MPI_COMM_NULL)
		MPI_Comm_free(&bound);
	bound_to = comm;
	if (gpucoll_stream_comm(comm, stream, &bound) != MPI_SUCCESS)
		MPI_Abort(MPI_COMM_WORLD, 4);
	return bound;
}

/* Its handle may be the next one's, too. */
static void free_comm(MPI_Comm *comm)
{
	if (*comm == bound_to)
		bound_to = MPI_COMM_NULL;
	MPI_Comm_free(comm);
}

/* What was enqueued has ended: well? */
static bool finish_stream(MPI_Comm comm)
{
	int error = MPI_SUCCESS;

	cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
	gpucoll_stream_error(stream_comm(comm), &error);
	return error == MPI_SUCCESS;
}

/*
 * Make the call in a form of it. A request that is not MPI_REQUEST_NULL afterwards is to be
 * completed, and a persistent one to be started first.
 */
static int call_form(const struct test *t, enum form form, const void *send, void *recv,
		     MPI_Request *request)
{
	const void *from = t->in_place ? MPI_IN_PLACE : send;
	int rc = t->count;

	switch (t->coll) {
	case BCAST:
		return FORM(Bcast, bcast, recv, rc, t->type, t->root);
	case REDUCE:
		return FORM(Reduce, reduce, t->in_place && t->rank == t->root ? MPI_IN_PLACE : send,
			    recv, rc, t->type, t->op, t->root);
	case ALLREDUCE:
		return FORM(Allreduce, allreduce, from, recv, rc, t->type, t->op);
	case REDUCE_SCATTER:
		return FORM(Reduce_scatter, reduce_scatter, from, recv, t->recvcounts, t->type,
			    t->op);
	case REDUCE_SCATTER_BLOCK:
		return FORM(Reduce_scatter_block, reduce_scatter_block, from, recv, rc, t->type,
			    t->op);
	case SCAN:
		return FORM(Scan, scan, from, recv, rc, t->type, t->op);
	case EXSCAN:
		return FORM(Exscan, exscan, from, recv, rc, t->type, t->op);
	case GATHER:
		return FORM(Gather, gather, t->in_place && t->rank == t->root ? MPI_IN_PLACE : send,
			    rc, t->type, recv, rc, t->type, t->root);
	case GATHERV:
		return FORM(Gatherv, gatherv,
			    t->in_place && t->rank == t->root ? MPI_IN_PLACE : send,
			    t->inter ? rc : t->recvcounts[t->rank], t->type, recv, t->recvcounts,
			    t->rdispls, t->type, t->root);
	case SCATTER:
		return FORM(Scatter, scatter, send, rc, t->type,
			    t->in_place && t->rank == t->root ? MPI_IN_PLACE : recv, rc, t->type,
			    t->root);
	case SCATTERV:
		return FORM(Scatterv, scatterv, send, t->sendcounts, t->sdispls, t->type,
			    t->in_place && t->rank == t->root ? MPI_IN_PLACE : recv,
			    t->inter ? rc : t->sendcounts[t->rank], t->type, t->root);
	case ALLGATHER:
		return FORM(Allgather, allgather, from, rc, t->type, recv, rc, t->type);
	case ALLGATHERV:
		return FORM(Allgatherv, allgatherv, from, t->inter ? rc : t->recvcounts[t->rank],
			    t->type, recv, t->recvcounts, t->rdispls, t->type);
	case ALLTOALL:
		return FORM(Alltoall, alltoall, from, rc, t->type, recv, rc, t->type);
	case ALLTOALLV:
		return FORM(Alltoallv, alltoallv, from, t->sendcounts, t->sdispls, t->type, recv,
			    t->recvcounts, t->rdispls, t->type);
	case ALLTOALLW:
		return FORM(Alltoallw, alltoallw, from, t->sendcounts, t->sdispls, t->types, recv,
			    t->recvcounts, t->rdispls, t->types);
	case NEIGHBOR_ALLGATHER:
		return FORM(Neighbor_allgather, neighbor_allgather, send, rc, t->type, recv, rc,
			    t->type);
	case NEIGHBOR_ALLGATHERV:
		return FORM(Neighbor_allgatherv, neighbor_allgatherv, send, rc, t->type, recv,
			    t->recvcounts, t->rdispls, t->type);
	case NEIGHBOR_ALLTOALL:
		return FORM(Neighbor_alltoall, neighbor_alltoall, send, rc, t->type, recv, rc,
			    t->type);
	case NEIGHBOR_ALLTOALLV:
		return FORM(Neighbor_alltoallv, neighbor_alltoallv, send, t->sendcounts, t->sdispls,
			    t->type, recv, t->recvcounts, t->rdispls, t->type);
	case NEIGHBOR_ALLTOALLW:
		return FORM(Neighbor_alltoallw, neighbor_alltoallw, send, t->sendcounts,
			    t->sdispls_wide, t->types, recv, t->recvcounts, t->rdispls_wide,
			    t->types);
	case REDUCE_LOCAL:
		return MPI_Reduce_local(send, recv, rc, t->type, t->op);
	default:
		return MPI_ERR_INTERN;
	}
}

static int call(const struct test *t, const void *send, void *recv)
{
	return call_form(t, BLOCKING, send, recv, NULL);
}

static bool has_equal_blocks(enum coll coll)
{
	return coll == NEIGHBOR_ALLGATHERV || coll == NEIGHBOR_ALLTOALLV ||
	       coll == NEIGHBOR_ALLTOALLW;
}

/*
 * What peer i exchanges with this rank must be known to both: block lengths depend on the receiver
 * alone in the gathers, and are symmetric (i + rank) in the exchanges. Neighbours and remote groups
 * have blocks of one length.
 */
static int block_length(const struct test *t, int peer)
{
	if (t->count == 0 || t->inter || has_equal_blocks(t->coll))
		return t->count;
	if (t->coll == ALLTOALLV || t->coll == ALLTOALLW)
		return (t->count + (peer + t->rank) % 3) * ((peer + t->rank) % 4 != 3);
	return t->count + peer % 3;
}

static void place_blocks(const struct test *t, int num, const int *counts, int *displs)
{
	int at = 0;

	for (int i = 0; i < num; i++) {
		int block = t->inverse_displs ? num - 1 - i : i;

		displs[block] = at;
		at += counts[block] + (t->inverse_displs ? 2 : 0);
	}
}

static void set_blocks(struct test *t)
{
	int most = t->peers_in > t->peers_out ? t->peers_in : t->peers_out;
	bool bytes = t->coll == ALLTOALLW || t->coll == NEIGHBOR_ALLTOALLW;

	for (int i = 0; i < most; i++) {
		t->sendcounts[i] = t->recvcounts[i] = block_length(t, i);
		t->types[i] = t->type;
	}
	place_blocks(t, t->peers_out, t->sendcounts, t->sdispls);
	place_blocks(t, t->peers_in, t->recvcounts, t->rdispls);
	for (int i = 0; i < most; i++) {
		if (bytes) {
			t->sdispls[i] *= (int)t->extent;
			t->rdispls[i] *= (int)t->extent;
		}
		t->sdispls_wide[i] = t->sdispls[i];
		t->rdispls_wide[i] = t->rdispls[i];
	}
}

/* Enough for any of the calls. */
static size_t buffer_bytes(const struct test *t)
{
	int most = t->peers_in > t->peers_out ? t->peers_in : t->peers_out;

	return (size_t)(t->count + 5) * (size_t)(most > t->size ? most : t->size) *
		       (size_t)t->extent +
	       64;
}

static void fill(unsigned char *bytes, size_t size, int salt)
{
	for (size_t i = 0; i < size; i++)
		bytes[i] = (unsigned char)(((i * 2654435761u) >> 7) + (size_t)salt * 37) & 0x3f;
}

static const char *const place_names[] = {"host", "device", "managed"};

static enum place draw_place(void)
{
	uint64_t number = draw(&random_state) % 5;

	return number < 2   ? PLACE_DEVICE
	       : number < 3 ? PLACE_MANAGED
	       : number < 4 ? PLACE_HOST
			    : PLACE_DEVICE;
}

static bool is_neighbor(enum coll coll)
{
	return coll >= NEIGHBOR_ALLGATHER && coll <= NEIGHBOR_ALLTOALLW;
}

/* Of neighbours that are one process twice, Open MPI 4.1 exchanges the blocks in the other forms.
 */
static int call_neighbors(const struct test *t, unsigned char *send, unsigned char *recv)
{
	MPI_Request request = MPI_REQUEST_NULL;
	int result =
		call_form(t, test_form == ENQUEUED ? NONBLOCKING : test_form, send, recv, &request);

	if (result == MPI_SUCCESS && test_form == PERSISTENT)
		MPI_Start(&request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	if (test_form == PERSISTENT)
		MPI_Request_free(&request);
	return result;
}

/*
 * The reference avoids what is known to be broken on host buffers in MPICH 4.0: MPI_Reduce in place
 * with a root other than 0. It is called with the root's contribution in a send buffer, which means
 * the same.
 */
static int call_reference(const struct test *t, unsigned char *send, unsigned char *recv,
			  size_t size)
{
	struct test plain = *t;

	if (is_neighbor(t->coll))
		return call_neighbors(t, send, recv);
	if (t->coll != REDUCE || !t->in_place)
		return call(t, send, recv);
	plain.in_place = false;
	if (t->rank == t->root)
		memcpy(send, recv, size);
	int result = call(&plain, send, recv);
	if (t->rank == t->root)
		fill(send, size, 2 * test_rank);
	return result;
}

/* Begin the call that is tested, in the form that is tested. */
static int begin(const struct test *t, const void *send, void *recv, MPI_Request *request)
{
	bool local = t->coll == REDUCE_LOCAL;
	int result = call_form(t, local ? BLOCKING : test_form, send, recv, request);

	if (result == MPI_SUCCESS && test_form == PERSISTENT && !local)
		MPI_Start(request);
	return result;
}

/*
 * By one after the other of MPI's ways to do it, in which a null request is complete, too. MPICH
 * 4.0 itself finds errors in MPI_Testall and the like of persistent collectives, on host buffers.
 */
static void complete(MPI_Request *request)
{
#ifdef OPEN_MPI
	unsigned ways = 9;
#else
	unsigned ways = test_form == PERSISTENT ? 2 : 9;
#endif
	static unsigned turn;
	int done = 0, index, indices[1];
	MPI_Status status, statuses[1];

	switch (turn++ % ways) {
	case 0:
		MPI_Wait(request, &status);
		return;
	case 1:
		while (!done)
			MPI_Test(request, &done, MPI_STATUS_IGNORE);
		return;
	case 2:
		MPI_Waitall(1, request, statuses);
		return;
	case 3:
		while (!done)
			MPI_Testall(1, request, &done, statuses);
		return;
	case 4:
		MPI_Waitany(1, request, &index, &status);
		return;
	case 5:
		while (!done)
			MPI_Testany(1, request, &index, &done, MPI_STATUS_IGNORE);
		return;
	case 6:
		MPI_Waitsome(1, request, &done, indices, statuses);
		return;
	case 7:
		while (!done)
			MPI_Testsome(1, request, &done, indices, statuses);
		return;
	case 8:
		while (!done)
			MPI_Request_get_status(*request, &done, MPI_STATUS_IGNORE);
		MPI_Wait(request, MPI_STATUS_IGNORE);
	}
}

/* A persistent one again, with other data, and its end. */
static bool repeat(const struct test *t, MPI_Request *request, struct buffer *test_send,
		   struct buffer *test_recv, unsigned char *send, unsigned char *recv, size_t size)
{
	bool ok = buffer_equals(test_recv, recv, "receive buffer of the first start");

	fill(send, size, 2 * test_rank + 100);
	fill(recv, size, 2 * test_rank + 101);
	buffer_put(test_send, send, size);
	buffer_put(test_recv, recv, size);
	MPI_Startall(1, request);
	call_reference(t, send, recv, size);
	complete(request);
	fill(send, size, 2 * test_rank + 100);
	ok &= buffer_equals(test_send, send, "send buffer of the second start");
	fill(send, size, 2 * test_rank);
	buffer_put(test_send, send, size);
	MPI_Request_free(request);
	return ok;
}

static void run(const struct test *t, enum place send_place, enum place recv_place)
{
	size_t size = buffer_bytes(t);
	unsigned char *send = malloc(size), *recv = malloc(size), *send_copy = malloc(size);
	struct buffer test_send, test_recv;
	MPI_Request request = MPI_REQUEST_NULL;
	static unsigned calls;
	/* In turns before the call, and while a nonblocking one may be on its way. */
	bool first = calls++ % 2;
	int want = 0, got;
	bool ok;

	/*
	 * The same defect of MPICH on the root's own host buffer, which would reach it untouched.
	 */
	if (t->coll == REDUCE && t->in_place && t->rank == t->root && recv_place == PLACE_HOST)
		recv_place = PLACE_DEVICE;
	snprintf(test_name, sizeof(test_name),
		 "%s count %d root %d%s%s%s ranks %d (rank %d: %s to %s)", names[t->coll], t->count,
		 t->root, t->in_place ? " in place" : "", t->inter ? " inter" : "",
		 t->inverse_displs ? " gaps" : "", t->size, test_rank, place_names[send_place],
		 place_names[recv_place]);
	fill(send, size, 2 * test_rank);
	fill(recv, size, 2 * test_rank + 1);
	memcpy(send_copy, send, size);
	test_send = buffer_new(send_place, size);
	test_recv = buffer_new(recv_place, size);
	buffer_put(&test_send, send, size);
	buffer_put(&test_recv, recv, size);
	if (first)
		want = call_reference(t, send, recv, size);
	got = begin(t, test_send.data, test_recv.data, &request);
	if (!first)
		want = call_reference(t, send, recv, size);
	ok = want == got;
	if (test_form == ENQUEUED && t->coll != REDUCE_LOCAL)
		ok &= finish_stream(t->comm);
	complete(&request);
	if (test_form == PERSISTENT && request != MPI_REQUEST_NULL)
		ok &= repeat(t, &request, &test_send, &test_recv, send, recv, size);
	if (!ok)
		fprintf(stderr, "rank %d: %s: returned %d, the reference %d\n", test_rank,
			test_name, got, want);
	ok &= buffer_equals(&test_recv, recv, "receive buffer");
	ok &= buffer_equals(&test_send, send_copy, "send buffer");
	test_result(ok);
	buffer_free(&test_send);
	buffer_free(&test_recv);
	free(send);
	free(recv);
	free(send_copy);
}

/* A few rounds: all on the device, then random places on each rank. */
static void run_mixed(struct test *t, int rounds)
{
	set_blocks(t);
	run(t, PLACE_DEVICE, PLACE_DEVICE);
	for (int i = 1; i < rounds; i++) {
		enum place send = PLACE_HOST, recv = PLACE_HOST;

		for (int rank = 0; rank < test_size; rank++) {
			enum place a = draw_place(), b = draw_place();

			send = rank == test_rank ? a : send;
			recv = rank == test_rank ? b : recv;
		}
		run(t, send, recv);
	}
}

static bool is_rooted(enum coll coll)
{
	return coll == BCAST || coll == REDUCE || coll == GATHER || coll == GATHERV ||
	       coll == SCATTER || coll == SCATTERV;
}

/* What Open MPI 4.1 does wrong on host buffers of four ranks is not for us to do right. */
static bool has_in_place(enum coll coll)
{
#ifdef OPEN_MPI
	if (test_form != BLOCKING && (coll == ALLTOALLV || coll == ALLTOALLW))
		return false;
#endif
	return coll != BCAST && coll < NEIGHBOR_ALLGATHER;
}

static bool is_reduction(enum coll coll)
{
	return (coll >= REDUCE && coll <= EXSCAN) || coll == REDUCE_LOCAL;
}

static struct test make(enum coll coll, MPI_Comm comm, MPI_Datatype type, int count)
{
	struct test t = {.coll = coll, .comm = comm, .type = type, .count = count, .op = MPI_SUM};
	MPI_Aint lb;

	MPI_Type_get_extent(type, &lb, &t.extent);
	MPI_Comm_rank(comm, &t.rank);
	MPI_Comm_size(comm, &t.size);
	t.peers_in = t.peers_out = t.size;
	return t;
}

/*
 * Whether the list, as "gather,scan", has the collective's name or that of which it is a form. NULL
 * has all.
 */
static bool is_wanted(const char *list, enum coll coll)
{
	static const char *const forms[] = {"", "v", "w", "_block"};
	char entry[64], within[512];

	if (!list)
		return true;
	snprintf(within, sizeof(within), ",%s,", list);
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		size_t length = strlen(names[coll]), form = strlen(forms[i]);

		if (form > length || strcmp(names[coll] + length - form, forms[i]))
			continue;
		snprintf(entry, sizeof(entry), ",%.*s,", (int)(length - form), names[coll]);
		if (strcasestr(within, entry))
			return true;
	}
	return false;
}

static void test_intra(int rounds, const char *list)
{
	static const int counts[] = {0, 1, 2, 3, 17, 4099};

	for (int coll = 0; coll < NUM_COLLS; coll++) {
		if (is_neighbor((enum coll)coll))
			continue;
		if (!is_wanted(list, (enum coll)coll))
			continue;
		for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
			struct test t = make((enum coll)coll, MPI_COMM_WORLD, MPI_INT, counts[i]);

			for (t.root = 0; t.root < (is_rooted(t.coll) ? t.size : 1); t.root++) {
				for (int variant = 0; variant < 4; variant++) {
					t.in_place = variant & 1;
					t.inverse_displs = variant & 2;
					if (t.in_place && !has_in_place(t.coll))
						continue;
					run_mixed(&t, rounds);
				}
			}
		}
	}
}

/*
 * Elements with gaps of each shape that the staging copies in another way, and one that is longer
 * than its extent.
 */
enum { NUM_TYPES = 5 };

static void make_types(MPI_Datatype types[NUM_TYPES])
{
	int lengths[] = {3, 1, 2, 5, 1}, displs[] = {0, 5, 7, 12, 20};
	int many_lengths[40], many_displs[40], at = 0;
	MPI_Datatype indexed, overlapping;

	MPI_Type_vector(3, 2, 5, MPI_INT, &types[0]);
	MPI_Type_indexed(5, lengths, displs, MPI_INT, &indexed);
	MPI_Type_create_resized(indexed, -8, 24 * 4 + 8, &types[1]);
	MPI_Type_contiguous(5, MPI_SHORT, &types[2]);
	MPI_Type_vector(2, 1, 3, MPI_INT,
			&overlapping); /* elements interleave: extent of 4, two ints 12 apart */
	MPI_Type_create_resized(overlapping, 0, 4, &types[3]);
	/*
	 * Forty runs of 1 to 9 shorts, at all alignments: more than the driver is asked to copy one
	 * by one.
	 */
	for (int i = 0; i < 40; i++) {
		many_lengths[i] = 1 + i % 9;
		many_displs[i] = at;
		at += many_lengths[i] + 1 + i % 3;
	}
	MPI_Type_indexed(40, many_lengths, many_displs, MPI_SHORT, &types[4]);
	for (int i = 0; i < NUM_TYPES; i++)
		MPI_Type_commit(&types[i]);
	MPI_Type_free(&indexed);
	MPI_Type_free(&overlapping);
}

static void test_derived(int rounds, const char *list)
{
	static const enum coll colls[] = {BCAST,     GATHER,     GATHERV,  SCATTER,   SCATTERV,
					  ALLGATHER, ALLGATHERV, ALLTOALL, ALLTOALLV, ALLTOALLW};
	MPI_Datatype types[NUM_TYPES];

	make_types(types);
	for (size_t i = 0; i < sizeof(colls) / sizeof(colls[0]); i++) {
		for (int type = 0; type < NUM_TYPES; type++) {
			struct test t = make(colls[i], MPI_COMM_WORLD, types[type], 7);

			/*
			 * Interleaved elements of several blocks would overlap, which receivers may
			 * not do.
			 */
			if (type == 3 && (t.coll != BCAST || t.size > 1))
				continue;
			if (!is_wanted(list, t.coll))
				continue;
			t.root = t.size - 1;
			if (type == 3)
				t.count = 2;
			run_mixed(&t, rounds);
		}
	}
	for (int i = 0; i < NUM_TYPES; i++)
		MPI_Type_free(&types[i]);
}

static void test_cart(int rounds, int periodic)
{
	int dims[2] = {0, 0}, periods[2] = {periodic, 0};
	MPI_Comm cart;

	MPI_Dims_create(test_size, 2, dims);
	MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &cart);
	for (int coll = NEIGHBOR_ALLGATHER; coll <= NEIGHBOR_ALLTOALLW; coll++) {
		struct test t = make((enum coll)coll, cart, MPI_INT, 5);

		t.peers_in = t.peers_out = 4;
		for (int gaps = 0; gaps < 2; gaps++) {
			t.inverse_displs = gaps;
			run_mixed(&t, rounds);
		}
	}
	free_comm(&cart);
}

/* Each rank receives from the next two and sends to the two before it. */
static void test_graph(int rounds)
{
	int sources[2] = {(test_rank + 1) % test_size, (test_rank + 2) % test_size};
	int destinations[2] = {(test_rank + test_size - 1) % test_size,
			       (test_rank + 2 * test_size - 2) % test_size};
	int weights[2] = {1, 1};
	MPI_Comm graph;

	MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, sources, weights, 2, destinations,
				       weights, MPI_INFO_NULL, 0, &graph);
	for (int coll = NEIGHBOR_ALLGATHER; coll <= NEIGHBOR_ALLTOALLW; coll++) {
		struct test t = make((enum coll)coll, graph, MPI_INT, 9);

		t.peers_in = t.peers_out = 2;
		run_mixed(&t, rounds);
	}
	free_comm(&graph);
}

/* All ranks but the last in a line; that has no neighbours. */
static void test_old_graph(int rounds)
{
	int index[MAX_PEERS], edges[2 * MAX_PEERS], num = 0, ends = test_size - 1;
	MPI_Comm graph;

	for (int i = 0; i < test_size; i++) {
		if (i < ends && i > 0)
			edges[num++] = i - 1;
		if (i < ends - 1)
			edges[num++] = i + 1;
		index[i] = num;
	}
	MPI_Graph_create(MPI_COMM_WORLD, test_size, index, edges, 0, &graph);
	for (int coll = NEIGHBOR_ALLGATHER; coll <= NEIGHBOR_ALLTOALLW; coll++) {
		struct test t = make((enum coll)coll, graph, MPI_INT, 7);

		t.peers_in = t.peers_out =
			index[test_rank] - (test_rank ? index[test_rank - 1] : 0);
		run_mixed(&t, rounds);
	}
	free_comm(&graph);
}

/* Faces of a grid to margins, in one array: what is sent lies between what is received. */
static void test_halo(void)
{
	enum { WIDTH = 100, INTS = 6 * WIDTH };
	int dims[1] = {test_size}, periods[1] = {test_size > 2}, counts[2] = {WIDTH, WIDTH};
	int sent[2] = {WIDTH, 4 * WIDTH}, received[2] = {0, 5 * WIDTH}, grid[INTS];
	struct buffer device = buffer_new(PLACE_DEVICE, sizeof(grid));
	MPI_Comm comm;

	MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &comm);
	MPI_Comm_set_name(comm, "halo");
	for (int i = 0; i < INTS; i++)
		grid[i] = 1000 * test_rank + i;
	buffer_put(&device, grid, sizeof(grid));
	MPI_Neighbor_alltoallv(grid, counts, sent, MPI_INT, grid, counts, received, MPI_INT, comm);
	MPI_Neighbor_alltoallv(device.data, counts, sent, MPI_INT, device.data, counts, received,
			       MPI_INT, comm);
	snprintf(test_name, sizeof(test_name), "margins of a grid");
	test_result(buffer_equals(&device, grid, "grid"));
	buffer_free(&device);
	free_comm(&comm);
}

/*
 * Rooted calls of an intercommunicator: the root's group says MPI_ROOT once and MPI_PROC_NULL
 * otherwise.
 */
static void test_inter(int rounds)
{
	static const enum coll colls[] = {BCAST,      REDUCE,   ALLREDUCE, GATHER,
					  GATHERV,    SCATTER,  SCATTERV,  ALLGATHER,
					  ALLGATHERV, ALLTOALL, ALLTOALLV, REDUCE_SCATTER_BLOCK};
	bool first = test_rank < test_size / 2;
	int remote;
	MPI_Comm local, inter;

	if (test_size < 2)
		return;
	MPI_Comm_split(MPI_COMM_WORLD, first, test_rank, &local);
	MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, first ? test_size / 2 : 0, 7, &inter);
	MPI_Comm_remote_size(inter, &remote);
	for (size_t i = 0; i < sizeof(colls) / sizeof(colls[0]); i++) {
		struct test t = make(colls[i], inter, MPI_INT, 12);

		t.inter = true;
		/*
		 * Both groups must contribute the same total: a block for each member of the other
		 * group.
		 */
		if (t.coll == REDUCE_SCATTER_BLOCK && test_size % 2)
			continue;
		t.peers_in = t.peers_out = remote;
		t.size = test_size;
		if (is_rooted(t.coll))
			t.root = first ? (t.rank == 0 ? MPI_ROOT : MPI_PROC_NULL) : 0;
		run_mixed(&t, rounds);
	}
	free_comm(&inter);
	free_comm(&local);
}

/* Affine maps x -> a x + b modulo 2^32 under composition: associative and not commutative. */
static void compose(void *in, void *inout, int *length, MPI_Datatype *type)
{
	uint32_t *left = in, *right = inout;

	(void)type;
	for (int i = 0; i < *length; i++, left += 2, right += 2) {
		uint32_t a = left[0] * right[0], b = left[0] * right[1] + left[1];

		right[0] = a;
		right[1] = b;
	}
}

static void test_user_op(int rounds)
{
	MPI_Datatype pair;
	MPI_Op op;

	MPI_Type_contiguous(2, MPI_UINT32_T, &pair);
	MPI_Type_commit(&pair);
	MPI_Op_create(compose, 0, &op);
	for (int coll = 0; coll < NUM_COLLS; coll++) {
		struct test t = make((enum coll)coll, MPI_COMM_WORLD, pair, 13);

		if (!is_reduction(t.coll))
			continue;
		t.op = op;
		t.root = t.size / 2;
		run_mixed(&t, rounds);
	}
	MPI_Op_free(&op);
	MPI_Type_free(&pair);
}

/*
 * What comes with Open MPI 5 (PMIx) maps memory in the middle of the address space's largest holes,
 * so that nothing can be mapped which is as long as from the heap to the device's memory. Large
 * allocations are near to that memory.
 */
#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION >= 5
enum { HOST_BYTES = 40 << 20 }; /* which malloc never has on the heap */
#else
enum { HOST_BYTES = 400 };
#endif

/* Absolute addresses under MPI_BOTTOM, over two device allocations far apart and a host buffer. */
static void test_bottom(void)
{
	enum { COUNT = 100 };
	struct buffer a = buffer_new(PLACE_DEVICE, COUNT * sizeof(int)),
		      b = buffer_new(PLACE_DEVICE, 8 << 20);
	struct buffer c = buffer_new(PLACE_HOST, HOST_BYTES);
	unsigned char *want_a = malloc(a.bytes), *want_b = malloc(b.bytes),
		      *want_c = malloc(c.bytes);
	int lengths[3] = {COUNT, COUNT, COUNT};
	MPI_Aint where[3];
	MPI_Datatype type;

	snprintf(test_name, sizeof(test_name), "Bcast under MPI_BOTTOM ranks %d", test_size);
	for (int i = 0; i < COUNT; i++) {
		((int *)want_a)[i] = i * 3;
		((int *)want_b)[i] = i * 5 + 1;
	}
	memset(want_b + COUNT * sizeof(int), POISON, b.bytes - COUNT * sizeof(int));
	memset(want_c, POISON, c.bytes);
	memcpy(want_c, want_a, a.bytes);
	if (test_rank == 0) {
		buffer_put(&a, want_a, a.bytes);
		buffer_put(&b, want_b, b.bytes);
		buffer_put(&c, want_c, c.bytes);
	}
	MPI_Get_address(a.data, &where[0]);
	MPI_Get_address(b.data, &where[1]);
	MPI_Get_address(c.data, &where[2]);
	MPI_Type_create_hindexed(3, lengths, where, MPI_INT, &type);
	MPI_Type_commit(&type);
	MPI_Bcast(MPI_BOTTOM, 1, type, 0, MPI_COMM_WORLD);
	MPI_Type_free(&type);
	bool ok = buffer_equals(&a, want_a, "first buffer");
	ok &= buffer_equals(&b, want_b, "second buffer");
	ok &= buffer_equals(&c, want_c, "host buffer");
	test_result(ok);
	buffer_free(&a);
	buffer_free(&b);
	buffer_free(&c);
	free(want_a);
	free(want_b);
	free(want_c);
}

/* NULL where a rank has nothing to give or take, device memory elsewhere. */
static void test_null(void)
{
	struct buffer send = buffer_new(PLACE_DEVICE, 64), recv = buffer_new(PLACE_DEVICE, 64);
	bool active = test_rank != 1;
	int counts[MAX_PEERS], displs[MAX_PEERS], at = 0;
	unsigned char want[64];

	snprintf(test_name, sizeof(test_name),
		 "Allgatherv and Gatherv with NULL for nothing, ranks %d", test_size);
	for (int i = 0; i < test_size; i++) {
		counts[i] = i != 1;
		displs[i] = at;
		at += counts[i];
	}
	cuda_check(cudaMemset(send.data, test_rank, 64), "cudaMemset");
	memset(want, POISON, sizeof(want));
	for (int i = 0; i < test_size; i++)
		memset(want + displs[i], i, (size_t)counts[i]);
	MPI_Allgatherv(active ? send.data : NULL, active, MPI_BYTE, recv.data, counts, displs,
		       MPI_BYTE, MPI_COMM_WORLD);
	bool ok = buffer_equals(&recv, want, "allgatherv");
	cuda_check(cudaMemset(recv.data, POISON, 64), "cudaMemset");
	MPI_Gatherv(active ? send.data : NULL, active, MPI_BYTE, test_rank ? NULL : recv.data,
		    test_rank ? NULL : counts, test_rank ? NULL : displs, MPI_BYTE, 0,
		    MPI_COMM_WORLD);
	if (test_rank)
		memset(want, POISON, sizeof(want));
	ok &= buffer_equals(&recv, want, "gatherv");
	test_result(ok);
	buffer_free(&send);
	buffer_free(&recv);
}

#if MPI_VERSION >= 4
static void test_large_forms(void)
{
	struct buffer send = buffer_new(PLACE_DEVICE, 400), recv = buffer_new(PLACE_DEVICE, 400);
	MPI_Count counts[MAX_PEERS];
	MPI_Aint displs[MAX_PEERS];
	int ones[100], want[100];

	snprintf(test_name, sizeof(test_name), "Allreduce_c and Alltoallv_c ranks %d", test_size);
	for (int i = 0; i < 100; i++) {
		ones[i] = i;
		want[i] = i * test_size;
	}
	buffer_put(&send, ones, 400);
	MPI_Allreduce_c(send.data, recv.data, 100, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	bool ok = buffer_equals(&recv, want, "allreduce_c");
	for (int i = 0; i < test_size; i++) {
		counts[i] = 1;
		displs[i] = i;
	}
	for (int i = 0; i < test_size; i++)
		want[i] = test_rank;
	MPI_Alltoallv_c(send.data, counts, displs, MPI_INT, recv.data, counts, displs, MPI_INT,
			MPI_COMM_WORLD);
	ok &= buffer_equals(&recv, want, "alltoallv_c");
	test_result(ok);
	buffer_free(&send);
	buffer_free(&recv);
}
#endif

static void test_others(int rounds)
{
	test_cart(rounds, 0);
	test_cart(rounds, 1);
	test_graph(rounds);
	test_old_graph(rounds);
	test_halo();
	if (test_form != ENQUEUED)
		test_inter(rounds);
	test_user_op(rounds);
	test_bottom();
	test_null();
#if MPI_VERSION >= 4
	test_large_forms();
#endif
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 2;
	const char *list = argc > 2 && strcmp(argv[2], "all") ? argv[2] : NULL;
	int status;

	if (argc > 3)
		test_form = !strcmp(argv[3], "persistent") ? PERSISTENT
			    : !strcmp(argv[3], "enqueued") ? ENQUEUED
							   : NONBLOCKING;

	MPI_Init(&argc, &argv);
	test_start();
	cuda_check(cudaStreamCreate(&stream), "cudaStreamCreate");
	test_intra(rounds, list);
	test_derived(rounds, list);
	if (!list)
		test_others(rounds);
	status = test_finish();
	MPI_Finalize();
	return status;
}
