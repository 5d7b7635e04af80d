/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls of UCX that the library makes, bound when a job turns out to need them. A job of one
 * node, or without a CUDA driver, is not to have UCX's threads, signal handlers and memory hooks.
 */
#ifndef NET_UCX_H
#define NET_UCX_H

#include "util/util_status.h"

#include <stdbool.h>
#include <ucp/api/ucp.h>

/* What ucp.h has as inline functions ends in these, too. */
#define NET_UCX_CALLS(X)                                                                           \
	X(ucp_am_data_release)                                                                     \
	X(ucp_am_recv_data_nbx)                                                                    \
	X(ucp_am_send_nbx)                                                                         \
	X(ucp_cleanup)                                                                             \
	X(ucp_config_modify)                                                                       \
	X(ucp_config_print)                                                                        \
	X(ucp_config_read)                                                                         \
	X(ucp_config_release)                                                                      \
	X(ucp_context_print_info)                                                                  \
	X(ucp_context_query)                                                                       \
	X(ucp_ep_close_nbx)                                                                        \
	X(ucp_ep_create)                                                                           \
	X(ucp_get_version)                                                                         \
	X(ucp_init_version)                                                                        \
	X(ucp_request_free)                                                                        \
	X(ucp_worker_arm)                                                                          \
	X(ucp_worker_create)                                                                       \
	X(ucp_worker_destroy)                                                                      \
	X(ucp_ep_flush_nbx)                                                                        \
	X(ucp_worker_flush_nbx)                                                                    \
	X(ucp_worker_get_address)                                                                  \
	X(ucp_worker_get_efd)                                                                      \
	X(ucp_worker_progress)                                                                     \
	X(ucp_worker_release_address)                                                              \
	X(ucp_worker_set_am_recv_handler)                                                          \
	X(ucp_worker_signal)                                                                       \
	X(ucs_status_string)

struct net_ucx {
#define NET_UCX_FIELD(name) __typeof__(&name) name;
	NET_UCX_CALLS(NET_UCX_FIELD)
#undef NET_UCX_FIELD
};

/* Valid once net_ucx_load was true. */
extern struct net_ucx net_ucx;

/* Load UCX, once. False: it can't be had, which has been logged. Not thread-safe. */
bool net_ucx_load(void);

/* Log that a call of UCX failed, and say it in a status of ours. */
enum util_status net_ucx_fail(const char *call, ucs_status_t status);

#endif
