/* SPDX-License-Identifier: BSD-3-Clause */
/* The runs of a type by those of what its constructor was given. See core_mpi_type.h. */
#include "core/mpi/core_mpi.h"
#include "core/mpi/core_mpi_type.h"

#include <stdlib.h>

/* What the constructor was given. The places come last, in `addresses` or in `counts`. */
struct contents {
	struct core_mpi_envelope envelope;
	int *integers;
	MPI_Aint *addresses;
	MPI_Count *counts;
	MPI_Datatype *types;
};

/* The types are the caller's, unless they are predefined. */
static bool get_contents(MPI_Datatype type, struct contents *c)
{
	const struct core_mpi_envelope *e = &c->envelope;

	c->integers = malloc((size_t)(e->integers + 1) * sizeof(*c->integers));
	c->addresses = malloc((size_t)(e->addresses + 1) * sizeof(*c->addresses));
	c->counts = malloc((size_t)(e->counts + 1) * sizeof(*c->counts));
	c->types = malloc((size_t)(e->types + 1) * sizeof(*c->types));
	if (!c->integers || !c->addresses || !c->counts || !c->types)
		return false;
#if MPI_VERSION >= 4
	return PMPI_Type_get_contents_c(type, e->integers, e->addresses, e->counts, e->types,
					c->integers, c->addresses, c->counts,
					c->types) == MPI_SUCCESS;
#else
	return PMPI_Type_get_contents(type, (int)e->integers, (int)e->addresses, (int)e->types,
				      c->integers, c->addresses, c->types) == MPI_SUCCESS;
#endif
}

static int64_t number_of(const struct contents *c, int64_t at)
{
	return c->envelope.counts ? (int64_t)c->counts[at] : c->integers[at];
}

/* The places of a constructor that takes bytes. */
static ptrdiff_t place_of(const struct contents *c, int64_t i)
{
	int64_t num = number_of(c, 0);

	return c->envelope.counts ? (ptrdiff_t)c->counts[c->envelope.counts - num + i]
				  : (ptrdiff_t)c->addresses[i];
}

static void release_contents(struct contents *c, bool found)
{
	for (int64_t i = 0; found && i < c->envelope.types; i++) {
		if (!core_mpi_type_is_predefined(c->types[i]))
			PMPI_Type_free(&c->types[i]);
	}
	free(c->integers);
	free(c->addresses);
	free(c->counts);
	free(c->types);
}

/* ---- arrays of several dimensions ---- */

/* Of an array's part: what the constructor was given for each dimension. */
enum dimension { DIMENSION_SIZE, DIMENSION_PART, DIMENSION_START };

/* The dimension whose elements follow on each other is number 0. */
static int64_t dimension_of(const struct contents *c, enum dimension what, int number)
{
	int num = c->integers[0];
	int order = c->integers[c->envelope.counts ? 1 : 1 + 3 * num];
	int at = (int)what * num + (order == MPI_ORDER_C ? num - 1 - number : number);

	return c->envelope.counts ? (int64_t)c->counts[at] : c->integers[1 + at];
}

static int64_t num_rows(const struct contents *c)
{
	int64_t rows = 1;

	for (int i = 1; i < c->integers[0]; i++)
		rows *= dimension_of(c, DIMENSION_PART, i);
	return rows;
}

/* In elements from the array's first one. */
static int64_t start_of_row(const struct contents *c, int64_t row)
{
	int64_t at = dimension_of(c, DIMENSION_START, 0);
	int64_t below = dimension_of(c, DIMENSION_SIZE, 0);

	for (int i = 1; i < c->integers[0]; i++) {
		int64_t part = dimension_of(c, DIMENSION_PART, i);

		at += (dimension_of(c, DIMENSION_START, i) + row % part) * below;
		row /= part;
		below *= dimension_of(c, DIMENSION_SIZE, i);
	}
	return at;
}

/* ---- blocks ---- */

/* Elements of a type that are one extent apart, from a place on, in bytes. */
struct block {
	ptrdiff_t place;
	int64_t length;
};

/* -1: of such a type they are not known. */
static int64_t num_blocks(const struct contents *c)
{
	switch (c->envelope.combiner) {
	case MPI_COMBINER_DUP:
	case MPI_COMBINER_RESIZED:
	case MPI_COMBINER_CONTIGUOUS:
		return 1;
	case MPI_COMBINER_VECTOR:
	case MPI_COMBINER_HVECTOR:
	case MPI_COMBINER_INDEXED:
	case MPI_COMBINER_HINDEXED:
	case MPI_COMBINER_INDEXED_BLOCK:
	case MPI_COMBINER_HINDEXED_BLOCK:
	case MPI_COMBINER_STRUCT:
		return number_of(c, 0);
	case MPI_COMBINER_SUBARRAY:
		return num_rows(c);
	default:
		return -1;
	}
}

/* In the order in which MPI sends them. MPI-4.1, 5.1.13, has what the numbers are. */
static struct block block_of(const struct contents *c, int64_t i, ptrdiff_t extent)
{
	int64_t num = c->envelope.combiner == MPI_COMBINER_INDEXED ? number_of(c, 0) : 0;

	switch (c->envelope.combiner) {
	case MPI_COMBINER_CONTIGUOUS:
		return (struct block){0, number_of(c, 0)};
	case MPI_COMBINER_VECTOR:
		return (struct block){i * number_of(c, 2) * extent, number_of(c, 1)};
	case MPI_COMBINER_HVECTOR:
		return (struct block){i * (c->envelope.counts ? (ptrdiff_t)c->counts[2]
							      : (ptrdiff_t)c->addresses[0]),
				      number_of(c, 1)};
	case MPI_COMBINER_INDEXED:
		return (struct block){number_of(c, 1 + num + i) * extent, number_of(c, 1 + i)};
	case MPI_COMBINER_INDEXED_BLOCK:
		return (struct block){number_of(c, 2 + i) * extent, number_of(c, 1)};
	case MPI_COMBINER_HINDEXED_BLOCK:
		return (struct block){place_of(c, i), number_of(c, 1)};
	case MPI_COMBINER_HINDEXED:
	case MPI_COMBINER_STRUCT:
		return (struct block){place_of(c, i), number_of(c, 1 + i)};
	case MPI_COMBINER_SUBARRAY:
		return (struct block){start_of_row(c, i) * extent,
				      dimension_of(c, DIMENSION_PART, 0)};
	default:
		return (struct block){0, 1};
	}
}

/* ---- parts ---- */

static bool is_asked(const struct core_typemap *map)
{
	return map->shared && map->shared->asked;
}

/*
 * The runs of one of the constructor's types. It may be a type that was never committed. The real
 * MPI is asked for an order of the whole, not of a part, unless the whole is far apart.
 */
static enum util_status open_part(MPI_Datatype *type, enum core_mpi_order order,
				  struct core_typemap *map)
{
	enum util_status status = UTIL_OK;
	bool is_predefined = core_mpi_type_is_predefined(*type);

	*map = (struct core_typemap){0};
	if ((!is_predefined && PMPI_Type_commit(type) != MPI_SUCCESS) ||
	    !core_mpi_type_map(*type, map))
		return UTIL_ERR_MPI;
	if (map->size && !(is_predefined && map->runs))
		status = core_mpi_look_for_runs(map, order == CORE_MPI_ORDER_FAR
							     ? CORE_MPI_ORDER_SENT
							     : CORE_MPI_ORDER_NONE);
	if (status != UTIL_OK || !map->size || order == CORE_MPI_ORDER_NONE)
		return status;
	return map->in_order && (order == CORE_MPI_ORDER_FAR || !is_asked(map))
		       ? UTIL_OK
		       : UTIL_ERR_UNSUPPORTED;
}

static enum util_status add_block(struct core_run_list *list, const struct core_typemap *map,
				  struct block block)
{
	bool follows = map->num_runs == 1 && map->runs[0].length == (size_t)map->extent;
	enum util_status status = UTIL_OK;
	struct core_span span;

	for (int64_t i = 0; i < (follows ? 1 : block.length) && status == UTIL_OK; i++) {
		for (size_t j = 0; j < map->num_runs && status == UTIL_OK; j++) {
			span = map->runs[j];
			span.offset += block.place + (ptrdiff_t)i * map->extent;
			span.length *= follows ? (size_t)block.length : 1;
			status = core_run_list_append(list, span);
		}
	}
	return status;
}

/* In MPICH types that follow on each other are often the same one; Open MPI gives copies. */
static enum util_status add_blocks(struct core_run_list *list, struct contents *c,
				   enum core_mpi_order order)
{
	enum util_status status = UTIL_OK;
	struct core_typemap map = {0};
	int64_t num = num_blocks(c), open = -1;

	if (num < 0)
		return UTIL_ERR_UNSUPPORTED;
	for (int64_t i = 0; status == UTIL_OK && i < num; i++) {
		int64_t at = c->envelope.types == 1 ? 0 : i;

		if (block_of(c, i, 0).length <= 0)
			continue;
		if (open < 0 || c->types[at] != c->types[open]) {
			core_runs_put(map.shared);
			status = open_part(&c->types[at], order, &map);
			open = at;
			list->mixed |= map.size && (!map.in_order || is_asked(&map));
		}
		if (status == UTIL_OK && map.size)
			status = add_block(list, &map, block_of(c, i, map.extent));
	}
	core_runs_put(map.shared);
	return status;
}

enum util_status core_mpi_list_parts(MPI_Datatype type, enum core_mpi_order order,
				     struct core_run_list *list)
{
	struct contents c = {0};
	enum util_status status = UTIL_ERR_NO_MEMORY;
	bool found;

	if (!core_mpi_type_envelope(type, &c.envelope))
		return UTIL_ERR_MPI;
	if (c.envelope.combiner == MPI_COMBINER_NAMED)
		return UTIL_ERR_UNSUPPORTED;
	found = get_contents(type, &c);
	if (found)
		status = add_blocks(list, &c, order);
	release_contents(&c, found);
	return status;
}
