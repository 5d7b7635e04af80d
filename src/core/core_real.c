/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_real.h"
#include "core/agree/core_meet.h"
#include "core/mpi/core_mpi.h"

int core_real_make(const struct core_call *call, struct core_comm **comm)
{
	uint64_t id = (*comm)->id;
	int result;

	(*comm)->in_real = true;
	result = call->real(call);
	if (result && !core_comm_is_there(*comm, id)) {
		*comm = NULL;
		return result;
	}
	(*comm)->in_real = false;
	if (result) /* refused here, and perhaps not elsewhere */
		core_meet_retire(*comm);
	return result;
}

int core_real_call(const struct core_call *call, struct core_comm *comm)
{
	struct core_call real = *call;

	real.op = core_mpi_real_op(call);
	return comm ? core_real_make(&real, &comm) : call->real(&real);
}
