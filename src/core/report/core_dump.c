/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All of it is done by what may be called in a signal's handler: no stdio, no memory from the heap,
 * no lock that somebody could hold.
 */
#include "core/report/core_dump.h"
#include "core/mpi/core_mpi_predefined.h"
#include "core/report/core_journal.h"
#include "util/util_config.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[4096], host[256]; /* set at the start */
static pid_t owner;                /* the process that the journal is of: not its children */
static _Atomic bool is_on;
static _Atomic int writers;

/* ---- text ---- */

struct out {
	int fd;
	size_t used;
	bool inner; /* a comma is due before what comes next */
	char text[4096];
};

static void flush(struct out *out)
{
	size_t done = 0;

	while (done < out->used) {
		ssize_t written = write(out->fd, out->text + done, out->used - done);

		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			break;
		done += (size_t)written;
	}
	out->used = 0;
}

static void put_text(struct out *out, const char *text)
{
	for (; *text; text++) {
		if (out->used == sizeof(out->text))
			flush(out);
		out->text[out->used++] = *text;
	}
}

static void put_number(struct out *out, int64_t value)
{
	uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;
	char text[24];
	size_t at = sizeof(text) - 1;

	text[at] = 0;
	do {
		text[--at] = (char)('0' + rest % 10);
		rest /= 10;
	} while (rest);
	if (value < 0)
		text[--at] = '-';
	put_text(out, text + at);
}

/* What the program names, as a communicator, may hold anything. */
static void put_string(struct out *out, const char *text)
{
	char letter[2] = "";

	put_text(out, "\"");
	for (; *text; text++) {
		letter[0] =
			(unsigned char)*text < ' ' || *text == '"' || *text == '\\' ? '?' : *text;
		put_text(out, letter);
	}
	put_text(out, "\"");
}

static void key(struct out *out, const char *name)
{
	put_text(out, out->inner ? ", \"" : "\"");
	put_text(out, name);
	put_text(out, "\": ");
	out->inner = true;
}

static void number(struct out *out, const char *name, int64_t value)
{
	key(out, name);
	put_number(out, value);
}

static void string(struct out *out, const char *name, const char *value)
{
	key(out, name);
	put_string(out, value);
}

static void boolean(struct out *out, const char *name, bool value)
{
	key(out, name);
	put_text(out, value ? "true" : "false");
}

/* An identity, which has more digits than JSON's numbers. */
static void identity(struct out *out, const char *name, uint64_t value)
{
	static const char digits[] = "0123456789abcdef";
	char text[19] = "0x";

	for (int i = 0; i < 16; i++)
		text[2 + i] = digits[value >> (60 - 4 * i) & 15];
	text[18] = 0;
	string(out, name, text);
}

static void open_part(struct out *out, const char *text)
{
	put_text(out, out->inner ? ",\n" : "\n");
	put_text(out, text);
	out->inner = false;
}

static void close_part(struct out *out, const char *text)
{
	put_text(out, text);
	out->inner = true;
}

/* To the ms: a number with three digits behind the point. */
static void seconds(struct out *out, const char *name, uint64_t ns)
{
	char rest[4] = "000";

	number(out, name, (int64_t)(ns / 1000000000));
	rest[0] = (char)('0' + ns / 100000000 % 10);
	rest[1] = (char)('0' + ns / 10000000 % 10);
	rest[2] = (char)('0' + ns / 1000000 % 10);
	put_text(out, ".");
	put_text(out, rest);
}

/* ---- the journals ---- */

static void put_buffer(struct out *out, const char *count_name, int64_t count,
		       const char *type_name, uint8_t type)
{
	if (count < 0)
		return;
	number(out, count_name, count);
	string(out, type_name, core_mpi_type_word(type));
}

static void put_call(struct out *out, const struct core_journal *journal,
		     const struct core_entry *call, uint64_t now)
{
	enum core_where where = atomic_load_explicit(&call->where, memory_order_relaxed);
	uint64_t serial = atomic_load_explicit(&call->serial, memory_order_relaxed);
	bool ended = !atomic_load_explicit(&call->open, memory_order_relaxed);

	open_part(out, "    {");
	string(out, "call", core_entry_name(call));
	number(out, "serial", (int64_t)serial);
	if (call->comm) {
		identity(out, "comm", call->comm);
		number(out, "rank", call->rank);
		number(out, "size", call->ranks);
		number(out, "number", (int64_t)call->number);
		number(out, "call_number", (int64_t)call->call_number);
	}
	if (call->has_send)
		put_buffer(out, "sendcount", call->sendcount, "sendtype", call->sendtype);
	if (call->has_recv)
		put_buffer(out, "recvcount", call->recvcount, "recvtype", call->recvtype);
	if (call->has_op)
		string(out, "op", core_mpi_op_word(call->op));
	if (call->root >= 0)
		number(out, "root", call->root);
	if (call->in_place)
		boolean(out, "in_place", true);
	string(out, "text", core_entry_words(where));
	boolean(out, "ended", ended);
	if (call->waits)
		boolean(out, "blocking", true);
	if (where == CORE_WHERE_FAILED)
		boolean(out, "failed", true);
	if (where == CORE_WHERE_GIVEN)
		boolean(out, "given", true);
	seconds(out, "began", now > call->began ? now - call->began : 0);
	if (ended) {
		string(out, "path", core_path_name(call->path));
		string(out, "why", call->why);
	} else if (atomic_load_explicit(&journal->of_words, memory_order_acquire) == serial) {
		string(out, "waits", journal->words);
	}
	close_part(out, "}");
}

/*
 * By their serials: an entry may be kept while others go round; and up to the newest of now, as the
 * process goes on.
 */
static void put_calls(struct out *out, struct core_journal *journal, uint64_t now)
{
	uint64_t newest = atomic_load_explicit(&journal->serials, memory_order_relaxed);
	uint64_t last = 0, serial, lowest;
	struct core_entry copy, next;

	do {
		lowest = UINT64_MAX;
		for (int i = 0; i < CORE_JOURNAL_CALLS; i++) {
			if (!core_journal_read(&journal->calls[i], &copy))
				continue;
			serial = atomic_load_explicit(&copy.serial, memory_order_relaxed);
			if (serial > last && serial < lowest && serial <= newest) {
				lowest = serial;
				memcpy(&next, &copy, sizeof(next));
			}
		}
		if (lowest != UINT64_MAX)
			put_call(out, journal, &next, now);
		last = lowest;
	} while (lowest != UINT64_MAX);
}

static void put_comms(struct out *out, struct core_journal *journal)
{
	for (int i = 0; i < CORE_JOURNAL_COMMS; i++) {
		struct core_journal_comm *comm = &journal->comms[i];
		uint64_t id = atomic_load_explicit(&comm->id, memory_order_acquire);

		if (!id)
			continue;
		open_part(out, "    {");
		identity(out, "comm", id);
		number(out, "rank", comm->rank);
		number(out, "size", comm->size);
		number(out, "made",
		       (int64_t)atomic_load_explicit(&comm->made, memory_order_relaxed));
		boolean(out, "world", i == 0 && comm->size == core_mpi_job.size);
		close_part(out, "}");
	}
}

static void put_rank(struct out *out, int local_rank, uint64_t now)
{
	struct core_journal *journal = core_journal_of(local_rank);

	if (!journal->pid)
		return;
	open_part(out, "  {");
	number(out, "rank", journal->process);
	number(out, "pid", journal->pid);
	boolean(out, "alive", !core_mpi_has_ended(local_rank));
	number(out, "serials",
	       (int64_t)atomic_load_explicit(&journal->serials, memory_order_relaxed));
	key(out, "comms");
	put_text(out, "[");
	out->inner = false;
	put_comms(out, journal);
	close_part(out, "]");
	key(out, "calls");
	put_text(out, "[");
	out->inner = false;
	put_calls(out, journal, now);
	close_part(out, "]");
	close_part(out, "}");
}

static void put_all(struct out *out, const char *reason)
{
	struct timespec real;
	uint64_t now = util_now();

	clock_gettime(CLOCK_REALTIME, &real);
	put_text(out, "{");
	string(out, "gpucoll", GPUCOLL_VERSION_STRING);
	string(out, "reason", reason);
	number(out, "by", core_mpi_job.rank);
	identity(out, "job", core_mpi_job.id);
	number(out, "size", core_mpi_job.size);
	number(out, "node", core_mpi_job.node);
	number(out, "nodes", core_mpi_job.num_nodes);
	string(out, "host", host);
	seconds(out, "time", UTIL_SECONDS(real.tv_sec) + (uint64_t)real.tv_nsec);
	key(out, "ranks");
	put_text(out, "[");
	out->inner = false;
	for (int i = 0; i < core_mpi_job.local_size; i++)
		put_rank(out, i, now);
	put_text(out, "]}\n");
	flush(out);
}

/* ---- the file ---- */

/* Of several at a time one writes, and of those that come just after. */
static bool is_ours_to_write(void)
{
	static const uint64_t pause = UTIL_SECONDS(2);
	_Atomic uint64_t *dumped = &core_journal_of(0)->dumped;
	uint64_t now = util_now(), last = atomic_load_explicit(dumped, memory_order_relaxed);

	return (!last || now - last > pause) &&
	       atomic_compare_exchange_strong_explicit(dumped, &last, now, memory_order_relaxed,
						       memory_order_relaxed);
}

/*
 * A folder like /tmp is open to others: a file that is there already, or what stands in its place,
 * is written to only if it is a file of the same user.
 */
static int open_file(void)
{
	struct stat kind;
	int fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);

	if (fd < 0)
		return fd;
	if (!fstat(fd, &kind) && S_ISREG(kind.st_mode) && kind.st_uid == geteuid() &&
	    kind.st_nlink == 1 && !ftruncate(fd, 0))
		return fd;
	close(fd);
	errno = EPERM;
	return -1;
}

static void tell_written(const char *text, const char *more, const char *reason)
{
	struct out out = {.fd = util_log_file()};

	if (!util_log_enabled(UTIL_LOG_WARN, UTIL_SUBSYS_CORE))
		return;
	put_text(&out, "gpucoll[");
	put_number(&out, core_mpi_job.rank);
	put_text(&out, "] WARN core: ");
	put_text(&out, reason);
	put_text(&out, text);
	put_text(&out, path);
	put_text(&out, more);
	put_text(&out, "\n");
	flush(&out);
}

static void write_file(const char *reason)
{
	struct out out;

	memset(&out, 0, offsetof(struct out, text));
	out.fd = open_file();
	if (out.fd < 0) {
		tell_written(": who is where can't be written to ", " (GPUCOLL_DUMP)", reason);
		return;
	}
	put_all(&out, reason);
	close(out.fd);
	tell_written(": who is where on this node is in ", ", for gpucoll-info --desync", reason);
}

/*
 * Stop looks at `writers` after it has cleared `is_on`, and this looks at `is_on` after it has
 * counted itself, both in one order: so one sees the other.
 */
void core_dump(const char *reason)
{
	int saved_errno = errno;

	if (atomic_fetch_add(&writers, 1) == 0 && atomic_load(&is_on) && getpid() == owner &&
	    is_ours_to_write())
		write_file(reason);
	atomic_fetch_sub(&writers, 1);
	errno = saved_errno;
}

static void on_signal(int signal)
{
	(void)signal;
	core_dump("SIGUSR2");
}

void core_dump_catch(void)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, now;

	if (util_config.dump && !sigaction(SIGUSR2, NULL, &now) && !(now.sa_flags & SA_SIGINFO) &&
	    now.sa_handler == SIG_DFL)
		sigaction(SIGUSR2, &action, NULL);
}

void core_dump_start(void)
{
	if (!util_config.dump || !core_journal_of(0))
		return;
	util_log_expand(util_config.dump, path, sizeof(path));
	gethostname(host, sizeof(host) - 1);
	owner = getpid();
	util_log_file(); /* opens it */
	atomic_store(&is_on, true);
}

/* One that this thread was interrupted by has ended. */
void core_dump_stop(void)
{
	atomic_store(&is_on, false);
	while (atomic_load(&writers))
		sched_yield();
}
