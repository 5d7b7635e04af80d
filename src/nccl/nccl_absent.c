/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Functions of NCCL's later releases, and of its device-side interface, that are not here. Programs
 * look them up by name (XLA takes no library without them), and get an error that says so if they
 * call one. What they are called with is not looked at.
 */
#include "nccl/nccl_door.h"

static ncclResult_t refuse_absent(const char *name)
{
	return nccl_fail(ncclInvalidUsage, "%s: not in this library; see gpucoll-nccl(7)", name);
}

/* A macro, as each is known by its name only. */
#define ABSENT(name)                                                                               \
	ncclResult_t name(void);                                                                   \
	ncclResult_t name(void)                                                                    \
	{                                                                                          \
		return refuse_absent(#name);                                                       \
	}

ABSENT(ncclAllGatherConfig)
ABSENT(ncclAllReduceConfig)
ABSENT(ncclAlltoAllConfig)
ABSENT(ncclBroadcastConfig)
ABSENT(ncclReduceScatterConfig)
ABSENT(ncclCommQueryProperties)
ABSENT(ncclDevCommCreate)
ABSENT(ncclDevCommDestroy)
ABSENT(ncclGetLsaDevicePointer)
ABSENT(ncclGetLsaMultimemDevicePointer)
ABSENT(ncclGetPeerDevicePointer)
ABSENT(ncclPutSignal)
ABSENT(ncclSignal)
ABSENT(ncclWaitSignal)
ABSENT(pncclCommQueryProperties)
ABSENT(pncclPutSignal)
ABSENT(pncclSignal)
ABSENT(pncclWaitSignal)
