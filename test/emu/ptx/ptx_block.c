/* SPDX-License-Identifier: BSD-3-Clause */
/* A block: its warps from the first instruction to the last one's end, or to an error. */
#include "ptx_warp.h"
#include "ptx_watch.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Atomic uint64_t ptx_executed;

static void tell_source(const struct ptx_module *module, const struct ptx_instr *instr, char *text,
			size_t bytes)
{
	const struct ptx_file *file = module->files;

	while (file && file->number != instr->file)
		file = file->next;
	*text = 0;
	if (file && instr->source_line)
		snprintf(text, bytes, ", %.120s:%u", file->name, instr->source_line);
}

void ptx_fail(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned lane, int code,
	      const char *format, ...)
{
	struct ptx_block *block = warp->block;
	char text[160], source[160];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	block->end->code = code;
	tell_source(block->module, instr, source, sizeof(source));
	snprintf(block->end->text, sizeof(block->end->text),
		 "kernel %.80s, block %u, thread %u, line %u of the PTX%s (%s): %s",
		 block->kernel->name, block->index, warp->number * PTX_LANES + lane, instr->line,
		 source, instr->opcode->text, text);
	longjmp(block->failed, 1);
}

/* xorshift64* */
uint32_t ptx_draw(struct ptx_block *block)
{
	uint64_t x = block->seed;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	block->seed = x;
	return (uint32_t)(x * UINT64_C(0x2545f4914f6cdd1d) >> 32);
}

void ptx_visible(struct ptx_block *block)
{
	block->switches |= ptx_draw(block) % 8 == 0;
}

/*
 * Warps of blocks that have ended, with their memory, which would cost more to have anew than a
 * short kernel. What is in it is of no meaning, as on a GPU.
 */
static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ptx_warp *spare;

static struct ptx_warp *make_warp(void)
{
	struct ptx_warp *warp = calloc(1, sizeof(*warp));

	if (!warp)
		return NULL;
	warp->frames = calloc(PTX_LANES, sizeof(*warp->frames));
	warp->stacks = calloc(PTX_LANES, PTX_STACK_BYTES);
	if (warp->frames && warp->stacks)
		return warp;
	free(warp->frames);
	free(warp->stacks);
	free(warp);
	return NULL;
}

static struct ptx_warp *take_warp(void)
{
	struct ptx_warp *warp;

	pthread_mutex_lock(&spare_lock);
	warp = spare;
	if (warp)
		spare = warp->next;
	pthread_mutex_unlock(&spare_lock);
	return warp ? warp : make_warp();
}

static void give_back_warp(struct ptx_warp *warp)
{
	pthread_mutex_lock(&spare_lock);
	warp->next = spare;
	spare = warp;
	pthread_mutex_unlock(&spare_lock);
}

static void prepare_warp(struct ptx_block *block, uint32_t number)
{
	struct ptx_warp *warp = take_warp();
	uint32_t left = block->threads - number * PTX_LANES;

	block->warps[number] = warp;
	if (!warp)
		longjmp(block->failed, 1);
	warp->block = block;
	warp->number = number;
	warp->there = left < PTX_LANES ? left : PTX_LANES;
	memset(warp->depth, 0, sizeof(warp->depth));
	memset(warp->ran, 0, sizeof(warp->ran));
	memset(warp->carry, 0, sizeof(warp->carry));
	memset(warp->came, 0, sizeof(warp->came));
	for (unsigned lane = 0; lane < PTX_LANES; lane++) {
		warp->frames[lane][0] = (struct ptx_frame){NULL, block->kernel, 0, 0};
		warp->pc[lane] = block->kernel->entry;
		warp->state[lane] = PTX_ENDED;
		if (lane < warp->there)
			ptx_set_state(warp, lane, PTX_RUNS);
	}
	ptx_need_registers(warp, &block->module->code[block->kernel->entry], 0,
			   block->kernel->slots);
}

static void fail_dead(struct ptx_block *block)
{
	for (uint32_t w = 0; w < block->num_warps; w++) {
		struct ptx_warp *warp = block->warps[w];

		for (unsigned lane = 0; lane < PTX_LANES; lane++) {
			const struct ptx_instr *instr = &block->module->code[warp->pc[lane]];

			if (warp->state[lane] == PTX_WAITS_FOR_WARP)
				ptx_fail(warp, instr, lane, LAUNCH_FAILED,
					 "waits for lanes %#x, of which not all come here",
					 warp->wait_mask[lane]);
			if (warp->state[lane] == PTX_WAITS_FOR_BLOCK)
				ptx_fail(warp, instr - 1, lane, LAUNCH_FAILED,
					 "waits at barrier %u, which not all threads come to",
					 warp->barrier[lane]);
		}
	}
}

/* One that can go, from a random one on. False: none can. */
static bool run_some_warp(struct ptx_block *block)
{
	uint32_t first = block->num_warps > 1 ? ptx_draw(block) % block->num_warps : 0;

	for (uint32_t i = 0; i < block->num_warps; i++) {
		if (ptx_run_warp(block->warps[(first + i) % block->num_warps]))
			return true;
	}
	return false;
}

/* With one block's error the launch ends: others may wait for it. */
static bool is_stopped(const struct ptx_block *block)
{
	return block->grid->stopped &&
	       atomic_load_explicit(block->grid->stopped, memory_order_relaxed);
}

static void run(struct ptx_block *block)
{
	while (block->alive && !is_stopped(block)) {
		block->turns++;
		if (block->ended) {
			block->ended = false;
			for (uint32_t w = 0; w < block->num_warps; w++)
				ptx_look_at_waiting(block->warps[w]);
		}
		if (!run_some_warp(block) && !block->ended)
			fail_dead(block);
	}
}

void ptx_run_block(const struct ptx_module *module, const struct ptx_function *kernel,
		   const struct ptx_grid *grid, const void *args, uint32_t index, uint64_t seed,
		   struct ptx_end *end)
{
	struct ptx_block block = {.module = module,
				  .kernel = kernel,
				  .grid = grid,
				  .args = args,
				  .index = index,
				  .seed = seed | 1,
				  .end = end};

	*end = (struct ptx_end){0};
	block.threads = grid->threads[0] * grid->threads[1] * grid->threads[2];
	block.alive = block.threads;
	block.num_warps = (block.threads + PTX_LANES - 1) / PTX_LANES;
	block.shared_bytes = kernel->shared_bytes + grid->shared_bytes;
	block.shared = malloc(block.shared_bytes + 1);
	block.warps = calloc(block.num_warps, sizeof(*block.warps));
	if (!setjmp(block.failed)) {
		if (grid->watches)
			block.watch = ptx_watch_new(&block);
		if (!block.shared || !block.warps || (grid->watches && !block.watch))
			longjmp(block.failed, 1);
		memset(block.shared, 0xcd, block.shared_bytes);
		for (uint32_t i = 0; i < block.num_warps; i++)
			prepare_warp(&block, i);
		run(&block);
	} else if (!end->code) {
		end->code = OUT_OF_MEMORY;
		snprintf(end->text, sizeof(end->text), "no memory for a block's threads");
	}
	for (uint32_t i = 0; block.warps && i < block.num_warps; i++) {
		if (!block.warps[i])
			continue;
		ptx_forget_copies(block.warps[i]);
		give_back_warp(block.warps[i]);
	}
	ptx_watch_free(block.watch);
	free(block.warps);
	free(block.shared);
	atomic_fetch_add_explicit(&ptx_executed, block.executed, memory_order_relaxed);
}
