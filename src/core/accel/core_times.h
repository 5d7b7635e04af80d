/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When kernels did each of their steps, for the timeline (GPUCOLL_TRACE=steps). Their blocks note
 * it, and leave it in pinned memory (struct gpu_times): a call's last steps, of each lane.
 */
#ifndef CORE_TIMES_H
#define CORE_TIMES_H

struct core_accel;

/*
 * Have the launch that follows note it, behind what is there of the call; without memory it does
 * not.
 */
void core_times_begin(struct core_accel *accel);

/* Tell the timeline, and give the memory back. No kernel of the call is running. */
void core_times_end(struct core_accel *accel);

#endif
