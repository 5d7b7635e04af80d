/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_mpi_order.h"
#include "core/call/core_coll.h"
#include "core/call/core_flags.h"
#include "core/job/core_mpi_job.h"
#include "core/mpi/core_mpi.h"
#include "core/mpi/core_mpi_arithmetic.h"
#include "core/mpi/core_mpi_blocks.h"
#include "core/mpi/core_mpi_fold.h"
#include "core/mpi/core_mpi_type.h"
#include "util/util_config.h"
#include "util/util_log.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

static MPI_Comm comm_of(const struct core_call *call)
{
	return core_mpi_as_comm(call->comm);
}

static MPI_Datatype type_of(const struct core_call *call)
{
	return core_mpi_as_type(call->recvtype);
}

int core_order_size(const struct core_call *call)
{
	int size = 0;

	PMPI_Comm_size(comm_of(call), &size);
	return size;
}

bool core_order_is_inter(const struct core_call *call)
{
	int inter = 0;

	PMPI_Comm_test_inter(comm_of(call), &inter);
	return inter;
}

bool core_order_scatters(const struct core_call *call)
{
	return call->coll == CORE_REDUCE_SCATTER || call->coll == CORE_REDUCE_SCATTER_BLOCK;
}

int64_t core_order_total(const struct core_call *call)
{
	int64_t total = 0;
	int size;

	if (!core_order_scatters(call))
		return call->recvcount;
	if (call->coll == CORE_REDUCE_SCATTER && !call->recvcounts)
		return -1;
	size = core_order_size(call);
	for (int i = 0; i < size; i++) {
		int64_t count = core_mpi_received_count(call, i);

		if (count < 0 || count > INT64_MAX - total)
			return -1;
		total += count;
	}
	return total;
}

static int combiner_of(MPI_Datatype type)
{
	struct core_mpi_envelope envelope;

	return core_mpi_type_envelope(type, &envelope) ? envelope.combiner : MPI_COMBINER_NAMED;
}

bool core_order_is_predefined(MPI_Datatype type)
{
	return combiner_of(type) == MPI_COMBINER_NAMED;
}

/* Those that no kernel computes with. MPI would tell its error on another communicator. */
static bool is_floating(MPI_Datatype type, MPI_Op op)
{
	const MPI_Datatype reals[] = {
		MPI_LONG_DOUBLE,  MPI_REAL16,
#ifdef MPI_REAL2
		MPI_REAL2,
#endif
#ifdef MPIX_C_FLOAT16
		MPIX_C_FLOAT16,
#endif
#ifdef MPIX_C_BF16
		MPIX_C_BF16,
#endif
#ifdef MPIX_SHORT_FLOAT
		MPIX_SHORT_FLOAT,
#endif
	};
	const MPI_Datatype complexes[] = {
		MPI_C_LONG_DOUBLE_COMPLEX,
		MPI_COMPLEX32,
		MPI_CXX_LONG_DOUBLE_COMPLEX,
#ifdef MPI_COMPLEX4
		MPI_COMPLEX4,
#endif
	};
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
	if (type == MPI_LONG_DOUBLE_INT)
		return op == MPI_MAXLOC || op == MPI_MINLOC;
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
static bool is_of_kind(const struct core_call *call)
{
	MPI_Op op = (MPI_Op)call->op;
	struct core_shape shape = {0};
	enum core_reason why;

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
	if (PMPI_Comm_group(comm_of(call), &group) != MPI_SUCCESS)
		return false;
	is = are_of_job(group);
	PMPI_Group_free(&group);
	if (!is || !core_order_is_inter(call))
		return is;
	if (PMPI_Comm_remote_group(comm_of(call), &group) != MPI_SUCCESS)
		return false;
	is = are_of_job(group);
	PMPI_Group_free(&group);
	return is;
}

/* What all ranks find alike that is not done here; NULL: it is. */
static const char *why_not(const struct core_call *call, const struct core_comm *comm)
{
	int64_t longest = CORE_ORDER_SLICE / core_order_size(call) + 1;
	MPI_Aint lb, extent = 0;

	PMPI_Type_get_extent(type_of(call), &lb, &extent);
	if (extent <= 0)
		return "of elements of no extent, or a negative one";
	for (int i = 0; core_order_scatters(call) && i < core_order_size(call); i++) {
		int64_t count = core_mpi_received_count(call, i);

		longest = count > longest ? count : longest;
	}
	if (longest + core_mpi_fold_reach(type_of(call)) > INT_MAX / core_order_size(call))
		return "of more elements than an int counts, for all ranks together";
	return is_of_job(call, comm) ? NULL : "with processes of another job";
}

void core_order_complain(const struct core_call *call, const char *why)
{
	enum { MOST = 16 }; /* reasons, of which there are few */
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
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

	if (call->recvbuf || call->coll == CORE_REDUCE || !core_order_is_predefined(type_of(call)))
		return false;
	PMPI_Comm_rank(comm_of(call), &rank);
	if (call->coll == CORE_EXSCAN && !rank)
		return false;
	return (core_order_scatters(call) ? core_mpi_received_count(call, rank) : total) > 0;
}

bool core_order_counts(const struct core_call *call, const struct core_comm *comm)
{
	const char *why;
	int64_t total;

	if (!util_config.reproducible || !core_coll_reduces(call->coll) ||
	    comm_of(call) == MPI_COMM_NULL)
		return false;
	if (!core_awake) {
		complain_asleep();
		return false;
	}
	if (core_order_size(call) < (core_order_is_inter(call) ? 1 : 2) || !is_of_kind(call))
		return false;
	total = core_order_total(call);
	if (total < 0 || has_no_buffer(call, total))
		return false;
	why = why_not(call, comm);
	if (why)
		core_order_complain(call, why);
	return !why;
}
