/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cp.async: copies from global to shared memory that a thread begins and later waits for. They are
 * done when it waits, as late as they may be, so that who reads before finds what was there.
 */
#include "ptx_warp.h"
#include "ptx_watch.h"

#include <stdlib.h>
#include <string.h>

enum { ILLEGAL_ADDRESS = 700 };

struct ptx_copy {
	struct ptx_copy *next;
	unsigned char *to;
	const unsigned char *from;
	uint32_t bytes, given; /* the rest is zeros */
	uint32_t group;        /* of the lane's */
};

static void do_copy(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned lane,
		    const struct ptx_copy *copy)
{
	unsigned char data[16] = {0};

	if (copy->given)
		memcpy(data, copy->from, copy->given);
	for (unsigned i = 0; warp->block->watch && i < copy->bytes; i++)
		ptx_watch_store(warp, instr, lane, copy->to + i, 1, data[i], false);
	memcpy(copy->to, data, copy->bytes);
}

/* Those of the lane's first groups, which were begun first. */
static void finish(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned lane,
		   uint32_t groups)
{
	struct ptx_copy *copy;

	while ((copy = warp->copies[lane]) && copy->group < groups) {
		warp->copies[lane] = copy->next;
		do_copy(warp, instr, lane, copy);
		free(copy);
	}
}

/* Of what was begun without being waited for nothing is left. */
void ptx_forget_copies(struct ptx_warp *warp)
{
	for (unsigned lane = 0; lane < PTX_LANES; lane++) {
		struct ptx_copy *copy;

		while ((copy = warp->copies[lane])) {
			warp->copies[lane] = copy->next;
			free(copy);
		}
		warp->groups[lane] = 0;
	}
}

/* The bytes that come from memory: a size, or a predicate that says whether none do. */
static uint32_t given(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned lane,
		      uint32_t bytes)
{
	const struct ptx_operand *last = &instr->operands[3];
	uint64_t value;

	if (instr->num < 4)
		return bytes;
	value = ptx_value(warp, last, lane);
	if (last->kind == PTX_REGISTER && last->mask == 1)
		return (value != 0) != last->negated ? 0 : bytes;
	return value < bytes ? (uint32_t)value : bytes;
}

/* [to], [from], bytes{, given} */
static void begin(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	PTX_FOR_LANES(lane, lanes)
	{
		uint32_t bytes = (uint32_t)ptx_value(warp, &instr->operands[2], lane);
		uint64_t from = ptx_address(warp, &instr->operands[1], lane);
		struct ptx_copy **link = &warp->copies[lane], *copy;

		if (bytes != 4 && bytes != 8 && bytes != 16)
			ptx_fail(warp, instr, lane, LAUNCH_FAILED, "a copy of %u bytes", bytes);
		copy = malloc(sizeof(*copy));
		if (!copy)
			longjmp(warp->block->failed, 1);
		*copy = (struct ptx_copy){.bytes = bytes, .group = warp->groups[lane]};
		while (*link)
			link = &(*link)->next;
		*link = copy; /* freed with the others, whatever is wrong with it */
		copy->to = ptx_place(warp, instr, lane, PTX_SHARED,
				     ptx_address(warp, &instr->operands[0], lane), bytes);
		copy->given = given(warp, instr, lane, bytes);
		copy->from = copy->given ? ptx_device_place(from, copy->given) : NULL;
		if (copy->given && (from % bytes || !copy->from))
			ptx_fail(warp, instr, lane, ILLEGAL_ADDRESS,
				 "%u bytes at %#llx are in no global memory, or not aligned",
				 copy->given, (unsigned long long)from);
	}
	ptx_visible(warp->block);
}

static void commit(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	(void)instr;
	PTX_FOR_LANES(lane, lanes)
	warp->groups[lane]++;
}

/* But for so many groups that were begun last. */
static void wait_for_groups(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	PTX_FOR_LANES(lane, lanes)
	{
		uint64_t left = ptx_value(warp, &instr->operands[0], lane);

		if (left < warp->groups[lane])
			finish(warp, instr, lane, warp->groups[lane] - (uint32_t)left);
	}
}

static void wait_for_all(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	PTX_FOR_LANES(lane, lanes)
	{
		warp->groups[lane]++;
		finish(warp, instr, lane, warp->groups[lane]);
	}
}

const struct ptx_operation ptx_async_operations[] = {
	{"cp.async", 0, 0, PTX_PLAIN, begin, false},
	{"cp.async.commit_group", 0, 0, PTX_PLAIN, commit, false},
	{"cp.async.wait_group", 0, 0, PTX_PLAIN, wait_for_groups, false},
	{"cp.async.wait_all", 0, 0, PTX_PLAIN, wait_for_all, false},
	{0},
};
