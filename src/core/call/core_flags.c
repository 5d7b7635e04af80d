/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/call/core_flags.h"

bool core_awake, core_attentive;

_Thread_local bool core_called_back;
_Thread_local enum core_path core_last_path;

const char *core_path_name(enum core_path path)
{
	static const char *const names[CORE_PATH_NUM] = {"pass", "stage", "accel"};

	return names[path];
}
