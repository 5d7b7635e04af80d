/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_network.h"
#include "core/agree/core_nodes.h"
#include "core/agree/core_service.h"
#include "core/choose/core_nic.h"
#include "core/comm/core_board.h"
#include "core/job/core_mpi_drive.h"
#include "core/job/core_mpi_job.h"
#include "core/wire/core_mail.h"
#include "core/wire/core_wire.h"
#include "net/net_port.h"
#include "net/net_rest.h"
#include "util/util_config.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <dirent.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>

/* Every process takes part in every exchange, whatever has become of its own start. */
static bool exchange_addresses(enum util_status status)
{
	const void *mine = NULL;
	void *all = NULL;
	int *sizes = NULL;
	size_t bytes = 0;

	if (!core_mpi_job_all(status == UTIL_OK))
		return false;
	mine = net_address(&bytes);
	status = core_mpi_job_gather(mine, (int)bytes, &all, &sizes);
	if (status == UTIL_OK)
		status = net_set_addresses(all, sizes);
	free(all);
	free(sizes);
	return core_mpi_job_all(status == UTIL_OK);
}

/* One of the next node, so that all together look at all. */
static int next_process(void)
{
	int node = (core_mpi_job.node + 1) % core_mpi_job.num_nodes, num = 0, found = -1;

	for (int i = 0; i < core_mpi_job.size; i++)
		num += core_mpi_member(i).node == node;
	num = core_mpi_job.local_rank % num;
	for (int i = 0; i < core_mpi_job.size && found < 0; i++) {
		if (core_mpi_member(i).node == node && num-- == 0)
			found = i;
	}
	return found;
}

static void progress_network(void)
{
	net_progress(NET_MAIN);
	net_progress(NET_SERVICE);
	sched_yield();
}

static int unreached; /* a process to which there was no way */

/* Whether there is a way from this process to such a port, which an address does not tell. */
static bool has_way(int process, enum net_port port, uint64_t patience)
{
	uint64_t since = util_now();
	struct core_wait wait = {0};

	net_greet(process, port);
	while (!net_has_answered(process, port) && !net_is_lost(process) &&
	       util_now() - since < patience) {
		progress_network();
		core_mpi_drive(&wait);
	}
	if (net_has_answered(process, port))
		return true;
	unreached = process;
	return false;
}

static bool has_ways(uint64_t patience)
{
	int next = next_process();

	if (!has_way(next, NET_MAIN, patience))
		return false;
	return core_mpi_job.local_rank != 0 ||
	       has_way(core_mpi_node_leader(core_mpi_member(next).node), NET_SERVICE, patience);
}

/*
 * Collective. All make progress until all are connected, or know that they won't be. First every
 * second node and then the others, as UCX 1.13 complains of a closed socket where two processes
 * connect to each other at once.
 */
static bool have_ways(uint64_t patience)
{
	bool well = true;

	core_mpi_job_barrier(progress_network);
	for (int turn = 0; turn < 2 && well; turn++) {
		if (core_mpi_job.node % 2 == turn)
			well = has_ways(patience);
		core_mpi_job_barrier(progress_network);
		well = core_mpi_job_all(well);
	}
	return well;
}

static rlim_t count_descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	rlim_t count = 0;

	while (folder && readdir(folder))
		count++;
	if (folder)
		closedir(folder);
	return count;
}

/*
 * Room for the sockets to all processes of other nodes: each has some, of this process's port and
 * of the service's, and what UCX can't open later it takes for a process that is lost. The soft
 * limit is raised where it is too low.
 */
static bool has_descriptors(void)
{
	enum { FOR_UCX = 48, OF_A_PEER = 4 };
	rlim_t needed = count_descriptors() + FOR_UCX +
			OF_A_PEER * (rlim_t)(core_mpi_job.size - core_mpi_job.local_size);
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= needed)
		return true;
	if (limit.rlim_max < needed) {
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_NET,
			 "a process may open %llu files, and would need %llu for sockets to other "
			 "nodes: calls between nodes are staged. ulimit -n, or "
			 "/etc/security/limits.conf",
			 (unsigned long long)limit.rlim_max, (unsigned long long)needed);
		return false;
	}
	limit.rlim_cur = needed;
	return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

static bool is_wanted(void)
{
	int with_driver = 0;

	for (int i = 0; i < core_mpi_job.num_nodes; i++)
		with_driver += core_mpi_node_has_driver(i);
	return with_driver > 1;
}

/*
 * Collective. UTIL_ERR_PEER: the processes can't reach each other so; `*guessed`: some tried to by
 * one interface.
 */
static enum util_status bring_up(const struct net_devices *devices, bool *guessed)
{
	static const uint64_t patience = UTIL_SECONDS(20),
			      little_patience = UTIL_SECONDS(5); /* ns */
	enum util_status status = UTIL_ERR_UNSUPPORTED;
	bool leader = core_mpi_job.local_rank == 0;

	unreached = -1;
	core_nodes_handle_mail();
	core_wire_handle_mail();
	if (util_config.net == UTIL_NET_UCX && core_board_is_up())
		status = net_start(core_mpi_job.id, core_mpi_job.rank, core_mpi_job.size, leader,
				   devices);
	if (exchange_addresses(status) &&
	    core_mpi_job_all(!net_is_by_sockets() || has_descriptors())) {
		core_mail_listen();
		*guessed = !core_mpi_job_all(!net_is_by_interface());
		status = have_ways(*guessed ? little_patience : patience) ? UTIL_OK : UTIL_ERR_PEER;
		if (status == UTIL_OK &&
		    core_mpi_job_all(!leader || core_service_start() == UTIL_OK))
			return UTIL_OK;
	} else {
		status = UTIL_ERR_UNSUPPORTED;
	}
	core_service_stop();
	net_stop();
	return status == UTIL_OK ? UTIL_ERR_SYSTEM : status;
}

/* By sockets first by one interface of each host; which it is is a guess. */
static bool find_ways(void)
{
	char nic[64], interface[64];
	bool loopback = core_mpi_job_all(util_config.net != UTIL_NET_UCX || net_takes_loopback());
	struct net_devices devices = {
		core_nic_choose(nic, sizeof(nic)) ? nic : NULL,
		core_nic_interface(loopback, interface, sizeof(interface)) ? interface : NULL};
	bool guessed = false;
	enum util_status status = bring_up(&devices, &guessed);

	if (status == UTIL_ERR_PEER && guessed) {
		util_log(UTIL_LOG_INFO, UTIL_SUBSYS_NET,
			 "not by %s alone: now UCX chooses; UCX_NET_DEVICES names the interface",
			 devices.interface ? devices.interface : "one interface");
		devices.interface = NULL;
		status = bring_up(&devices, &guessed);
	}
	if (unreached >= 0)
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_NET,
			 "UCX finds no way to rank %d of MPI_COMM_WORLD, on another node; "
			 "communicators of several nodes are staged",
			 unreached);
	return status == UTIL_OK;
}

void core_network_start(void)
{
	bool leader = core_mpi_job.local_rank == 0, by_sockets;

	if (!is_wanted() || !find_ways())
		return;
	by_sockets = !core_mpi_job_all(!net_is_by_sockets());
	core_mail_start(by_sockets);
	if (by_sockets && core_mpi_job.rank == 0)
		util_log(UTIL_LOG_INFO, UTIL_SUBSYS_NET, "messages between nodes go by sockets");
	if (leader && util_config.net_gdr == UTIL_GDR_ON && !net_takes_device_memory())
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_NET,
			 "GPUCOLL_NET_GDR=on is not possible: this UCX takes no device memory");
}

static bool has_lost(void)
{
	for (int i = 0; i < core_mpi_job.size; i++) {
		if (net_is_lost(i))
			return true;
	}
	return false;
}

/*
 * To those that are lost no connection will be made; with all others it is made while they go on
 * to the barrier, which on a crowded machine was seen to take more than a second.
 */
static void settle(void)
{
	uint64_t patience = has_lost() ? UTIL_SECONDS(1) : UTIL_SECONDS(30); /* ns */
	uint64_t since = util_now();

	net_settle();
	while (!net_is_settled() && util_now() - since < patience)
		progress_network();
}

void core_network_stop(bool goes_on)
{
	if (!core_mail_is_up())
		return;
	/* Messages may be on their way yet to who is still in a call. */
	core_mpi_job_barrier(NULL);
	if (goes_on) {
		net_expect_ends();
		core_mpi_job_barrier(progress_network);
		return;
	}
	core_service_stop();
	net_rest_stop();
	net_set_handler(NET_SERVICE, NULL);
	core_mail_hush();
	settle();
	/* Nobody is to see a connection break off. */
	core_mpi_job_barrier(progress_network);
	core_mail_stop();
	net_stop();
}
