/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/nccl_door.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/*
 * Ranks find each other by messages on MPI_COMM_WORLD to the process that made the id, one of them:
 * it hears which process is which rank, and tells all.
 */
struct identity {
	uint64_t magic; /* that of an id of ours */
	uint64_t draw;  /* which is none of another program's */
	int maker;      /* the process */
	int number;     /* of the ids that it has made */
};

static const uint64_t magic = UINT64_C(0x6770756e63636c31);
/* Tags for as many ids at a time, near the end of those that each MPI has. */
enum { FIRST_TAG = 24576, NUM_TAGS = 2048, ANSWER = NUM_TAGS };

/* ---- MPI ---- */

static pid_t starter; /* the process, of which a fork has not MPI */

static bool has_ended(void)
{
	int finalized = 0;

	MPI_Finalized(&finalized);
	return finalized;
}

static pthread_mutex_t aborted_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ncclComm *aborted; /* under the lock */

static void add_aborted(struct ncclComm *comm)
{
	pthread_mutex_lock(&aborted_lock);
	if (!comm->aborted) {
		comm->next_aborted = aborted;
		aborted = comm;
	}
	comm->aborted = true;
	pthread_mutex_unlock(&aborted_lock);
}

static void drop_aborted(const struct ncclComm *comm)
{
	struct ncclComm **link = &aborted;

	pthread_mutex_lock(&aborted_lock);
	while (*link && *link != comm)
		link = &(*link)->next_aborted;
	if (*link)
		*link = comm->next_aborted;
	pthread_mutex_unlock(&aborted_lock);
}

/* Whether there are calls that were aborted, and that MPI is not done with. */
static bool has_aborted_calls(void)
{
	bool found = false;

	pthread_mutex_lock(&aborted_lock);
	for (const struct ncclComm *comm = aborted; comm && !found; comm = comm->next_aborted)
		found = gpucoll_hook_has_calls(comm->ordered);
	pthread_mutex_unlock(&aborted_lock);
	return found;
}

/* What was sent may come to a rank that is late; to one that has aborted, too, it never does. */
static bool have_aborted_calls_ended(void)
{
	static const struct timespec moment = {0, 1000000};
	enum { PATIENCE = 30 };
	time_t since = time(NULL);

	while (has_aborted_calls()) {
		if (time(NULL) - since > PATIENCE)
			return false;
		nanosleep(&moment, NULL);
	}
	return true;
}

/*
 * One that ends with an error does not wait for the others, nor does one whose calls may not end:
 * the launcher sees that it went without MPI_Finalize, and ends the job.
 */
static void finalize(int status, void *nothing)
{
	(void)nothing;
	if (status || getpid() != starter || has_ended() || !have_aborted_calls_ended())
		return;
	nccl_type_finish();
	MPI_Finalize();
}

/* A program that does not start MPI has it started, and ended at exit. */
static void start_mpi(void)
{
	int initialized = 0, level;

	MPI_Initialized(&initialized);
	if (initialized)
		return;
	starter = getpid();
	if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level) == MPI_SUCCESS)
		on_exit(finalize, NULL);
}

static ncclResult_t have_mpi(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, start_mpi);
	if (has_ended())
		return nccl_fail(ncclInvalidUsage, "MPI has ended");
	return nccl_driver_bind();
}

/* ---- who is who ---- */

static ncclResult_t hear(const struct identity *identity, int *processes, int size, int tag)
{
	int error = MPI_SUCCESS;

	for (int i = 1; i < size && !error; i++) {
		int told[2]; /* the rank, and whether it is of this id */
		MPI_Status status;

		error = MPI_Recv(told, 2, MPI_INT, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &status);
		if (!error && (told[1] != (int)identity->draw || told[0] < 0 || told[0] >= size ||
			       processes[told[0]] >= 0))
			return nccl_fail(ncclInvalidUsage,
					 "two processes are rank %d, or the id is another's",
					 told[0]);
		if (!error)
			processes[told[0]] = status.MPI_SOURCE;
	}
	return nccl_of_mpi(error, "MPI_Recv");
}

static ncclResult_t tell_processes(const int *processes, int size, int me, int tag)
{
	int error = MPI_SUCCESS;

	for (int i = 0; i < size && !error; i++) {
		if (processes[i] != me)
			error = MPI_Send(processes, size, MPI_INT, processes[i], tag + ANSWER,
					 MPI_COMM_WORLD);
	}
	return nccl_of_mpi(error, "MPI_Send");
}

static ncclResult_t meet(const struct identity *identity, int *processes, int size, int rank)
{
	int tag = FIRST_TAG + identity->number % NUM_TAGS, me, world;
	int mine[2] = {rank, (int)identity->draw};
	ncclResult_t result;
	int error;

	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	MPI_Comm_size(MPI_COMM_WORLD, &world);
	if (size > world)
		return nccl_fail(ncclInvalidUsage,
				 "%d ranks are to meet in a job of %d: each is a process that was "
				 "started by the MPI's launcher (mpirun, srun --mpi)",
				 size, world);
	for (int i = 0; i < size; i++)
		processes[i] = -1;
	processes[rank] = me;
	if (me == identity->maker) {
		result = hear(identity, processes, size, tag);
		return result == ncclSuccess ? tell_processes(processes, size, me, tag) : result;
	}
	error = MPI_Send(mine, 2, MPI_INT, identity->maker, tag, MPI_COMM_WORLD);
	if (!error)
		error = MPI_Recv(processes, size, MPI_INT, identity->maker, tag + ANSWER,
				 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	return nccl_of_mpi(error, "MPI_Recv");
}

/* A communicator of these processes, in this order. */
static ncclResult_t gather(const int *processes, int size, int number, MPI_Comm *out)
{
	MPI_Group world, group;
	int error = MPI_Comm_group(MPI_COMM_WORLD, &world);

	if (!error)
		error = MPI_Group_incl(world, size, processes, &group);
	if (error)
		return nccl_of_mpi(error, "MPI_Group_incl");
	error = MPI_Comm_create_group(MPI_COMM_WORLD, group, FIRST_TAG + number % NUM_TAGS, out);
	MPI_Group_free(&group);
	MPI_Group_free(&world);
	return nccl_of_mpi(error, "MPI_Comm_create_group");
}

/* ---- communicators ---- */

static ncclResult_t open_stream(struct ncclComm *comm)
{
	CUdevice device;
	ncclResult_t taken = nccl_driver_context(-1, &comm->context);
	CUresult result;

	if (taken != ncclSuccess)
		return taken;
	result = nccl_driver.cuCtxGetDevice(&device);
	if (result == CUDA_SUCCESS)
		result = nccl_driver.cuStreamCreate(&comm->stream, CU_STREAM_NON_BLOCKING);
	if (result == CUDA_SUCCESS)
		result = nccl_driver.cuEventCreate(&comm->before, CU_EVENT_DISABLE_TIMING);
	if (result == CUDA_SUCCESS)
		result = nccl_driver.cuEventCreate(&comm->after, CU_EVENT_DISABLE_TIMING);
	if (result == CUDA_SUCCESS)
		result = nccl_driver.cuMemHostAlloc((void **)&comm->scalars,
						    NCCL_SCALAR_BYTES * NCCL_MAX_USER_OPS,
						    CU_MEMHOSTALLOC_PORTABLE);
	if (result != CUDA_SUCCESS)
		return nccl_of_driver(result, "making a communicator's stream");
	comm->device = device;
	return ncclSuccess;
}

static void close_stream(struct ncclComm *comm)
{
	if (comm->scalars)
		nccl_driver.cuMemFreeHost(comm->scalars);
	if (comm->after)
		nccl_driver.cuEventDestroy(comm->after);
	if (comm->before)
		nccl_driver.cuEventDestroy(comm->before);
	if (comm->stream)
		nccl_driver.cuStreamDestroy(comm->stream);
}

static void free_comm(struct ncclComm *comm)
{
	close_stream(comm);
	pthread_mutex_destroy(&comm->lock);
	free(comm);
}

/* What all ranks have found: one that can't go on has the others not wait for it. */
static ncclResult_t agree(MPI_Comm comm, ncclResult_t mine)
{
	int failed = mine != ncclSuccess, any = 1;
	ncclResult_t result = nccl_of_mpi(MPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, comm),
					  "MPI_Allreduce");

	if (mine != ncclSuccess || result != ncclSuccess)
		return mine != ncclSuccess ? mine : result;
	return any ? nccl_fail(ncclRemoteError, "another rank can't make the communicator")
		   : ncclSuccess;
}

/* Of MPI's communicator, which is the new one's then. Collective. */
static ncclResult_t make_comm(MPI_Comm ranks, ncclComm_t *out)
{
	struct ncclComm *comm = calloc(1, sizeof(*comm));
	ncclResult_t result = comm ? ncclSuccess : nccl_fail(ncclSystemError, "no memory");

	MPI_Comm_set_errhandler(ranks, MPI_ERRORS_RETURN);
	if (comm) {
		pthread_mutex_init(&comm->lock, NULL);
		comm->ranks = ranks;
		MPI_Comm_rank(ranks, &comm->rank);
		MPI_Comm_size(ranks, &comm->size);
		result = open_stream(comm);
	}
	result = agree(ranks, result);
	if (result == ncclSuccess)
		result = nccl_of_mpi(gpucoll_stream_comm(ranks, comm->stream, &comm->ordered),
				     "gpucoll_stream_comm");
	if (result != ncclSuccess) {
		if (comm)
			free_comm(comm);
		MPI_Comm_free(&ranks);
		return result;
	}
	comm->groups = gpucoll_hook_takes_groups(comm->ordered);
	*out = comm;
	return ncclSuccess;
}

static ncclResult_t need_threads(void)
{
	const char *asked = getenv("GPUCOLL_THREADS");
	int level = MPI_THREAD_SINGLE;

	MPI_Query_thread(&level);
	/* With which the MPI may have more than it tells. */
	if (level == MPI_THREAD_MULTIPLE || (asked && !strcmp(asked, "multiple")))
		return ncclSuccess;
	return nccl_fail(ncclInvalidUsage,
			 "the program has started MPI without MPI_THREAD_MULTIPLE: set "
			 "GPUCOLL_THREADS=multiple");
}

/*
 * This process in the job. Before MPI is started, which waits for all processes, of which others
 * may wait for the id, the launcher's word is taken.
 */
static int this_process(void)
{
	static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
					    "SLURM_PROCID"};
	int initialized = 0, process = 0;

	MPI_Initialized(&initialized);
	if (initialized && !has_ended()) {
		MPI_Comm_rank(MPI_COMM_WORLD, &process);
		return process;
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (getenv(names[i]))
			return atoi(getenv(names[i]));
	}
	return 0;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	static int made; /* atomic */
	struct identity identity = {.magic = magic, .maker = this_process()};
	struct timespec now;

	if (!id)
		return nccl_fail(ncclInvalidArgument, "ncclGetUniqueId: the id is NULL");
	clock_gettime(CLOCK_REALTIME, &now);
	identity.number = __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED);
	identity.draw = (uint64_t)now.tv_nsec ^ (uint64_t)identity.number << 20;
	memset(id, 0, sizeof(*id));
	memcpy(id->internal, &identity, sizeof(identity));
	return ncclSuccess;
}

static ncclResult_t init(ncclComm_t *comm, int nranks, const ncclUniqueId *id, int rank)
{
	struct identity identity;
	ncclResult_t result = have_mpi();
	int *processes;
	MPI_Comm ranks;

	if (result == ncclSuccess)
		result = need_threads();
	if (result != ncclSuccess)
		return result;
	memcpy(&identity, id->internal, sizeof(identity));
	if (identity.magic != magic)
		return nccl_fail(ncclInvalidArgument, "the id was not made by ncclGetUniqueId");
	processes = malloc((size_t)nranks * sizeof(*processes));
	if (!processes)
		return nccl_fail(ncclSystemError, "no memory");
	result = meet(&identity, processes, nranks, rank);
	if (result == ncclSuccess)
		result = gather(processes, nranks, identity.number, &ranks);
	free(processes);
	return result == ncclSuccess ? make_comm(ranks, comm) : result;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
	if (!comm || nranks < 1 || rank < 0 || rank >= nranks)
		return nccl_fail(ncclInvalidArgument, "ncclCommInitRank: rank %d of %d", rank,
				 nranks);
	*comm = NULL;
	return init(comm, nranks, &id, rank);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
				    ncclConfig_t *config)
{
	(void)config;
	return ncclCommInitRank(comm, nranks, id, rank);
}

/* Of several ids one is enough. */
ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int nranks, int rank, int num_ids,
				      ncclUniqueId *ids, ncclConfig_t *config)
{
	(void)config;
	if (num_ids < 1 || !ids)
		return nccl_fail(ncclInvalidArgument, "ncclCommInitRankScalable: %d ids", num_ids);
	return ncclCommInitRank(comm, nranks, ids[0], rank);
}

ncclResult_t ncclCommInitAll(ncclComm_t *comms, int num, const int *devices)
{
	ncclUniqueId id;
	CUcontext context;
	ncclResult_t result;

	if (num != 1)
		return nccl_fail(
			ncclInvalidUsage,
			"ncclCommInitAll of %d devices: a process has one rank here; start "
			"%d processes by the MPI's launcher",
			num, num);
	result = nccl_driver_bind();
	if (result == ncclSuccess)
		result = nccl_driver_context(devices ? devices[0] : -1, &context);
	if (result == ncclSuccess)
		result = ncclGetUniqueId(&id);
	return result == ncclSuccess ? ncclCommInitRank(comms, 1, id, 0) : result;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
			   ncclConfig_t *config)
{
	MPI_Comm ranks;
	ncclResult_t result;

	(void)config;
	if (!comm || !newcomm || (color < 0 && color != NCCL_SPLIT_NOCOLOR))
		return nccl_fail(ncclInvalidArgument, "ncclCommSplit: color %d", color);
	*newcomm = NULL;
	result = nccl_of_mpi(
		MPI_Comm_split(comm->ranks, color < 0 ? MPI_UNDEFINED : color, key, &ranks),
		"MPI_Comm_split");
	if (result != ncclSuccess || ranks == MPI_COMM_NULL)
		return result;
	return make_comm(ranks, newcomm);
}

/*
 * Kernels that wait for others give up. MPI takes back no collective that has begun: what is under
 * way keeps what it needs. Where all has ended nobody lacks anything of this rank, and others may
 * still be at what it has done: PyTorch aborts what a program leaves at its exit.
 */
static void give_up(struct ncclComm *comm, bool idle_too)
{
	if (gpucoll_hook_abandon(comm->ordered, idle_too))
		add_aborted(comm);
}

/* Each a rank, another one, and not this one. */
static bool may_exclude(const struct ncclComm *comm, const int *exclude, int num)
{
	for (int i = 0; i < num; i++) {
		if (exclude[i] < 0 || exclude[i] >= comm->size || exclude[i] == comm->rank)
			return false;
		for (int j = 0; j < i; j++) {
			if (exclude[i] == exclude[j])
				return false;
		}
	}
	return true;
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int *exclude, int num, ncclComm_t *newcomm,
			    ncclConfig_t *config, int flags)
{
	enum { TAG = 2 };
	MPI_Group group, rest;
	MPI_Comm ranks;
	int error;

	(void)config;
	if (!comm || !newcomm || num < 0 || (num && !exclude) || !may_exclude(comm, exclude, num))
		return nccl_fail(ncclInvalidArgument, "ncclCommShrink: %d ranks to exclude", num);
	*newcomm = NULL;
	if (flags & NCCL_SHRINK_ABORT)
		give_up(comm, false);
	MPI_Comm_group(comm->ranks, &group);
	MPI_Group_excl(group, num, exclude, &rest);
	error = MPI_Comm_create_group(comm->ranks, rest, TAG, &ranks);
	MPI_Group_free(&rest);
	MPI_Group_free(&group);
	return error ? nccl_of_mpi(error, "MPI_Comm_create_group") : make_comm(ranks, newcomm);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
	if (!comm)
		return nccl_fail(ncclInvalidArgument, "ncclCommFinalize: the communicator is NULL");
	return nccl_of_driver(nccl_driver.cuStreamSynchronize(comm->stream), "cuStreamSynchronize");
}

/* What is enqueued ends first. */
ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
	ncclResult_t result;

	/* MPI, and what was enqueued, may have ended before. */
	if (!comm || has_ended())
		return ncclSuccess;
	drop_aborted(comm);
	result = nccl_of_mpi(MPI_Comm_free(&comm->ordered), "MPI_Comm_free");
	if (result == ncclSuccess)
		result = nccl_of_mpi(MPI_Comm_free(&comm->ranks), "MPI_Comm_free");
	free_comm(comm);
	return result;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
	if (comm)
		give_up(comm, true);
	return ncclSuccess;
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags)
{
	(void)flags;
	return comm ? nccl_fail(ncclInvalidUsage, "ncclCommRevoke: the MPI takes back nothing")
		    : nccl_fail(ncclInvalidArgument, "ncclCommRevoke: the communicator is NULL");
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
	int code = MPI_SUCCESS;

	if (!comm || !error)
		return nccl_fail(ncclInvalidArgument, "ncclCommGetAsyncError: an argument is NULL");
	/* Without the lock, under which a call may wait for room. */
	gpucoll_stream_error(comm->ordered, &code);
	if (code != MPI_SUCCESS &&
	    __atomic_exchange_n(&comm->error, ncclRemoteError, __ATOMIC_RELAXED) == ncclSuccess)
		nccl_of_mpi(code, "an earlier call");
	*error = __atomic_load_n(&comm->error, __ATOMIC_RELAXED);
	return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
	if (!comm || !count)
		return nccl_fail(ncclInvalidArgument, "ncclCommCount: an argument is NULL");
	*count = comm->size;
	return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
	if (!comm || !device)
		return nccl_fail(ncclInvalidArgument, "ncclCommCuDevice: an argument is NULL");
	*device = comm->device;
	return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
	if (!comm || !rank)
		return nccl_fail(ncclInvalidArgument, "ncclCommUserRank: an argument is NULL");
	*rank = comm->rank;
	return ncclSuccess;
}

ncclResult_t ncclGetVersion(int *version)
{
	if (!version)
		return nccl_fail(ncclInvalidArgument, "ncclGetVersion: the version is NULL");
	*version = NCCL_VERSION_CODE;
	return ncclSuccess;
}
