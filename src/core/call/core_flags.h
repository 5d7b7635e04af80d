/* SPDX-License-Identifier: BSD-3-Clause */
/* What all of the library may ask at any time. */
#ifndef CORE_FLAGS_H
#define CORE_FLAGS_H

#include <stdbool.h>

enum core_path { CORE_PATH_PASS, CORE_PATH_STAGE, CORE_PATH_ACCEL, CORE_PATH_NUM };

/* "pass", "stage", "accel". May be called in a signal's handler. */
const char *core_path_name(enum core_path path);

/*
 * Between core_start and core_stop in a job where some process has a CUDA driver: every collective
 * of every process is counted.
 */
extern bool core_awake;

/* Calls need a look even where this process has no CUDA: awake, or 16-bit types are in use. */
extern bool core_attentive;

/*
 * This thread is in what MPI has called back in the middle of a call, an error handler or a copy
 * function, so that the calls of a communicator that are under way are not all left by a jump.
 */
extern _Thread_local bool core_called_back __attribute__((tls_model("initial-exec")));

/* The path of this thread's last collective. */
extern _Thread_local enum core_path core_last_path __attribute__((tls_model("initial-exec")));

#endif
