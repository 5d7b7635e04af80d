/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Passing file descriptors between the processes of a node.
 *
 * Each process has a datagram socket with a name in the abstract space, which leaves no file
 * behind. The name holds a number that only the job knows, and a datagram of another user is not
 * taken. Descriptors arrive in any order; they are kept until they are asked for, or until too many
 * others have come.
 */
#ifndef UTIL_FDPASS_H
#define UTIL_FDPASS_H

#include "util/util_status.h"

#include <stdint.h>

/*
 * Open the socket of this process, number `self` of the job. Without it nothing is sent or
 * received.
 */
void util_fdpass_start(uint64_t job, int self);

/* Close the socket, and all descriptors that nobody has taken. */
void util_fdpass_stop(void);

/*
 * Send a copy of the descriptor, named `tag`, to process `to`. UTIL_IN_PROGRESS: its queue is full,
 * and is emptied by its next util_fdpass_receive. UTIL_ERR_PEER: it has no socket, or has ended.
 * UTIL_ERR_SYSTEM: it can't be done. Thread-safe.
 */
enum util_status util_fdpass_send(int to, uint64_t tag, int fd);

/* Take in what has arrived. Never waits. Thread-safe. */
void util_fdpass_receive(void);

enum {
	UTIL_FDPASS_NONE = -1, /* it has not come */
	UTIL_FDPASS_LOST = -2, /* it came, but this process has no room for one more */
};

/*
 * The descriptor of this name from this process, the caller's from now on; or one of those.
 * Thread-safe.
 */
int util_fdpass_take(int from, uint64_t tag);

/* Close one descriptor of this name from this process, if one has come. Thread-safe. */
void util_fdpass_drop(int from, uint64_t tag);

#endif
