/* SPDX-License-Identifier: BSD-3-Clause */
/* The numbers of calls on a communicator, by which its processes know them. */
#ifndef CORE_NUMBER_H
#define CORE_NUMBER_H

#include "core/call/core_call.h"
#include "core/comm/core_comm.h"

/*
 * Number a collective call of this process on its communicator: all are counted, on whatever
 * buffers, but persistent ones. NULL: nobody counts.
 */
struct core_comm *core_number(const struct core_call *call, uint64_t *number);

#endif
