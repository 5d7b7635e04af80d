/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_layout.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* The offsets, from a piece's own, between which its bytes lie. Extents may be negative. */
static void piece_bounds(const struct core_piece *piece, ptrdiff_t *lo, ptrdiff_t *hi)
{
	ptrdiff_t last = (ptrdiff_t)(piece->count - 1) * piece->map->extent;

	*lo = piece->offset + piece->map->lo + (last < 0 ? last : 0);
	*hi = piece->offset + piece->map->hi + (last > 0 ? last : 0);
}

/* Blocks of one type that follow on each other are one piece, so that they are one copy. */
static bool extend_last(struct core_operand *operand, ptrdiff_t offset, size_t count,
			const struct core_typemap *map)
{
	struct core_piece *last;

	if (!operand->num_pieces)
		return false;
	last = &operand->pieces[operand->num_pieces - 1];
	if (last->map != map || last->offset + (ptrdiff_t)last->count * map->extent != offset)
		return false;
	last->count += count;
	return true;
}

static bool grow(struct core_operand *operand)
{
	size_t room = operand->room ? 2 * operand->room : 4;
	struct core_piece *pieces;

	if (operand->num_pieces < operand->room)
		return true;
	pieces = realloc(operand->pieces, room * sizeof(*pieces));
	if (!pieces)
		return false;
	operand->pieces = pieces;
	operand->room = room;
	return true;
}

enum util_status core_operand_add(struct core_operand *operand, ptrdiff_t offset, size_t count,
				  const struct core_typemap *map)
{
	struct core_piece piece = {offset, count, map};
	ptrdiff_t lo, hi;

	if (!count || !map->size)
		return UTIL_OK;
	piece_bounds(&piece, &lo, &hi);
	if (operand->lo == operand->hi) {
		operand->lo = lo;
		operand->hi = hi;
	}
	operand->lo = lo < operand->lo ? lo : operand->lo;
	operand->hi = hi > operand->hi ? hi : operand->hi;
	if (extend_last(operand, offset, count, map))
		return UTIL_OK;
	if (!grow(operand))
		return UTIL_ERR_NO_MEMORY;
	operand->pieces[operand->num_pieces++] = piece;
	return UTIL_OK;
}

size_t core_operand_bytes(const struct core_operand *operand)
{
	size_t bytes = 0;

	for (size_t i = 0; i < operand->num_pieces; i++)
		bytes += operand->pieces[i].count * operand->pieces[i].map->size;
	return bytes;
}

void core_runs_put(struct core_runs *runs)
{
	/* Release what this holder read; the one that frees acquires what all had. */
	if (!runs || atomic_fetch_sub_explicit(&runs->refs, 1, memory_order_acq_rel) > 1)
		return;
	free(runs->runs);
	free(runs);
}

void core_operand_release(struct core_operand *operand)
{
	for (size_t i = 0; i < operand->num_maps; i++)
		core_runs_put(operand->maps[i].shared);
	free(operand->pieces);
	free(operand->maps);
	memset(operand, 0, sizeof(*operand));
}

static enum util_status run_list_add(struct core_run_list *list, ptrdiff_t offset, size_t length)
{
	struct core_run *last = list->num_runs ? &list->runs[list->num_runs - 1] : NULL;

	if (last && last->offset + (ptrdiff_t)last->length == offset) {
		last->length += length;
		return UTIL_OK;
	}
	if (list->num_runs == list->room) {
		size_t room = list->room ? 2 * list->room : 16;
		struct core_run *runs = realloc(list->runs, room * sizeof(*runs));

		if (!runs)
			return UTIL_ERR_NO_MEMORY;
		list->runs = runs;
		list->room = room;
	}
	list->runs[list->num_runs++] = (struct core_run){offset, length};
	return UTIL_OK;
}

enum util_status core_run_list_scan(struct core_run_list *list, const unsigned char *mask,
				    size_t bytes, ptrdiff_t base)
{
	enum util_status status = UTIL_OK;

	for (size_t at = 0; at < bytes && status == UTIL_OK;) {
		size_t start;

		while (at < bytes && !mask[at])
			at++;
		for (start = at; at < bytes && mask[at];)
			at++;
		if (at > start)
			status = run_list_add(list, base + (ptrdiff_t)start, at - start);
	}
	return status;
}
