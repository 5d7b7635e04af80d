/* SPDX-License-Identifier: BSD-3-Clause */
/* What a process offers for an accelerated call. */
#ifndef CORE_PREPARE_H
#define CORE_PREPARE_H

#include "core/accel/core_accel_call.h"

/* Look at the buffers of the shape, take what the call needs, and make the offer. */
enum util_status core_prepare_offer(struct core_accel *accel);

#endif
