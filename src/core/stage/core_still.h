/* SPDX-License-Identifier: BSD-3-Clause */
/* GPUCOLL_CHECK=streams: is a call's input being written yet? */
#ifndef CORE_STILL_H
#define CORE_STILL_H

#include "core/call/core_shape.h"

/*
 * Warn if the input in device memory changes while all that was put on streams of its context
 * comes to its end: then some was not waited for before the call, which may read the old bytes.
 * Looks at half a MiB at the beginning and at the end. Waits; nothing that waits for other ranks
 * may be on a stream of the context.
 */
void core_still_look(const struct core_shape *shape, const char *name);

#endif
