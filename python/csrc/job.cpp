/* SPDX-License-Identifier: BSD-3-Clause */
#include "job.h"
#include "work.h"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unistd.h>

namespace gpucoll
{

void job_check(int error, const char *call)
{
	char text[MPI_MAX_ERROR_STRING] = "";
	int length;

	if (error == MPI_SUCCESS)
		return;
	MPI_Error_string(error, text, &length);
	TORCH_CHECK_WITH(DistBackendError, false, "gpucoll: ", call, ": ", text);
}

/* ---- start and end ---- */

static pid_t starter; /* of MPI */
static pid_t process; /* that has MPI, whoever started it; a fork has not */

bool job_is_fork()
{
	return process && process != getpid();
}

static bool has_ended()
{
	int finalized = 0;

	MPI_Finalized(&finalized);
	return finalized;
}

/*
 * One that ends with an error does not wait for the others, nor does one whose calls have not
 * ended: the launcher sees that it went without MPI_Finalize, and ends the job.
 */
static void finalize(int status, void *)
{
	if (!status && getpid() == starter && !has_ended() && !engine_is_busy() &&
	    !work_was_abandoned())
		MPI_Finalize();
}

static void start_mpi()
{
	int initialized = 0, level;

	MPI_Initialized(&initialized);
	if (initialized)
		return;
	job_check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level),
		  "MPI_Init_thread");
	/* MPICH raises errors of requests there, whatever communicator they are of. */
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	starter = getpid();
	on_exit(finalize, nullptr);
}

void job_start()
{
	static std::once_flag once;
	const char *asked = getenv("GPUCOLL_THREADS");
	int level = MPI_THREAD_SINGLE;

	std::call_once(once, start_mpi);
	if (!process)
		process = getpid();
	TORCH_CHECK(!has_ended(), "gpucoll: MPI has ended");
	MPI_Query_thread(&level);
	/* With which the MPI may have more than it tells. */
	TORCH_CHECK(level == MPI_THREAD_MULTIPLE || (asked && !strcmp(asked, "multiple")),
		    "gpucoll: the program has started MPI without MPI_THREAD_MULTIPLE: set "
		    "GPUCOLL_THREADS=multiple");
}

/* ---- who is who ---- */

int job_rank()
{
	int rank;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	return rank;
}

int job_size()
{
	int size;

	MPI_Comm_size(MPI_COMM_WORLD, &size);
	return size;
}

std::string job_share(std::string text)
{
	int length = static_cast<int>(text.size());

	job_check(MPI_Bcast(&length, 1, MPI_INT, 0, MPI_COMM_WORLD), "MPI_Bcast");
	text.resize(length);
	job_check(MPI_Bcast(text.data(), length, MPI_CHAR, 0, MPI_COMM_WORLD), "MPI_Bcast");
	return text;
}

bool job_is_on_one_node()
{
	MPI_Comm node;
	int size;

	job_check(
		MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node),
		"MPI_Comm_split_type");
	MPI_Comm_size(node, &size);
	MPI_Comm_free(&node);
	return size == job_size();
}

/* The processes in the order of torch's ranks: rank 0 hears who each is, and says it to all. */
static std::vector<int> meet(c10d::Store &store, int rank, int size)
{
	auto key = [](int of) { return "gpucoll/process/" + std::to_string(of); };
	std::vector<int> processes(size);
	std::vector<uint8_t> bytes(size * sizeof(int));
	int me = job_rank();

	store.set(key(rank), std::to_string(me));
	for (int i = 0; i < size && rank == 0; i++)
		processes[i] = std::stoi(store.get_to_str(key(i)));
	if (rank == 0) {
		memcpy(bytes.data(), processes.data(), bytes.size());
		store.set("gpucoll/processes", bytes);
		return processes;
	}
	bytes = store.get("gpucoll/processes");
	TORCH_CHECK(bytes.size() == size * sizeof(int), "gpucoll: the store is another group's");
	memcpy(processes.data(), bytes.data(), bytes.size());
	return processes;
}

static void check_processes(const std::vector<int> &processes)
{
	int world = job_size();
	std::vector<int> rank_of(world, -1);

	for (int i = 0; i < static_cast<int>(processes.size()); i++) {
		int process = processes[i];

		TORCH_CHECK(
			process < world && rank_of[process] < 0, "gpucoll: ranks ",
			process < world ? rank_of[process] : i, " and ", i, " of ",
			processes.size(), " say that they are process ", process,
			" of MPI's job, which has ", world,
			": each rank is a process that the MPI's launcher started (mpirun, srun --mpi)");
		rank_of[process] = i;
	}
}

MPI_Comm job_make_comm(c10d::Store &store, int rank, int size)
{
	/* A group's processes make one at a time, so that one tag serves. */
	enum { TAG = 28672 };
	std::vector<int> processes = meet(store, rank, size);
	MPI_Group world, group;
	MPI_Comm comm = MPI_COMM_NULL;
	int error;

	check_processes(processes);
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	job_check(MPI_Group_incl(world, size, processes.data(), &group), "MPI_Group_incl");
	error = MPI_Comm_create_group(MPI_COMM_WORLD, group, TAG, &comm);
	MPI_Group_free(&group);
	MPI_Group_free(&world);
	job_check(error, "MPI_Comm_create_group");
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	return comm;
}

} // namespace gpucoll
