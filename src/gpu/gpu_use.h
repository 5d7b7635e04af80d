/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether a program has to do with GPUs at all, as far as it shows before it uses them. */
#ifndef GPU_USE_H
#define GPU_USE_H

#include <stdbool.h>

/* Look at what is loaded, before MPI loads parts of its own. Once. */
void gpu_use_look(void);

/*
 * Whether the process has CUDA's driver or may load it yet. False only where that is certain: it
 * comes by dlopen in all programs but those linked with it, and nothing of this one calls that.
 */
bool gpu_use_may_come(void);

#endif
