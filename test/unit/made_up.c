/* SPDX-License-Identifier: BSD-3-Clause */
#include "made_up.h"
#include "core/exec/core_schedule.h"
#include "core/job/core_mpi_job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* There is no board. */
enum util_status core_mpi_node_bcast(void *data, int bytes)
{
	(void)data;
	(void)bytes;
	return UTIL_ERR_MPI;
}

bool core_mpi_node_all(bool yes)
{
	return yes;
}

bool core_mpi_job_same(uint64_t number)
{
	(void)number;
	return true;
}

/* Nor are there other processes. */
enum util_status core_mpi_job_gather(const void *mine, int bytes, void **all, int **sizes)
{
	(void)mine;
	(void)bytes;
	(void)all;
	(void)sizes;
	return UTIL_ERR_MPI;
}

static void make_offers(struct made_up_call *call, const struct made_up *m)
{
	for (int i = 0; i < call->comm->num_near; i++) {
		int rank = call->comm->near[i];
		struct core_offer *offer = &core_area_desk_of(call->comm, 0, rank)->offer;

		offer->device = (uint64_t)m->devices[rank];
		offer->regions[CORE_REGION_ARENAS + GPU_TRANSPORT_SHM].buffer_id = m->shm;
	}
}

struct made_up_call made_up_make(const struct made_up *m)
{
	struct core_member members[MADE_UP_RANKS];
	struct made_up_call call = {0};
	size_t bytes;
	int near = 0;

	core_mpi_job.size = core_mpi_job.local_size = MADE_UP_RANKS;
	for (int i = 0; i < MADE_UP_RANKS; i++) {
		int node = m->nodes[i] - '0';

		members[i] = (struct core_member){i, node, node == m->nodes[0] - '0' ? near++ : -1};
	}
	call.comm = core_comm_new(1, 0, MADE_UP_RANKS, members);
	assert_non_null(call.comm);
	call.comm->spans = core_comm_spans(MADE_UP_RANKS, members);
	call.comm->links.together = m->together;
	bytes = core_area_bytes(MADE_UP_RANKS, near, MADE_UP_RANKS, true);
	call.comm->area = aligned_alloc(64, (bytes + 63) / 64 * 64);
	assert_non_null(call.comm->area);
	memset(call.comm->area, 0, bytes);
	if (m->cut) {
		int a = m->cut[0] - '0', b = m->cut[1] - '0';

		call.comm->voted.reach[GPU_TRANSPORT_P2P][a] &= ~(UINT64_C(1) << b);
		call.comm->voted.reach[GPU_TRANSPORT_P2P][b] &= ~(UINT64_C(1) << a);
	}
	call.agree.comm = call.comm;
	make_offers(&call, m);
	return call;
}

struct core_facts made_up_facts(const struct made_up_call *call, const struct made_up *m)
{
	return (struct core_facts){.comm = call->comm,
				   .agree = &call->agree,
				   .common = {.any = m->any | m->all,
					      .all = m->all,
					      .any_without_data = m->without_data,
					      .arena = m->no_arena ? 0 : 1 << 20},
				   .coll = CORE_ALLREDUCE,
				   .knows_sizes = true};
}

void made_up_free(struct made_up_call *call)
{
	core_schedule_drop(call->comm);
	free(call->comm->area);
	core_comm_free(call->comm);
}

void must_say(const char *what, const char *said, const char *wanted)
{
	if (!said != !wanted || (said && strcmp(said, wanted) != 0))
		fail_msg("%s: says \"%s\", not \"%s\"", what, said ? said : "nothing",
			 wanted ? wanted : "nothing");
}

void must_be(const char *what, enum core_reason said, enum core_reason wanted)
{
	must_say(what, core_reason_text(said), core_reason_text(wanted));
	assert_int_equal(said, wanted);
}
