/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The service of a node: a thread in one of its processes, which sleeps until another node asks
 * something, and knows nothing but the node's board. It answers for processes that are in the real
 * MPI, or compute, and will not look at messages for an hour.
 */
#ifndef CORE_SERVICE_H
#define CORE_SERVICE_H

#include "util/util_status.h"

/* Start and stop the thread, on the service port. */
enum util_status core_service_start(void);
void core_service_stop(void);

#endif
