/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/job/core_drive.h"

uint64_t core_drive_pending;

_Thread_local bool core_drive_holds;

static void (*drive)(void), (*give_way)(void), (*forget)(void);

void core_drive_set(void (*step)(void), void (*yield)(void), void (*leave)(void))
{
	drive = step;
	give_way = yield;
	forget = leave;
}

void core_drive_forget(void)
{
	core_drive_pending = 0;
	core_drive_holds = false;
}

void core_drive_step(void)
{
	if (core_drive_is_pending())
		drive();
}

void core_drive_leave(void)
{
	forget();
}

void core_drive_yield(void)
{
	if (core_drive_is_pending())
		give_way();
}
