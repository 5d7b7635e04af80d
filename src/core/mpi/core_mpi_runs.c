/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the bytes of a derived datatype lie, and in which order MPI sends them. */
#include "core/call/core_mpi_handle.h"
#include "core/mpi/core_mpi.h"
#include "core/mpi/core_mpi_raise.h"
#include "core/mpi/core_mpi_type.h"
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
 * The runs of a type in the order in which MPI sends them, or, where it sends bytes twice, by their
 * offsets. For what can't be taken apart, and for what goes in another order than that of rising
 * addresses, about which an MPI may be wrong, on all ranks alike (docs/decisions/0004): unpacking
 * bytes that tell their own numbers lets the real MPI say where each belongs, for every kind of
 * type that it has. A byte has room for DIGIT_BITS of its number and a bit that says that it was
 * written, so there are several passes.
 *
 * Each is into sparse memory, one at a time: a type under MPI_BOTTOM may span terabytes.
 */
enum { DIGIT_BITS = 7, WRITTEN = 1 << DIGIT_BITS };

struct scan {
	MPI_Comm comm; /* to unpack with */
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

/* A communicator to unpack with. */
struct unpacker {
	MPI_Comm comm;
	bool own; /* in a session of the library's */
#ifdef MPI_SESSION_NULL
	MPI_Session session;
#endif
};

#if defined(MPI_SESSION_NULL) && !defined(OPEN_MPI)
static pthread_mutex_t own_lock = PTHREAD_MUTEX_INITIALIZER; /* the group has one at a time */

static void make_own(struct unpacker *unpacker)
{
	MPI_Group self;

	if (PMPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &unpacker->session) != MPI_SUCCESS)
		return;
	if (PMPI_Group_from_session_pset(unpacker->session, "mpi://SELF", &self) == MPI_SUCCESS) {
		unpacker->own = PMPI_Comm_create_from_group(self, "gpucoll-unpack", MPI_INFO_NULL,
							    MPI_ERRORS_RETURN,
							    &unpacker->comm) == MPI_SUCCESS;
		PMPI_Group_free(&self);
	}
	if (!unpacker->own)
		PMPI_Session_finalize(&unpacker->session);
}

/* MPI_COMM_NULL, and nothing is left open: the MPI has none. */
static void open_own(struct unpacker *unpacker)
{
	pthread_mutex_lock(&own_lock);
	make_own(unpacker);
	if (!unpacker->own)
		pthread_mutex_unlock(&own_lock);
}

static void close_unpacker(struct unpacker *unpacker)
{
	if (!unpacker->own)
		return;
	PMPI_Comm_free(&unpacker->comm);
	PMPI_Session_finalize(&unpacker->session);
	pthread_mutex_unlock(&own_lock);
}
#else
/* It is there always in Open MPI 5, and there are no sessions in older MPIs. */
static void open_own(struct unpacker *unpacker)
{
	unpacker->comm = MPI_COMM_SELF;
}

static void close_unpacker(struct unpacker *unpacker)
{
	(void)unpacker;
}
#endif

/*
 * In a program of sessions alone there are no communicators but its own, and some calls, such as
 * MPI_Imrecv, have none.
 */
static bool open_unpacker(struct unpacker *unpacker)
{
	*unpacker = (struct unpacker){.comm = core_mpi_private_comm};
	if (unpacker->comm == MPI_COMM_NULL)
		unpacker->comm = call_comm;
	if (unpacker->comm == MPI_COMM_NULL && core_mpi_has_world())
		unpacker->comm = MPI_COMM_SELF;
	if (unpacker->comm == MPI_COMM_NULL)
		open_own(unpacker);
	return unpacker->comm != MPI_COMM_NULL;
}

/* In MPI_Unpack, which comes by the library and asks what it is given. */
static _Thread_local bool unpacking;

static enum util_status unpack_digit(MPI_Datatype type, size_t size, const struct scan *scan,
				     void *origin)
{
	unsigned char *data = malloc(size);
	enum util_status status = UTIL_ERR_MPI;
	int position = 0;

	if (!data)
		return UTIL_ERR_NO_MEMORY;
	for (size_t i = 0; i < size; i++)
		data[i] = (unsigned char)(WRITTEN | (i >> (scan->digit * DIGIT_BITS)) % WRITTEN);
	unpacking = true;
	if (PMPI_Unpack(data, (int)size, &position, origin, 1, type, scan->comm) == MPI_SUCCESS)
		status = UTIL_OK;
	unpacking = false;
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
		status = unpack_digit(type, map->size, scan, core_address(bytes, -map->lo));
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

/* By its parts. */
static enum util_status take_apart(MPI_Datatype type, enum core_mpi_order order,
				   struct core_run_list *list)
{
	enum util_status status = core_mpi_list_parts(type, order, list);

	if (status != UTIL_OK)
		return status;
	if (order == CORE_MPI_ORDER_FAR || (core_run_list_rises(list) && !list->mixed))
		return core_run_list_end(list);
	if (order == CORE_MPI_ORDER_SENT)
		return UTIL_ERR_UNSUPPORTED;
	core_run_list_unite(list);
	return UTIL_OK;
}

/* By the real MPI. */
static enum util_status ask_for_runs(MPI_Datatype type, const struct core_typemap *map,
				     struct core_run_list *list)
{
	struct scan scan = {.list = list};
	enum util_status status = UTIL_OK;
	struct unpacker unpacker;

	list->asked = true;
	if (!open_unpacker(&unpacker)) /* which is no fault of the arguments */
		return UTIL_ERR_SYSTEM;
	scan.comm = unpacker.comm;
	scan.numbers = calloc(map->size, sizeof(*scan.numbers));
	if (!scan.numbers)
		status = UTIL_ERR_NO_MEMORY;
	for (; status == UTIL_OK && !scan.last; scan.digit++) {
		scan.last = !((map->size - 1) >> ((scan.digit + 1) * DIGIT_BITS));
		status = find_digit(type, map, &scan);
	}
	free(scan.numbers);
	close_unpacker(&unpacker);
	if (status == UTIL_OK)
		core_run_list_sort(list, map->size);
	return status;
}

static void empty(struct core_run_list *list)
{
	free(list->runs);
	free(list->numbers);
	*list = (struct core_run_list){0};
}

static enum util_status find_runs(MPI_Datatype type, const struct core_typemap *map,
				  enum core_mpi_order order, struct core_run_list *list)
{
	enum util_status status;

	if (!is_committed(type))
		return UTIL_ERR_MPI;
	/* The address space may not have so much free at once. */
	if (core_mpi_type_is_far_apart(map))
		return take_apart(type, CORE_MPI_ORDER_FAR, list);
	status = take_apart(type, order, list);
	if (status != UTIL_ERR_UNSUPPORTED || map->size > INT_MAX)
		return status;
	empty(list);
	return ask_for_runs(type, map, list);
}

static bool are_of_order(const struct core_runs *runs, enum core_mpi_order order)
{
	return order == CORE_MPI_ORDER_NONE || runs->in_order || runs->asked;
}

/* The type's own runs, in the order that was wanted first. NULL: it has none. */
static struct core_runs *first_runs(MPI_Datatype type)
{
	struct core_runs *runs = NULL;
	int found = 0;

	PMPI_Type_get_attr(type, get_type_keyval(), &runs, &found);
	return found ? runs : NULL;
}

/*
 * The type's own runs, if it has them in the order, with a reference for the caller. They stay
 * until the type goes, which is in use here. The callers look twice, since two threads may have
 * asked for the same type at once; whoever comes second throws its own away. The lock is not taken
 * by delete_runs, which MPI calls under locks of its own.
 */
static struct core_runs *get_runs(MPI_Datatype type, enum core_mpi_order order)
{
	struct core_runs *runs = first_runs(type);

	if (runs && !are_of_order(runs, order))
		runs = atomic_load_explicit(&runs->sent, memory_order_acquire);
	if (runs)
		atomic_fetch_add_explicit(&runs->refs, 1, memory_order_relaxed);
	return runs;
}

/* Under the lock: they have a reference for the type. */
static bool give_to_type(MPI_Datatype type, struct core_runs *mine)
{
	struct core_runs *first = first_runs(type);

	if (!first)
		return PMPI_Type_set_attr(type, get_type_keyval(), mine) == MPI_SUCCESS;
	/* Pairs with the acquire in get_runs: who finds them sees what they are. */
	atomic_store_explicit(&first->sent, mine, memory_order_release);
	return true;
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

static struct core_runs *keep_runs(MPI_Datatype type, enum core_mpi_order order,
				   struct core_run_list *list)
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
				   .in_order = list->in_order,
				   .asked = list->asked};
	note_pitch(mine);
	pthread_mutex_lock(&lock);
	runs = get_runs(type, order);
	if (!runs && give_to_type(type, mine))
		runs = mine;
	pthread_mutex_unlock(&lock);
	if (runs != mine) {
		core_runs_put(mine);
		core_runs_put(mine);
	}
	return runs;
}

enum util_status core_mpi_look_for_runs(struct core_typemap *map, enum core_mpi_order order)
{
	struct core_run_list list = {0};
	MPI_Datatype type = core_mpi_as_type(map->type);
	struct core_runs *runs;
	enum util_status status;

	if (map->shared && are_of_order(map->shared, order))
		return UTIL_OK;
	runs = get_runs(type, order);
	if (!runs) {
		status = find_runs(type, map, order, &list);
		if (status != UTIL_OK) {
			empty(&list);
			return status;
		}
		runs = keep_runs(type, order, &list);
	}
	if (!runs)
		return UTIL_ERR_NO_MEMORY;
	core_runs_put(map->shared);
	map->shared = runs;
	map->runs = runs->runs;
	map->num_runs = runs->num_runs;
	map->in_order = runs->in_order;
	return UTIL_OK;
}

enum util_status core_mpi_find_runs(struct core_operand *operand)
{
	enum util_status status = unpacking ? UTIL_ERR_MPI : UTIL_OK;

	for (size_t i = 0; i < operand->num_maps && status == UTIL_OK; i++) {
		if (operand->maps[i].size && !operand->maps[i].runs)
			status = core_mpi_look_for_runs(&operand->maps[i], CORE_MPI_ORDER_NONE);
	}
	return status;
}

enum util_status core_mpi_find_order(struct core_typemap *map)
{
	return core_mpi_look_for_runs(map, CORE_MPI_ORDER_SENT);
}

void core_mpi_forget_types(void)
{
	pthread_mutex_lock(&keyval_lock);
	if (type_keyval != MPI_KEYVAL_INVALID)
		PMPI_Type_free_keyval(&type_keyval);
	pthread_mutex_unlock(&keyval_lock);
}
