/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/job/core_drive.h"

uint64_t core_drive_pending;

_Thread_local bool core_drive_holds;

static const struct core_drive_calls *drive;

void core_drive_set(const struct core_drive_calls *calls)
{
	drive = calls;
}

void core_drive_forget(void)
{
	core_drive_pending = 0;
	core_drive_holds = false;
}

void core_drive_step(void)
{
	if (core_drive_is_pending())
		drive->step();
}

void core_drive_begin(void)
{
	if (core_drive_is_pending())
		drive->begin();
}

void core_drive_leave(void)
{
	drive->leave();
}

void core_drive_yield(void)
{
	if (core_drive_is_pending())
		drive->yield();
}
