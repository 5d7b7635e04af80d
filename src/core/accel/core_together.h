/* SPDX-License-Identifier: BSD-3-Clause */
/* The probe of whether kernels of ranks that share a GPU run together (gpu_probe.cu). */
#ifndef CORE_TOGETHER_H
#define CORE_TOGETHER_H

#include "core/accel/core_accel_call.h"

/* Start it. Sets `running` where there is something to wait for. */
enum util_status core_together_try(struct core_accel *accel);

/*
 * What it has shown: where some were late a later call tries again, a few times; and whether
 * one has shown that kernels of ranks that share a GPU do not run together.
 */
void core_together_set(struct core_comm *comm, enum core_together together);
bool core_together_are_apart(void);

#endif
