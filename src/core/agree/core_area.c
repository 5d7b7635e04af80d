/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/agree/core_area.h"
#include "core/job/core_mpi_job.h"

static size_t links_bytes(int local_size)
{
	return (size_t)local_size * sizeof(struct core_area_links);
}

/* What comes before the slots. */
static size_t progress_bytes(int local_size)
{
	return sizeof(struct core_area_far) +
	       (size_t)local_size * sizeof(struct core_area_progress) + links_bytes(local_size);
}

static size_t desks_bytes(int local_size)
{
	return (size_t)local_size * sizeof(struct core_area_desk);
}

static size_t slot_bytes(int local_size)
{
	size_t bytes = sizeof(struct core_area_slot) + desks_bytes(local_size);

	return (bytes + UTIL_CACHE_LINE - 1) / UTIL_CACHE_LINE * UTIL_CACHE_LINE;
}

static size_t slots_bytes(int local_size)
{
	return progress_bytes(local_size) + CORE_AGREE_SLOTS * slot_bytes(local_size);
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

struct core_area_slot *core_area_slot_of(const void *area, uint64_t call)
{
	int local_size = core_mpi_job.local_size;

	return (struct core_area_slot *)((char *)area + progress_bytes(local_size) +
					 call % CORE_AGREE_SLOTS * slot_bytes(local_size));
}

struct core_area_desk *core_area_desk_of(const struct core_comm *comm, uint64_t call, int rank)
{
	struct core_area_slot *slot = core_area_slot_of(comm->area, call);

	return (struct core_area_desk *)(slot + 1) + core_comm_local_rank(comm, rank);
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

struct core_area_far *core_area_far_of(const void *area)
{
	return (struct core_area_far *)area;
}

struct core_area_progress *core_area_progress_of(const struct core_comm *comm, int rank)
{
	struct core_area_far *far = comm->area;

	return (struct core_area_progress *)(far + 1) + core_comm_local_rank(comm, rank);
}

_Atomic uint64_t *core_area_link_word(const struct core_comm *comm, int rank,
				      enum core_meet_words words, unsigned link)
{
	struct core_area_progress *progress =
		(struct core_area_progress *)(core_area_far_of(comm->area) + 1);
	struct core_area_links *links =
		(struct core_area_links *)(progress + core_mpi_job.local_size);

	return &links[core_comm_local_rank(comm, rank)].words[words][link];
}
