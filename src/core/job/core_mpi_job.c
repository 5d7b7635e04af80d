/* SPDX-License-Identifier: BSD-3-Clause */
/* Who the processes of the job are, and what they tell each other. */
#include "core/job/core_mpi_job.h"
#include "core/call/core_mpi_handle.h"
#include "core/job/core_mpi_muster.h"
#include "util/util_hash.h"
#include "util/util_log.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct core_mpi_job core_mpi_job;
bool core_mpi_job_has_sessions;

MPI_Comm core_mpi_private_comm = MPI_COMM_NULL;

static MPI_Comm node_comm = MPI_COMM_NULL;
static struct core_member *processes; /* of the job, by rank in MPI_COMM_WORLD */
struct node {
	int leader;
	bool has_driver, may_use;
	uint64_t machine;
};
static struct node *nodes; /* of the job */
/* This node's other processes, by local rank. */
static struct watched {
	int fd;    /* a descriptor of the process; -1: there is none; then: */
	pid_t pid; /* 0: it can't be watched */
} * watched;
static uint64_t
	id_base; /* random, so that ids drawn by processes of different jobs (spawn) differ */

struct introduction {
	uint64_t host;
	uint64_t machine;
	uint32_t driver, may_use;
};

/* Of the kernel that runs. */
static uint64_t machine_identity(void)
{
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
	uint64_t hash = UTIL_HASH_START;
	char text[256];

	if (!file)
		return hash;
	if (fgets(text, sizeof(text), file))
		hash = util_hash_text(hash, text);
	fclose(file);
	return hash;
}

/*
 * Processes are on one node when they share the kernel, the IPC namespace and the file system of
 * /dev/shm.
 */
static uint64_t host_identity(const char *hostid, uint64_t machine)
{
	char text[256] = "", shm[64];
	uint64_t hash = machine;
	struct stat status = {0};

	if (hostid)
		return util_hash_text(UTIL_HASH_START, hostid);
	ssize_t length = readlink("/proc/self/ns/ipc", text, sizeof(text) - 1);
	if (length > 0) {
		text[length] = 0;
		hash = util_hash_text(hash, text);
	}
	stat("/dev/shm", &status);
	snprintf(shm, sizeof(shm), "%llu", (unsigned long long)status.st_dev);
	return util_hash_text(hash, shm);
}

/* Number the nodes in the order of their lowest ranks. */
static void number_nodes(const struct introduction *all)
{
	struct core_mpi_job *job = &core_mpi_job;

	job->all_drivers = true;
	for (int i = 0; i < job->size; i++) {
		int first = 0;

		while (all[first].host != all[i].host)
			first++;
		if (first == i)
			nodes[job->num_nodes++] = (struct node){i, false, false, all[i].machine};
		processes[i].process = i;
		processes[i].node = first == i ? job->num_nodes - 1 : processes[first].node;
		nodes[processes[i].node].has_driver |= all[i].driver != 0;
		nodes[processes[i].node].may_use |= all[i].may_use != 0;
		job->any_driver |= all[i].driver != 0;
		job->all_drivers &= all[i].driver != 0;
	}
	job->node = processes[job->rank].node;
	job->local_size = 0;
	for (int i = 0; i < job->size; i++)
		processes[i].local_rank = processes[i].node == job->node ? job->local_size++ : -1;
	job->local_rank = processes[job->rank].local_rank;
}

bool core_mpi_node_has_driver(int node)
{
	return nodes[node].has_driver;
}

bool core_mpi_node_may_use(int node)
{
	return nodes[node].may_use;
}

uint64_t core_mpi_node_machine(int node)
{
	return nodes[node].machine;
}

struct core_member core_mpi_member(int process)
{
	return processes[process];
}

int core_mpi_node_leader(int node)
{
	return nodes[node].leader;
}

static int call_stop(MPI_Comm comm, int keyval, void *value, void *extra)
{
	void (*stop)(void);

	(void)comm;
	(void)keyval;
	(void)value;
	*(void **)&stop = extra;
	stop();
	return MPI_SUCCESS;
}

/*
 * MPI deletes the attributes of MPI_COMM_SELF first of all, in the reverse order of their setting.
 */
void core_mpi_at_finalize(void (*stop)(void))
{
	int keyval = MPI_KEYVAL_INVALID;

	PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, call_stop, &keyval, *(void **)&stop);
	PMPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL);
	PMPI_Comm_free_keyval(&keyval);
}

/* The others are waiting in an exchange: a job that can't have this memory can't go on. */
static void give_up_without_memory(void)
{
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE, "no memory for %d ranks at start",
		 core_mpi_job.size);
	util_log_drain();
	PMPI_Abort(MPI_COMM_WORLD, 1);
}

/*
 * Processes in another PID namespace, where numbers are others', are not watched. Where there are
 * no descriptors of processes (before Linux 5.3, or in a container that forbids them) it is by
 * number.
 */
static void watch_processes(void)
{
	struct {
		uint64_t space, pid;
	} mine = {0, (uint64_t)getpid()}, *all;
	int num = core_mpi_job.local_size;
	struct stat status = {0};

	stat("/proc/self/ns/pid", &status);
	mine.space = status.st_ino;
	all = calloc((size_t)num, sizeof(*all));

	watched = calloc((size_t)num, sizeof(*watched));
	if (!all || !watched)
		give_up_without_memory();
	PMPI_Allgather(&mine, sizeof(mine), MPI_BYTE, all, sizeof(mine), MPI_BYTE, node_comm);
	for (int i = 0; i < num; i++) {
		watched[i] = (struct watched){-1, 0};
		if (i == core_mpi_job.local_rank || all[i].space != mine.space)
			continue;
		watched[i].pid = (pid_t)all[i].pid;
		watched[i].fd = (int)syscall(SYS_pidfd_open, watched[i].pid, 0);
	}
	free(all);
}

bool core_mpi_has_ended(int local_rank)
{
	const struct watched *other = watched ? &watched[local_rank] : NULL;
	struct pollfd fd = {.fd = other ? other->fd : -1, .events = POLLIN};

	if (!other) /* in MPI_Finalize */
		return false;
	if (other->fd >= 0)
		return poll(&fd, 1, 0) > 0;
	return other->pid && kill(other->pid, 0) && errno == ESRCH;
}

static void stop_watching(void)
{
	for (int i = 0; watched && i < core_mpi_job.local_size; i++) {
		if (watched[i].fd >= 0)
			close(watched[i].fd);
	}
	free(watched);
	watched = NULL;
}

enum util_status core_mpi_start(const char *hostid, bool have_driver, bool may_use)
{
	struct core_mpi_job *job = &core_mpi_job;
	uint64_t machine = machine_identity();
	struct introduction mine = {host_identity(hostid, machine), machine, have_driver, may_use},
			    *all;

	PMPI_Comm_rank(MPI_COMM_WORLD, &job->rank);
	PMPI_Comm_size(MPI_COMM_WORLD, &job->size);
	if (!core_mpi_muster(job->rank, job->size, &core_mpi_private_comm))
		return UTIL_ERR_MPI;
	PMPI_Comm_set_errhandler(core_mpi_private_comm, MPI_ERRORS_RETURN);
	all = calloc((size_t)job->size, sizeof(*all));
	processes = calloc((size_t)job->size, sizeof(*processes));
	nodes = calloc((size_t)job->size, sizeof(*nodes));
	if (!all || !processes || !nodes)
		give_up_without_memory();
	PMPI_Allgather(&mine, sizeof(mine), MPI_BYTE, all, sizeof(mine), MPI_BYTE,
		       core_mpi_private_comm);
	number_nodes(all);
	free(all);
	if (!job->any_driver) {
		core_mpi_stop();
		return UTIL_OK;
	}
	if (getrandom(&id_base, sizeof(id_base), 0) != (ssize_t)sizeof(id_base))
		id_base = ((uint64_t)getpid() << 32) ^ mine.host;
	job->id = id_base;
	PMPI_Bcast(&job->id, sizeof(job->id), MPI_BYTE, 0, core_mpi_private_comm);
	PMPI_Comm_split(core_mpi_private_comm, job->node, job->rank, &node_comm);
	watch_processes();
	return UTIL_OK;
}

enum util_status core_mpi_node_bcast(void *data, int bytes)
{
	return PMPI_Bcast(data, bytes, MPI_BYTE, 0, node_comm) == MPI_SUCCESS ? UTIL_OK
									      : UTIL_ERR_MPI;
}

enum util_status core_mpi_job_bcast(void *data, int bytes)
{
	return PMPI_Bcast(data, bytes, MPI_BYTE, 0, core_mpi_private_comm) == MPI_SUCCESS
		       ? UTIL_OK
		       : UTIL_ERR_MPI;
}

bool core_mpi_node_all(bool yes)
{
	int mine = yes, all = 0;

	return PMPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, node_comm) == MPI_SUCCESS && all;
}

bool core_mpi_job_all(bool yes)
{
	int mine = yes, all = 0;

	return PMPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, core_mpi_private_comm) ==
		       MPI_SUCCESS &&
	       all;
}

bool core_mpi_job_same(uint64_t number)
{
	uint64_t mine[] = {number, ~number}, least[2]; /* the least complement is the largest's */

	return PMPI_Allreduce(mine, least, 2, MPI_UINT64_T, MPI_MIN, core_mpi_private_comm) ==
		       MPI_SUCCESS &&
	       least[0] == ~least[1];
}

void core_mpi_job_barrier(void (*meanwhile)(void))
{
	MPI_Request request;
	int done = 0;

	if (!meanwhile || PMPI_Ibarrier(core_mpi_private_comm, &request) != MPI_SUCCESS) {
		PMPI_Barrier(core_mpi_private_comm);
		return;
	}
	while (!done && PMPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS)
		meanwhile();
}

enum util_status core_mpi_job_gather(const void *mine, int bytes, void **all, int **sizes)
{
	size_t num = (size_t)core_mpi_job.size, total = 0;
	int *counts = malloc(2 * num * sizeof(int)), *displs = counts + num;

	if (!counts)
		give_up_without_memory();
	PMPI_Allgather(&bytes, 1, MPI_INT, counts, 1, MPI_INT, core_mpi_private_comm);
	for (size_t i = 0; i < num; i++) {
		displs[i] = (int)total;
		total += (size_t)counts[i];
	}
	*all = malloc(total + 1);
	if (!*all || total > INT_MAX)
		give_up_without_memory();
	*sizes = counts;
	return PMPI_Allgatherv(mine, bytes, MPI_BYTE, *all, counts, displs, MPI_BYTE,
			       core_mpi_private_comm) == MPI_SUCCESS
		       ? UTIL_OK
		       : UTIL_ERR_MPI;
}

void core_mpi_stop(void)
{
	stop_watching();
	if (node_comm != MPI_COMM_NULL)
		PMPI_Comm_free(&node_comm);
	if (core_mpi_private_comm != MPI_COMM_NULL)
		PMPI_Comm_free(&core_mpi_private_comm);
	free(processes);
	free(nodes);
	processes = NULL;
	nodes = NULL;
}

uint64_t core_mpi_draw_id(void)
{
	static _Atomic uint64_t drawn;
	uint64_t id = id_base + atomic_fetch_add_explicit(&drawn, 1, memory_order_relaxed);

	return id ? id : core_mpi_draw_id();
}
