/* SPDX-License-Identifier: BSD-3-Clause */
/* What the real MPI knows of a datatype, as bytes. */
#include "core/mpi/core_mpi_type.h"
#include "core/call/core_mpi_handle.h"
#include "core/mpi/core_mpi.h"
#include "gpu/gpu_launch.h"

#include <string.h>

/* How a derived type was made, as far as constructors of one part go. */
struct making {
	struct core_mpi_envelope envelope;
	/* The count of MPI_COMBINER_CONTIGUOUS; lower bound and extent of MPI_COMBINER_RESIZED. */
	MPI_Count numbers[2];
	MPI_Datatype part;
};

bool core_mpi_type_envelope(MPI_Datatype type, struct core_mpi_envelope *envelope)
{
#if MPI_VERSION >= 4
	MPI_Count integers, addresses, counts, types;
	int error = PMPI_Type_get_envelope_c(type, &integers, &addresses, &counts, &types,
					     &envelope->combiner);
#else
	int integers, addresses, counts = 0, types;
	int error =
		PMPI_Type_get_envelope(type, &integers, &addresses, &types, &envelope->combiner);
#endif

	if (error != MPI_SUCCESS)
		return false;
	envelope->integers = integers;
	envelope->addresses = addresses;
	envelope->counts = counts;
	envelope->types = types;
	return true;
}

/* After its envelope. The part is the caller's, unless it is a predefined type. */
static bool get_part(MPI_Datatype type, struct making *making)
{
	MPI_Aint addresses[2] = {0, 0};
	int integers[1] = {0};
#if MPI_VERSION >= 4
	MPI_Count counts[2] = {0, 0};

	if (PMPI_Type_get_contents_c(type, 1, 2, 2, 1, integers, addresses, counts,
				     &making->part) != MPI_SUCCESS)
		return false;
	if (making->envelope.counts) {
		memcpy(making->numbers, counts, sizeof(counts));
		return true;
	}
#else
	if (PMPI_Type_get_contents(type, 1, 2, 1, integers, addresses, &making->part) !=
	    MPI_SUCCESS)
		return false;
#endif
	making->numbers[0] =
		making->envelope.combiner == MPI_COMBINER_CONTIGUOUS ? integers[0] : addresses[0];
	making->numbers[1] = addresses[1];
	return true;
}

/* What a type of MPI_Type_get_value_index tells, since MPI 4.1. */
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION > 0)
enum { VALUE_INDEX = MPI_COMBINER_VALUE_INDEX };
#else
enum { VALUE_INDEX = MPI_COMBINER_NAMED };
#endif

static bool is_of_predefined(int combiner)
{
	return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_REAL ||
	       combiner == MPI_COMBINER_F90_COMPLEX || combiner == MPI_COMBINER_F90_INTEGER ||
	       combiner == VALUE_INDEX;
}

static bool map_plain(MPI_Datatype type, struct core_typemap *map)
{
	int size;

	if (PMPI_Type_size(type, &size) != MPI_SUCCESS)
		return false;
	map->type = (uintptr_t)type;
	map->extent = map->hi = size;
	map->size = (size_t)size;
	map->only_run = (struct core_span){0, (size_t)size};
	map->runs = &map->only_run;
	map->num_runs = 1;
	map->in_order = true;
	return true;
}

bool core_mpi_type_map(MPI_Datatype type, struct core_typemap *map)
{
	MPI_Aint lb, extent, true_lb, true_extent;
	struct core_mpi_envelope envelope;
	MPI_Count size;

	if (core_mpi_type_is_plain((core_handle)type))
		return map_plain(type, map);
	if (PMPI_Type_size_x(type, &size) != MPI_SUCCESS ||
	    PMPI_Type_get_extent(type, &lb, &extent) != MPI_SUCCESS ||
	    PMPI_Type_get_true_extent(type, &true_lb, &true_extent) != MPI_SUCCESS ||
	    !core_mpi_type_envelope(type, &envelope))
		return false;
	map->type = (uintptr_t)type;
	map->extent = extent;
	map->lo = true_lb;
	map->hi = true_lb + true_extent;
	map->size = (size_t)size;
	map->only_run = (struct core_span){true_lb, (size_t)true_extent};
	map->num_runs = size > 0;
	map->in_order = is_of_predefined(envelope.combiner);
	if (size == true_extent)
		map->runs = &map->only_run;
	return true;
}

bool core_mpi_type_is_predefined(MPI_Datatype type)
{
	struct core_mpi_envelope envelope;

	return core_mpi_type_envelope(type, &envelope) && is_of_predefined(envelope.combiner);
}

bool core_mpi_type_is_plain(core_handle handle)
{
	static const MPI_Datatype plain[] = {MPI_DOUBLE,
					     MPI_FLOAT,
					     MPI_INT,
					     MPI_BYTE,
					     MPI_CHAR,
					     MPI_LONG,
					     MPI_UNSIGNED,
					     MPI_SHORT,
					     MPI_INT8_T,
					     MPI_LONG_LONG,
					     MPI_UNSIGNED_LONG,
					     MPI_INT32_T,
					     MPI_INT64_T,
					     MPI_UINT64_T,
					     MPI_UINT32_T,
					     MPI_UINT8_T,
					     MPI_C_DOUBLE_COMPLEX,
					     MPI_C_FLOAT_COMPLEX,
					     MPI_DOUBLE_PRECISION,
					     MPI_REAL,
					     MPI_INTEGER};

	for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
		if (core_mpi_as_type(handle) == plain[i])
			return true;
	}
	return false;
}

/* A pair type is a C struct. Kernels know these with padding. */
static enum gpu_type padded_pair(MPI_Datatype type, MPI_Aint extent)
{
	const struct {
		MPI_Datatype type;
		enum gpu_type ours;
	} rows[] = {{MPI_SHORT_INT, GPU_TYPE_SHORT_INT},
		    {MPI_LONG_INT, GPU_TYPE_LONG_INT},
		    {MPI_DOUBLE_INT, GPU_TYPE_DOUBLE_INT}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (rows[i].type == type)
			return extent == gpu_type_bytes(rows[i].ours) ? rows[i].ours
								      : GPU_TYPE_NONE;
	}
	return GPU_TYPE_NONE;
}

static bool look_up_named(MPI_Datatype type, struct core_mpi_solid *solid)
{
	enum gpu_type padded = GPU_TYPE_NONE;
	MPI_Aint lb, extent;
	MPI_Count size;

	if (PMPI_Type_size_x(type, &size) != MPI_SUCCESS ||
	    PMPI_Type_get_extent(type, &lb, &extent) != MPI_SUCCESS)
		return false;
	if (size && size != extent) {
		padded = padded_pair(type, extent);
		if (padded == GPU_TYPE_NONE)
			return false;
	}
	*solid = (struct core_mpi_solid){size ? (uint64_t)extent : 0, lb, extent, true, padded};
	return true;
}

/* What a constructor of one part makes of it. */
static bool rebuild(const struct making *making, struct core_mpi_solid *solid)
{
	switch (making->envelope.combiner) {
	case MPI_COMBINER_DUP:
		return true;
	case MPI_COMBINER_CONTIGUOUS:
		if (making->numbers[0] > 1 && !solid->follows)
			return false;
		solid->bytes *= (uint64_t)making->numbers[0];
		solid->extent *= making->numbers[0];
		return true;
	case MPI_COMBINER_RESIZED:
		solid->extent = making->numbers[1];
		solid->follows = solid->extent == (int64_t)solid->bytes;
		return true;
	default:
		return false;
	}
}

static bool look_up_derived(MPI_Datatype type, struct making *making, struct core_mpi_solid *solid)
{
	bool found;

	if (making->envelope.combiner != MPI_COMBINER_DUP &&
	    making->envelope.combiner != MPI_COMBINER_CONTIGUOUS &&
	    making->envelope.combiner != MPI_COMBINER_RESIZED)
		return false;
	if (!get_part(type, making))
		return false;
	found = core_mpi_find_solid(making->part, solid) && rebuild(making, solid);
	if (!core_mpi_type_is_predefined(making->part))
		PMPI_Type_free(&making->part);
	return found;
}

bool core_mpi_find_solid(MPI_Datatype type, struct core_mpi_solid *solid)
{
	struct making making;

	if (type == MPI_DATATYPE_NULL)
		return false;
	if (core_mpi_type_is_plain((core_handle)type))
		return look_up_named(type, solid);
	if (!core_mpi_type_envelope(type, &making.envelope))
		return false;
	return making.envelope.combiner == MPI_COMBINER_NAMED
		       ? look_up_named(type, solid)
		       : look_up_derived(type, &making, solid);
}
