/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls: registers and memory of a function, what it is passed and returns. */
#include "ptx_warp.h"

#include <stdlib.h>
#include <string.h>

/* Registers of a new frame are not cleared: on GPUs they hold anything. */
void ptx_need_registers(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned lane,
			uint32_t slots)
{
	uint32_t room = warp->room ? warp->room : 256;
	void *registers;

	if (slots <= warp->room)
		return;
	while (room < slots)
		room *= 2;
	registers = realloc(warp->registers, room * sizeof(*warp->registers));
	if (!registers)
		ptx_fail(warp, instr, lane, OUT_OF_MEMORY, "no memory for registers");
	warp->registers = registers;
	/* A predicate is 0 or 1, and what is narrower than 64 bits has zeros above. */
	memset(warp->registers + warp->room, 0, (room - warp->room) * sizeof(*warp->registers));
	warp->room = room;
}

static uint32_t align_16(uint32_t value)
{
	return (value + 15) & ~UINT32_C(15);
}

static void copy_params(unsigned char *to, const struct ptx_param *to_params,
			const unsigned char *from, const struct ptx_param *from_params,
			uint32_t num)
{
	for (uint32_t i = 0; i < num; i++)
		memcpy(to + to_params[i].offset, from + from_params[i].offset,
		       to_params[i].bytes < from_params[i].bytes ? to_params[i].bytes
								 : from_params[i].bytes);
}

static const struct ptx_function *called(struct ptx_warp *warp, const struct ptx_instr *instr,
					 unsigned lane)
{
	const struct ptx_function *function = instr->call->function;
	uint64_t address;

	if (function)
		return function;
	address = ptx_value(warp, &instr->call->address, lane);
	function = warp->block->module->functions;
	while (function && PTX_CODE_WINDOW + function->number != address)
		function = function->next;
	if (!function)
		ptx_fail(warp, instr, lane, LAUNCH_FAILED, "%#llx is not a function's address",
			 (unsigned long long)address);
	return function;
}

void ptx_enter(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned lane)
{
	const struct ptx_call *call = instr->call;
	const struct ptx_function *to = called(warp, instr, lane);
	const struct ptx_frame *from = ptx_frame_of(warp, lane);
	struct ptx_frame *frame = &warp->frames[lane][warp->depth[lane] + 1];
	unsigned char *stack = warp->stacks + (size_t)lane * PTX_STACK_BYTES;

	if (warp->depth[lane] + 1 == PTX_DEPTH)
		ptx_fail(warp, instr, lane, LAUNCH_FAILED, "calls deeper than %d", PTX_DEPTH);
	if (to->entry == UINT32_MAX || to->is_kernel)
		ptx_fail(warp, instr, lane, LAUNCH_FAILED,
			 "%.60s is no function with a body here: %s", to->name,
			 to->why_not ? to->why_not : "");
	if (to->num_params != call->num_params || to->num_results != call->num_results)
		ptx_fail(warp, instr, lane, LAUNCH_FAILED, "%s has other parameters", to->name);
	*frame = (struct ptx_frame){instr, to, from->base + from->function->slots,
				    from->stack + align_16(from->function->frame_bytes)};
	if (frame->stack + to->frame_bytes > PTX_STACK_BYTES)
		ptx_fail(warp, instr, lane, LAUNCH_FAILED, "more than %d bytes of local memory",
			 PTX_STACK_BYTES);
	ptx_need_registers(warp, instr, lane, frame->base + to->slots);
	copy_params(stack + frame->stack, to->params, stack + from->stack, call->params,
		    call->num_params);
	warp->depth[lane]++;
	warp->pc[lane] = to->entry;
}

/* From the kernel: the thread ends. */
void ptx_leave(struct ptx_warp *warp, unsigned lane)
{
	const struct ptx_frame *frame = ptx_frame_of(warp, lane);
	const struct ptx_call *call;
	unsigned char *stack = warp->stacks + (size_t)lane * PTX_STACK_BYTES;

	if (!frame->call) {
		ptx_end_lane(warp, lane);
		return;
	}
	call = frame->call->call;
	warp->depth[lane]--;
	warp->pc[lane] = (uint32_t)(frame->call - warp->block->module->code) + 1;
	copy_params(stack + ptx_frame_of(warp, lane)->stack, call->results, stack + frame->stack,
		    frame->function->results, call->num_results);
}
