/* SPDX-License-Identifier: BSD-3-Clause */
/* What files of core_dump.h, one of each node of a job, say together: who waits for whom. */
#ifndef INFO_DESYNC_H
#define INFO_DESYNC_H

/* Returns an exit status: 0, no rank waits or has failed; 1, some do, and it was said why; 2, bad
 * input. */
int info_desync(int num_files, char *const files[]);

#endif
