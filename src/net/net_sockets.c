/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/net_sockets.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 4096, DEPTH = 4 };

/*
 * By descriptor: what tells a socket from another one that has its number later; 0: not UCX's.
 * Relaxed: whoever deals with a socket writes the same.
 */
static _Atomic ino_t kept[MOST];
static bool before[MOST];

/* In a child only what is its own is touched, and nothing is allocated. */
static void close_in_child(void)
{
	struct stat status;

	for (int fd = 0; fd < MOST; fd++) {
		ino_t inode = atomic_load_explicit(&kept[fd], memory_order_relaxed);

		if (inode && !fstat(fd, &status) && S_ISSOCK(status.st_mode) &&
		    status.st_ino == inode)
			close(fd);
		atomic_store_explicit(&kept[fd], 0, memory_order_relaxed);
	}
}

static void register_child(void)
{
	pthread_atfork(NULL, NULL, close_in_child);
}

/*
 * The socket's inode; 0: it is none. By name, as the descriptor may be another thread's, which is
 * about to close it.
 */
static ino_t socket_at(int fd)
{
	char path[64], text[64] = "";
	unsigned long inode = 0;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (readlink(path, text, sizeof(text) - 1) < 0 || sscanf(text, "socket:[%lu]", &inode) != 1)
		return 0;
	return inode;
}

static void keep_socket(int fd)
{
	ino_t inode = fd >= 0 && fd < MOST ? socket_at(fd) : 0;
	int flags;

	if (!inode)
		return;
	atomic_store_explicit(&kept[fd], inode, memory_order_relaxed);
	flags = fcntl(fd, F_GETFD);
	if (flags >= 0 && !(flags & FD_CLOEXEC))
		fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
}

static void for_all(void (*each)(int fd))
{
	DIR *folder = opendir("/proc/self/fd");
	struct dirent *entry;

	while (folder && (entry = readdir(folder))) {
		int fd = atoi(entry->d_name);

		if (*entry->d_name != '.' && fd < MOST)
			each(fd);
	}
	if (folder)
		closedir(folder);
}

static void note(int fd)
{
	before[fd] = true;
}

static void keep_if_new(int fd)
{
	if (!before[fd])
		keep_socket(fd);
}

void net_sockets_begin(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, register_child);
	memset(before, 0, sizeof(before));
	for_all(note);
}

void net_sockets_keep_new(void)
{
	for_all(keep_if_new);
}

/* What an epoll waits for stands in /proc: "tfd:       12 events: ...". Epolls wait for epolls. */
static void walk(int fd, int depth)
{
	char path[64], line[256];
	int target;
	FILE *in;

	keep_socket(fd);
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	in = depth < DEPTH ? fopen(path, "re") : NULL;
	while (in && fgets(line, sizeof(line), in)) {
		if (sscanf(line, "tfd: %d", &target) == 1)
			walk(target, depth + 1);
	}
	if (in)
		fclose(in);
}

void net_sockets_keep_waiting(int event_fd)
{
	walk(event_fd, 0);
}
