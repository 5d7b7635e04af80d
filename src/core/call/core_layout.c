/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/call/core_layout.h"

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

static bool grow_runs(struct core_operand *operand)
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
	if (!grow_runs(operand))
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
	core_runs_put(atomic_load_explicit(&runs->sent, memory_order_relaxed));
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

static bool grow_list(struct core_run_list *list)
{
	size_t room = list->room ? 2 * list->room : 16;
	struct core_span *runs = realloc(list->runs, room * sizeof(*runs));
	size_t *numbers = realloc(list->numbers, room * sizeof(*numbers));

	if (runs)
		list->runs = runs;
	if (numbers)
		list->numbers = numbers;
	if (!runs || !numbers)
		return false;
	list->room = room;
	return true;
}

enum util_status core_run_list_add(struct core_run_list *list, ptrdiff_t offset, size_t number)
{
	struct core_span *last = list->num_runs ? &list->runs[list->num_runs - 1] : NULL;

	if (last && last->offset + (ptrdiff_t)last->length == offset &&
	    list->numbers[list->num_runs - 1] + last->length == number) {
		last->length++;
		return UTIL_OK;
	}
	if (list->num_runs == list->room && !grow_list(list))
		return UTIL_ERR_NO_MEMORY;
	list->numbers[list->num_runs] = number;
	list->runs[list->num_runs++] = (struct core_span){offset, 1};
	return UTIL_OK;
}

enum util_status core_run_list_append(struct core_run_list *list, struct core_span run)
{
	struct core_span *last = list->num_runs ? &list->runs[list->num_runs - 1] : NULL;

	if (last && last->offset + (ptrdiff_t)last->length == run.offset) {
		last->length += run.length;
		return UTIL_OK;
	}
	if (list->num_runs == list->room && !grow_list(list))
		return UTIL_ERR_NO_MEMORY;
	list->runs[list->num_runs++] = run;
	return UTIL_OK;
}

static int compare_offsets(const void *left, const void *right)
{
	ptrdiff_t a = ((const struct core_span *)left)->offset;
	ptrdiff_t b = ((const struct core_span *)right)->offset;

	return a < b ? -1 : a > b;
}

static bool rise(const struct core_span *runs, size_t num)
{
	for (size_t i = 1; i < num; i++) {
		if (runs[i - 1].offset + (ptrdiff_t)runs[i - 1].length > runs[i].offset)
			return false;
	}
	return true;
}

bool core_run_list_rises(const struct core_run_list *list)
{
	return rise(list->runs, list->num_runs);
}

enum util_status core_run_list_end(struct core_run_list *list)
{
	size_t bytes = list->num_runs * sizeof(*list->runs);
	struct core_span *sorted;
	bool apart;

	free(list->numbers);
	list->numbers = NULL;
	list->in_order = true;
	if (core_run_list_rises(list))
		return UTIL_OK;
	sorted = malloc(bytes);
	if (!sorted)
		return UTIL_ERR_NO_MEMORY;
	memcpy(sorted, list->runs, bytes);
	qsort(sorted, list->num_runs, sizeof(*sorted), compare_offsets);
	apart = rise(sorted, list->num_runs);
	free(sorted);
	return apart ? UTIL_OK : UTIL_ERR_UNSUPPORTED;
}

/* By offset, what overlaps or follows on each other is one run, whatever the numbers. */
static void merge(struct core_run_list *list)
{
	size_t num = 0;

	for (size_t i = 0; i < list->num_runs; i++) {
		struct core_span run = list->runs[i], *last = &list->runs[num ? num - 1 : 0];
		ptrdiff_t end = run.offset + (ptrdiff_t)run.length;

		if (!num || last->offset + (ptrdiff_t)last->length < run.offset)
			list->runs[num++] = run;
		else if (last->offset + (ptrdiff_t)last->length < end)
			last->length = (size_t)(end - last->offset);
	}
	list->num_runs = num;
}

void core_run_list_unite(struct core_run_list *list)
{
	qsort(list->runs, list->num_runs, sizeof(*list->runs), compare_offsets);
	merge(list);
	free(list->numbers);
	list->numbers = NULL;
	list->in_order = false;
}

struct numbered {
	size_t number;
	struct core_span run;
};

static int compare_numbers(const void *left, const void *right)
{
	size_t a = ((const struct numbered *)left)->number;
	size_t b = ((const struct numbered *)right)->number;

	return a < b ? -1 : a > b;
}

static bool is_sorted(const struct core_run_list *list)
{
	for (size_t i = 1; i < list->num_runs; i++) {
		if (list->numbers[i] < list->numbers[i - 1])
			return false;
	}
	return true;
}

/* False: no memory. */
static bool sort_by_number(struct core_run_list *list)
{
	struct numbered *sorted = malloc(list->num_runs * sizeof(*sorted));

	if (!sorted)
		return false;
	for (size_t i = 0; i < list->num_runs; i++)
		sorted[i] = (struct numbered){list->numbers[i], list->runs[i]};
	qsort(sorted, list->num_runs, sizeof(*sorted), compare_numbers);
	for (size_t i = 0; i < list->num_runs; i++)
		list->runs[i] = sorted[i].run;
	free(sorted);
	return true;
}

void core_run_list_sort(struct core_run_list *list, size_t size)
{
	size_t bytes = 0;

	for (size_t i = 0; i < list->num_runs; i++)
		bytes += list->runs[i].length;
	list->in_order = bytes == size && (is_sorted(list) || sort_by_number(list));
	if (!list->in_order)
		merge(list);
	free(list->numbers);
	list->numbers = NULL;
}
