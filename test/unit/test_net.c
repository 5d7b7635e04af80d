/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages between two processes, by what moves them between nodes. */
#include "net/net_port.h"
#include "util/util_time.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum kind { ASK, ANSWER };
enum { ASKED = 3 };
static const uint64_t PATIENCE = 20000000000; /* ns */

static int me, line; /* to the other process, beside UCX */
static int num[ANSWER + 1];

static void receive(enum net_port port, const struct net_header *header,
		    struct net_payload *payload)
{
	struct net_header answer = {.kind = ANSWER};

	(void)payload;
	num[header->kind]++;
	if (header->kind == ASK)
		net_tell(port, (int)header->from, NET_MAIN, &answer, NULL, 0, NULL);
}

static void check(bool well, const char *what)
{
	if (well)
		return;
	fprintf(stderr, "process %d: %s; it has %d questions and %d answers\n", me, what, num[ASK],
		num[ANSWER]);
	_exit(1);
}

static void say(const void *data, size_t bytes)
{
	check(send(line, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes, "the other one is gone");
}

static void hear(void *data, size_t bytes)
{
	check(recv(line, data, bytes, MSG_WAITALL) == (ssize_t)bytes, "the other one is gone");
}

static void meet(void)
{
	char word = 0;

	say(&word, 1);
	hear(&word, 1);
}

static void progress(void)
{
	net_progress(NET_MAIN);
	net_progress(NET_SERVICE);
}

static void meet_in_progress(void)
{
	char word = 0;

	say(&word, 1);
	while (recv(line, &word, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN)
		progress();
}

static void wait_for(enum kind kind, int wanted)
{
	uint64_t began = util_now();

	while (num[kind] < wanted && util_now() - began < PATIENCE)
		progress();
	check(num[kind] == wanted, "what was to come did not");
}

/* Until they are in the other one's socket. */
static void tell(enum kind kind, int times)
{
	struct net_header header = {.kind = kind};
	_Atomic int underway = 0;

	for (int i = 0; i < times; i++)
		net_tell(NET_MAIN, 1 - me, NET_SERVICE, &header, NULL, 0, &underway);
	while (underway)
		progress();
}

static void settle(void)
{
	net_settle();
	while (!net_is_settled())
		progress();
}

static void start(void)
{
	size_t most = 4096, bytes;
	unsigned char *both = calloc(2, most);
	int sizes[2];
	const void *mine;

	check(both && net_start(1, me, 2, true, &(struct net_devices){0}) == UTIL_OK,
	      "it does not start");
	mine = net_address(&bytes);
	check(bytes <= most, "a long address");
	sizes[me] = (int)bytes;
	say(&sizes[me], sizeof(int));
	hear(&sizes[1 - me], sizeof(int));
	say(mine, bytes);
	memcpy(both + (me ? sizes[0] : 0), mine, bytes);
	hear(both + (me ? 0 : sizes[0]), (size_t)sizes[1 - me]);
	check(net_set_addresses(both, sizes) == UTIL_OK, "no memory");
	free(both);
	net_set_handler(NET_MAIN, receive);
	net_set_handler(NET_SERVICE, receive);
	meet();
}

static void stop(void)
{
	settle();
	meet_in_progress();
	net_stop();
}

/* Until its sockets are closed. Stopped before: it accepted nothing. */
static void kill_and_wait(pid_t process)
{
	struct pollfd fd = {.fd = (int)syscall(SYS_pidfd_open, process, 0), .events = POLLIN};

	kill(process, SIGKILL);
	check(fd.fd >= 0 && poll(&fd, 1, -1) == 1, "the other one can't be killed");
	close(fd.fd);
}

/* In UCX's place: the process to which the connection is made is killed, just when it is there. */
static pid_t killed_by_connect;

int connect(int fd, const struct sockaddr *address, socklen_t bytes)
{
	int (*real)(int, const struct sockaddr *, socklen_t);
	pid_t process = address->sa_family == AF_INET ? killed_by_connect : 0;
	int result, error;

	*(void **)&real = dlsym(RTLD_NEXT, "connect");
	if (process)
		kill(process, SIGSTOP);
	result = real(fd, address, bytes);
	error = errno;
	if (process)
		kill_and_wait(process);
	killed_by_connect = process ? 0 : killed_by_connect;
	errno = error;
	return result;
}

static void wait_for_loss(void)
{
	uint64_t began = util_now();

	while (!net_is_lost(0) && util_now() - began < PATIENCE)
		progress();
	check(net_is_lost(0), "it does not miss the other one");
}

/* Process 1 has sent process 0 nothing when that is killed. */
static void lose_a_sender(void)
{
	struct net_header header = {.kind = ANSWER};
	pid_t other, mine = getpid();
	_Atomic int underway = 0;

	start();
	say(&mine, sizeof(mine));
	hear(&other, sizeof(other));
	if (me == 0) {
		net_tell(NET_MAIN, 1, NET_MAIN, &header, NULL, 0, &underway);
		for (;;)
			progress();
	}
	wait_for(ANSWER, 1);
	net_expect(0);
	kill_and_wait(other);
	wait_for_loss();
	settle();
	net_stop();
}

/* Process 0 is killed after process 1 has connected to it and before that has sent it anything. */
static void lose_while_connecting(void)
{
	pid_t other, mine = getpid();
	struct net_header header = {.kind = ASK};
	uint64_t began;

	start();
	say(&mine, sizeof(mine));
	hear(&other, sizeof(other));
	if (me == 0)
		pause();
	killed_by_connect = other;
	net_tell(NET_MAIN, 0, NET_SERVICE, &header, NULL, 0, NULL);
	wait_for_loss();
	for (began = util_now(); util_now() - began < 100000000;)
		progress();
	settle();
	net_stop();
}

/*
 * Process 1 asks several things at once, and the first has process 0, in the handler, want a
 * connection back, which with TCP is the one that all of them have come by.
 */
static void ask_at_once(void)
{
	start();
	if (me == 1) {
		tell(ANSWER, 1);
		settle();
	}
	meet_in_progress();
	if (me == 1)
		tell(ASK, ASKED);
	meet();
	wait_for(me ? ANSWER : ASK, ASKED);
	meet_in_progress();
	stop();
}

/* `victim`: of them is killed, or -1. */
static void in_two_processes(void (*run)(void), int victim)
{
	int ends[2], status;
	bool well = true;
	pid_t children[2], child;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	for (me = 0; me < 2; me++) {
		children[me] = fork();
		assert_true(children[me] >= 0);
		if (children[me])
			continue;
		alarm(60);
		line = ends[me];
		close(ends[1 - me]);
		run();
		_exit(0);
	}
	close(ends[0]);
	close(ends[1]);
	for (me = 0; me < 2; me++) {
		child = wait(&status);
		assert_true(child > 0);
		well &= status == (victim >= 0 && child == children[victim] ? SIGKILL : 0);
	}
	assert_true(well);
}

static void answers_to_what_came_at_once(void **state)
{
	(void)state;
	in_two_processes(ask_at_once, -1);
}

static void loses_who_dies_while_connecting(void **state)
{
	(void)state;
	in_two_processes(lose_while_connecting, 0);
}

static void misses_a_sender(void **state)
{
	(void)state;
	in_two_processes(lose_a_sender, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(answers_to_what_came_at_once),
		cmocka_unit_test(loses_who_dies_while_connecting),
		cmocka_unit_test(misses_a_sender),
	};

	setenv("UCX_TLS", "tcp", 0);
	return cmocka_run_group_tests_name("net", tests, NULL, NULL);
}
