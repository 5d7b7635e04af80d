/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which bytes of a buffer a call reads or writes.
 *
 * A typemap is one datatype as runs of bytes; a piece is `count` elements of it, one extent apart,
 * at an offset from the buffer's address; an operand is a buffer with its pieces. Runs matter
 * because the bytes between them belong to the application, which may be using them: they are never
 * written.
 */
#ifndef CORE_LAYOUT_H
#define CORE_LAYOUT_H

#include "util/util_status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The address `offset` bytes from a base. In integers, since under MPI_BOTTOM the base is NULL and
 * the offset an address, and since a shifted base may lie outside any object.
 */
static inline void *core_address(const void *base, ptrdiff_t offset)
{
	return (void *)((uintptr_t)base + (uintptr_t)offset);
}

struct core_span {
	ptrdiff_t offset; /* from the element's origin, bytes */
	size_t length;
};

/*
 * The runs of a derived type with gaps, shared by the type (an attribute) and the operands in use.
 */
struct core_runs {
	_Atomic unsigned refs;
	size_t num_runs;
	struct core_span *runs; /* owned */
	bool in_order;          /* as in struct core_typemap */
	bool asked;             /* as in struct core_run_list */
	/* Where these are in no order: those in the order of MPI_Send. NULL: not yet. */
	struct core_runs *_Atomic sent;
	bool regular; /* all have one length, and stand `pitch` bytes apart */
	ptrdiff_t pitch;
};

/* Drop a reference; the last one frees. NULL is allowed. Any thread. */
void core_runs_put(struct core_runs *runs);

struct core_typemap {
	ptrdiff_t extent;
	ptrdiff_t lo, hi; /* the bytes touched lie in [lo, hi) from the element's origin */
	size_t size;      /* how many those are; 0: the type is empty */
	size_t num_runs;
	/* NULL: the type has gaps and its runs have not been asked for (core_mpi_find_runs). */
	const struct core_span *runs;
	struct core_span only_run; /* where runs points when there is one */
	struct core_runs *shared;  /* a reference, where runs points into it */
	bool in_order;             /* MPI sends each byte once, and in the order of the runs */
	uintptr_t type;            /* the MPI's handle, to ask for the runs */
};

struct core_piece {
	ptrdiff_t offset;
	size_t count; /* > 0 */
	const struct core_typemap *map;
};

struct core_operand {
	void *address;
	bool in, out;     /* what the call does to it */
	bool is_send;     /* it is the call's sendbuf, else its recvbuf */
	bool apart;       /* must not share a stage with another operand at the same address */
	ptrdiff_t lo, hi; /* the bytes touched lie in [address + lo, address + hi); equal: none */
	size_t num_pieces, room;
	struct core_piece *pieces; /* owned */
	struct core_typemap *maps; /* owned: the typemaps that the pieces point to */
	size_t num_maps;
};

/* Append elements; `map` must outlive the operand. Empty maps and counts append nothing. */
enum util_status core_operand_add(struct core_operand *operand, ptrdiff_t offset, size_t count,
				  const struct core_typemap *map);

/* The data bytes of all pieces. */
size_t core_operand_bytes(const struct core_operand *operand);

/* Free what the operand owns. */
void core_operand_release(struct core_operand *operand);

struct core_run_list {
	struct core_span *runs; /* owned; NULL when empty */
	size_t *numbers;        /* owned: of each run's first byte among those that MPI sends */
	size_t num_runs, room;
	bool in_order;
	bool asked; /* of the real MPI: as it sends them, right or wrong */
	bool mixed; /* some are of a part whose order is not known, or was asked */
};

/* Append a byte, the `number`-th that MPI sends; it may make the last run longer. */
enum util_status core_run_list_add(struct core_run_list *list, ptrdiff_t offset, size_t number);

/* Append a run as MPI sends it, whatever its offset. For core_run_list_end, not _sort. */
enum util_status core_run_list_append(struct core_run_list *list, struct core_span run);

/* Whether they come by rising offsets, no byte in two of them. */
bool core_run_list_rises(const struct core_run_list *list);

/* All have been appended: each byte once, by rising offsets; `in_order` is false. */
void core_run_list_unite(struct core_run_list *list);

/* All have been appended. UTIL_ERR_UNSUPPORTED: some byte is sent more than once. */
enum util_status core_run_list_end(struct core_run_list *list);

/*
 * Put the runs, which were added by rising offsets, in the order in which MPI sends them, and
 * forget the numbers. Where it sends more than each byte once, `size` bytes, they stay by offset,
 * and `in_order` is false.
 */
void core_run_list_sort(struct core_run_list *list, size_t size);

#endif
