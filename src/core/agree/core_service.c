/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/agree/core_service.h"
#include "core/agree/core_agree.h"
#include "core/agree/core_meet.h"
#include "core/wire/core_mail.h"
#include "net/net_port.h"
#include "util/util_thread.h"

#include <stdatomic.h>
#include <stdlib.h>

/* Asked, and not sure yet. */
struct question {
	struct question *next;
	enum core_mail_kind kind; /* ASK or TAKE_BACK; or what is said: FAILED, or LOST */
	uint64_t comm, call;
	bool flag;      /* the call is nonblocking; or of LOST: the communicator was revoked */
	uint32_t asker; /* process */
};

static pthread_t thread;
static bool running;
static atomic_bool ends;
/* Only the thread uses these. */
static struct question *questions;

/* What the node's members have come to in a call. */
struct look {
	const struct question *question;
	enum core_agree_state state;
	bool revoked; /* if it is lost */
};

/* Under the board's lock: the slot stays whose it is. */
static void look_at(const struct core_board_slot *slot, void *area, void *argument)
{
	struct look *look = argument;
	const struct question *q = look->question;

	if (!area)
		look->state = CORE_AGREE_STAGE; /* as every call here */
	else if (q->kind == CORE_MAIL_FAILED)
		core_meet_fail_far(area, q->call);
	else if (q->kind == CORE_MAIL_LOST)
		core_meet_lose_far(area, q->flag);
	else if (q->kind == CORE_MAIL_TAKE_BACK)
		look->state = core_agree_take_back(area, q->call);
	else
		look->state = core_agree_where(slot, area, q->call, q->flag);
	look->revoked = area && core_area_far_of(area)->revoked;
}

/*
 * All that is left of a communicator that was freed here is what was promised, or that it had lost
 * a member.
 */
static enum core_agree_state look_into(const struct question *q, bool *revoked)
{
	struct look look = {q, CORE_AGREE_WAITING, false};
	uint64_t ready[CORE_BOARD_REMEMBERED];

	*revoked = false;
	if (core_board_visit(q->comm, look_at, &look) || !core_board_find_left(q->comm, ready)) {
		*revoked = look.revoked;
		return look.state;
	}
	for (int i = 0; i < CORE_BOARD_REMEMBERED; i++) {
		*revoked = ready[i] == CORE_BOARD_REVOKED;
		if (*revoked || ready[i] == CORE_BOARD_LOST)
			return CORE_AGREE_LOST;
		if (ready[i] == q->call + 1)
			return CORE_AGREE_READY;
	}
	return CORE_AGREE_STAGE;
}

static void tell_asker(const struct question *q, enum core_mail_kind kind, bool revoked)
{
	struct net_header header = {
		.kind = kind, .comm = q->comm, .call = q->call, .link = revoked};

	net_tell(NET_SERVICE, (int)q->asker, NET_MAIN, &header, NULL, 0, NULL);
}

/*
 * True: the question needs no further thought. Who is ready tells so itself, if that was the
 * question.
 */
static bool answer(const struct question *q)
{
	bool takes_back = q->kind == CORE_MAIL_TAKE_BACK, revoked;

	switch (look_into(q, &revoked)) {
	case CORE_AGREE_LOST:
		tell_asker(q, CORE_MAIL_LOST, revoked);
		return true;
	case CORE_AGREE_STAGE:
		tell_asker(q, takes_back ? CORE_MAIL_TAKEN_BACK : CORE_MAIL_STAGED, false);
		return true;
	case CORE_AGREE_READY:
		if (takes_back)
			tell_asker(q, CORE_MAIL_COMMITTED, false);
		return true;
	default:
		return false;
	}
}

/* It was asked before, and has no answer yet. */
static bool is_known(const struct question *question)
{
	const struct question *q = questions;

	while (q && (q->kind != question->kind || q->comm != question->comm ||
		     q->call != question->call || q->asker != question->asker))
		q = q->next;
	return q != NULL;
}

static void receive_question(enum net_port port, const struct net_header *header,
			     struct net_payload *payload)
{
	struct question question = {.kind = header->kind,
				    .comm = header->comm,
				    .call = header->call,
				    .flag = header->link,
				    .asker = header->from};
	struct question *kept;
	bool revoked;

	(void)port;
	(void)payload;
	if (header->kind == CORE_MAIL_FAILED || header->kind == CORE_MAIL_LOST) {
		look_into(&question, &revoked);
		return;
	}
	if (header->kind != CORE_MAIL_ASK && header->kind != CORE_MAIL_TAKE_BACK)
		return;
	if (is_known(&question) || answer(&question))
		return;
	/* Without memory for it: the asker will ask again. */
	kept = malloc(sizeof(*kept));
	if (!kept)
		return;
	*kept = question;
	kept->next = questions;
	questions = kept;
}

static void look_again(void)
{
	struct question **link = &questions, *q;

	while ((q = *link)) {
		if (!answer(q)) {
			link = &q->next;
			continue;
		}
		*link = q->next;
		free(q);
	}
}

/*
 * The longer nothing has changed the longer the naps, in ms, while there are questions; nothing
 * wakes the thread when a member goes by.
 */
static void *serve(void *argument)
{
	enum { SHORTEST = 1, LONGEST = 20, TIMES = 16 };
	int nap = SHORTEST, times = 0;

	(void)argument;
	while (!atomic_load(&ends)) {
		const struct question *before = questions;

		if (!net_progress(NET_SERVICE))
			net_sleep(NET_SERVICE, questions ? nap : -1);
		look_again();
		if (questions != before || !questions) {
			nap = SHORTEST;
			times = 0;
		} else if (++times % TIMES == 0 && nap < LONGEST) {
			nap++;
		}
	}
	return NULL;
}

enum util_status core_service_start(void)
{
	enum util_status status;

	atomic_store(&ends, false);
	net_set_handler(NET_SERVICE, receive_question);
	status = util_thread_start(&thread, "gpucoll-service", serve, NULL);
	running = status == UTIL_OK;
	return status;
}

void core_service_stop(void)
{
	struct question *q;

	if (!running)
		return;
	running = false;
	atomic_store(&ends, true);
	net_wake(NET_SERVICE);
	pthread_join(thread, NULL);
	while ((q = questions)) {
		questions = q->next;
		free(q);
	}
}
