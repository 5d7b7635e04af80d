/* SPDX-License-Identifier: BSD-3-Clause */
/* What libgpucoll has for the library of NCCL's interface (src/nccl), besides gpucoll.h. */
#ifndef PMPI_HOOKS_H
#define PMPI_HOOKS_H

#include "core/call/core_hooks.h"

/* The collective that this thread enqueues next has them. */
void gpucoll_hook_next(const struct core_hooks *hooks);

#endif
