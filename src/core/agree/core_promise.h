/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a node has promised to the other nodes of a communicator: that its members will accelerate a
 * call if all the others are ready for it, too. It can't take that back, so whoever is told of it
 * later must be told the same.
 *
 * For a blocking call a node promises when it is ready. For a nonblocking one a rank may have to
 * make another call before the others have come to this one (core_queue.h), so being ready is no
 * promise yet: that is made on the first node alone, for all, when it has heard that all are ready,
 * unless somebody has taken back before.
 *
 * The words are in the communicator's area on the board of the node, and are used by its members
 * and by the node's service. test/model/nodes.pml is the model of this.
 */
#ifndef CORE_PROMISE_H
#define CORE_PROMISE_H

#include "core/comm/core_board.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Of a blocking call for which all of its node are ready, before anybody else is told so. By the
 * node's speaker, who alone writes what is remembered.
 */
void core_promise_make(void *area, uint64_t call);

/* It is known that somebody stages the call, which is not said yet. By the node's speaker. */
void core_promise_forget(void *area, uint64_t call);

/*
 * On the first node, of a nonblocking call, by its speaker, when all nodes are ready: promise.
 * False: the call was taken back.
 */
bool core_promise_commit(void *area, uint64_t call);

/* There, by anybody: take it back, if it was not promised. */
void core_promise_prevent(void *area, uint64_t call);

/* Whether the node promised the call, which some other rank is not past. */
bool core_promise_was_made(const void *area, uint64_t call);

/* On the first node, of a nonblocking one: whether that has become impossible. */
bool core_promise_is_prevented(const void *area, uint64_t call);

/* There: whether it is promised, and about to be remembered. */
bool core_promise_is_being_made(const void *area, uint64_t call);

/* What the board remembers when the communicator is left. */
void core_promise_last(const void *area, uint64_t ready[CORE_BOARD_REMEMBERED]);

#endif
