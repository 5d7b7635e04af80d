/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/job/core_wait.h"
#include "core/job/core_mpi_drive.h"

enum util_status core_wait_stream(struct gpu_stream *stream)
{
	struct core_wait wait = {0};
	enum util_status status;

	while ((status = gpu_stream_poll(stream)) == UTIL_IN_PROGRESS)
		core_mpi_drive(&wait);
	return status;
}
