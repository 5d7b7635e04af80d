/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A thread that goes on with what is under way while the application computes. It sleeps while
 * there is nothing, and in ever longer steps while nothing moves.
 */
#ifndef CORE_PROGRESS_H
#define CORE_PROGRESS_H

#include <stdbool.h>

struct core_progress_work {
	bool (*is_there)(void);
	bool (*step)(void); /* returns whether something has come nearer */
};

/* Have the thread, for this work. False: the process can't have one. */
bool core_progress_start(const struct core_progress_work *work);

/* There is work. */
void core_progress_wake(void);

/* End it, if it was started. */
void core_progress_stop(void);

#endif
