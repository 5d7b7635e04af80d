/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/report/core_stats.h"
#include "core/mpi/core_mpi_name.h"
#include "util/util_hash.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Written by the threads that made the calls; counts need no order among each other. */
static _Atomic uint64_t total_calls[CORE_PATH_NUM], total_bytes[CORE_PATH_NUM];

static _Atomic uint64_t timed_calls, stage_time[CORE_STATS_NUM_STAGES]; /* accelerated calls; ns */

struct name {
	char text[64];
};

struct row {
	struct core_stats_call key; /* bytes and seconds are sums */
	int size_class;             /* the calls have less than 2^this bytes */
	uint64_t calls;
	struct name comm; /* those without a name are not told apart */
};

/* More rows than anybody reads; what does not fit is counted in the totals only, and said so. */
enum { MAX_ROWS = 4096 };
static struct row *rows[MAX_ROWS]; /* under the lock: open addressing; NULL: free */
static unsigned num_rows;          /* under the lock */
static uint64_t left_out;          /* under the lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int size_class_of(uint64_t bytes)
{
	return bytes ? 64 - __builtin_clzll(bytes) : 0;
}

static bool is_same(const struct row *row, const struct core_stats_call *call,
		    const struct name *comm)
{
	return row->key.coll == call->coll && row->key.name == call->name &&
	       row->key.path == call->path && row->key.why == call->why &&
	       !strcmp(row->comm.text, comm->text) && row->size_class == size_class_of(call->bytes);
}

/* Under the lock: the call's row, or the free place where it belongs. */
static struct row **find_row(const struct core_stats_call *call, const struct name *comm)
{
	uint64_t hash = util_hash_text(UTIL_HASH_START, comm->text) * 31 +
			(uint64_t)call->coll * 7 + (uint64_t)call->path;
	size_t at = (hash + (uint64_t)size_class_of(call->bytes) * 131 + (uintptr_t)call->why) *
		    UTIL_GOLDEN % MAX_ROWS;

	while (rows[at] && !is_same(rows[at], call, comm))
		at = (at + 1) % MAX_ROWS;
	return &rows[at];
}

static const char *name_of(const struct core_stats_call *call)
{
	return call->name ? call->name : core_coll_name(call->coll);
}

static void size_text(int size_class, char *text, size_t bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};

	snprintf(text, bytes, "< %u %s", 1u << size_class % 10,
		 units[size_class / 10 < 5 ? size_class / 10 : 4]);
}

static struct row *row_new(const struct core_stats_call *call, const struct name *comm)
{
	struct row *row = calloc(1, sizeof(*row));
	char size[16];

	if (!row)
		return NULL;
	row->key = *call;
	row->key.bytes = 0;
	row->key.seconds = 0;
	row->size_class = size_class_of(call->bytes);
	row->comm = *comm;
	size_text(row->size_class, size, sizeof(size));
	util_log(UTIL_LOG_INFO, UTIL_SUBSYS_CORE, "%s on %s, %s: %s, %s", name_of(call),
		 row->comm.text, size, core_path_name(call->path), call->why);
	return row;
}

static void add_to_row(const struct core_stats_call *call)
{
	struct row **place;
	struct name comm;

	if (call->comm_name)
		snprintf(comm.text, sizeof(comm.text), "%s", call->comm_name);
	else
		core_mpi_name(call->comm, comm.text, sizeof(comm.text));
	pthread_mutex_lock(&lock);
	place = find_row(call, &comm);
	if (!*place && num_rows < MAX_ROWS - 1 && (*place = row_new(call, &comm)))
		num_rows++;
	if (*place) {
		(*place)->calls++;
		(*place)->key.bytes += call->bytes;
		(*place)->key.seconds += call->seconds;
	} else {
		left_out++;
	}
	pthread_mutex_unlock(&lock);
}

void core_stats_add(const struct core_stats_call *call)
{
	atomic_fetch_add_explicit(&total_calls[call->path], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&total_bytes[call->path], call->bytes, memory_order_relaxed);
	if (util_config.stats || util_config.debug >= UTIL_LOG_INFO)
		add_to_row(call);
}

void core_stats_add_stages(const uint64_t spent[CORE_STATS_NUM_STAGES])
{
	atomic_fetch_add_explicit(&timed_calls, 1, memory_order_relaxed);
	for (int i = 0; i < CORE_STATS_NUM_STAGES; i++)
		atomic_fetch_add_explicit(&stage_time[i], spent[i], memory_order_relaxed);
}

void core_stats_total(enum core_path path, unsigned long long *calls, unsigned long long *bytes)
{
	*calls = atomic_load_explicit(&total_calls[path], memory_order_relaxed);
	*bytes = atomic_load_explicit(&total_bytes[path], memory_order_relaxed);
}

void core_stats_add_since(struct core_stats_call *call, uint64_t since)
{
	call->seconds = 1e-9 * (double)(util_now() - since);
	core_stats_add_traced(call);
}

void core_stats_add_traced(const struct core_stats_call *call)
{
	core_stats_add(call);
	util_log(UTIL_LOG_TRACE, UTIL_SUBSYS_CORE, "%s: %s, %llu bytes, %.1f us", name_of(call),
		 call->why, (unsigned long long)call->bytes, 1e6 * call->seconds);
}

static int compare_rows(const void *left, const void *right)
{
	const struct row *a = *(struct row *const *)left, *b = *(struct row *const *)right;

	if (a->key.coll != b->key.coll)
		return a->key.coll < b->key.coll ? -1 : 1;
	if (a->key.name != b->key.name)
		return strcmp(name_of(&a->key), name_of(&b->key));
	if (a->size_class != b->size_class)
		return a->size_class < b->size_class ? -1 : 1;
	return a->key.path < b->key.path ? -1 : a->key.path > b->key.path;
}

static const char *algorithm(const struct core_stats_call *call)
{
	return call->path == CORE_PATH_PASS    ? "real MPI"
	       : call->path == CORE_PATH_STAGE ? "host copy + real MPI"
					       : call->why;
}

static void print_row(const struct row *row)
{
	const struct core_stats_call *key = &row->key;
	char line[256], size[16];

	size_text(row->size_class, size, sizeof(size));
	snprintf(line, sizeof(line), "  %-26s %-15s %-10s %-6s %9llu %14llu %11.6f  %-22s %s\n",
		 name_of(key), row->comm.text, size, core_path_name(key->path),
		 (unsigned long long)row->calls, (unsigned long long)key->bytes, key->seconds,
		 algorithm(key), key->path == CORE_PATH_ACCEL ? "" : key->why);
	util_log_text(line);
}

/* Means, since what is looked for is which stage costs, not when. */
static void print_stages(void)
{
	static const char *const names[CORE_STATS_NUM_STAGES] = {
		"classify", "ready", "agree", "plan and launch", "run", "meet", "last copy"};
	double calls = (double)atomic_load_explicit(&timed_calls, memory_order_relaxed);
	char line[256];
	int length;

	if (calls == 0)
		return;
	length = snprintf(line, sizeof(line), "# mean of an accelerated call, us:");
	for (int i = 0; i < CORE_STATS_NUM_STAGES; i++)
		length += snprintf(line + length, sizeof(line) - (size_t)length, " %s %.2f%s",
				   names[i], 1e-3 * (double)stage_time[i] / calls,
				   i + 1 < CORE_STATS_NUM_STAGES ? "," : "\n");
	util_log_text(line);
}

void core_stats_print(void)
{
	static struct row *sorted[MAX_ROWS];
	unsigned num = 0;
	char line[256];

	snprintf(line, sizeof(line),
		 "# libgpucoll: calls of this rank\n"
		 "# %-26s %-15s %-10s %-6s %9s %14s %11s  %-22s %s\n",
		 "call", "communicator", "size", "path", "calls", "bytes", "seconds", "algorithm",
		 "reason");
	util_log_text(line);
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < MAX_ROWS; i++) {
		if (rows[i])
			sorted[num++] = rows[i];
	}
	qsort(sorted, num, sizeof(sorted[0]), compare_rows);
	for (unsigned i = 0; i < num; i++)
		print_row(sorted[i]);
	if (left_out) {
		snprintf(line, sizeof(line), "# and %llu calls of further kinds\n",
			 (unsigned long long)left_out);
		util_log_text(line);
	}
	pthread_mutex_unlock(&lock);
	print_stages();
}
