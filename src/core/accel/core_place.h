/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the places of this rank's program are, and its launches. */
#ifndef CORE_PLACE_H
#define CORE_PLACE_H

#include "core/accel/core_accel_call.h"

/*
 * Begin this rank's steps: those of the round in the first phase; those of the second phase, for
 * all rounds, which concern its own memory. Sets `running` where there is something to do.
 */
enum util_status core_place_begin(struct core_accel *accel);
enum util_status core_place_begin_last(struct core_accel *accel);

/*
 * Of an enqueued call: bring the program into the device's memory, where it stays, and wait for
 * that; then leave all steps to kernels on the stream, whose arguments tell of the standing
 * (core_standing.c).
 */
enum util_status core_place_bring(struct core_accel *accel);
enum util_status core_place_leave(struct core_accel *accel, struct gpu_stream *on);

#endif
