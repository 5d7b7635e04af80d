/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * UCX's sockets, and the programs that a process starts.
 *
 * UCX opens its sockets so that programs that the process runs have them, too. A connection ends
 * when the last one who has it does, so others would not notice that the process was killed before
 * its child ends, be it a daemon. Children that are forked are to close them, and programs not to
 * have them.
 */
#ifndef NET_SOCKETS_H
#define NET_SOCKETS_H

/* Note which descriptors there are. Not thread-safe. */
void net_sockets_begin(void);

/* Deal with the sockets that have come since then. Not thread-safe. */
void net_sockets_keep_new(void);

/* Deal with those that UCX waits for, by the descriptor of a worker's events. Thread-safe. */
void net_sockets_keep_waiting(int event_fd);

#endif
