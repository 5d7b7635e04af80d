/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/request/core_mpi_waiting.h"
#include "core/job/core_drive.h"
#include "core/report/core_dump.h"
#include "core/request/core_requests.h"
#include "util/util_config.h"
#include "util/util_log.h"
#include "util/util_time.h"

void core_mpi_waiting_go_on(struct core_mpi_waiting *waiting)
{
	uint64_t now = util_now();
	char requests[320];

	core_mpi_drive(&waiting->wait);
	if (!waiting->since)
		waiting->since = now;
	if (waiting->reported || !util_config.timeout ||
	    now - waiting->since < UTIL_SECONDS((uint64_t)util_config.timeout))
		return;
	waiting->reported = true;
	core_requests_describe(requests, sizeof(requests));
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
		 "a call that waits for requests has waited %.0f s and goes on waiting%s",
		 1e-9 * (double)(now - waiting->since), requests);
	core_dump("a call has waited long");
}

bool core_mpi_waiting_drive(MPI_Request *request, MPI_Status *status, int *result)
{
	struct core_mpi_waiting waiting = {0};
	int flag;

	while (core_drive_is_pending()) {
		core_requests_pass = true;
		*result = PMPI_Test(request, &flag, status);
		if (*result != MPI_SUCCESS || flag)
			return true;
		core_mpi_waiting_go_on(&waiting);
	}
	return false;
}
