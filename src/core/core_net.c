/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_net.h"
#include "core/core_agree.h"
#include "core/core_mpi.h"
#include "core/core_nic.h"
#include "core/core_nodes.h"
#include "core/core_service.h"
#include "core/core_wire.h"
#include "net/net_rest.h"
#include "util/util_config.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <dirent.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>

/* A message whose communicator this process does not know yet. */
struct unclaimed {
	struct unclaimed *next;
	struct net_header header;
	struct net_payload *payload;
};

static bool up, by_sockets;
static struct core_comm *comms; /* of several nodes */
static struct unclaimed *unclaimed, **last_unclaimed = &unclaimed;
static size_t unclaimed_bytes;

bool core_net_is_by_sockets(void)
{
	return by_sockets;
}

bool core_net_is_up(void)
{
	return up;
}

/* ---- messages that come ---- */

static void hand_over(struct core_comm *comm, const struct net_header *header,
		      struct net_payload *payload)
{
	if (header->kind == CORE_NET_DATA)
		core_wire_receive(comm, header, payload);
	else if (header->kind == CORE_NET_CREDIT)
		core_wire_receive_credit(comm, header);
	else
		core_nodes_receive(comm, header, payload);
}

static struct core_comm *find(uint64_t id)
{
	struct core_comm *comm = comms;

	while (comm && comm->id != id)
		comm = comm->next;
	return comm;
}

static size_t bytes_of(const struct unclaimed *entry)
{
	return sizeof(*entry) + net_payload_bytes(entry->payload);
}

static void drop_oldest(void)
{
	struct unclaimed *oldest = unclaimed;

	unclaimed = oldest->next;
	if (!unclaimed)
		last_unclaimed = &unclaimed;
	unclaimed_bytes -= bytes_of(oldest);
	net_payload_drop(oldest->payload);
	free(oldest);
}

/*
 * Others may know a communicator a little earlier. Of one that this process has left, messages may
 * come too, which nobody will claim: so there are only so many.
 */
static void keep(const struct net_header *header, struct net_payload *payload)
{
	enum { MOST = 1 << 20 }; /* bytes */
	struct unclaimed *entry;

	if (header->kind != CORE_NET_READY)
		return;
	entry = malloc(sizeof(*entry));
	if (entry)
		*entry = (struct unclaimed){NULL, *header, net_payload_keep(payload)};
	if (!entry || !entry->payload) {
		free(entry);
		net_lose((int)header->from);
		return;
	}
	*last_unclaimed = entry;
	last_unclaimed = &entry->next;
	unclaimed_bytes += bytes_of(entry);
	while (unclaimed_bytes > MOST) {
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_NET,
			 "too many messages for communicators that this process does not know: one "
			 "for %#llx is dropped",
			 (unsigned long long)unclaimed->header.comm);
		drop_oldest();
	}
}

static void receive(enum net_port port, const struct net_header *header,
		    struct net_payload *payload)
{
	struct core_comm *comm = find(header->comm);

	(void)port;
	if (comm)
		hand_over(comm, header, payload);
	else
		keep(header, payload);
}

static void claim(struct core_comm *comm)
{
	struct unclaimed **link = &unclaimed, *entry;

	while ((entry = *link)) {
		if (entry->header.comm != comm->id) {
			link = &entry->next;
			continue;
		}
		*link = entry->next;
		unclaimed_bytes -= bytes_of(entry);
		core_nodes_receive(comm, &entry->header, entry->payload);
		net_payload_drop(entry->payload);
		free(entry);
	}
	last_unclaimed = link;
}

enum util_status core_net_add(struct core_comm *comm)
{
	comm->agreement = core_nodes_create(comm);
	comm->wire = core_wire_create();
	if (!comm->agreement || !comm->wire) {
		core_nodes_free(comm->agreement);
		core_wire_free(comm->wire);
		return UTIL_ERR_NO_MEMORY;
	}
	net_lock(NET_MAIN);
	comm->next = comms;
	comms = comm;
	claim(comm);
	net_unlock(NET_MAIN);
	return UTIL_OK;
}

/* Communicators may be freed after the network came down in MPI_Finalize. */
void core_net_remove(struct core_comm *comm)
{
	struct core_comm **link = &comms;

	if (up)
		net_lock(NET_MAIN);
	while (*link && *link != comm)
		link = &(*link)->next;
	if (*link)
		*link = comm->next;
	if (up)
		net_unlock(NET_MAIN);
	/* Nobody finds it any more. The driver may wait for kernels when memory is unpinned. */
	core_nodes_free(comm->agreement);
	core_wire_free(comm->wire);
}

/* ---- messages that go ---- */

static int leader_of_member(const struct core_member *member)
{
	return core_mpi_node_leader(member->node);
}

static int leader_of(const struct core_comm *comm, int rank)
{
	return leader_of_member(&comm->members[rank]);
}

void core_net_tell(const struct core_comm *comm, int rank, const struct net_header *header,
		   const void *data, size_t bytes, _Atomic int *underway)
{
	net_watch(leader_of(comm, rank));
	net_tell(NET_MAIN, comm->members[rank].process, NET_MAIN, header, data, bytes, underway);
}

void core_net_send(const struct core_comm *comm, int rank, const struct net_header *header,
		   const struct net_data *data, _Atomic int *status)
{
	net_watch(leader_of(comm, rank));
	net_send(NET_MAIN, comm->members[rank].process, NET_MAIN, header, data, status);
}

void core_net_tell_nodes(const struct core_comm *comm, enum core_net_kind kind, uint64_t call,
			 _Atomic int *underway)
{
	struct net_header header = {.kind = kind, .comm = comm->id, .call = call};

	for (int i = 0; i < comm->num_nodes; i++) {
		int node = comm->members[comm->speakers[i]].node;

		if (i != comm->node)
			net_tell(NET_MAIN, core_mpi_node_leader(node), NET_SERVICE, &header, NULL,
				 0, underway);
	}
}

void core_net_expect(const struct core_comm *comm, int rank)
{
	if (core_comm_is_near(comm, rank))
		return;
	net_watch(leader_of(comm, rank));
	net_expect(comm->members[rank].process);
}

/*
 * Other nodes take all processes here for lost then, and can't tell these so: they are lost to
 * these.
 */
static bool has_lost_service(void)
{
	static atomic_bool told;

	if (!core_mpi_has_ended(0))
		return false;
	if (!atomic_exchange(&told, true))
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_NET,
			 "rank %d of MPI_COMM_WORLD, which answers for this node, has ended",
			 core_mpi_node_leader(core_mpi_job.node));
	return true;
}

static bool is_out_of_reach(const struct core_member *member)
{
	return net_is_lost(member->process) || net_is_lost(leader_of_member(member));
}

bool core_net_has_lost_some(int size, const struct core_member *members)
{
	if (has_lost_service())
		return true;
	for (int i = 0; i < size; i++) {
		if (members[i].local_rank < 0 && is_out_of_reach(&members[i]))
			return true;
	}
	return false;
}

static bool is_lost(const struct core_comm *comm, int rank, uint64_t call)
{
	const struct core_member *member = &comm->members[rank];

	if (core_comm_is_near(comm, rank))
		return rank != comm->rank && core_mpi_has_ended(member->local_rank) &&
		       !core_agree_is_past(comm, rank, call);
	return comm->spans && is_out_of_reach(member);
}

int core_net_find_lost(const struct core_comm *comm, uint64_t call)
{
	int missing = comm->spans && core_comm_speaks(comm) ? core_nodes_missing(comm) : -1;
	bool orphaned;

	/*
	 * One process of each node is enough, as it tells the others, and a node has room for only
	 * so many connections.
	 */
	for (int i = 0; comm->spans && core_comm_speaks(comm) && i < comm->num_nodes; i++) {
		if (i != comm->node)
			net_watch(leader_of(comm, comm->speakers[i]));
	}
	if (missing >= 0)
		core_net_expect(comm, missing);
	orphaned = comm->spans && has_lost_service();
	for (int i = 0; i < comm->size; i++) {
		if (is_lost(comm, i, call) || (orphaned && !core_comm_is_near(comm, i)))
			return i;
	}
	return -1;
}

int core_net_find_behind(const struct core_agree *agree)
{
	const struct core_comm *comm = agree->comm;

	for (int i = 0; i < comm->num_near; i++) {
		int rank = comm->near[i];

		if (core_agree_has_come(agree, rank) &&
		    !core_agree_is_past(comm, rank, agree->call) && rank != comm->rank &&
		    !core_mpi_has_ended(core_comm_local_rank(comm, rank)))
			return rank;
	}
	return -1;
}

void core_net_break_off(const struct core_comm *comm)
{
	for (int i = 0; i < comm->size; i++) {
		if (!core_comm_is_near(comm, i))
			net_break_off(comm->members[i].process);
	}
}

/* ---- start and stop ---- */

/* Every process takes part in every exchange, whatever has become of its own start. */
static bool exchange(enum util_status status)
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

static void progress(void)
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
		progress();
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

	core_mpi_job_barrier(progress);
	for (int turn = 0; turn < 2 && well; turn++) {
		if (core_mpi_job.node % 2 == turn)
			well = has_ways(patience);
		core_mpi_job_barrier(progress);
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
	static const uint64_t patience = 20000000000, little_patience = 5000000000; /* ns */
	enum util_status status = UTIL_ERR_UNSUPPORTED;
	bool leader = core_mpi_job.local_rank == 0;

	unreached = -1;
	if (util_config.net == UTIL_NET_UCX && core_board_is_up())
		status = net_start(core_mpi_job.id, core_mpi_job.rank, core_mpi_job.size, leader,
				   devices);
	if (exchange(status) && core_mpi_job_all(!net_is_by_sockets() || has_descriptors())) {
		net_set_handler(NET_MAIN, receive);
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
	struct net_devices devices = {
		core_nic_choose(nic, sizeof(nic)) ? nic : NULL,
		core_nic_interface(interface, sizeof(interface)) ? interface : NULL};
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

void core_net_start(void)
{
	bool leader = core_mpi_job.local_rank == 0;

	if (!is_wanted())
		return;
	up = find_ways();
	by_sockets = up && !core_mpi_job_all(!net_is_by_sockets());
	if (by_sockets && core_mpi_job.rank == 0)
		util_log(UTIL_LOG_INFO, UTIL_SUBSYS_NET, "messages between nodes go by sockets");
	if (up && leader && util_config.net_gdr == UTIL_GDR_ON && !net_takes_device_memory())
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_NET,
			 "GPUCOLL_NET_GDR=on is not possible: this UCX takes no device memory");
}

/* To those that are lost no connection will be made. */
static void settle(void)
{
	static const uint64_t patience = 1000000000; /* ns */
	uint64_t since = util_now();

	net_settle();
	while (!net_is_settled() && util_now() - since < patience)
		progress();
}

void core_net_stop(void)
{
	if (!up)
		return;
	/* Messages may be on their way yet to who is still in a call. */
	core_mpi_job_barrier(NULL);
	core_service_stop();
	net_rest_stop();
	net_set_handler(NET_MAIN, NULL);
	net_set_handler(NET_SERVICE, NULL);
	net_lock(NET_MAIN);
	while (unclaimed)
		drop_oldest();
	net_unlock(NET_MAIN);
	settle();
	/* Nobody is to see a connection break off. */
	core_mpi_job_barrier(progress);
	up = false;
	net_stop();
}
