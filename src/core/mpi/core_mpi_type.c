/* SPDX-License-Identifier: BSD-3-Clause */
/* What the real MPI knows of a datatype, as bytes. */
#include "core/mpi/core_mpi_type.h"
#include "core/call/core_mpi_handle.h"
#include "core/mpi/core_mpi.h"
#include "gpu/gpu_launch.h"
#include "util/util_limit.h"
#include "util/util_log.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static pthread_mutex_t keyval_lock = PTHREAD_MUTEX_INITIALIZER;
static int type_keyval =
	MPI_KEYVAL_INVALID; /* under the lock; on derived types: a struct core_runs */

static int delete_runs(MPI_Datatype type, int keyval, void *value, void *extra)
{
	(void)type;
	(void)keyval;
	(void)extra;
	core_runs_put(value);
	return MPI_SUCCESS;
}

static int get_type_keyval(void)
{
	pthread_mutex_lock(&keyval_lock);
	if (type_keyval == MPI_KEYVAL_INVALID)
		PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, delete_runs, &type_keyval, NULL);
	int keyval = type_keyval;
	pthread_mutex_unlock(&keyval_lock);
	return keyval;
}

/*
 * The runs of a derived type with gaps, in the order in which MPI sends them. MPI has no call for
 * them, and taking the type apart by its constructors is long; unpacking bytes that tell their own
 * numbers lets the real MPI say where each belongs, for every kind of type that it has. A byte has
 * room for DIGIT_BITS of its number and a bit that says that it was written, so there are several
 * passes.
 *
 * Each is into sparse memory, one at a time: a type under MPI_BOTTOM may span terabytes.
 */
enum { DIGIT_BITS = 7, WRITTEN = 1 << DIGIT_BITS };

struct scan {
	int digit;
	bool last;
	size_t num;        /* bytes that were written, so far */
	uint32_t *numbers; /* of each, by rising offsets: the digits before this one */
	struct core_run_list *list;
};

static _Thread_local MPI_Comm call_comm = MPI_COMM_NULL;

void core_mpi_note_comm(core_handle comm)
{
	call_comm = comm ? core_mpi_as_comm(comm) : MPI_COMM_NULL;
}

/* One to unpack with: with sessions only, there is none but the call's. */
static MPI_Comm comm_to_unpack(void)
{
	if (core_mpi_private_comm != MPI_COMM_NULL)
		return core_mpi_private_comm;
	return call_comm != MPI_COMM_NULL ? call_comm : MPI_COMM_SELF;
}

static enum util_status unpack_digit(MPI_Datatype type, size_t size, int digit, void *origin)
{
	unsigned char *data = malloc(size);
	enum util_status status = UTIL_ERR_MPI;
	int position = 0;

	if (!data)
		return UTIL_ERR_NO_MEMORY;
	for (size_t i = 0; i < size; i++)
		data[i] = (unsigned char)(WRITTEN | (i >> (digit * DIGIT_BITS)) % WRITTEN);
	if (PMPI_Unpack(data, (int)size, &position, origin, 1, type, comm_to_unpack()) ==
	    MPI_SUCCESS)
		status = UTIL_OK;
	free(data);
	return status;
}

/* In a part of the memory that was written to, in pages; `base`: the offset of its first byte. */
static enum util_status scan_part(struct scan *scan, const unsigned char *bytes, size_t num,
				  ptrdiff_t base)
{
	enum util_status status = UTIL_OK;

	for (size_t i = 0; i < num && status == UTIL_OK; i++) {
		uint32_t *number = &scan->numbers[scan->num];

		if (!bytes[i])
			continue;
		*number |= (uint32_t)(bytes[i] % WRITTEN) << (scan->digit * DIGIT_BITS);
		if (scan->last)
			status = core_run_list_add(scan->list, base + (ptrdiff_t)i, *number);
		scan->num++;
	}
	return status;
}

static enum util_status scan_memory(struct scan *scan, int fd, const unsigned char *bytes,
				    size_t span, ptrdiff_t base)
{
	enum util_status status = UTIL_OK;
	off_t from = 0, to, end = (off_t)span;

	scan->num = 0;
	while (status == UTIL_OK && from < end) {
		from = lseek(fd, from, SEEK_DATA);
		if (from < 0)
			return errno == ENXIO ? UTIL_OK : UTIL_ERR_SYSTEM;
		to = lseek(fd, from, SEEK_HOLE);
		if (to < 0 || to > end)
			to = end;
		status = scan_part(scan, bytes + from, (size_t)(to - from), base + from);
		from = to;
	}
	return status;
}

static enum util_status find_digit(MPI_Datatype type, const struct core_typemap *map,
				   struct scan *scan)
{
	size_t span = (size_t)(map->hi - map->lo);
	enum util_status status = UTIL_ERR_SYSTEM;
	int fd = memfd_create("gpucoll-mask", MFD_CLOEXEC);
	unsigned char *bytes = MAP_FAILED;

	if (fd >= 0 && util_file_may_have(span) && !ftruncate(fd, (off_t)span))
		bytes = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (bytes == MAP_FAILED) {
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
			 "a datatype spans %zu bytes, which can't be mapped: %s", span,
			 strerror(errno));
	} else {
		status = unpack_digit(type, map->size, scan->digit, core_address(bytes, -map->lo));
		if (status == UTIL_OK)
			status = scan_memory(scan, fd, bytes, span, map->lo);
		munmap(bytes, span);
	}
	if (fd >= 0)
		close(fd);
	return status;
}

/*
 * Whether the real MPI takes the type. Of one that was not committed Open MPI complains in the
 * first of these calls, and would die in MPI_Unpack; MPICH complains in the second one.
 */
static bool is_committed(MPI_Datatype type)
{
	char nothing = 0;
	int bytes;

	if (core_mpi_private_comm == MPI_COMM_NULL)
		return true;
	return PMPI_Send(&nothing, 1, type, MPI_PROC_NULL, 0, core_mpi_private_comm) ==
		       MPI_SUCCESS &&
	       PMPI_Pack_size(1, type, core_mpi_private_comm, &bytes) == MPI_SUCCESS;
}

static enum util_status find_runs(MPI_Datatype type, const struct core_typemap *map,
				  struct core_run_list *list)
{
	struct scan scan = {.list = list};
	enum util_status status = UTIL_OK;

	if (map->size > INT_MAX)
		return UTIL_ERR_UNSUPPORTED;
	if (!is_committed(type))
		return UTIL_ERR_MPI;
	scan.numbers = calloc(map->size, sizeof(*scan.numbers));
	if (!scan.numbers)
		return UTIL_ERR_NO_MEMORY;
	for (; status == UTIL_OK && !scan.last; scan.digit++) {
		scan.last = !((map->size - 1) >> ((scan.digit + 1) * DIGIT_BITS));
		status = find_digit(type, map, &scan);
	}
	free(scan.numbers);
	if (status == UTIL_OK)
		core_run_list_sort(list, map->size);
	return status;
}

/*
 * The type's own runs, if it has them, with a reference for the caller. The callers look twice,
 * since two threads may have asked for the same type at once; whoever comes second throws its own
 * away. The lock is not taken by delete_runs, which MPI calls under locks of its own.
 */
static struct core_runs *get_runs(MPI_Datatype type)
{
	struct core_runs *runs = NULL;
	int found = 0;

	PMPI_Type_get_attr(type, get_type_keyval(), &runs, &found);
	if (!found)
		return NULL;
	atomic_fetch_add_explicit(&runs->refs, 1, memory_order_relaxed);
	return runs;
}

/* So that nobody has to look through them again. */
static void note_pitch(struct core_runs *runs)
{
	const struct core_span *run = runs->runs;

	runs->pitch = runs->num_runs > 1 ? run[1].offset - run[0].offset : 0;
	runs->regular = true;
	for (size_t i = 1; i < runs->num_runs && runs->regular; i++)
		runs->regular = run[i].length == run[0].length &&
				run[i].offset - run[i - 1].offset == runs->pitch;
}

static struct core_runs *keep_runs(MPI_Datatype type, struct core_run_list *list)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct core_runs *runs, *mine = calloc(1, sizeof(*mine));

	if (!mine) {
		free(list->runs);
		return NULL;
	}
	*mine = (struct core_runs){.refs = 2,
				   .num_runs = list->num_runs,
				   .runs = list->runs,
				   .in_order = list->in_order};
	note_pitch(mine);
	pthread_mutex_lock(&lock);
	runs = get_runs(type);
	if (!runs && PMPI_Type_set_attr(type, get_type_keyval(), mine) == MPI_SUCCESS)
		runs = mine;
	pthread_mutex_unlock(&lock);
	if (runs != mine) {
		core_runs_put(mine);
		core_runs_put(mine);
	}
	return runs;
}

static enum util_status map_runs(struct core_typemap *map)
{
	struct core_run_list list = {0};
	MPI_Datatype type = core_mpi_as_type(map->type);
	enum util_status status;

	map->shared = get_runs(type);
	if (!map->shared) {
		status = find_runs(type, map, &list);
		if (status != UTIL_OK) {
			free(list.runs);
			free(list.numbers);
			return status;
		}
		map->shared = keep_runs(type, &list);
	}
	if (!map->shared)
		return UTIL_ERR_NO_MEMORY;
	map->runs = map->shared->runs;
	map->num_runs = map->shared->num_runs;
	map->in_order = map->shared->in_order;
	return UTIL_OK;
}

enum util_status core_mpi_find_runs(struct core_operand *operand)
{
	enum util_status status = UTIL_OK;

	for (size_t i = 0; i < operand->num_maps && status == UTIL_OK; i++) {
		if (operand->maps[i].size && !operand->maps[i].runs)
			status = map_runs(&operand->maps[i]);
	}
	return status;
}

/*
 * How a derived type was made, as far as constructors of one part go. Where MPI has constructors
 * with large counts, types made by them are not to be asked about otherwise, which MPICH takes for
 * an error of the application.
 */
struct making {
	int combiner;
	bool counts; /* by a constructor with large counts */
	/* The count of MPI_COMBINER_CONTIGUOUS; lower bound and extent of MPI_COMBINER_RESIZED. */
	MPI_Count numbers[2];
	MPI_Datatype part;
};

static bool get_combiner(MPI_Datatype type, struct making *making)
{
#if MPI_VERSION >= 4
	MPI_Count integers, addresses, counts, types;
	int error = PMPI_Type_get_envelope_c(type, &integers, &addresses, &counts, &types,
					     &making->combiner);

	making->counts = counts > 0;
#else
	int integers, addresses, types;
	int error = PMPI_Type_get_envelope(type, &integers, &addresses, &types, &making->combiner);

	making->counts = false;
#endif
	return error == MPI_SUCCESS;
}

/* After get_combiner. The part is the caller's, unless it is a predefined type. */
static bool get_part(MPI_Datatype type, struct making *making)
{
	MPI_Aint addresses[2] = {0, 0};
	int integers[1] = {0};
#if MPI_VERSION >= 4
	MPI_Count counts[2] = {0, 0};

	if (PMPI_Type_get_contents_c(type, 1, 2, 2, 1, integers, addresses, counts,
				     &making->part) != MPI_SUCCESS)
		return false;
	if (making->counts) {
		memcpy(making->numbers, counts, sizeof(counts));
		return true;
	}
#else
	if (PMPI_Type_get_contents(type, 1, 2, 1, integers, addresses, &making->part) !=
	    MPI_SUCCESS)
		return false;
#endif
	making->numbers[0] =
		making->combiner == MPI_COMBINER_CONTIGUOUS ? integers[0] : addresses[0];
	making->numbers[1] = addresses[1];
	return true;
}

enum util_status core_mpi_find_order(struct core_typemap *map)
{
	return map->shared ? UTIL_OK : map_runs(map);
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
	struct making making;
	MPI_Count size;

	if (core_mpi_type_is_plain((core_handle)type))
		return map_plain(type, map);
	if (PMPI_Type_size_x(type, &size) != MPI_SUCCESS ||
	    PMPI_Type_get_extent(type, &lb, &extent) != MPI_SUCCESS ||
	    PMPI_Type_get_true_extent(type, &true_lb, &true_extent) != MPI_SUCCESS ||
	    !get_combiner(type, &making))
		return false;
	map->type = (uintptr_t)type;
	map->extent = extent;
	map->lo = true_lb;
	map->hi = true_lb + true_extent;
	map->size = (size_t)size;
	map->only_run = (struct core_span){true_lb, (size_t)true_extent};
	map->num_runs = size > 0;
	map->in_order = making.combiner == MPI_COMBINER_NAMED;
	if (size == true_extent)
		map->runs = &map->only_run;
	return true;
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
	switch (making->combiner) {
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
	struct making inner;
	bool found;

	if (making->combiner != MPI_COMBINER_DUP && making->combiner != MPI_COMBINER_CONTIGUOUS &&
	    making->combiner != MPI_COMBINER_RESIZED)
		return false;
	if (!get_part(type, making))
		return false;
	found = core_mpi_find_solid(making->part, solid) && rebuild(making, solid);
	if (get_combiner(making->part, &inner) && inner.combiner != MPI_COMBINER_NAMED)
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
	if (!get_combiner(type, &making))
		return false;
	return making.combiner == MPI_COMBINER_NAMED ? look_up_named(type, solid)
						     : look_up_derived(type, &making, solid);
}

void core_mpi_forget_types(void)
{
	pthread_mutex_lock(&keyval_lock);
	if (type_keyval != MPI_KEYVAL_INVALID)
		PMPI_Type_free_keyval(&type_keyval);
	pthread_mutex_unlock(&keyval_lock);
}
