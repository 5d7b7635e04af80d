/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a call leaves behind in the main port.
 *
 * UCX calls a short message sent when it has copied it. Where the socket has no room just then, the
 * rest of it moves on in ucp_worker_progress only, and the caller, who has its result, may go and
 * wait in the real MPI for the very process that waits for the rest. So a thread, which sleeps
 * otherwise, makes progress until all is out.
 */
#ifndef NET_REST_H
#define NET_REST_H

/* A call is over. Thread-safe. */
void net_rest_leave(void);

/* Before net_stop. What is not out by then stays. */
void net_rest_stop(void);

#endif
