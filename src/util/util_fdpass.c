/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/util_fdpass.h"
#include "util/util_log.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct note {
	uint64_t tag;
	int from;
};

struct arrival {
	struct note note;
	int fd; /* UTIL_FDPASS_NONE: the place is free; UTIL_FDPASS_LOST: a note without its own */
};

/* NUM_FDS: of a message, at most. The room for two is as large as that for one. */
enum { MAX_ARRIVALS = 512, NUM_FDS = 2 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct arrival arrivals[MAX_ARRIVALS]; /* under the lock */
static unsigned next_arrival;                 /* under the lock: the oldest place */
static int own_socket = -1, own_number;
static uint64_t own_job;

static socklen_t make_name(int number, struct sockaddr_un *name)
{
	*name = (struct sockaddr_un){.sun_family = AF_UNIX};
	/* A name that begins with a zero byte is abstract. */
	int length = snprintf(name->sun_path + 1, sizeof(name->sun_path) - 1, "gpucoll-%016llx-%d",
			      (unsigned long long)own_job, number);

	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

void util_fdpass_start(uint64_t job, int self)
{
	struct sockaddr_un name;
	socklen_t length;
	int on = 1;

	own_job = job;
	own_number = self;
	for (int i = 0; i < MAX_ARRIVALS; i++)
		arrivals[i].fd = UTIL_FDPASS_NONE;
	own_socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	length = make_name(self, &name);
	if (own_socket >= 0 && !setsockopt(own_socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) &&
	    !bind(own_socket, (struct sockaddr *)&name, length))
		return;
	util_log(UTIL_LOG_INFO, UTIL_SUBSYS_CORE, "no socket to pass descriptors: %s",
		 strerror(errno));
	util_fdpass_stop();
}

void util_fdpass_stop(void)
{
	if (own_socket < 0)
		return;
	close(own_socket);
	own_socket = -1;
	for (int i = 0; i < MAX_ARRIVALS; i++) {
		if (arrivals[i].fd >= 0)
			close(arrivals[i].fd);
		arrivals[i].fd = UTIL_FDPASS_NONE;
	}
}

enum util_status util_fdpass_send(int to, uint64_t tag, int fd)
{
	struct note note = {tag, own_number};
	struct sockaddr_un name;
	socklen_t length = make_name(to, &name);
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec data = {&note, sizeof(note)};
	struct msghdr message = {.msg_name = &name,
				 .msg_namelen = length,
				 .msg_iov = &data,
				 .msg_iovlen = 1,
				 .msg_control = control.bytes,
				 .msg_controllen = sizeof(control.bytes)};

	if (own_socket < 0)
		return UTIL_ERR_SYSTEM;
	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	if (sendmsg(own_socket, &message, MSG_NOSIGNAL) >= 0)
		return UTIL_OK;
	if (errno == EAGAIN || errno == EINTR || errno == ENOBUFS)
		return UTIL_IN_PROGRESS;
	if (errno == ECONNREFUSED)
		return UTIL_ERR_PEER;
	util_log(UTIL_LOG_INFO, UTIL_SUBSYS_CORE, "a descriptor can't be passed to process %d: %s",
		 to, strerror(errno));
	return UTIL_ERR_SYSTEM;
}

/* Under the lock. A descriptor that is not asked for is closed when its place is needed. */
static void keep_descriptor(const struct note *note, int fd)
{
	struct arrival *place = &arrivals[next_arrival++ % MAX_ARRIVALS];

	if (place->fd >= 0)
		close(place->fd);
	*place = (struct arrival){*note, fd};
}

/*
 * The message's descriptors, of which a datagram of ours has one: that is the caller's. All others
 * are closed, whoever sent them: any process of the node can send datagrams, with as many
 * descriptors as fit into the room for control data, and they are open here by now.
 */
static int take_only(struct msghdr *message)
{
	int fds[NUM_FDS], num = 0;

	for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part;
	     part = CMSG_NXTHDR(message, part)) {
		size_t bytes = part->cmsg_len - CMSG_LEN(0);

		if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = 0; at + sizeof(int) <= bytes && num < NUM_FDS; at += sizeof(int))
			memcpy(&fds[num++], CMSG_DATA(part) + at, sizeof(int));
	}
	if (num == 1)
		return fds[0];
	for (int i = 0; i < num; i++)
		close(fds[i]);
	return UTIL_FDPASS_NONE;
}

static bool is_from_our_user(struct msghdr *message)
{
	for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part;
	     part = CMSG_NXTHDR(message, part)) {
		struct ucred user;

		if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_CREDENTIALS)
			continue;
		memcpy(&user, CMSG_DATA(part), sizeof(user));
		return user.uid == geteuid();
	}
	return false;
}

/*
 * Under the lock. A note of ours without a descriptor is one of which this process had no room for
 * the descriptor: who waits for it is told so.
 */
static void take_in(struct msghdr *message, const struct note *note, ssize_t bytes)
{
	int fd = take_only(message);

	if (bytes == (ssize_t)sizeof(*note) && is_from_our_user(message))
		keep_descriptor(note, fd >= 0 ? fd : UTIL_FDPASS_LOST);
	else if (fd >= 0)
		close(fd);
}

/* So many messages at a time: somebody may send without end. */
void util_fdpass_receive(void)
{
	enum { MOST = 1024 };

	if (own_socket < 0)
		return;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < MOST; i++) {
		union {
			struct cmsghdr header;
			char bytes[CMSG_SPACE(NUM_FDS * sizeof(int)) +
				   CMSG_SPACE(sizeof(struct ucred))];
		} control;
		struct note note = {0};
		struct iovec data = {&note, sizeof(note)};
		struct msghdr message = {.msg_iov = &data,
					 .msg_iovlen = 1,
					 .msg_control = control.bytes,
					 .msg_controllen = sizeof(control.bytes)};
		ssize_t bytes = recvmsg(own_socket, &message, MSG_CMSG_CLOEXEC);

		if (bytes < 0)
			break;
		take_in(&message, &note, bytes);
	}
	pthread_mutex_unlock(&lock);
}

/* Under the lock. NULL: none. */
static struct arrival *find_arrival(int from, uint64_t tag)
{
	for (int i = 0; i < MAX_ARRIVALS; i++) {
		struct arrival *arrival = &arrivals[i];

		if (arrival->fd != UTIL_FDPASS_NONE && arrival->note.from == from &&
		    arrival->note.tag == tag)
			return arrival;
	}
	return NULL;
}

int util_fdpass_take(int from, uint64_t tag)
{
	struct arrival *arrival;
	int fd = UTIL_FDPASS_NONE;

	pthread_mutex_lock(&lock);
	arrival = find_arrival(from, tag);
	if (arrival) {
		fd = arrival->fd;
		arrival->fd = UTIL_FDPASS_NONE;
	}
	pthread_mutex_unlock(&lock);
	return fd;
}

void util_fdpass_drop(int from, uint64_t tag)
{
	int fd = util_fdpass_take(from, tag);

	if (fd >= 0)
		close(fd);
}
