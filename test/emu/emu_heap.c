/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The heap of malloc and free in kernels, one for each context, made when a kernel that has them is
 * first launched. Its bookkeeping is the host's.
 */
#include "emu.h"
#include "emu_module.h"

#include <pthread.h>
#include <stdlib.h>

enum { HEAP = 8 << 20, ALIGNMENT = 16 }; /* bytes, as CU_LIMIT_MALLOC_HEAP_SIZE is by default */

/* Memory that follows on the last piece; the first of a heap is at its beginning. */
struct piece {
	struct piece *next;
	uint64_t address, bytes;
	bool used;
};

struct emu_heap {
	struct emu_heap *next;
	unsigned long long context;
	struct piece *pieces;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct emu_heap *heaps; /* under the lock, as all that hangs there */

static struct emu_heap *make_heap(unsigned long long context)
{
	struct emu_heap *heap = calloc(1, sizeof(*heap));
	struct piece *piece = calloc(1, sizeof(*piece));
	CUdeviceptr address;

	if (!heap || !piece || cuMemAlloc(&address, HEAP) != CUDA_SUCCESS) {
		free(heap);
		free(piece);
		return NULL;
	}
	*piece = (struct piece){NULL, (uint64_t)address, HEAP, false};
	*heap = (struct emu_heap){heaps, context, piece};
	return heaps = heap;
}

struct emu_heap *emu_heap_of(CUcontext context)
{
	struct emu_heap *heap;

	pthread_mutex_lock(&lock);
	for (heap = heaps; heap && heap->context != context->id;)
		heap = heap->next;
	if (!heap)
		heap = make_heap(context->id);
	pthread_mutex_unlock(&lock);
	return heap;
}

/* The piece keeps so many bytes, and is in use. */
static bool take(struct piece *piece, uint64_t bytes)
{
	struct piece *rest = NULL;

	if (piece->bytes > bytes) {
		rest = calloc(1, sizeof(*rest));
		if (!rest)
			return false;
		*rest = (struct piece){piece->next, piece->address + bytes, piece->bytes - bytes,
				       false};
		piece->next = rest;
		piece->bytes = bytes;
	}
	piece->used = true;
	return true;
}

uint64_t ptx_device_allocate(void *of, uint64_t bytes)
{
	struct emu_heap *heap = of;
	struct piece *piece = NULL;
	uint64_t address = 0;

	bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	pthread_mutex_lock(&lock);
	if (heap && bytes && bytes <= HEAP) {
		piece = heap->pieces;
		while (piece && (piece->used || piece->bytes < bytes))
			piece = piece->next;
	}
	if (piece && take(piece, bytes))
		address = piece->address;
	pthread_mutex_unlock(&lock);
	return address;
}

/* Pieces that are free and follow on each other become one. */
static void merge(struct emu_heap *heap)
{
	for (struct piece *piece = heap->pieces; piece; piece = piece->next) {
		struct piece *next;

		while (!piece->used && (next = piece->next) && !next->used) {
			piece->bytes += next->bytes;
			piece->next = next->next;
			free(next);
		}
	}
}

bool ptx_device_release(void *of, uint64_t address)
{
	struct emu_heap *heap = of;
	struct piece *piece;

	pthread_mutex_lock(&lock);
	for (piece = heap ? heap->pieces : NULL; piece && piece->address != address;)
		piece = piece->next;
	if (piece && !piece->used)
		piece = NULL;
	if (piece) {
		piece->used = false;
		merge(heap);
	}
	pthread_mutex_unlock(&lock);
	return piece;
}
