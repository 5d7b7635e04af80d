/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The proxy: what the host does for the links to other nodes of a kernel that waits for messages.
 *
 * To the kernel it is the other end. The kernel leaves a message in a slot of the outbox, and says
 * so in the tail words there; the proxy has it sent, and when it is out says in the head words of
 * the inbox that there is room. What comes in the proxy tells the kernel in the tail words of the
 * inbox, and the kernel says in the head words of the outbox that it has read it. Each part of a
 * message has its word, which a block of its own writes or waits for.
 */
#ifndef CORE_PROXY_H
#define CORE_PROXY_H

#include "core/exec/core_walk.h"

/*
 * For the launch that comes; there is nothing to do unless it waits and has links to other nodes.
 */
void core_proxy_begin(struct core_steps *steps);

/*
 * Do what can be done now. UTIL_OK: all messages are on their way, or were read. UTIL_IN_PROGRESS;
 * UTIL_ERR_PEER: one won't come, or can't go.
 */
enum util_status core_proxy_progress(struct core_steps *steps);

/*
 * Whether messages have gone on of late. Then the kernel is well, and the driver need not be asked,
 * which might wait for another thread's call there, which waits for the kernel, which waits for us.
 */
bool core_proxy_is_moving(const struct core_steps *steps);

/* What is waited for, for people. False: nothing. */
bool core_proxy_describe(const struct core_steps *steps, char *text, size_t bytes);

#endif
