/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CORE_MPI_NAME_H
#define CORE_MPI_NAME_H

#include "core/call/core_call.h"

#include <stddef.h>

/* The communicator's name into `name`, cut to what fits. */
void core_mpi_name(core_handle comm, char *name, size_t bytes);

#endif
