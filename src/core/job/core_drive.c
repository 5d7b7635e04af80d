/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/job/core_drive.h"

uint64_t core_drive_pending;

static void (*drive)(void), (*give_way)(void);

void core_drive_set(void (*step)(void), void (*yield)(void))
{
	drive = step;
	give_way = yield;
}

void core_drive_step(void)
{
	if (core_drive_is_pending())
		drive();
}

void core_drive_yield(void)
{
	if (core_drive_is_pending())
		give_way();
}
