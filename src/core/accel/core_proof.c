/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/accel/core_proof.h"
#include "core/agree/core_meet.h"
#include "core/comm/core_board.h"
#include "core/job/core_machines.h"
#include "core/wire/core_arena.h"
#include "gpu/gpu_pointer.h"
#include "util/util_hash.h"
#include "util/util_log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* ---- what is known ---- */

/* Of this process on one device and another on another. */
struct known {
	struct known *next;
	int local_rank;
	uint64_t mine, theirs; /* the devices */
	bool works;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct known *all; /* under the lock */

enum verdict { UNKNOWN, WORKS, FAILS };

static struct known *find_known(int local_rank, uint64_t mine, uint64_t theirs)
{
	struct known *known = all;

	while (known &&
	       (known->local_rank != local_rank || known->mine != mine || known->theirs != theirs))
		known = known->next;
	return known;
}

static enum verdict look_up(int local_rank, uint64_t mine, uint64_t theirs)
{
	const struct known *known;
	enum verdict verdict;

	pthread_mutex_lock(&lock);
	known = find_known(local_rank, mine, theirs);
	verdict = !known ? UNKNOWN : known->works ? WORKS : FAILS;
	pthread_mutex_unlock(&lock);
	return verdict;
}

/* Without memory for it the next communicator tries again. */
static void remember(int local_rank, uint64_t mine, uint64_t theirs, bool works)
{
	struct known *known;

	pthread_mutex_lock(&lock);
	known = find_known(local_rank, mine, theirs);
	if (!known && (known = calloc(1, sizeof(*known)))) {
		*known = (struct known){all, local_rank, mine, theirs, works};
		all = known;
	}
	pthread_mutex_unlock(&lock);
}

void core_proof_stop(void)
{
	while (all) {
		struct known *known = all;

		all = known->next;
		free(known);
	}
}

/* ---- the offer ---- */

/* By the board, which is a guess: processes may use several devices. */
static bool seems_known(const struct core_accel *accel, int rank)
{
	int local_rank = core_comm_local_rank(accel->comm, rank);
	uint64_t theirs = core_board_gpu(local_rank);

	return rank == accel->comm->rank || theirs == accel->offer.device ||
	       (theirs &&
		!core_machines_may_reach(accel->offer.device, theirs, accel->offer.p2p_reach)) ||
	       (theirs && look_up(local_rank, accel->offer.device, theirs) != UNKNOWN);
}

static bool is_in_doubt(const struct core_accel *accel)
{
	const struct core_comm *comm = accel->comm;

	if (comm->voted.shows_cards)
		return true;
	for (int i = 0; i < comm->num_near; i++) {
		if (!seems_known(accel, comm->near[i]))
			return true;
	}
	return false;
}

static uint64_t seed_of(const struct core_accel *accel)
{
	uint64_t hash = util_hash(UTIL_HASH_START, &accel->comm->id, sizeof(accel->comm->id));

	return util_hash(hash, &accel->number, sizeof(accel->number));
}

static int number_of_mine(const struct core_accel *accel)
{
	return core_comm_number(accel->comm, accel->comm->rank);
}

/* Those of another context are left alone: others may yet write there. */
static bool take_cards(struct core_accel *accel)
{
	struct core_arena *arena = accel->comm->arena;

	if (arena->cards && arena->cards->context_id != gpu_stream_context_id(accel->stream))
		arena->cards = NULL;
	return arena->cards ||
	       gpu_scratch_get(GPU_CARDS_BYTES, accel->stream, &arena->cards) == UTIL_OK;
}

enum util_status core_proof_offer(struct core_accel *accel)
{
	struct gpu_pointer where;
	enum util_status status;
	void *cards;

	accel->offer.p2p_reach = (uint16_t)core_machines_reach();
	if (accel->comm->voted.proven || !accel->stream || !is_in_doubt(accel))
		return UTIL_OK;
	if (!take_cards(accel))
		return core_accel_stage(accel, CORE_REASON_NO_TRIAL_MEMORY);
	gpu_card_make(seed_of(accel), (uint32_t)number_of_mine(accel), accel->proof.card);
	cards = (void *)accel->comm->arena->cards->address;
	accel->clearing = true;
	status = gpu_stream_copy(accel->stream, cards, accel->proof.card, GPU_CARD_BYTES);
	if (status != UTIL_OK)
		return status;
	accel->offer.flags |= CORE_OFFER_SHOWS_CARDS;
	gpu_pointer_classify(cards, &where);
	accel->offer.regions[CORE_REGION_CARDS].address = (uint64_t)cards;
	/* Where nothing can be exported nobody can look at them, and nothing is believed. */
	core_offer_export(&accel->offer, CORE_REGION_CARDS, (uint64_t)cards, &where,
			  accel->passes_descriptors);
	return UTIL_OK;
}

/* ---- the trial ---- */

static const struct core_offer *offer_of(const struct core_accel *accel, int number)
{
	return core_agree_offer(&accel->agree, accel->comm->near[number]);
}

static bool is_too_far(const struct core_offer *a, const struct core_offer *b)
{
	return !core_machines_may_reach(a->device, b->device,
					core_machines_least_reach(a->p2p_reach, b->p2p_reach));
}

static void disbelieve(struct core_accel *accel, uint64_t members)
{
	accel->reached.kinds[CORE_REACH_PROVEN] &= ~members;
	accel->reached.kinds[CORE_REACH_BUFFERS] &= ~members;
	accel->reached.kinds[GPU_TRANSPORT_P2P] &= ~members;
}

static void tell_distance(const struct core_comm *comm, int number)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&told))
		util_log(UTIL_LOG_INFO, UTIL_SUBSYS_CORE,
			 "the GPUs of ranks %d and %d of MPI_COMM_WORLD, and perhaps others, are "
			 "farther apart than GPUCOLL_P2P_LEVEL allows, or have no peer access: "
			 "messages between them go through the host's memory",
			 comm->members[comm->rank].process,
			 comm->members[comm->near[number]].process);
}

/* Of two on different devices; both see it alike. */
static bool both_show(const struct core_offer *a, const struct core_offer *b)
{
	return a->flags & b->flags & CORE_OFFER_SHOWS_CARDS;
}

static bool both_are_seen(const struct core_offer *a, const struct core_offer *b)
{
	return a->regions[CORE_REGION_CARDS].buffer_id && b->regions[CORE_REGION_CARDS].buffer_id;
}

static bool are_apart(const struct core_offer *a, const struct core_offer *b)
{
	return a->device && b->device && a->device != b->device;
}

static bool is_tried(const struct core_offer *a, const struct core_offer *b)
{
	return are_apart(a, b) && !is_too_far(a, b) && both_show(a, b) && both_are_seen(a, b);
}

/*
 * Whom to try it with. A process without data touches nobody's memory, and one on the same device
 * has its own. False: a pair of which one shows its cards and the other not.
 */
static bool choose(struct core_accel *accel)
{
	const struct core_offer *mine = &accel->offer;
	struct core_comm *comm = accel->comm;

	for (int i = 0; i < comm->num_near; i++) {
		const struct core_offer *theirs = offer_of(accel, i);
		uint64_t bit = UINT64_C(1) << i;
		enum verdict verdict;

		if (!are_apart(mine, theirs))
			continue;
		if (is_too_far(mine, theirs)) {
			tell_distance(comm, i);
			disbelieve(accel, bit);
			continue;
		}
		verdict = look_up(core_comm_local_rank(comm, comm->near[i]), mine->device,
				  theirs->device);
		if (is_tried(mine, theirs)) {
			accel->proof.with |= bit;
		} else if (both_show(mine, theirs)) {
			disbelieve(accel, bit);
		} else if (verdict == UNKNOWN) {
			comm->voted.shows_cards = true;
			return false;
		} else if (verdict == FAILS) {
			disbelieve(accel, bit);
		}
	}
	return true;
}

static void begin_kernel(struct core_accel *accel, struct gpu_verify_args *args, bool looks)
{
	*args = (struct gpu_verify_args){.seed = seed_of(accel),
					 .with = accel->proof.with,
					 .rank = (uint32_t)number_of_mine(accel),
					 .mine = accel->offer.regions[CORE_REGION_CARDS].address,
					 .looks = looks};
	accel->proof.busy = true;
}

/* Of whom nothing is mapped nothing can be tried, but he waits for this process all the same. */
static enum util_status start_visit(struct core_accel *accel)
{
	struct core_proof *proof = &accel->proof;
	struct gpu_verify_args args;

	begin_kernel(accel, &args, false);
	for (int i = 0; i < accel->comm->num_near; i++) {
		uint64_t bit = UINT64_C(1) << i;

		args.theirs[i] = accel->reached.cards[i].address;
		if (!(proof->with & ~proof->wrong & bit))
			continue;
		if (!args.theirs[i] || !(accel->reached.kinds[CORE_REACH_PROVEN] & bit) ||
		    gpu_card_exchange(accel->stream, args.mine, args.rank, args.theirs[i],
				      (uint32_t)i) != UTIL_OK)
			proof->wrong |= bit;
	}
	args.with &= ~proof->wrong;
	return gpu_launch_verify(&accel->launch, &args);
}

static enum util_status start_look(struct core_accel *accel)
{
	struct gpu_verify_args args;

	begin_kernel(accel, &args, true);
	args.with &= ~accel->proof.wrong;
	return gpu_launch_verify(&accel->launch, &args);
}

static void report_wrong(const struct core_accel *accel, const uint64_t found[GPU_VERIFY_FOUND],
			 uint64_t any)
{
	const struct core_comm *comm = accel->comm;

	for (int i = 0; i < comm->num_near; i++) {
		if (!(any >> i & 1))
			continue;
		util_log(UTIL_LOG_INFO, UTIL_SUBSYS_CORE,
			 "memory of rank %d of MPI_COMM_WORLD on another device: read by kernels "
			 "%s, by copies %s; written from there by kernels %s, by copies %s",
			 comm->members[comm->near[i]].process,
			 found[GPU_VERIFY_READ] >> i & 1 ? "wrong" : "right",
			 found[GPU_CARD_TAKEN] >> i & 1 ? "wrong" : "right",
			 found[GPU_CARD_WRITTEN] >> i & 1 ? "wrong" : "right",
			 found[GPU_CARD_COPIED] >> i & 1 ? "wrong" : "right");
	}
}

static void conclude(struct core_accel *accel)
{
	struct core_proof *proof = &accel->proof;
	uint64_t found[GPU_VERIFY_FOUND], any = 0;

	for (int i = 0; i < GPU_VERIFY_FOUND; i++) {
		found[i] = gpu_launch_found(&accel->launch, i);
		any |= found[i];
	}
	report_wrong(accel, found, any);
	accel->reached.kinds[CORE_REACH_HONEST] &= ~any;
	proof->wrong |= any;
	disbelieve(accel, proof->wrong);
}

/* What the kernel that was launched last has done: then the next state is due. */
static enum util_status wait_for_kernel(struct core_accel *accel, enum core_proof_state next)
{
	enum util_status status = gpu_launch_poll(&accel->launch);

	if (status != UTIL_IN_PROGRESS)
		accel->proof.busy = false;
	if (status == UTIL_OK)
		accel->proof.state = next;
	return status;
}

int core_proof_missing(const struct core_accel *accel)
{
	const struct core_comm *comm = accel->comm;

	if (accel->proof.state != CORE_PROOF_WAIT)
		return -1;
	for (int i = 0; i < comm->num_near; i++) {
		if (accel->proof.with >> i & 1 &&
		    !core_meet_has_shown(comm, comm->near[i], accel->number))
			return comm->near[i];
	}
	return -1;
}

static enum util_status step_proof(struct core_accel *accel)
{
	struct core_proof *proof = &accel->proof;
	enum util_status status;

	switch (proof->state) {
	case CORE_PROOF_NONE:
		if (!choose(accel))
			return UTIL_STAGE;
		proof->state = proof->with ? CORE_PROOF_VISIT : CORE_PROOF_DONE;
		return proof->with ? start_visit(accel) : UTIL_OK;
	case CORE_PROOF_VISIT:
		status = wait_for_kernel(accel, CORE_PROOF_WAIT);
		if (status == UTIL_OK)
			core_meet_show(accel->comm, accel->number);
		return status;
	case CORE_PROOF_WAIT:
		if (core_proof_missing(accel) >= 0)
			return UTIL_IN_PROGRESS;
		proof->state = CORE_PROOF_LOOK;
		return start_look(accel);
	case CORE_PROOF_LOOK:
		status = wait_for_kernel(accel, CORE_PROOF_DONE);
		if (status == UTIL_OK)
			conclude(accel);
		return status;
	default:
		return UTIL_OK;
	}
}

enum util_status core_proof_progress(struct core_accel *accel)
{
	enum util_status status = UTIL_OK;

	while (accel->proof.state != CORE_PROOF_DONE && status == UTIL_OK)
		status = step_proof(accel);
	return status;
}

enum util_status core_proof_settle(struct core_accel *accel)
{
	if (accel->proof.busy && gpu_stream_poll(accel->stream) == UTIL_IN_PROGRESS)
		return UTIL_IN_PROGRESS;
	accel->proof.busy = false;
	return UTIL_OK;
}

/* ---- after the vote ---- */

static bool both_say(const struct core_accel *accel, int a, int b, int kind)
{
	const uint64_t *of_a = core_agree_reach(&accel->agree, accel->comm->near[a]);
	const uint64_t *of_b = core_agree_reach(&accel->agree, accel->comm->near[b]);

	return of_a[kind] >> b & 1 && of_b[kind] >> a & 1;
}

/* One process of the node does, for the first pair in the order of their numbers. */
static bool is_to_warn(const struct core_accel *accel, int *other)
{
	int num = accel->comm->num_near;

	for (int i = 0; i < num; i++) {
		for (int j = i + 1; j < num; j++) {
			if (both_say(accel, i, j, CORE_REACH_HONEST))
				continue;
			*other = j;
			return i == number_of_mine(accel);
		}
	}
	return false;
}

static void warn(const struct core_accel *accel)
{
	static atomic_flag warned = ATOMIC_FLAG_INIT;
	const struct core_comm *comm = accel->comm;
	int other;

	if (!is_to_warn(accel, &other) || atomic_flag_test_and_set(&warned))
		return;
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
		 "the GPUs of ranks %d and %d of MPI_COMM_WORLD have mapped each other's memory, "
		 "but what is written there does not arrive (perhaps not theirs alone): PCI "
		 "Express ACS sends it to an IOMMU that translates, or a virtual machine hides the "
		 "way. Messages between them go through the host's memory, which is slower. "
		 "Remedy: switch ACS off (in the BIOS, or by setpci), or boot with iommu=pt or "
		 "iommu=off; see gpucoll(7)",
		 comm->members[comm->rank].process, comm->members[comm->near[other]].process);
}

void core_proof_doubt(struct core_accel *accel)
{
	accel->comm->voted.proven = false;
}

void core_proof_learn(struct core_accel *accel)
{
	struct core_comm *comm = accel->comm;
	int mine = number_of_mine(accel);
	bool failed = false;

	for (int i = 0; i < comm->num_near; i++) {
		bool works = both_say(accel, mine, i, CORE_REACH_PROVEN);

		if (!(accel->proof.with >> i & 1))
			continue;
		failed |= !works;
		remember(core_comm_local_rank(comm, comm->near[i]), accel->offer.device,
			 offer_of(accel, i)->device, works);
	}
	if (failed)
		warn(accel);
	if (comm->arena->cards)
		gpu_scratch_put(comm->arena->cards);
	comm->arena->cards = NULL;
	comm->voted.proven = true;
	comm->voted.shows_cards = false;
}
