/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CORE_MPI_CLOCK_H
#define CORE_MPI_CLOCK_H

#include <stdint.h>

/*
 * What util_now of the job's first process says when this one's says 0, in ns, right to half of
 * `*round_trip`, ns; 0, if it may be that. Collective over the job.
 */
int64_t core_mpi_clock_offset(uint64_t *round_trip);

#endif
