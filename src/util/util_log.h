/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The log. One line a message, written with one write(2) so that the lines of many ranks do not
 * mix:
 *
 *     gpucoll[3] WARN pmpi: MPI_Isend was given a device buffer ...
 *
 * Any thread may log. Costs a compare when the level is off.
 */
#ifndef UTIL_LOG_H
#define UTIL_LOG_H

#include "util/util_config.h"

#include <stdarg.h>

/* Set the rank that lines carry; -1, the value at start, prints none. */
void util_log_set_rank(int rank);

/*
 * Write one line whatever the level: for util_log and for output that the user asked for
 * (statistics).
 */
void util_log_write(const char *level, const char *subsys, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The file that the log goes to. Once it was called it may be called by a signal's handler. */
int util_log_file(void);

/*
 * A file's name from a pattern, cut to what fits: the host's name for %h, the process id for %p,
 * and a percent sign for %%.
 */
void util_log_expand(const char *pattern, char *out, size_t size);

/* Write text as it is, newlines included, where the log goes. */
void util_log_text(const char *text);

/*
 * Wait, for a second at most, until what is in the log has been read, where that is a pipe: before
 * an end of the job, at which a launcher may throw away what it has not.
 */
void util_log_drain(void);

/* Whether such lines are written. */
bool util_log_enabled(enum util_log_level level, enum util_subsys subsys);

/* "INFO", as lines of the log have it. */
const char *util_log_level_name(enum util_log_level level);

/* "core", as they have it. */
const char *util_log_subsys_name(enum util_subsys subsys);

#define util_log(level, subsys, ...)                                                               \
	do {                                                                                       \
		if (util_log_enabled(level, subsys))                                               \
			util_log_write(util_log_level_name(level), util_log_subsys_name(subsys),   \
				       __VA_ARGS__);                                               \
	} while (0)

#endif
