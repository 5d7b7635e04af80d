/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/report/core_trace.h"
#include "core/call/core_flags.h"
#include "core/job/core_mpi_clock.h"
#include "core/job/core_mpi_job.h"
#include "core/mpi/core_mpi_predefined.h"
#include "core/report/core_entry.h"
#include "gpu/gpu_range.h"
#include "util/util_config.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_LANES = 64, LINE_BYTES = 1024, TEXT_BYTES = 1 << 16 };

struct core_trace_call {
	uint64_t began, since; /* ns; the place where it is, since then */
	enum core_where where;
	int lane;
	uint64_t range, stage; /* of NVTX */
};

bool core_trace_on, core_trace_steps;

static int64_t offset;                         /* what is added to this process's clock, ns */
static int fd = -1;                            /* the file; -1: none */
static bool opened_it;                         /* this process has begun the file */
static _Atomic uint64_t busy_lanes;            /* a bit for each */
static _Atomic uint64_t named[MOST_LANES + 1]; /* of each: lanes of kernels that have a name */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char text[TEXT_BYTES]; /* under the lock: lines that are still to be written */
static size_t used;
static uint64_t written_at;

/* ---- the file ---- */

/* Under the lock. Whole lines at a time, since other processes append to the file, too. */
static void flush(void)
{
	ssize_t written = 0;

	for (size_t done = 0; done < used; done += (size_t)written) {
		written = write(fd, text + done, used - done);
		if (written < 0 && errno == EINTR)
			written = 0;
		if (written < 0) {
			util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
				 "GPUCOLL_TRACE: %s: the file "
				 "has no more events",
				 strerror(errno));
			close(fd);
			fd = -1;
			break;
		}
	}
	used = 0;
	written_at = util_now();
}

static void put_text(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A program that is killed loses the last second. */
static void put_text(const char *format, ...)
{
	va_list args;
	int length;

	pthread_mutex_lock(&lock);
	va_start(args, format);
	length = vsnprintf(text + used, LINE_BYTES, format, args);
	va_end(args);
	/* A line that is cut would be no event. */
	used += length > 0 && length < LINE_BYTES ? (size_t)length : 0;
	if (fd >= 0 &&
	    (used + LINE_BYTES > TEXT_BYTES || util_now() - written_at > UTIL_SECONDS(1)))
		flush();
	if (fd < 0)
		used = 0;
	pthread_mutex_unlock(&lock);
}

/* Names of communicators and hosts may hold anything. */
static const char *quoted(const char *name, char *out, size_t bytes)
{
	size_t i;

	for (i = 0; i + 1 < bytes && name[i]; i++)
		out[i] = (unsigned char)name[i] < ' ' || name[i] == '"' || name[i] == '\\'
				 ? '?'
				 : name[i];
	out[i] = 0;
	return out;
}

static void remove_old(const char *path)
{
	struct stat kind;

	if (!lstat(path, &kind) && S_ISREG(kind.st_mode) && kind.st_uid == geteuid())
		unlink(path);
}

/* The first process, or, where its file is not seen, one of each host. */
static int open_new(const char *path)
{
	int made = open(path, O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	if (made >= 0 && write(made, "[\n", 2) != 2) {
		close(made);
		return -1;
	}
	opened_it = made >= 0;
	return made;
}

/* By another process of the job; no link, and nobody else's. */
static int open_made(const char *path)
{
	struct stat kind;
	int made = open(path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (made < 0 || (!fstat(made, &kind) && S_ISREG(kind.st_mode) && kind.st_uid == geteuid()))
		return made;
	close(made);
	errno = EPERM;
	return -1;
}

/* Whether kernels' steps are wanted, too; the name is behind that. */
static bool wants_steps(void)
{
	return !strcmp(util_config.trace, "steps") || !strncmp(util_config.trace, "steps:", 6);
}

static const char *file_name(void)
{
	if (!wants_steps())
		return util_config.trace;
	return util_config.trace[5] && util_config.trace[6] ? util_config.trace + 6
							    : "gpucoll-trace.json";
}

/* On all nodes in turns: what is left of an earlier job goes, then the file is made, then found. */
static void open_file(void)
{
	char path[4096];

	util_log_expand(file_name(), path, sizeof(path));
	if (core_mpi_job.local_rank == 0)
		remove_old(path);
	core_mpi_job_barrier(NULL);
	if (core_mpi_job.rank == 0)
		fd = open_new(path);
	core_mpi_job_barrier(NULL);
	if (core_mpi_job.local_rank == 0 && fd < 0)
		fd = open_new(path);
	core_mpi_node_all(true);
	if (fd < 0 && strstr(file_name(), "%p"))
		remove_old(path);
	if (fd < 0)
		fd = open_new(path);
	if (fd < 0)
		fd = open_made(path);
	if (fd < 0)
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE, "GPUCOLL_TRACE: %s: %s", path,
			 strerror(errno));
}

/* Of the job: the first process's start. */
static void set_clock(uint64_t *round_trip)
{
	uint64_t start = util_now();

	offset = core_mpi_clock_offset(round_trip);
	core_mpi_job_bcast(&start, sizeof(start));
	offset -= (int64_t)start;
}

static void introduce(uint64_t round_trip)
{
	char host[256] = "unknown", name[256];

	gethostname(host, sizeof(host) - 1);
	quoted(host, name, sizeof(name));
	put_text(
		"{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": %d, \"args\": {\"name\": \"rank %d\"}},\n",
		core_mpi_job.rank, core_mpi_job.rank);
	put_text(
		"{\"name\": \"process_sort_index\", \"ph\": \"M\", \"pid\": %d, \"args\": {\"sort_index\": "
		"%d}},\n",
		core_mpi_job.rank, core_mpi_job.rank);
	put_text(
		"{\"name\": \"gpucoll_process\", \"ph\": \"M\", \"pid\": %d, \"args\": {\"version\": "
		"\"" GPUCOLL_VERSION_STRING "\", \"job\": \"%#" PRIx64
		"\", \"size\": %d, \"node\": %d, "
		"\"host\": \"%s\", \"process\": %ld, \"clock_round_trip_ns\": %" PRIu64 "}},\n",
		core_mpi_job.rank, core_mpi_job.id, core_mpi_job.size, core_mpi_job.node, name,
		(long)getpid(), round_trip);
}

void core_trace_start(void)
{
	bool has_profiler = gpu_range_start();
	uint64_t round_trip;

	if (util_config.trace) {
		open_file();
		set_clock(&round_trip);
		introduce(round_trip);
	}
	core_trace_on = fd >= 0 || has_profiler;
	core_trace_steps = fd >= 0 && wants_steps();
}

void core_trace_stop(void)
{
	int file;

	if (!util_config.trace)
		return;
	core_trace_on = core_trace_steps = false;
	pthread_mutex_lock(&lock);
	if (fd >= 0)
		flush();
	file = fd;
	fd = -1; /* what ends later is not in it */
	pthread_mutex_unlock(&lock);
	core_mpi_job_barrier(NULL);
	if (file < 0)
		return;
	if (opened_it)
		dprintf(file,
			"{\"name\": \"gpucoll_end\", \"ph\": \"M\", \"pid\": %d, \"args\": {}}]\n",
			core_mpi_job.rank);
	close(file);
}

/* ---- events ---- */

/* us, with three digits behind the point. */
static void time_text(int64_t ns, char *out, size_t bytes)
{
	snprintf(out, bytes, "%" PRId64 ".%03d", ns / 1000, (int)(ns % 1000));
}

static int take_lane(void)
{
	uint64_t busy = atomic_load_explicit(&busy_lanes, memory_order_relaxed);
	int lane;

	do {
		if (busy == UINT64_MAX)
			return MOST_LANES; /* for all others */
		lane = __builtin_ctzll(~busy);
	} while (!atomic_compare_exchange_weak_explicit(&busy_lanes, &busy, busy | 1ull << lane,
							memory_order_relaxed,
							memory_order_relaxed));
	return lane;
}

static void put_lane(int lane)
{
	if (lane < MOST_LANES)
		atomic_fetch_and_explicit(&busy_lanes, ~(1ull << lane), memory_order_relaxed);
}

/* NULL: one that is not worth an event. */
static const char *stage_name(enum core_where where)
{
	static const char *const names[CORE_WHERE_NUM] = {
		[CORE_WHERE_CHECK] = "check",      [CORE_WHERE_OFFER] = "classify",
		[CORE_WHERE_SLOT] = "agree",       [CORE_WHERE_READY] = "ready",
		[CORE_WHERE_AGREE] = "agree",      [CORE_WHERE_LAUNCH] = "launch",
		[CORE_WHERE_FILL] = "fill window", [CORE_WHERE_MUSTER] = "muster",
		[CORE_WHERE_TRY] = "try",          [CORE_WHERE_RUN] = "kernel",
		[CORE_WHERE_WIRE] = "wire",        [CORE_WHERE_MEET] = "meet",
		[CORE_WHERE_LAST] = "last copy",   [CORE_WHERE_EARLIER] = "ready",
		[CORE_WHERE_COPY_IN] = "copy in",  [CORE_WHERE_REAL] = "real MPI",
		[CORE_WHERE_ISSUED] = "real MPI",  [CORE_WHERE_COPY_OUT] = "copy out",
	};

	return names[where];
}

struct core_trace_call *core_trace_begin(const struct core_entry *call)
{
	struct core_trace_call *trace = calloc(1, sizeof(*trace));

	if (!trace)
		return NULL;
	trace->range = gpu_range_begin(core_entry_name(call));
	trace->lane = take_lane();
	trace->where = CORE_WHERE_ENTERED;
	trace->began = trace->since = util_now();
	return trace;
}

static void put_stage(const struct core_trace_call *trace, uint64_t now)
{
	char since[32], lasted[32];

	time_text((int64_t)trace->since + offset, since, sizeof(since));
	time_text((int64_t)(now - trace->since), lasted, sizeof(lasted));
	put_text(
		"{\"name\": \"%s\", \"cat\": \"stage\", \"ph\": \"X\", \"ts\": %s, \"dur\": %s, \"pid\": %d, "
		"\"tid\": %d},\n",
		stage_name(trace->where), since, lasted, core_mpi_job.rank, trace->lane);
}

void core_trace_where(struct core_trace_call *trace, enum core_where where)
{
	const char *before = stage_name(trace->where), *next = stage_name(where);
	uint64_t now;

	if (before && next && !strcmp(before, next)) {
		trace->where = where;
		return;
	}
	now = util_now();
	if (before)
		put_stage(trace, now);
	gpu_range_end(trace->stage);
	trace->stage = next ? gpu_range_begin(next) : 0;
	trace->where = where;
	trace->since = now;
}

/* What the call has of these, as more members of its arguments. */
static void describe_call(const struct core_entry *call, char *out, size_t bytes)
{
	size_t at = 0;

	out[0] = 0;
	if (call->sendcount >= 0 && call->has_send)
		at += (size_t)snprintf(out + at, bytes - at,
				       ", \"sendcount\": %" PRId64 ", \"sendtype\": \"%s\"",
				       call->sendcount, core_mpi_type_word(call->sendtype));
	if (call->recvcount >= 0 && call->has_recv)
		at += (size_t)snprintf(out + at, bytes - at,
				       ", \"recvcount\": %" PRId64 ", \"recvtype\": \"%s\"",
				       call->recvcount, core_mpi_type_word(call->recvtype));
	if (call->has_op)
		at += (size_t)snprintf(out + at, bytes - at, ", \"op\": \"%s\"",
				       core_mpi_op_word(call->op));
	if (call->root >= 0)
		snprintf(out + at, bytes - at, ", \"root\": %d", call->root);
}

void core_trace_end(struct core_trace_call *trace, const struct core_entry *call)
{
	enum core_where where = atomic_load_explicit(&call->where, memory_order_relaxed);
	char began[32], lasted[32], why[CORE_ENTRY_NAME], more[300];
	uint64_t now;

	core_trace_where(trace, where);
	now = trace->since;
	time_text((int64_t)trace->began + offset, began, sizeof(began));
	time_text((int64_t)(now - trace->began), lasted, sizeof(lasted));
	describe_call(call, more, sizeof(more));
	put_text(
		"{\"name\": \"%s\", \"cat\": \"call\", \"ph\": \"X\", \"ts\": %s, \"dur\": %s, \"pid\": %d, "
		"\"tid\": %d, \"args\": {\"comm\": \"%#" PRIx64 "\", \"number\": %" PRIu64
		", \"rank\": %d, \"ranks\": %d, \"bytes\": %" PRIu64
		", \"path\": \"%s\", \"why\": \"%s\", \"end\": \"%s\"%s}},\n",
		core_entry_name(call), began, lasted, core_mpi_job.rank, trace->lane, call->comm,
		call->number, call->rank, call->ranks, call->bytes, core_path_name(call->path),
		quoted(call->why, why, sizeof(why)), core_entry_words(where), more);
	gpu_range_end(trace->range);
	put_lane(trace->lane);
	free(trace);
}

/* ---- kernels ---- */

static void put_step(int lane, const char *name, const struct core_trace_step *step, uint64_t from,
		     uint64_t to)
{
	char since[32], lasted[32];

	time_text((int64_t)from + offset, since, sizeof(since));
	time_text((int64_t)(to - from), lasted, sizeof(lasted));
	put_text(
		"{\"name\": \"%s\", \"cat\": \"step\", \"ph\": \"X\", \"ts\": %s, \"dur\": %s, \"pid\": %d, "
		"\"tid\": %d, \"args\": {\"step\": %" PRIu32 ", \"round\": %" PRIu32 "}},\n",
		name, since, lasted, core_mpi_job.rank, lane, step->number, step->round);
}

void core_trace_step(const struct core_trace_call *trace, const struct core_trace_step *step)
{
	enum { LANES = 100 }; /* of each lane of calls */
	int lane = LANES * (trace->lane + 1) + step->lane;
	uint64_t bit = 1ull << step->lane;

	if (!(atomic_fetch_or_explicit(&named[trace->lane], bit, memory_order_relaxed) & bit))
		put_text(
			"{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"args\": "
			"{\"name\": \"kernel lane %d\"}},\n",
			core_mpi_job.rank, lane, step->lane);
	if (step->ready > step->began)
		put_step(lane, "wait", step, step->began, step->ready);
	put_step(lane, step->name, step, step->ready, step->ended);
}
