/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The node's board: shared memory in which the processes of a node publish how far they are.
 *
 * It holds a table of communicators. A communicator's slot has one counter for each process of the
 * node: the number of collective calls on it that the process has passed. The counter has one
 * writer, its process; readers are the others. A slot is found by the communicator's id, which is
 * unique in the job, so members need no message to agree on it: whoever comes first takes a free
 * slot, the others find it.
 *
 * Each slot has an area beside it for the agreement on paths (core_agree.h). Areas are backed with
 * memory when their slot is first taken, since a job has many communicators and few of them at
 * once.
 *
 * Beside the table each process says which GPU it uses, so that all know how many share one.
 *
 * The memory is anonymous as soon as all have mapped it (unlinked), so a killed job leaves nothing
 * behind.
 */
#ifndef CORE_BOARD_H
#define CORE_BOARD_H

#include "util/util_status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CORE_BOARD_SLOTS = 1024 };

struct core_board_slot; /* in shared memory */

/*
 * Make or map the node's board, with areas of `area_bytes` bytes at most, and for each process a
 * journal of `journal_bytes` bytes, both multiples of 64. Collective over the node. An error leaves
 * no board: everything is staged.
 */
enum util_status core_board_start(size_t area_bytes, size_t journal_bytes);

/* Unmap it, if it is there. */
void core_board_stop(void);

/* Whether it is there. Any thread. */
bool core_board_is_up(void);

/*
 * Find the communicator's slot, or take a free one. `members` is the number of its processes on
 * this node; the slot is free again when that many have joined and left. `bytes`: of the area,
 * which all give alike. NULL when the board is full or not there.
 */
struct core_board_slot *core_board_join(uint64_t id, uint32_t members, size_t bytes);

/* Undo a join that nobody else has followed: the communicator is not to be. */
void core_board_cancel(uint64_t id);

/*
 * `ready`: of a communicator of several nodes, what is to be remembered of it when all have left;
 * or NULL.
 */
enum { CORE_BOARD_REMEMBERED = 2 };
#define CORE_BOARD_LOST UINT64_MAX          /* in place of each: it had lost a member */
#define CORE_BOARD_REVOKED (UINT64_MAX - 1) /* ... or was revoked */
void core_board_leave(struct core_board_slot *slot, const uint64_t ready[CORE_BOARD_REMEMBERED]);

/*
 * For who is not a member: look at the communicator's slot and area (NULL: it has none), which
 * stay its while `visit` is at it. False: it has none.
 */
bool core_board_visit(uint64_t id,
		      void (*visit)(const struct core_board_slot *slot, void *area, void *argument),
		      void *argument);

/*
 * Whether the communicator had a slot, and what is remembered of it: of the last million that were
 * left, or fewer if /dev/shm is full.
 */
bool core_board_find_left(uint64_t id, uint64_t ready[CORE_BOARD_REMEMBERED]);

/*
 * The slot's area, all zero when the slot was taken, 64-byte aligned. NULL: there was no memory for
 * it, and every member is told so.
 */
void *core_board_area(const struct core_board_slot *slot);

/*
 * The journal of the node's process `local_rank`, 64-byte aligned, zero at first. NULL: no board.
 */
void *core_board_journal(int local_rank);

/*
 * Publish that this process has passed `calls` calls. Release: what it did before is seen by who
 * reads it.
 */
void core_board_publish(struct core_board_slot *slot, uint64_t calls);

/*
 * How many calls the node's process `local_rank` has passed. Acquire: the pair of
 * core_board_publish.
 */
uint64_t core_board_passed(const struct core_board_slot *slot, int local_rank);

/*
 * Register this process as a user of `gpu`, an identity that is not 0, and return how many
 * processes of the node may run waiting kernels there: those registered for it and those not
 * registered at all. 0 if this process is registered for another GPU. With `comes` false, only look
 * up; do not register. Thread-safe.
 */
int core_board_share_gpu(uint64_t gpu, bool comes);

/*
 * The GPU that the node's process `local_rank` came with first; 0: it has not come yet.
 * Thread-safe.
 */
uint64_t core_board_gpu(int local_rank);

/* Slots in use, for tests and the table at the end. */
unsigned core_board_used(void);

#endif
