/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_number.h"
#include "core/agree/core_meet.h"
#include "core/call/core_flags.h"
#include "core/core_mpi_comm.h"

struct core_comm *core_number(const struct core_call *call, uint64_t *number)
{
	struct core_comm *comm;

	if (!core_awake || call->coll == CORE_REDUCE_LOCAL)
		return NULL;
	comm = core_mpi_comm_find(call->comm);
	if (!comm)
		return NULL;
	*number = comm->calls++;
	/* The last call has failed: an error handler makes this one, or has left it by a jump. */
	if (comm->in_real)
		core_meet_retire(comm);
	return comm;
}
