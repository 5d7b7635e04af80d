/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/call/core_flags.h"

bool core_awake, core_attentive;

_Thread_local enum core_path core_last_path;
