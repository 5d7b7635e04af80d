/* SPDX-License-Identifier: BSD-3-Clause */
/* Whoever asks the driver is watched, as a driver that hangs would hold up the report. */
#ifndef DOCTOR_WATCH_H
#define DOCTOR_WATCH_H

#include <sys/types.h>

/*
 * Instead of the exit status: it did not come on for GPUCOLL_TIMEOUT seconds; a signal ended it.
 */
enum { DOCTOR_WATCH_HANGS = 256, DOCTOR_WATCH_DIED };

/* Bytes of a line, at most: written to a pipe at once. */
enum { DOCTOR_WATCH_MOST = 4096 };

/*
 * Have `look` done in a process of its own, and each line that it tells taken in this one. Returns
 * what `look` does, or the status with which something else ended it, or one of these; `*what` is
 * then what it had come to.
 */
int doctor_watch(int (*look)(void), void (*take)(const char *line), const char **what);

/* In that process, or in a child of it: have the line taken, which has no line feed. */
void doctor_watch_tell(const char *line);

/* In that process, or in a child of it: it has come to something. */
void doctor_watch_step(const char *what);

/* The process that started this program. */
pid_t doctor_watch_parent(void);

/* As fork; the child ends with its parent. */
pid_t doctor_watch_fork(void);

#endif
