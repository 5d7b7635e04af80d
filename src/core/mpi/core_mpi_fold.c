/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/mpi/core_mpi_fold.h"
#include "core/call/core_layout.h"
#include "core/mpi/core_mpi.h"
#include "core/mpi/core_mpi_arithmetic.h"
#include "core/mpi/core_mpi_extreme.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

char *core_mpi_fold_at(const struct core_mpi_fold *fold, int rank, int64_t element)
{
	return core_address(fold->base, ((int64_t)rank * fold->row + element) * fold->extent);
}

/* An element has room as its extent says, or as its data do where that is more. */
size_t core_mpi_fold_bytes(const struct core_mpi_fold *fold)
{
	return fold->num ? (size_t)(fold->num * fold->row * fold->extent + fold->true_extent) : 0;
}

int64_t core_mpi_fold_reach(MPI_Datatype type)
{
	MPI_Aint lb, extent = 1, true_extent = 0;

	PMPI_Type_get_extent(type, &lb, &extent);
	PMPI_Type_get_true_extent(type, &lb, &true_extent);
	return true_extent > extent ? (true_extent - 1) / extent : 0;
}

static void find_ours(struct core_mpi_fold *fold, const struct core_call *call)
{
	struct core_shape shape = {0};

	if (core_mpi_find_arithmetic(call, &shape) || !core_extreme_is(shape.type, shape.op))
		return;
	fold->ours = shape.type;
	fold->our_op = shape.op;
}

bool core_mpi_fold_open(struct core_mpi_fold *fold, const struct core_call *call, int num,
			int64_t count)
{
	MPI_Datatype type = core_mpi_as_type(call->recvtype);
	MPI_Aint lb;

	*fold = (struct core_mpi_fold){
		.type = type, .op = (MPI_Op)core_mpi_real_op(call), .num = num, .count = count};
	find_ours(fold, call);
	PMPI_Type_get_extent(type, &lb, &fold->extent);
	PMPI_Type_get_true_extent(type, &fold->true_lb, &fold->true_extent);
	fold->row = count + core_mpi_fold_reach(type);
	if (num && fold->row > INT64_MAX / 4 / num / (fold->extent + fold->true_extent + 1))
		return false;
	fold->memory = malloc(core_mpi_fold_bytes(fold) + 1);
	fold->base = core_address(fold->memory, -fold->true_lb);
	return fold->memory;
}

void core_mpi_fold_close(struct core_mpi_fold *fold)
{
	free(fold->memory);
	fold->memory = NULL;
}

/* MPI_Reduce_local has the earlier ones on the left. */
int core_mpi_fold_add_up(const struct core_mpi_fold *fold, int last)
{
	int result = MPI_SUCCESS;

	for (int rank = 1; rank <= last && !result; rank++) {
		if (fold->ours != GPU_TYPE_NONE) {
			core_extreme_apply(fold->ours, fold->our_op,
					   core_mpi_fold_at(fold, rank - 1, 0),
					   core_mpi_fold_at(fold, rank, 0), fold->count);
			continue;
		}
		for (int64_t i = 0; i < fold->count && !result; i += INT_MAX) {
			int64_t num = fold->count - i < INT_MAX ? fold->count - i : INT_MAX;

			result = PMPI_Reduce_local(core_mpi_fold_at(fold, rank - 1, i),
						   core_mpi_fold_at(fold, rank, i), (int)num,
						   fold->type, fold->op);
		}
	}
	return result;
}

/* Without what lies between an element's data, which is the program's. */
static int copy_packed(const struct core_mpi_fold *fold, char *to, const char *from, int64_t count)
{
	int packed = 0, result = PMPI_Pack_size(1, fold->type, MPI_COMM_SELF, &packed);
	char *memory = result ? NULL : malloc((size_t)packed + 1);

	if (!result && !memory)
		return MPI_ERR_NO_MEM;
	for (int64_t i = 0; i < count && !result; i++) {
		int in = 0, out = 0;

		result = PMPI_Pack(core_address(from, i * fold->extent), 1, fold->type, memory,
				   packed, &in, MPI_COMM_SELF);
		if (!result)
			result = PMPI_Unpack(memory, in, &out, core_address(to, i * fold->extent),
					     1, fold->type, MPI_COMM_SELF);
	}
	free(memory);
	return result;
}

int core_mpi_fold_copy(const struct core_mpi_fold *fold, void *to, const char *from, int64_t count)
{
	int bytes = 0;

	PMPI_Type_size(fold->type, &bytes);
	if (bytes != fold->extent || bytes != fold->true_extent || fold->true_lb)
		return copy_packed(fold, to, from, count);
	memcpy(to, from, (size_t)count * (size_t)bytes);
	return MPI_SUCCESS;
}
