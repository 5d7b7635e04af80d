/* SPDX-License-Identifier: BSD-3-Clause */
/* Work of the host on the stages of a call that is enqueued on a stream. */
#ifndef CORE_HOOKS_H
#define CORE_HOOKS_H

#include <stdbool.h>

enum { CORE_HOOK_BYTES = 48 };

/*
 * By the engine's thread. Either function may be NULL; with one all of the call's buffers must be
 * staged. `data` is a copy of what was given. Whether there is one is alike on all ranks, as it
 * decides how the call is done.
 */
struct core_hooks {
	void (*before)(void *input, const void *data); /* of this rank, before the MPI's call */
	void (*after)(void *output, const void *data); /* when it has ended */
	bool apart; /* buffers at one address are two for the MPI, which takes no such pair */
	_Alignas(16) char data[CORE_HOOK_BYTES];
};

#endif
