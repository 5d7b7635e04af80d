/* SPDX-License-Identifier: BSD-3-Clause */
/* The runs of a type whose parts were put each at a place of its own. See core_mpi_type.h. */
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

static int64_t length_of(const struct contents *c, int64_t part)
{
	return number_of(c, c->envelope.combiner == MPI_COMBINER_HINDEXED_BLOCK ? 1 : 1 + part);
}

static ptrdiff_t place_of(const struct contents *c, int64_t part)
{
	int64_t num = number_of(c, 0);

	return c->envelope.counts ? (ptrdiff_t)c->counts[c->envelope.counts - num + part]
				  : (ptrdiff_t)c->addresses[part];
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

static enum util_status add_elements(struct core_run_list *list, const struct core_typemap *map,
				     ptrdiff_t place, int64_t length)
{
	bool follows = map->num_runs == 1 && map->runs[0].length == (size_t)map->extent;
	enum util_status status = UTIL_OK;
	struct core_span span;

	for (int64_t i = 0; i < (follows ? 1 : length) && status == UTIL_OK; i++) {
		for (size_t j = 0; j < map->num_runs && status == UTIL_OK; j++) {
			span = map->runs[j];
			span.offset += place + (ptrdiff_t)i * map->extent;
			span.length *= follows ? (size_t)length : 1;
			status = core_run_list_append(list, span);
		}
	}
	return status;
}

/* It may be a type that was never committed. */
static enum util_status add_part(struct core_run_list *list, MPI_Datatype *type, ptrdiff_t place,
				 int64_t length)
{
	enum util_status status = UTIL_ERR_MPI;
	struct core_typemap map = {0};
	bool is_predefined = core_mpi_type_is_predefined(*type);

	if (length <= 0)
		return UTIL_OK;
	if ((is_predefined || PMPI_Type_commit(type) == MPI_SUCCESS) &&
	    core_mpi_type_map(*type, &map))
		status = !map.size || (is_predefined && map.runs) ? UTIL_OK
								  : core_mpi_find_order(&map);
	if (status == UTIL_OK && !map.in_order)
		status = UTIL_ERR_UNSUPPORTED;
	if (status == UTIL_OK && map.size)
		status = add_elements(list, &map, place, length);
	core_runs_put(map.shared);
	return status;
}

enum util_status core_mpi_list_parts(MPI_Datatype type, struct core_run_list *list)
{
	struct contents c = {0};
	enum util_status status = UTIL_ERR_UNSUPPORTED;
	bool found;

	if (!core_mpi_type_envelope(type, &c.envelope))
		return UTIL_ERR_MPI;
	found = get_contents(type, &c);
	if (found)
		status = UTIL_OK;
	for (int64_t i = 0; status == UTIL_OK && i < number_of(&c, 0); i++)
		status = add_part(list, &c.types[c.envelope.types == 1 ? 0 : i], place_of(&c, i),
				  length_of(&c, i));
	release_contents(&c, found);
	return status;
}
