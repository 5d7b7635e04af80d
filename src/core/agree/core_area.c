/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/agree/core_area.h"
#include "core/job/core_mpi_job.h"

static size_t slots_bytes(int local_size)
{
	return core_area_progress_bytes(local_size) +
	       CORE_AGREE_SLOTS * core_area_slot_bytes(local_size);
}

/*
 * Then, of each slot, a table of each member here, with a block for each member anywhere; and the
 * records.
 */
static size_t tables_bytes(int near, int size)
{
	size_t bytes = (size_t)near * (size_t)size * sizeof(struct core_block);

	return (bytes + UTIL_CACHE_LINE - 1) / UTIL_CACHE_LINE * UTIL_CACHE_LINE;
}

enum { RECORDS_BYTES = 64 << 10 };

size_t core_area_bytes(int local_size, int near, int size, bool records)
{
	size_t more = tables_bytes(near, size) + (records ? RECORDS_BYTES : 0);

	return slots_bytes(local_size) + CORE_AGREE_SLOTS * more;
}

struct core_block *core_area_table_of(const struct core_comm *comm, uint64_t call, int rank)
{
	size_t tables = tables_bytes(comm->num_near, comm->size);
	char *first = (char *)comm->area + slots_bytes(core_mpi_job.local_size);

	return (struct core_block *)(first + call % CORE_AGREE_SLOTS * tables) +
	       (size_t)core_comm_number(comm, rank) * (size_t)comm->size;
}

size_t core_area_record_bytes(const struct core_comm *comm)
{
	return (size_t)(RECORDS_BYTES / comm->size / UTIL_CACHE_LINE * UTIL_CACHE_LINE);
}

void *core_area_record_of(const struct core_comm *comm, uint64_t call, int rank)
{
	size_t before = core_area_bytes(core_mpi_job.local_size, comm->num_near, comm->size, false);

	return (char *)comm->area + before + call % CORE_AGREE_SLOTS * RECORDS_BYTES +
	       (size_t)rank * core_area_record_bytes(comm);
}
