/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A driver that hangs does not return, and who is in a call of it may not even be killed. So what
 * asks the driver is a process of its own, and this one, which never does, waits for it as long as
 * it comes on.
 */
#include "doctor-watch.h"
#include "util/util_config.h"
#include "util/util_time.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Writers: the processes that ask; reader: this one. Relaxed: `steps` tells of nothing else. */
struct signs {
	atomic_uint steps; /* things that were begun, or found out */
	char what[64];     /* the last one, for a person to read; its last byte stays 0 */
};

static struct signs *signs;
static pid_t parent;
static void (*take)(const char *line);
/* Of the process that asks, and its children. */
static bool is_watched;
static int told;

void doctor_watch_step(const char *what)
{
	if (!signs)
		return;
	strncpy(signs->what, what, sizeof(signs->what) - 1);
	atomic_fetch_add_explicit(&signs->steps, 1, memory_order_relaxed);
}

pid_t doctor_watch_parent(void)
{
	return parent;
}

pid_t doctor_watch_fork(void)
{
	pid_t child;

	fflush(NULL);
	child = fork();
	if (child == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return child;
}

/* Whether it has ended; `*status` is its exit status then. */
static bool has_ended(pid_t child, int *status)
{
	pid_t found;
	int how;

	found = waitpid(child, &how, WNOHANG);
	if (found == 0)
		return false;
	*status = found == child && WIFEXITED(how) ? WEXITSTATUS(how) : DOCTOR_WATCH_DIED;
	return true;
}

/* ---- what it says ---- */

/* What has come through a pipe: of findings, up to the last one's end. */
struct stream {
	int fd;
	size_t bytes;
	char data[2 * DOCTOR_WATCH_MOST];
};

static void take_lines(struct stream *stream)
{
	char *line = stream->data, *end;

	while ((end = memchr(line, '\n', (size_t)(stream->data + stream->bytes - line)))) {
		*end = 0;
		take(line);
		line = end + 1;
	}
	stream->bytes -= (size_t)(line - stream->data);
	memmove(stream->data, line, stream->bytes);
}

/* All that is there now. False: no more will come. */
static bool take_findings(struct stream *stream)
{
	ssize_t got;

	while ((got = read(stream->fd, stream->data + stream->bytes,
			   sizeof(stream->data) - stream->bytes)) > 0) {
		stream->bytes += (size_t)got;
		take_lines(stream);
	}
	return got < 0;
}

static bool take_warnings(int fd)
{
	char data[1024];
	ssize_t got;

	while ((got = read(fd, data, sizeof(data))) > 0) {
		if (write(STDERR_FILENO, data, (size_t)got) < 0)
			continue; /* nobody wants them */
	}
	return got < 0;
}

void doctor_watch_tell(const char *line)
{
	char whole[DOCTOR_WATCH_MOST];
	int bytes = snprintf(whole, sizeof(whole), "%s\n", line);

	if (!is_watched)
		take(line);
	else if (bytes < (int)sizeof(whole) && write(told, whole, (size_t)bytes) < 0)
		_exit(1); /* nobody listens any more */
}

/* ---- the one that waits ---- */

/* As long as it comes on. Its children end with it; who is in the driver for good is left. */
static int watch(pid_t child, struct stream *findings, int warnings)
{
	uint64_t since = util_now(), limit = util_config.timeout * UTIL_SECONDS(1);
	struct pollfd fds[] = {{findings->fd, POLLIN, 0}, {warnings, POLLIN, 0}};
	unsigned seen = 0;
	int status = 0;
	bool ended;

	do {
		unsigned steps = atomic_load_explicit(&signs->steps, memory_order_relaxed);

		ended = has_ended(child, &status);
		if (!take_findings(findings))
			fds[0].fd = -1;
		if (!take_warnings(warnings))
			fds[1].fd = -1;
		if (steps != seen)
			since = util_now();
		seen = steps;
		if (!ended && limit && util_now() - since > limit) {
			kill(child, SIGKILL);
			return DOCTOR_WATCH_HANGS;
		}
		if (!ended)
			poll(fds, 2, 10);
	} while (!ended);
	return status;
}

/*
 * What stays in the driver keeps its descriptors, and who reads this program's output would wait
 * for it: it gets others.
 */
static void speak_through(const int findings[2], const int warnings[2])
{
	int nothing = open("/dev/null", O_WRONLY);

	is_watched = true;
	told = findings[1];
	dup2(warnings[1], STDERR_FILENO);
	if (nothing >= 0)
		dup2(nothing, STDOUT_FILENO);
}

/* Of descriptors that are not those of standard streams, even if these are closed. */
static bool make_pipe(int ends[2])
{
	int low[2];

	if (pipe2(low, O_CLOEXEC))
		return false;
	for (int i = 0; i < 2; i++) {
		ends[i] = fcntl(low[i], F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
		close(low[i]);
	}
	return ends[0] >= 0 && ends[1] >= 0 && fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0;
}

int doctor_watch(int (*look)(void), void (*of)(const char *line), const char **what)
{
	struct stream stream = {.bytes = 0};
	int findings[2], warnings[2], status;
	pid_t child = -1;

	take = of;
	parent = getppid();
	signal(SIGCHLD, SIG_DFL); /* ignored, it would have nobody's end told */
	signs = mmap(NULL, sizeof(*signs), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (signs == MAP_FAILED)
		signs = NULL;
	else if (make_pipe(findings) && make_pipe(warnings))
		child = doctor_watch_fork();
	if (child < 0) /* better than nothing */
		return look();
	if (child == 0) {
		speak_through(findings, warnings);
		status = look();
		fflush(NULL);
		_exit(status);
	}
	close(findings[1]);
	close(warnings[1]);
	stream.fd = findings[0];
	status = watch(child, &stream, warnings[0]);
	*what = signs->what;
	return status;
}
