/* SPDX-License-Identifier: BSD-3-Clause */
#include "algos/algo.h"

#include <string.h>

enum {
	ALLREDUCE = 1 << SCHED_ALLREDUCE,
	REDUCE = 1 << SCHED_REDUCE,
	REDUCE_SCATTER = 1 << SCHED_REDUCE_SCATTER,
	SCAN = 1 << SCHED_SCAN,
	EXSCAN = 1 << SCHED_EXSCAN,
	BCAST = 1 << SCHED_BCAST,
	ALLGATHER = 1 << SCHED_ALLGATHER,
	GATHER = 1 << SCHED_GATHER,
	SCATTER = 1 << SCHED_SCATTER,
	ALLTOALL = 1 << SCHED_ALLTOALL,

	MAPPED = ALGO_NEEDS_MAPPED,
	EVEN = ALGO_NEEDS_EVEN,
	POWER_OF_TWO = ALGO_NEEDS_POWER_OF_TWO,
	UNIFORM = ALGO_NEEDS_UNIFORM,
	TWO_BUFFERS = ALGO_NEEDS_TWO_BUFFERS,
	COMMUTATIVE = ALGO_NEEDS_COMMUTATIVE,
	NODES = ALGO_NEEDS_NODES,
	ALL = ALGO_NEEDS_ALL_MAPPED,
	RAILS = ALGO_NEEDS_NODES | ALGO_NEEDS_NODES_MAPPED,
	IN_ORDER = ALGO_NEEDS_NODES_IN_ORDER,
	FEW = ALGO_NEEDS_FEW_RANKS,
	ALL_PAIRS = ALGO_NEEDS_ALL_PAIRS,
	GRID = ALGO_NEEDS_GRID,
	ASSOCIATIVE = ALGO_NEEDS_ASSOCIATIVE,
	ORDERED = ALGO_NEEDS_ORDERED,
};

/* One line for each, which a formatter would break up. */
/* clang-format off */
const struct algo algo_catalogue[] = {
	{"hier-ring", ALLREDUCE | REDUCE_SCATTER, NODES | COMMUTATIVE, 2, algo_hier_ring},
	{"hier-ring", REDUCE, NODES | COMMUTATIVE, 1, algo_hier_ring},
	{"hier-ring", ALLGATHER, NODES, 2, algo_hier_ring},
	{"hier-ring", BCAST, NODES, 1, algo_hier_ring},
	{"hier-halving", ALLREDUCE, NODES | COMMUTATIVE, 1, algo_hier_halving},
	{"hier-torus", ALLREDUCE, NODES | COMMUTATIVE | GRID, 3, algo_hier_torus},
	{"hier-tree", ALLREDUCE | REDUCE, NODES | COMMUTATIVE, 1, algo_hier_tree},
	{"hier-tree", BCAST, NODES, 1, algo_hier_tree},
	{"node-aware", ALLREDUCE, NODES | COMMUTATIVE, 1, algo_node_aware},
	{"rail-ring", ALLREDUCE | REDUCE_SCATTER, RAILS | COMMUTATIVE, 2, algo_rail_ring},
	{"rail-ring", REDUCE, RAILS | COMMUTATIVE, 1, algo_rail_ring},
	{"rail-ring", ALLGATHER, RAILS, 2, algo_rail_ring},
	{"rail-ring", BCAST, RAILS, 1, algo_rail_ring},
	{"rail-halving", ALLREDUCE, RAILS | COMMUTATIVE, 1, algo_rail_halving},
	{"rail-torus", ALLREDUCE, RAILS | COMMUTATIVE | GRID, 3, algo_rail_torus},
	{"rail-tree", ALLREDUCE | REDUCE, RAILS | COMMUTATIVE, 1, algo_rail_tree},
	{"rail-tree", BCAST, RAILS, 1, algo_rail_tree},
	{"rail-pairwise", ALLTOALL, RAILS | TWO_BUFFERS | ALL_PAIRS, 1, algo_rail_pairwise},
	{"rail-linear", GATHER | SCATTER, RAILS, 1, algo_rail_linear},
	{"rail-chain", SCAN | EXSCAN, RAILS | IN_ORDER | ASSOCIATIVE, 1, algo_rail_chain},
	{"rail-fold", ALLREDUCE | REDUCE | SCAN | EXSCAN, RAILS | IN_ORDER | ORDERED, 1, algo_rail_fold},
	{"rail-doubling", SCAN | EXSCAN, RAILS | IN_ORDER | ASSOCIATIVE, 1, algo_rail_doubling},
	{"ring", ALLREDUCE | REDUCE_SCATTER, COMMUTATIVE | FEW, 2, algo_ring},
	{"ring", REDUCE, COMMUTATIVE, 1, algo_ring},
	{"ring", ALLGATHER, FEW, 2, algo_ring},
	{"ring", BCAST, 0, 1, algo_ring},
	{"torus", ALLREDUCE, COMMUTATIVE | GRID, 3, algo_torus},
	{"tree", ALLREDUCE | REDUCE, COMMUTATIVE, 1, algo_tree},
	{"tree", BCAST, 0, 1, algo_tree},
	{"twoshot", ALLREDUCE | REDUCE, MAPPED, 1, algo_twoshot},
	{"twoshot", BCAST, MAPPED | ALL, 1, algo_twoshot},
	{"oneshot", ALLREDUCE | REDUCE, MAPPED | TWO_BUFFERS, 1, algo_oneshot},
	{"oneshot", GATHER, MAPPED | ALL | TWO_BUFFERS, 1, algo_oneshot},
	{"direct", REDUCE_SCATTER | SCAN | EXSCAN | BCAST | ALLGATHER | GATHER | SCATTER | ALLTOALL,
	 MAPPED, 1, algo_direct},
	{"exchange", ALLREDUCE | REDUCE | REDUCE_SCATTER, ORDERED | FEW, 1, algo_exchange},
	{"doubling", ALLREDUCE, ASSOCIATIVE, 1, algo_doubling},
	{"doubling", ALLGATHER, POWER_OF_TWO | FEW, 1, algo_doubling},
	{"halving", ALLREDUCE, COMMUTATIVE, 1, algo_halving},
	{"halving", REDUCE_SCATTER, POWER_OF_TWO | COMMUTATIVE | FEW, 1, algo_halving},
	{"pairwise", ALLTOALL, FEW, 1, algo_pairwise},
	{"bruck", ALLTOALL, UNIFORM | FEW | ALL_PAIRS, 1, algo_bruck},
	{"scatter-allgather", BCAST, FEW, 1, algo_scatter_allgather},
	{"neighbor", ALLGATHER, EVEN | FEW, 1, algo_neighbor_exchange},
	{"linear", GATHER | SCATTER, 0, 1, algo_linear},
	{"chain", ALLREDUCE | REDUCE, ORDERED, 1, algo_chain},
	{"chain", SCAN | EXSCAN, 0, 1, algo_scan_chain},
	{"doubling", SCAN | EXSCAN, ASSOCIATIVE, 1, algo_scan_doubling},
	{0},
};
/* clang-format on */

const struct algo *algo_find(const char *name, enum sched_coll coll)
{
	for (const struct algo *algo = algo_catalogue; algo->name; algo++) {
		if (algo->colls >> coll & 1 && !strcmp(algo->name, name))
			return algo;
	}
	return NULL;
}

_Static_assert(ALGO_FEW_RANKS == 256, "as algo_refuses says");

static bool are_nodes_in_order(const struct sched_request *request)
{
	for (int rank = 1; rank < request->ranks; rank++) {
		if (request->nodes[rank] < request->nodes[rank - 1])
			return false;
	}
	return true;
}

/* Of a grid of several dimensions: a product. */
static bool is_grid(int number)
{
	for (int i = 2; i * i <= number; i++) {
		if (number % i == 0)
			return true;
	}
	return false;
}

static bool has_many_pairs(const struct sched_request *request)
{
	if (request->pairs)
		return sched_pairs_num(request->pairs) > ALGO_FEW_RANKS * ALGO_FEW_RANKS;
	return request->ranks > ALGO_FEW_RANKS;
}

const char *algo_refuses(const struct algo *algo, const struct sched_request *request,
			 bool sizes_differ)
{
	int ranks = request->ranks;
	int parts = algo->needs & ALGO_NEEDS_NODES ? request->num_nodes : ranks;

	if (!(algo->colls >> request->coll & 1))
		return "it is not for this collective";
	if (algo->needs & ALGO_NEEDS_ORDERED && !request->ordered)
		return "it is for sums in the order of ranks";
	if (request->ordered && algo->needs & (ALGO_NEEDS_COMMUTATIVE | ALGO_NEEDS_ASSOCIATIVE))
		return "it does not add in the order of ranks";
	if (algo->needs & ALGO_NEEDS_NODES && request->num_nodes < 2)
		return "it is for ranks on several nodes";
	if (algo->needs & ALGO_NEEDS_NODES_MAPPED && request->num_nodes == ranks)
		return "each rank is alone on its node";
	if (algo->needs & ALGO_NEEDS_NODES_IN_ORDER && !are_nodes_in_order(request))
		return "the ranks of a node do not follow each other";
	if (ranks == 1)
		return NULL;
	if (algo->needs & ALGO_NEEDS_FEW_RANKS && has_many_pairs(request))
		return request->pairs ? "it is for 65,536 pairs at most"
				      : "it is for 256 ranks at most";
	if (algo->needs & ALGO_NEEDS_EVEN && ranks % 2)
		return "it needs an even number of ranks";
	if (algo->needs & ALGO_NEEDS_POWER_OF_TWO && ranks & (ranks - 1))
		return "it needs a power of two of ranks";
	if (algo->needs & ALGO_NEEDS_GRID && !is_grid(parts))
		return "it needs a number of ranks, or of nodes, that is no prime";
	if (algo->needs & ALGO_NEEDS_ALL_PAIRS && request->pairs)
		return "it is for exchanges of all with all";
	if (algo->needs & ALGO_NEEDS_TWO_BUFFERS && request->in_place)
		return "it can't work in place";
	if (algo->needs & ALGO_NEEDS_UNIFORM && sizes_differ)
		return "it needs blocks of one size";
	return NULL;
}

/* Nobody to talk to. */
static void alone(struct sched *sched)
{
	const struct sched_request *request = &sched->request;

	sched_lane(sched, 0, 0);
	if (sched_has_block(request, 0, SCHED_IN, 0) && sched_has_block(request, 0, SCHED_OUT, 0))
		sched_copy(sched, 0, sched_place(SCHED_IN, 0, 0), sched_place(SCHED_OUT, 0, 0));
}

struct sched *algo_make(const struct algo *algo, const struct sched_request *request)
{
	struct sched *sched = sched_new(request);

	if (!sched)
		return NULL;
	sched->name = algo->name;
	sched->uniform = algo->needs & ALGO_NEEDS_UNIFORM;
	if (request->ranks == 1)
		alone(sched);
	else
		algo->make(sched);
	if (!sched->failed)
		return sched;
	sched_free(sched);
	return NULL;
}

int algo_ring_rank(const struct sched *sched, int channel, int position)
{
	const struct sched_request *request = &sched->request;
	int ranks = request->ranks;

	if (request->num_rings)
		return request
			->rings[channel % request->num_rings * ranks + algo_wrap(position, ranks)];
	return algo_wrap(channel % 2 ? -position : position, ranks);
}

int algo_ring_position(const struct sched *sched, int channel, int rank)
{
	int position = 0;

	if (!sched->request.num_rings)
		return algo_wrap(channel % 2 ? -rank : rank, sched->request.ranks);
	while (algo_ring_rank(sched, channel, position) != rank)
		position++;
	return position;
}

int algo_wrap(int number, int modulus)
{
	return (number % modulus + modulus) % modulus;
}

void algo_move_results(struct sched *sched)
{
	sched_next_phase(sched);
	for (int rank = 0; rank < sched->request.ranks; rank++) {
		int block = sched_own_block(&sched->request, rank);

		sched_lane(sched, rank, 0);
		if (!sched_has_block(&sched->request, rank, SCHED_OUT, block))
			continue;
		for (int piece = 0; piece < sched->pieces; piece++)
			sched_copy(sched, piece, sched_place(SCHED_HOLD, rank, block),
				   sched_place(SCHED_OUT, rank, block));
	}
}
