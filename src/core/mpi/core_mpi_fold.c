/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/mpi/core_mpi_fold.h"
#include "core/call/core_layout.h"

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

bool core_mpi_fold_open(struct core_mpi_fold *fold, MPI_Datatype type, MPI_Op op, int num,
			int64_t count)
{
	MPI_Aint lb;

	*fold = (struct core_mpi_fold){.type = type, .op = op, .num = num, .count = count};
	PMPI_Type_get_extent(type, &lb, &fold->extent);
	PMPI_Type_get_true_extent(type, &fold->true_lb, &fold->true_extent);
	fold->row = count +
		    (fold->true_extent > fold->extent ? (fold->true_extent - 1) / fold->extent : 0);
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
