/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What libgpucoll has for the library of NCCL's interface (src/nccl), besides gpucoll.h: work of
 * the host on a call's stage.
 */
#ifndef PMPI_HOOKS_H
#define PMPI_HOOKS_H

enum { GPUCOLL_HOOK_BYTES = 48 };

/* By the engine's thread. Either may be NULL. `data` is a copy of what was given. */
struct gpucoll_hooks {
	void (*before)(void *input, const void *data); /* of this rank, before the MPI's call */
	void (*after)(void *output,
		      const void *data); /* when it has ended, on ranks that have it */
	_Bool apart; /* buffers at one address are two for the MPI, as they are staged */
	_Alignas(16) char data[GPUCOLL_HOOK_BYTES];
};

/*
 * The collective that this thread enqueues next has them. With work its buffers must be in device
 * or managed memory.
 */
void gpucoll_hook_next(const struct gpucoll_hooks *hooks);

#endif
