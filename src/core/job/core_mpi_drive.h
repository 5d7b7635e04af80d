/* SPDX-License-Identifier: BSD-3-Clause */
/* What every wait of ours does over and over. */
#ifndef CORE_MPI_DRIVE_H
#define CORE_MPI_DRIVE_H

#include <stdint.h>

/* A wait: zeroed at its beginning. Times in ns. */
struct core_wait {
	uint64_t start; /* zeroed again whenever what is waited for has come nearer */
	uint64_t last_probe;
};

/*
 * Called over and over by every wait of ours: lets the real MPI make progress, at a bounded rate,
 * and other processes have the core.
 */
void core_mpi_drive(struct core_wait *wait);

#endif
