/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_stats.h"
#include "util/util_log.h"

#include <stdatomic.h>
#include <stdio.h>

/* Written by the thread that made the call, read at the end; counts need no order among each other.
 */
struct tally {
	_Atomic uint64_t calls, bytes, nanoseconds;
};
static struct tally tallies[CORE_COLL_NUM][CORE_PATH_NUM];

static void add(_Atomic uint64_t *to, uint64_t value)
{
	atomic_fetch_add_explicit(to, value, memory_order_relaxed);
}

static uint64_t get(_Atomic uint64_t *from)
{
	return atomic_load_explicit(from, memory_order_relaxed);
}

void core_stats_add(enum core_coll coll, enum core_path path, size_t bytes, double seconds)
{
	struct tally *tally = &tallies[coll][path];

	add(&tally->calls, 1);
	add(&tally->bytes, bytes);
	add(&tally->nanoseconds, (uint64_t)(1e9 * seconds));
}

void core_stats_total(enum core_path path, unsigned long long *calls, unsigned long long *bytes)
{
	*calls = *bytes = 0;
	for (int i = 0; i < CORE_COLL_NUM; i++) {
		*calls += get(&tallies[i][path].calls);
		*bytes += get(&tallies[i][path].bytes);
	}
}

static const char *algorithm(enum core_path path)
{
	return path == CORE_PATH_PASS ? "real MPI" : "host copy + real MPI";
}

static const char *reason(enum core_path path)
{
	if (path == CORE_PATH_PASS)
		return "host buffers";
	return util_config.accel ? "no accelerated path in this version" : "GPUCOLL_ACCEL=0";
}

void core_stats_print(void)
{
	static const char *const paths[] = {"pass", "stage", "accel"};
	char line[256];

	snprintf(line, sizeof(line),
		 "# libgpucoll: collectives of this rank\n# %-26s %-6s %10s %14s %12s  %-21s %s\n",
		 "call", "path", "calls", "bytes", "seconds", "algorithm", "reason");
	util_log_text(line);
	for (int i = 0; i < CORE_COLL_NUM; i++) {
		for (int path = 0; path < CORE_PATH_NUM; path++) {
			struct tally *tally = &tallies[i][path];

			if (!get(&tally->calls))
				continue;
			snprintf(line, sizeof(line),
				 "  %-26s %-6s %10llu %14llu %12.6f  %-21s %s\n",
				 core_coll_name((enum core_coll)i), paths[path],
				 (unsigned long long)get(&tally->calls),
				 (unsigned long long)get(&tally->bytes),
				 1e-9 * (double)get(&tally->nanoseconds),
				 algorithm((enum core_path)path), reason((enum core_path)path));
			util_log_text(line);
		}
	}
}
