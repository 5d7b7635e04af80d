/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI_Init and MPI_Init_thread, the end in MPI_Finalize, and the public functions of gpucoll.h. */
#include "core/call/core_flags.h"
#include "core/choose/core_choice.h"
#include "core/choose/core_wish.h"
#include "core/core_run.h"
#include "core/mpi/core_mpi.h"
#include "core/p2p/core_mpi_side.h"
#include "core/p2p/core_mpi_trial.h"
#include "core/report/core_stats.h"
#include "gpu/gpu_use.h"
#include "pmpi/pmpi_call.h"
#include "gpucoll/gpucoll.h" /* after mpi.h */
#include "util/util_config.h"
#include "util/util_log.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/*
 * A child of fork has no MPI and no use of the parent's CUDA contexts: it gets the real MPI's own
 * errors.
 */
static void disable_in_child(void)
{
	pmpi_off = true;
	core_forget();
}

/*
 * MPI_Finalize first calls what applications have hung on MPI_COMM_SELF as attributes, where they
 * may still communicate. So the library stops in such a callback of its own, which was hung there
 * first and is called last.
 */
static void stop(void)
{
	pmpi_enter(PMPI_DOOR_MPI);
	core_stop(pmpi_session_is_open());
	pmpi_leave();
}

void pmpi_start(void)
{
	pmpi_enter(PMPI_DOOR_MPI);
	core_mpi_claims_cuda = pmpi_mpi_is_cuda_aware();
	pmpi_start_streams();
	core_start(stop);
	pmpi_look_at_start();
	if (core_awake)
		pthread_atfork(NULL, NULL, disable_in_child);
	if (util_config.disable)
		__atomic_store_n(&pmpi_off, true, __ATOMIC_RELAXED);
	pmpi_leave();
}

/*
 * A program of one MPI that is linked with the library for another gets the library's MPI calls,
 * and with them that one's: nothing can come of it.
 */
static void refuse_other_mpi(void)
{
#ifdef OPEN_MPI
	static const char symbol[] = "MPIR_Err_create_code", ours[] = "Open MPI",
			  theirs[] = "MPICH", name[] = "mpich";
#else
	static const char symbol[] = "ompi_mpi_comm_world", ours[] = "MPICH", theirs[] = "Open MPI",
			  name[] = "openmpi";
#endif

	if (!dlsym(RTLD_DEFAULT, symbol))
		return;
	fprintf(stderr,
		"libgpucoll: this program uses %s, but runs under the libgpucoll.so for %s: link "
		"with -L<libdir>/gpucoll/%s, or let gpucoll-exec find the right one\n",
		theirs, ours, name);
	exit(1);
}

static bool came_in; /* by MPI_Init or MPI_Init_thread */

static void come_in(void)
{
	came_in = true;
	refuse_other_mpi();
	gpu_use_look();
}

/*
 * Bindings of other languages take MPI's functions from the MPI's own library, by dlsym, where
 * nothing that is preloaded comes before it. There is nothing to notice that by, but that MPI was
 * started and the library not.
 */
__attribute__((destructor)) static void look_back(void)
{
	int (*ask)(int *) = NULL, started = 0;

	if (came_in || !gpu_driver_present())
		return;
	*(void **)&ask = dlsym(RTLD_NEXT, "PMPI_Initialized");
	if (!ask || ask(&started) != MPI_SUCCESS || !started)
		return;
	util_config_load();
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_PMPI,
		 "this program has taken MPI_Init from the MPI's own library (dlopen, dlsym), past "
		 "libgpucoll, which did nothing: have it open libgpucoll.so in that one's place, "
		 "see gpucoll(7)");
}

/* What the program has asked for, where the MPI was asked for more; -1: it was not. */
static int asked_level = -1;

/* GPUCOLL_THREADS: what the program is told of the level that the MPI has. */
static void note_level(int result, int required, int level, int *provided)
{
	if (result == MPI_SUCCESS)
		asked_level = *provided = level < required ? level : required;
}

static bool wants_threads(void)
{
	util_config_load();
	return !pmpi_depth && util_config.threads == UTIL_THREADS_MULTIPLE;
}

/* Inside the library it is the MPI's own level that counts. */
int pmpi_own_Query_thread(int (*next)(int *), int *provided)
{
	int result = next(provided);

	if (result == MPI_SUCCESS && asked_level >= 0 && !pmpi_is_inside())
		*provided = asked_level;
	return result;
}

static int init(int (*next)(int *, char ***), int *argc, char ***argv)
{
	bool threads = wants_threads();
	int level = MPI_THREAD_SINGLE, provided, result;

	come_in();
	pmpi_enter(PMPI_DOOR_MPI);
	/* Under the guard that goes on to the real one. */
	result = threads ? PMPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &level)
			 : next(argc, argv);
	pmpi_leave();
	if (threads)
		note_level(result, MPI_THREAD_SINGLE, level, &provided);
	if (result == MPI_SUCCESS && !pmpi_depth)
		pmpi_start();
	return result;
}

int pmpi_own_Init(int (*next)(int *, char ***), int *argc, char ***argv)
{
	int result = MPI_SUCCESS;

	if (pmpi_is_inside())
		return init(next, argc, argv);
	pmpi_session_lock();
	if (!pmpi_session_hand_over())
		result = init(next, argc, argv);
	pmpi_session_unlock();
	return result;
}

static int init_thread(int (*next)(int *, char ***, int, int *), int *argc, char ***argv,
		       int required, int *provided)
{
	bool threads = wants_threads();
	int level = MPI_THREAD_SINGLE, result;

	come_in();
	pmpi_enter(PMPI_DOOR_MPI);
	result = threads ? next(argc, argv, MPI_THREAD_MULTIPLE, &level)
			 : next(argc, argv, required, provided);
	pmpi_leave();
	if (threads)
		note_level(result, required, level, provided);
	if (result == MPI_SUCCESS && !pmpi_depth)
		pmpi_start();
	return result;
}

int pmpi_own_Init_thread(int (*next)(int *, char ***, int, int *), int *argc, char ***argv,
			 int required, int *provided)
{
	int result;

	if (pmpi_is_inside())
		return init_thread(next, argc, argv, required, provided);
	pmpi_session_lock();
	result = pmpi_session_hand_over() ? PMPI_Query_thread(provided)
					  : init_thread(next, argc, argv, required, provided);
	pmpi_session_unlock();
	return result;
}

static int half_type(enum core_half half, MPI_Datatype *type)
{
	core_handle handle;

	pmpi_enter(PMPI_DOOR_MPI);
	int result = core_mpi_half_type(half, &handle);
	pmpi_leave();
	if (result == MPI_SUCCESS)
		*type = (MPI_Datatype)handle;
	return result;
}

int gpucoll_type_float16(MPI_Datatype *type)
{
	return half_type(CORE_FLOAT16, type);
}

int gpucoll_type_bfloat16(MPI_Datatype *type)
{
	return half_type(CORE_BFLOAT16, type);
}

const char *gpucoll_version(void)
{
	return GPUCOLL_VERSION_STRING;
}

int gpucoll_enable(int on)
{
	return !__atomic_exchange_n(&pmpi_off, !on, __ATOMIC_RELAXED);
}

int gpucoll_is_device_buffer(const void *address)
{
	return gpu_driver_present() && gpu_pointer_is_device(address);
}

int gpucoll_wait_default_stream(int waits)
{
	bool waited = !core_mpi_side_opens_ready;

	core_mpi_side_opens_ready = !waits;
	return waited;
}

enum gpucoll_path gpucoll_last_path(void)
{
	return (enum gpucoll_path)core_last_path;
}

int gpucoll_set_algorithms(const char *algorithms, const char *protocols, const char *channels)
{
	return core_wish_set(algorithms, protocols, channels) ? 0 : -1;
}

int gpucoll_last_choice(char *text, size_t bytes)
{
	return core_choice_last(text, bytes) ? 0 : -1;
}

int gpucoll_count_calls(enum gpucoll_path path, unsigned long long *calls,
			unsigned long long *bytes)
{
	if (path < GPUCOLL_PATH_PASS || path > GPUCOLL_PATH_ACCEL)
		return -1;
	core_stats_total((enum core_path)path, calls, bytes);
	return 0;
}
