/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/mpi/core_mpi_name.h"
#include "core/call/core_mpi_handle.h"

#include <stdio.h>

void core_mpi_name(core_handle handle, char *name, size_t bytes)
{
	char full[MPI_MAX_OBJECT_NAME] = "";
	int length = 0;

	if (core_mpi_as_comm(handle) != MPI_COMM_NULL && handle)
		PMPI_Comm_get_name(core_mpi_as_comm(handle), full, &length);
	snprintf(name, bytes, "%.*s", (int)bytes - 1, *full ? full : "unnamed");
}
