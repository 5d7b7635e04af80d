/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/nccl_door.h"

#include <stdlib.h>
#include <string.h>

/* The thread's. */
static _Thread_local int depth;
static _Thread_local struct nccl_call *calls;
static _Thread_local int num_calls, room;
static _Thread_local ncclResult_t failure; /* of a call in the group, which its end tells, too */

static ncclResult_t keep_call(const struct nccl_call *call)
{
	if (num_calls == room) {
		int more = room ? 2 * room : 16;
		struct nccl_call *larger = realloc(calls, (size_t)more * sizeof(*calls));

		if (!larger)
			return nccl_fail(ncclSystemError, "no memory for %d calls of a group",
					 more);
		calls = larger;
		room = more;
	}
	calls[num_calls++] = *call;
	return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
	depth++;
	return ncclSuccess;
}

static ncclResult_t each(ncclResult_t (*part)(const struct nccl_call *call))
{
	ncclResult_t result = ncclSuccess;

	for (int i = 0; i < num_calls && result == ncclSuccess; i++)
		result = part(&calls[i]);
	return result;
}

/* One after the other, what is not grouped. */
static ncclResult_t begin_those(bool send)
{
	ncclResult_t result = ncclSuccess;

	for (int i = 0; i < num_calls && result == ncclSuccess; i++) {
		if ((calls[i].kind == NCCL_SEND) == send && !nccl_call_is_grouped(&calls[i]))
			result = nccl_call_begin(&calls[i]);
	}
	return result;
}

/* The call is the first message of its communicator's. */
static bool is_first_message(int k)
{
	for (int i = 0; i < k; i++) {
		if (calls[i].comm == calls[k].comm && nccl_call_is_grouped(&calls[i]))
			return false;
	}
	return nccl_call_is_grouped(&calls[k]);
}

/* `*begun`: of the calls before, all that are messages. */
static ncclResult_t begin_messages(int *begun)
{
	ncclResult_t result = ncclSuccess;

	for (*begun = 0; *begun < num_calls; ++*begun) {
		if (!is_first_message(*begun))
			continue;
		result = nccl_call_begin_messages(calls, num_calls, calls[*begun].comm);
		if (result != ncclSuccess)
			break;
	}
	return result;
}

/* Others' kernels may wait for messages that were not begun: those of the calls from `k` on. */
static void give_up(int k)
{
	for (int i = k; i < num_calls; i++) {
		if (is_first_message(i))
			gpucoll_hook_give_up(calls[i].comm->ordered);
	}
}

/*
 * Sends by the host come first: they do not hold up the stream, so that no rank waits in a receive
 * for what another would send after one. Messages by kernels come last, as NCCL has it: where a
 * rank has its messages behind the group, in calls of their own, it meets the others there. And no
 * communicator waits for another's calls, which a rank may have named in another order.
 */
static ncclResult_t begin_all(void)
{
	ncclResult_t result = nccl_call_check_own(calls, num_calls), after;
	int begun = 0;

	if (result != ncclSuccess)
		return result;
	result = each(nccl_call_before);
	if (result == ncclSuccess)
		result = begin_those(true);
	if (result == ncclSuccess)
		result = begin_those(false);
	if (result == ncclSuccess)
		result = begin_messages(&begun);
	if (result != ncclSuccess)
		give_up(begun);
	after = each(nccl_call_after);
	return result == ncclSuccess ? after : result;
}

/* Also what fails comes back to the program's stream: else its capture would be lost, too. */
static ncclResult_t begin_one(const struct nccl_call *call)
{
	ncclResult_t result = nccl_call_check_own(call, 1), after;

	if (result == ncclSuccess)
		result = nccl_call_before(call);
	if (result != ncclSuccess)
		return result;
	result = nccl_call_begin(call);
	if (result != ncclSuccess && nccl_call_is_grouped(call))
		gpucoll_hook_give_up(call->comm->ordered);
	after = nccl_call_after(call);
	return result == ncclSuccess ? after : result;
}

ncclResult_t nccl_group_call(struct nccl_call *call)
{
	ncclResult_t result = nccl_call_check(call);

	if (result == ncclSuccess)
		result = depth ? keep_call(call) : begin_one(call);
	if (result != ncclSuccess && depth && failure == ncclSuccess)
		failure = result;
	return result;
}

ncclResult_t ncclGroupEnd(void)
{
	ncclResult_t result;

	if (!depth)
		return nccl_fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
	if (--depth)
		return ncclSuccess;
	result = failure == ncclSuccess ? begin_all() : failure;
	free(calls);
	calls = NULL;
	num_calls = room = 0;
	failure = ncclSuccess;
	return result;
}

/* Nothing is known of how long it would take. */
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info)
{
	ncclResult_t result = failure;

	if (!depth)
		return nccl_fail(ncclInvalidUsage, "ncclGroupSimulateEnd without ncclGroupStart");
	if (info)
		info->estimatedTime = -1;
	if (!--depth) {
		num_calls = 0;
		failure = ncclSuccess;
	}
	return result;
}
