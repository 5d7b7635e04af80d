/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Opening UCX: which devices and settings it is given, and what it turns out to be able to do. Not
 * thread-safe.
 */
#ifndef NET_CONTEXT_H
#define NET_CONTEXT_H

#include "net/net_devices.h"
#include "net/net_ucx.h"
#include "util/util_status.h"

/*
 * A context for active messages and wakeup, with the user's settings; to be ended by ucp_cleanup.
 * NULL in *context after an error, which has been logged. by_interface: see net_is_by_interface.
 */
enum util_status net_context_open(const struct net_devices *devices, ucp_context_h *context,
				  bool *by_interface);

/* Whether it is processors that move messages, by sockets, and nothing in hardware. */
bool net_context_is_by_sockets(ucp_context_h context);

/* Whether who sleeps is woken by all that comes. */
bool net_context_wakes(ucp_context_h context);

/* Whether device memory can be given to it. */
bool net_context_takes_device_memory(ucp_context_h context);

#endif
