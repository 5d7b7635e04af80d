/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Descriptors between processes, and what others can do to the sockets: this process sends to
 * itself, as its own peer, and as a stranger by hand.
 */
#include "util/util_fdpass.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint64_t job = 0x1234567890abcdef;

static int count_open(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int num = 0;

	while (readdir(dir))
		num++;
	closedir(dir);
	return num;
}

static int some_file(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static int start(void **state)
{
	(void)state;
	util_fdpass_start(job, 3);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	util_fdpass_stop();
	return 0;
}

static void send_one(uint64_t tag)
{
	int fd = some_file();

	assert_int_equal(util_fdpass_send(3, tag, fd), UTIL_OK);
	close(fd);
}

static void comes_by_its_name(void **state)
{
	int before = count_open(), fd;
	struct stat sent, got;

	(void)state;
	send_one(5);
	assert_int_equal(util_fdpass_take(3, 5), UTIL_FDPASS_NONE);
	util_fdpass_receive();
	assert_int_equal(util_fdpass_take(3, 6), UTIL_FDPASS_NONE);
	assert_int_equal(util_fdpass_take(2, 5), UTIL_FDPASS_NONE);
	fd = util_fdpass_take(3, 5);
	assert_true(fd >= 0);
	assert_int_equal(stat("/dev/null", &sent) | fstat(fd, &got), 0);
	assert_int_equal(sent.st_rdev, got.st_rdev);
	close(fd);
	assert_int_equal(util_fdpass_take(3, 5), UTIL_FDPASS_NONE);
	assert_int_equal(count_open(), before);
}

static void what_is_dropped_is_closed(void **state)
{
	int before = count_open();

	(void)state;
	send_one(5);
	send_one(5);
	send_one(6);
	util_fdpass_receive();
	util_fdpass_drop(3, 5);
	assert_int_equal(count_open(), before + 2);
	util_fdpass_drop(3, 5);
	util_fdpass_drop(3, 5);
	assert_int_equal(count_open(), before + 1);
	util_fdpass_drop(3, 6);
	util_fdpass_drop(3, 7);
	assert_int_equal(count_open(), before);
}

/* The receiver has no room for one more: it is told that something came, and may go on. */
static void without_room_it_is_lost(void **state)
{
	struct rlimit limit, tight;
	int fd;

	(void)state;
	send_one(5);
	getrlimit(RLIMIT_NOFILE, &limit);
	tight = (struct rlimit){3, limit.rlim_max};
	setrlimit(RLIMIT_NOFILE, &tight);
	util_fdpass_receive();
	setrlimit(RLIMIT_NOFILE, &limit);
	assert_int_equal(util_fdpass_take(3, 5), UTIL_FDPASS_LOST);
	send_one(5);
	util_fdpass_receive();
	fd = util_fdpass_take(3, 5);
	assert_true(fd >= 0);
	close(fd);
}

/* A datagram of so many bytes with so many descriptors, as any process of the machine can send. */
static void send_as_stranger(size_t bytes, int num, int part)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	char text[32] = {0};
	union {
		struct cmsghdr header;
		char bytes[2 * CMSG_SPACE(16 * sizeof(int))];
	} control = {0};
	struct iovec data = {text, bytes};
	struct msghdr message = {.msg_name = &name,
				 .msg_iov = &data,
				 .msg_iovlen = 1,
				 .msg_control = num ? control.bytes : NULL};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), file = some_file();
	int length = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "gpucoll-%016llx-3",
			      (unsigned long long)job);
	struct cmsghdr *header;

	message.msg_namelen =
		(socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
	message.msg_controllen = num ? CMSG_SPACE((size_t)num * sizeof(int)) * (size_t)part : 0;
	header = CMSG_FIRSTHDR(&message);
	for (int i = 0; num && i < part; i++) {
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN((size_t)num * sizeof(int));
		for (int j = 0; j < num; j++)
			memcpy(CMSG_DATA(header) + (size_t)j * sizeof(int), &file, sizeof(file));
		header = CMSG_NXTHDR(&message, header);
	}
	assert_int_equal(sendmsg(fd, &message, 0), bytes);
	close(file);
	close(fd);
}

static void send_all_kinds(void)
{
	for (size_t bytes = 0; bytes <= 24; bytes += 8) {
		for (int num = 0; num <= 16; num++) {
			send_as_stranger(bytes, num, 1);
			util_fdpass_receive();
		}
	}
	send_as_stranger(16, 1, 2);
	util_fdpass_receive();
}

/* Whatever comes, of our user or of another one, but for a note with its one descriptor. */
static void nothing_stays_open(void **state)
{
	int before = count_open(), status = 0, taken = 0, fd;
	pid_t child;

	(void)state;
	send_all_kinds();
	/* Notes, which all are of number 0, tag 0: one has a descriptor. */
	while ((fd = util_fdpass_take(0, 0)) != UTIL_FDPASS_NONE) {
		taken += fd >= 0;
		if (fd >= 0)
			close(fd);
	}
	assert_true(taken >= 1);
	assert_int_equal(count_open(), before);
	child = fork();
	if (child == 0) {
		if (setuid(65534))
			_exit(2); /* only root can be somebody else */
		for (int i = 0; i < 100; i++)
			send_as_stranger(16, 1 + i % 3, 1);
		_exit(0);
	}
	while (waitpid(child, &status, WNOHANG) == 0)
		util_fdpass_receive();
	util_fdpass_receive();
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 2)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(util_fdpass_take(0, 0), UTIL_FDPASS_NONE);
	assert_int_equal(count_open(), before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(comes_by_its_name, start, stop),
		cmocka_unit_test_setup_teardown(what_is_dropped_is_closed, start, stop),
		cmocka_unit_test_setup_teardown(without_room_it_is_lost, start, stop),
		cmocka_unit_test_setup_teardown(nothing_stays_open, start, stop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
