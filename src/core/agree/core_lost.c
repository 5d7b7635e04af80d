/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/agree/core_lost.h"
#include "core/agree/core_meet.h"
#include "core/agree/core_nodes.h"
#include "core/wire/core_mail.h"
#include "net/net_port.h"
#include "util/util_log.h"

#include <stdatomic.h>

/*
 * Other nodes take all processes here for lost then, and can't tell these so: they are lost to
 * these.
 */
static bool has_lost_service(void)
{
	static atomic_bool told;

	if (!core_mpi_has_ended(0))
		return false;
	if (!atomic_exchange(&told, true))
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_NET,
			 "rank %d of MPI_COMM_WORLD, which answers for this node, has ended",
			 core_mpi_node_leader(core_mpi_job.node));
	return true;
}

static bool is_out_of_reach(const struct core_member *member)
{
	return net_is_lost(member->process) || net_is_lost(core_mail_leader(member));
}

bool core_lost_has_some(int size, const struct core_member *members)
{
	if (has_lost_service())
		return true;
	for (int i = 0; i < size; i++) {
		if (members[i].local_rank < 0 && is_out_of_reach(&members[i]))
			return true;
	}
	return false;
}

static bool is_lost(const struct core_comm *comm, int rank, uint64_t call)
{
	const struct core_member *member = &comm->members[rank];

	if (core_comm_is_near(comm, rank))
		return rank != comm->rank && core_mpi_has_ended(member->local_rank) &&
		       !core_meet_is_past(comm, rank, call);
	return comm->spans && is_out_of_reach(member);
}

int core_lost_find(const struct core_comm *comm, uint64_t call)
{
	int missing = comm->spans && core_comm_speaks(comm) ? core_nodes_missing(comm) : -1;
	bool orphaned;

	/*
	 * One process of each node is enough, as it tells the others, and a node has room for only
	 * so many connections.
	 */
	for (int i = 0; comm->spans && core_comm_speaks(comm) && i < comm->num_nodes; i++) {
		if (i != comm->node)
			net_watch(core_mail_leader(&comm->members[comm->speakers[i]]));
	}
	if (missing >= 0)
		core_mail_expect(comm, missing);
	orphaned = comm->spans && has_lost_service();
	for (int i = 0; i < comm->size; i++) {
		if (is_lost(comm, i, call) || (orphaned && !core_comm_is_near(comm, i)))
			return i;
	}
	return -1;
}

int core_lost_find_behind(const struct core_agree *agree)
{
	const struct core_comm *comm = agree->comm;

	for (int i = 0; i < comm->num_near; i++) {
		int rank = comm->near[i];

		if (core_agree_has_come(agree, rank) &&
		    !core_meet_is_past(comm, rank, agree->call) && rank != comm->rank &&
		    !core_mpi_has_ended(core_comm_local_rank(comm, rank)))
			return rank;
	}
	return -1;
}
