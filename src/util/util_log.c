/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/util_log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static pthread_once_t opened = PTHREAD_ONCE_INIT;
static int log_fd = STDERR_FILENO;
static int log_rank = -1;

void util_log_set_rank(int rank)
{
	log_rank = rank;
}

const char *util_log_level_name(enum util_log_level level)
{
	static const char *const names[] = {"NONE", "VERSION", "WARN", "INFO", "TRACE"};

	return names[level];
}

const char *util_log_subsys_name(enum util_subsys subsys)
{
	static const char *const names[] = {"init", "pmpi", "core", "gpu", "net"};

	return names[subsys];
}

bool util_log_enabled(enum util_log_level level, enum util_subsys subsys)
{
	if ((int)level > util_config.debug)
		return false;
	return level <= UTIL_LOG_WARN || (util_config.debug_subsys & (1u << subsys));
}

void util_log_expand(const char *pattern, char *out, size_t size)
{
	size_t used = 0;

	for (; *pattern && used + 1 < size; pattern++) {
		if (*pattern != '%' || !strchr("hp%", pattern[1]) || !pattern[1]) {
			out[used++] = *pattern;
			continue;
		}
		pattern++;
		if (*pattern == 'h') {
			char host[256] = "unknown";

			gethostname(host, sizeof(host) - 1);
			used += (size_t)snprintf(out + used, size - used, "%s", host);
		} else if (*pattern == 'p') {
			used += (size_t)snprintf(out + used, size - used, "%ld", (long)getpid());
		} else {
			out[used++] = '%';
		}
		if (used >= size)
			used = size - 1;
	}
	out[used] = 0;
}

static void open_file(void)
{
	char name[4096];

	if (!util_config.debug_file)
		return;
	util_log_expand(util_config.debug_file, name, sizeof(name));
	int fd = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (fd < 0) {
		dprintf(STDERR_FILENO,
			"gpucoll WARN init: GPUCOLL_DEBUG_FILE=%s: %s; logging to standard error\n",
			name, strerror(errno));
		return;
	}
	log_fd = fd;
}

int util_log_file(void)
{
	pthread_once(&opened, open_file);
	return log_fd;
}

static void write_all(const char *text, size_t length)
{
	util_log_file();
	while (length) {
		ssize_t written = write(log_fd, text, length);

		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			return;
		text += written;
		length -= (size_t)written;
	}
}

void util_log_text(const char *text)
{
	write_all(text, strlen(text));
}

void util_log_write(const char *level, const char *subsys, const char *format, ...)
{
	int saved_errno = errno;
	char line[1024];
	int used;
	va_list args;

	if (log_rank >= 0)
		used = snprintf(line, sizeof(line), "gpucoll[%d] %s %s: ", log_rank, level, subsys);
	else
		used = snprintf(line, sizeof(line), "gpucoll(%ld) %s %s: ", (long)getpid(), level,
				subsys);
	va_start(args, format);
	int length = vsnprintf(line + used, sizeof(line) - (size_t)used - 1, format, args);
	va_end(args);
	used += length < (int)sizeof(line) - used - 1 ? length : (int)sizeof(line) - used - 2;
	line[used++] = '\n';
	write_all(line, (size_t)used);
	errno = saved_errno;
}

/* MPICH 5's launcher ends at an abort, and with it what its proxies have not yet read. */
void util_log_drain(void)
{
	const struct timespec moment = {0, 1000000};
	struct stat kind;
	int left;

	if (fstat(log_fd, &kind) || !S_ISFIFO(kind.st_mode))
		return;
	for (int i = 0; i < 1000; i++) {
		if (ioctl(log_fd, FIONREAD, &left) || !left)
			return;
		nanosleep(&moment, NULL);
	}
}
