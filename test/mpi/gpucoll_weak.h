/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The library's own interface for programs that are not linked with the library, and may run
 * without it: who preloads it has these, and to others they are null.
 */
#ifndef GPUCOLL_WEAK_H
#define GPUCOLL_WEAK_H

#include <mpi.h>

#include "gpucoll/gpucoll.h" /* after mpi.h */

#pragma weak gpucoll_type_float16
#pragma weak gpucoll_type_bfloat16
#pragma weak gpucoll_stream_comm
#pragma weak gpucoll_wait_default_stream
#pragma weak gpucoll_stream_error
#pragma weak gpucoll_barrier_enqueue
#pragma weak gpucoll_bcast_enqueue
#pragma weak gpucoll_reduce_enqueue
#pragma weak gpucoll_allreduce_enqueue
#pragma weak gpucoll_reduce_scatter_enqueue
#pragma weak gpucoll_reduce_scatter_block_enqueue
#pragma weak gpucoll_scan_enqueue
#pragma weak gpucoll_exscan_enqueue
#pragma weak gpucoll_gather_enqueue
#pragma weak gpucoll_gatherv_enqueue
#pragma weak gpucoll_scatter_enqueue
#pragma weak gpucoll_scatterv_enqueue
#pragma weak gpucoll_allgather_enqueue
#pragma weak gpucoll_allgatherv_enqueue
#pragma weak gpucoll_alltoall_enqueue
#pragma weak gpucoll_alltoallv_enqueue
#pragma weak gpucoll_alltoallw_enqueue
#pragma weak gpucoll_neighbor_allgather_enqueue
#pragma weak gpucoll_neighbor_allgatherv_enqueue
#pragma weak gpucoll_neighbor_alltoall_enqueue
#pragma weak gpucoll_neighbor_alltoallv_enqueue
#pragma weak gpucoll_neighbor_alltoallw_enqueue
#pragma weak gpucoll_send_enqueue
#pragma weak gpucoll_recv_enqueue

#endif
