/* SPDX-License-Identifier: BSD-3-Clause */
/* What the real MPI knows of a datatype, as bytes. All are thread-safe. */
#ifndef CORE_MPI_TYPE_H
#define CORE_MPI_TYPE_H

#include "core/call/core_layout.h"
#include "core/call/core_mpi_handle.h"
#include "gpu/kernels/gpu_types.h"

/*
 * All but the runs of a type with gaps (core_mpi_find_runs). False: the MPI does not know the type.
 */
bool core_mpi_type_map(MPI_Datatype type, struct core_typemap *map);

/*
 * Find the runs in the order in which MPI sends them, of a type that may look solid without. See
 * core_mpi_find_runs.
 */
enum util_status core_mpi_find_order(struct core_typemap *map);

/*
 * Whether the parts lie in different places of the address space: from the heap to the stack there
 * are some 40 TB, from one mapped file to another less than one.
 */
static inline bool core_mpi_type_is_far_apart(const struct core_typemap *map)
{
	return map->hi - map->lo > (ptrdiff_t)1 << 40;
}

/* In which order a type's runs are wanted. */
enum core_mpi_order {
	CORE_MPI_ORDER_NONE, /* any */
	CORE_MPI_ORDER_SENT, /* as the real MPI sends them */
	CORE_MPI_ORDER_FAR,  /* as it is to send them: it can't be asked, so far apart they are */
};

/* The map's runs, if it has none of that order yet. */
enum util_status core_mpi_look_for_runs(struct core_typemap *map, enum core_mpi_order order);

/*
 * Append the runs of a type, in the order of its constructors, by those of its parts.
 * UTIL_ERR_UNSUPPORTED: it can't be taken apart, or not in that order.
 */
enum util_status core_mpi_list_parts(MPI_Datatype type, enum core_mpi_order order,
				     struct core_run_list *list);

/*
 * How a type was made, and how many of each that took. Where MPI has constructors with large
 * counts, types made by them are not to be asked about otherwise, which MPICH takes for an error of
 * the application: they have all numbers and places in `counts`, which are 0 of others.
 */
struct core_mpi_envelope {
	int combiner;
	int64_t integers, addresses, counts, types;
};

/* False: the MPI does not know the type. */
bool core_mpi_type_envelope(MPI_Datatype type, struct core_mpi_envelope *envelope);

/*
 * Whether it is predefined, and not to be freed: also those of MPI_Type_create_f90_real and such,
 * whose handles Open MPI gives out as they are, and MPICH counts, for good.
 */
bool core_mpi_type_is_predefined(MPI_Datatype type);

/*
 * A type whose elements are solid bytes, in the order in which MPI sends them: equal size and
 * extent don't tell that, since a type may list its parts in any order. Or one of pairs as kernels
 * know them.
 */
struct core_mpi_solid {
	uint64_t bytes; /* with padding */
	int64_t lb, extent;
	bool follows; /* elements follow on each other without a gap */
	/* Made of pairs of this type, which has padding; GPU_TYPE_NONE: without any. */
	enum gpu_type padded;
};

/* False: the type is not known to be one. */
bool core_mpi_find_solid(MPI_Datatype type, struct core_mpi_solid *solid);

/* The communicator of this thread's call, for when there is no other one to unpack with. */
void core_mpi_note_comm(core_handle comm);

#endif
