/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/accel/core_together.h"
#include "core/agree/core_terms.h"
#include "core/wire/core_arena.h"
#include "util/util_log.h"

#include <stdatomic.h>

/* Kernels of this process and another's did not run together. */
static atomic_bool apart;

bool core_together_are_apart(void)
{
	return atomic_load_explicit(&apart, memory_order_relaxed);
}

/* Ranks that are late again and again would cost their patience in each call. */
static enum core_together give_up_late(struct core_comm *comm)
{
	enum { MOST = 3 };

	if (++comm->links.late_probes < MOST)
		return CORE_TOGETHER_LATE;
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
		 "kernels of ranks that share a GPU began late in %d probes of whether they run "
		 "together there: hosts order the steps of calls (stepped)",
		 MOST);
	return CORE_TOGETHER_NO;
}

void core_together_set(struct core_comm *comm, enum core_together together)
{
	if (together == CORE_TOGETHER_LATE)
		together = give_up_late(comm);
	comm->links.together = together;
	if (together == CORE_TOGETHER_NO &&
	    !atomic_exchange_explicit(&apart, true, memory_order_relaxed))
		util_log(UTIL_LOG_INFO, UTIL_SUBSYS_CORE,
			 "kernels of ranks that share a GPU take turns there, so hosts order the "
			 "steps of calls with messages (stepped), which is slower; under NVIDIA's "
			 "MPS (nvidia-cuda-mps-control -d) they run together");
}

/*
 * How long ranks wait for each other to begin, and how long a meeting may take then: some us where
 * kernels run together. Where contexts take turns each meeting takes a slice of time, 1,024 us
 * unless set otherwise (open-gpu-kernel-modules, kernel_fifo_gv100.c), so the bound is far below.
 */
enum { PATIENCE_NS = 200000000, ROUND_TRIP_NS = 100000 };

enum util_status core_together_try(struct core_accel *accel)
{
	struct gpu_probe_args args = {.epoch = core_accel_epoch(accel),
				      .patience = PATIENCE_NS,
				      .round_trip = ROUND_TRIP_NS,
				      .mine = accel->comm->arena->device->address};
	const struct core_comm *comm = accel->comm;
	enum util_status status;

	for (int i = 0; i < comm->num_near; i++) {
		if (comm->near[i] == comm->rank)
			args.rank = args.ranks;
		if (core_terms_share_gpu(&accel->agree, comm->near[i], comm->rank))
			args.theirs[args.ranks++] =
				accel->reached.arenas[GPU_TRANSPORT_P2P][i].address;
	}
	if (args.ranks == 1)
		return UTIL_OK;
	status = gpu_launch_probe(&accel->launch, &args, accel->facts.common.blocks);
	accel->running = status == UTIL_OK;
	return status;
}
