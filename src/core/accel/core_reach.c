/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/accel/core_reach.h"
#include "core/accel/core_proof.h"
#include "core/agree/core_terms.h"
#include "util/util_fdpass.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <string.h>
#include <unistd.h>

/* How this process reaches a region of a member's. */
static struct core_reach *reach_of(struct core_accel *accel, int number, int index)
{
	return index == CORE_REGION_IN    ? &accel->reached.in[number]
	       : index == CORE_REGION_OUT ? &accel->reached.out[number]
	       : index == CORE_REGION_CARDS
		       ? &accel->reached.cards[number]
		       : &accel->reached.arenas[index - CORE_REGION_ARENAS][number];
}

void core_reach_enter(struct core_accel *accel)
{
	memset(accel->reached.kinds, 0xff, sizeof(accel->reached.kinds));
	for (int i = 0; i < CORE_NUM_REGIONS * accel->comm->num_near; i++)
		*reach_of(accel, i / CORE_NUM_REGIONS, i % CORE_NUM_REGIONS) =
			(struct core_reach){0};
	gpu_ipc_enter();
	accel->inside = true;
	accel->reached.dropped = gpu_ipc_dropped();
}

void core_reach_leave(struct core_accel *accel)
{
	for (int i = 0; i < CORE_NUM_REGIONS * accel->comm->num_near; i++) {
		struct core_reach *reach =
			reach_of(accel, i / CORE_NUM_REGIONS, i % CORE_NUM_REGIONS);

		if (reach->mapping)
			gpu_mapping_put(reach->mapping);
	}
	gpu_ipc_leave();
}

/* Of comm->voted.reach. */
static int kind_of(int index)
{
	return index < CORE_REGION_ARENAS   ? CORE_REACH_BUFFERS
	       : index == CORE_REGION_CARDS ? CORE_REACH_PROVEN
					    : index - CORE_REGION_ARENAS;
}

/* A descriptor that was sent is there, or is lost: a vote that is not over soon has no end. */
static bool has_waited_long(struct core_accel *accel)
{
	static const uint64_t patience = UTIL_SECONDS(5); /* ns */

	if (!accel->reached.missed_at)
		accel->reached.missed_at = util_now();
	if (util_now() - accel->reached.missed_at < patience)
		return false;
	if (!accel->reached.told)
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
			 "a descriptor of another process's memory has not come: it can't be "
			 "mapped");
	accel->reached.told = true;
	return true;
}

/*
 * A bit for each local rank to which no descriptor gets, of the first so many. Relaxed: it says all
 * that there is to know.
 */
static uint64_t deaf[CORE_MAX_RANKS / 64];
static bool is_any_deaf;

static bool is_deaf(int local_rank)
{
	return local_rank < CORE_MAX_RANKS &&
	       __atomic_load_n(&deaf[local_rank / 64], __ATOMIC_RELAXED) >> local_rank % 64 & 1;
}

bool core_reach_passes_descriptors(const struct core_comm *comm)
{
	if (!comm || !__atomic_load_n(&is_any_deaf, __ATOMIC_RELAXED))
		return true;
	for (int i = 0; i < comm->num_near; i++) {
		if (is_deaf(core_comm_local_rank(comm, comm->near[i])))
			return false;
	}
	return true;
}

/*
 * It lives where none gets to. This call is staged, and nothing is learnt of it: what the next ones
 * with it offer takes none.
 */
static void give_descriptors_up(struct core_accel *accel, int local_rank)
{
	accel->reached.refused = true;
	if (local_rank >= CORE_MAX_RANKS || is_deaf(local_rank))
		return;
	__atomic_fetch_or(&deaf[local_rank / 64], UINT64_C(1) << local_rank % 64, __ATOMIC_RELAXED);
	__atomic_store_n(&is_any_deaf, true, __ATOMIC_RELAXED);
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
		 "descriptors do not get to local rank %d (containers need one network for that: "
		 "--network=host): memory that can't be mapped without goes other ways",
		 local_rank);
}

/*
 * The offers of a vote are there: pass the descriptors that go with this rank's, to one member
 * after the other. UTIL_IN_PROGRESS: somebody's queue is full.
 */
static enum util_status pass_fds(struct core_accel *accel)
{
	const struct core_comm *comm = accel->comm;

	for (; accel->reached.passed_to < CORE_NUM_REGIONS * comm->num_near;
	     accel->reached.passed_to++) {
		int index = accel->reached.passed_to % CORE_NUM_REGIONS;
		uint64_t id = accel->offer.regions[index].buffer_id;
		const struct gpu_export *export = &accel->offer.exports[index];
		int rank = comm->near[accel->reached.passed_to / CORE_NUM_REGIONS], fd;
		enum util_status status;

		if (rank == comm->rank || !id || !gpu_export_has_fd(export))
			continue;
		fd = gpu_ipc_export_fd(export, gpu_stream_where(accel->stream));
		if (fd < 0)
			return UTIL_ERR_CUDA;
		status = util_fdpass_send(core_comm_local_rank(comm, rank), id, fd);
		close(fd);
		/* Who has come and is gone has ended, which shows a little later. */
		if (status == UTIL_ERR_PEER && !has_waited_long(accel))
			return UTIL_IN_PROGRESS;
		if (status == UTIL_ERR_PEER)
			give_descriptors_up(accel, core_comm_local_rank(comm, rank));
		else if (status != UTIL_OK)
			return status;
	}
	return accel->reached.refused ? UTIL_ERR_PEER : UTIL_OK;
}

static enum util_status reach_region(struct core_accel *accel, int rank,
				     const struct core_offer *offer, int index,
				     struct core_reach *reach)
{
	const struct core_region *region = &offer->regions[index];
	const struct gpu_export *export = &offer->exports[index];
	int owner = core_comm_local_rank(accel->comm, rank), fd;
	enum util_status status;

	if (rank == accel->comm->rank) {
		reach->address = region->address;
		return UTIL_OK;
	}
	if (!region->buffer_id || reach->mapping)
		return UTIL_OK;
	status = gpu_ipc_find(owner, region->buffer_id, accel->stream, &reach->mapping);
	if (status == UTIL_IN_PROGRESS)
		status = gpu_ipc_map(owner, export, -1, accel->stream, &reach->mapping);
	if (status == UTIL_IN_PROGRESS) {
		fd = util_fdpass_take(owner, region->buffer_id);
		reach->took = fd != UTIL_FDPASS_NONE;
		if (fd == UTIL_FDPASS_LOST) {
			util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
				 "no room for one more descriptor (ulimit -n): memory of another "
				 "process can't be mapped");
			return UTIL_ERR_SYSTEM;
		}
		if (fd < 0)
			return UTIL_IN_PROGRESS;
		status = gpu_ipc_map(owner, export, fd, accel->stream, &reach->mapping);
		close(fd);
	}
	if (status == UTIL_OK)
		reach->address = gpu_mapping_address(reach->mapping, region->address);
	return status;
}

/* What a vote found out of reach is not tried again without one. */
static bool is_hopeless(const struct core_comm *comm, int number, int index)
{
	int mine = core_comm_number(comm, comm->rank);

	return !(comm->voted.reach[kind_of(index)][mine] >> number & 1);
}

/*
 * What fails now need not fail in the next call: an old mapping is in the way that another thread's
 * call uses, the device is short of memory. Then this call is staged, and the next one votes again.
 */
static bool may_vote_again(struct core_comm *comm)
{
	enum { MOST_VOTES = 8 };

	return comm->voted.failed < MOST_VOTES && ++comm->voted.failed < MOST_VOTES;
}

/* It is slower for good then, which nothing else would say. */
static void tell_refused(int local_rank)
{
	static bool told;

	if (__atomic_exchange_n(&told, true, __ATOMIC_RELAXED))
		return;
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
		 "the driver goes on refusing to map memory of local rank %d: its data go through "
		 "the host's. All ranks of a node must see all its GPUs (Slurm: without "
		 "--gpus-per-task and such; containers: one for all)",
		 local_rank);
}

/*
 * Map what can be mapped, and note the rest. UTIL_IN_PROGRESS: a descriptor has not come yet, in a
 * vote; at other times none comes.
 */
static enum util_status reach_all(struct core_accel *accel, bool votes)
{
	for (int i = 0; accel->stream && i < CORE_NUM_REGIONS * accel->comm->num_near; i++) {
		int number = i / CORE_NUM_REGIONS, index = i % CORE_NUM_REGIONS;
		int rank = accel->comm->near[number];
		const struct core_offer *offer = core_agree_offer(&accel->agree, rank);
		enum util_status status = UTIL_ERR_UNSUPPORTED;

		if (votes && !(accel->reached.kinds[kind_of(index)] >> number & 1))
			continue; /* found in an earlier look of the same vote */
		if (!votes && index == CORE_REGION_CARDS)
			continue;
		if (votes || !is_hopeless(accel->comm, number, index))
			status = reach_region(accel, rank, offer, index,
					      reach_of(accel, number, index));
		if (status == UTIL_IN_PROGRESS && votes && !has_waited_long(accel))
			return status;
		if (status == UTIL_ERR_CUDA && votes && may_vote_again(accel->comm))
			return status;
		if (status == UTIL_ERR_CUDA && votes)
			tell_refused(core_comm_local_rank(accel->comm, rank));
		if (status != UTIL_OK)
			accel->reached.kinds[kind_of(index)] &= ~(UINT64_C(1) << number);
	}
	return UTIL_OK;
}

/* What goes on failing is not tried again and again in the votes for other memory. */
static bool reaches_all(const struct core_accel *accel)
{
	uint64_t all = UINT64_MAX;

	for (int i = 0; i < CORE_NUM_REACHES; i++)
		all &= accel->reached.kinds[i];
	return all == UINT64_MAX;
}

void core_reach_learn(struct core_accel *accel)
{
	struct core_comm *comm = accel->comm;

	if (reaches_all(accel))
		comm->voted.failed = 0;
	if (accel->agree.forget)
		core_known_clear(&comm->voted.known);
	gpu_ipc_forget_exports(accel->offer.freed, accel->offer.num_freed);
	for (int i = 0; i < CORE_REGION_CARDS; i++)
		core_known_add(&comm->voted.known, accel->offer.regions[i].buffer_id);
	/* Who asks for all has another context, and perhaps another device. */
	if (accel->agree.forget) {
		comm->links.together = CORE_TOGETHER_UNKNOWN;
		memset(comm->voted.reach, 0xff, sizeof(comm->voted.reach));
	}
	/* What some call could not map will be offered again, without a vote. */
	for (int i = 0; i < comm->num_near; i++) {
		const uint64_t *reach = core_agree_reach(&accel->agree, comm->near[i]);

		for (int j = 0; j < CORE_NUM_REACHES; j++)
			comm->voted.reach[j][i] &= reach[j];
	}
	comm->voted.dropped = accel->reached.dropped;
	core_proof_learn(accel);
	/* Without data it has mapped nothing, and must ask for all when it has some. */
	comm->voted.context_id = accel->stream ? gpu_stream_context_id(accel->stream) : 0;
}

/* Let go of what the others have freed: their memory is in use as long as it is mapped here. */
static void drop_freed(struct core_accel *accel)
{
	const struct core_comm *comm = accel->comm;

	for (int i = 0; i < comm->num_near; i++) {
		int rank = comm->near[i];
		const struct core_offer *offer = core_agree_offer(&accel->agree, rank);

		for (int j = 0; rank != comm->rank && j < offer->num_freed; j++)
			gpu_ipc_drop_freed(core_comm_local_rank(comm, rank), offer->freed[j],
					   accel->stream);
	}
}

void core_reach_drop_descriptors(struct core_accel *accel)
{
	const struct core_comm *comm = accel->comm;

	util_fdpass_receive();
	for (int i = 0; i < CORE_NUM_REGIONS * comm->num_near; i++) {
		int rank = comm->near[i / CORE_NUM_REGIONS];
		const struct core_offer *offer = core_agree_offer(&accel->agree, rank);
		uint64_t id = offer->regions[i % CORE_NUM_REGIONS].buffer_id;

		if (rank != comm->rank && id &&
		    gpu_export_has_fd(&offer->exports[i % CORE_NUM_REGIONS]) &&
		    !reach_of(accel, i / CORE_NUM_REGIONS, i % CORE_NUM_REGIONS)->took)
			util_fdpass_drop(core_comm_local_rank(comm, rank), id);
	}
}

enum util_status core_reach_prepare(struct core_accel *accel)
{
	enum util_status status = UTIL_OK;

	if (accel->agree.vote) {
		drop_freed(accel);
		status = pass_fds(accel);
	}
	if (status == UTIL_OK)
		status = reach_all(accel, accel->agree.vote);
	return status == UTIL_OK && accel->agree.vote ? core_proof_progress(accel) : status;
}

bool core_reach_has_lost(const struct core_accel *accel)
{
	const struct core_comm *comm = accel->comm;

	for (int i = 0; accel->stream && !accel->eager.taken && i < comm->num_near; i++) {
		bool there = true;

		if (accel->linked)
			there = accel->reached.kinds[core_terms_transport(comm, comm->near[i])] >>
					i &
				1;
		if (accel->touches)
			there &= accel->reached.kinds[CORE_REACH_BUFFERS] >> i & 1;
		if (!there)
			return true;
	}
	return false;
}

void core_reach_again(struct core_accel *accel)
{
	reach_all(accel, false);
}
