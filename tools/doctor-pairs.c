/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What takes two processes to find out, by the library's own means: whether each reaches the
 * other's memory, on one device or another, whether what is written there arrives (gpu_verify), and
 * whether kernels of processes that share a device run together (gpu_probe).
 */
#include "doctor-watch.h"
#include "doctor.h"
#include "gpu/gpu_ipc.h"
#include "gpu/gpu_launch.h"
#include "gpu/gpu_pointer.h"
#include "gpu/gpu_scratch.h"
#include "util/util_time.h"

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 32, STEPS = 16, LIMIT_S = 15 };

/* ns: a meeting of kernels that takes no longer. */
static const uint64_t bounds[] = {100000, 2000000};
enum { NUM_BOUNDS = sizeof(bounds) / sizeof(bounds[0]) };

/* Of one process; it alone writes here. Readers: the others, after the next barrier. */
struct seat {
	char failed[96]; /* "": it did not */
	int ordinal;
	uint64_t device, cards, arena; /* addresses in it */
	struct gpu_export cards_export, arena_export;
	uint64_t mapped, wrong[GPU_VERIFY_FOUND]; /* others, as bits */
	int meets;                                /* index of a bound; NUM_BOUNDS: within none */
};

struct board {
	int num;
	_Atomic int arrived[STEPS];
	_Atomic bool late; /* somebody did not come */
	struct seat seats[MOST];
};

/* What a process has. */
struct process {
	struct board *board;
	int me, step;
	bool launched; /* by a launcher: the board has a name until all have come */
	struct gpu_stream *stream;
	struct gpu_launch launch;
	uint64_t cards[MOST], arenas[MOST]; /* of all, as it reaches them */
};

static struct seat *seat_of(const struct process *p)
{
	return &p->board->seats[p->me];
}

static void fail(const struct process *p, const char *why)
{
	if (!*seat_of(p)->failed)
		snprintf(seat_of(p)->failed, sizeof(seat_of(p)->failed), "%s", why);
}

/*
 * All have come here; who has not for long holds nobody up. Release and acquire: what the others
 * wrote before is seen.
 */
static void barrier(struct process *p)
{
	_Atomic int *arrived = &p->board->arrived[p->step++];
	uint64_t end = util_now() + (uint64_t)LIMIT_S * 1000000000;

	atomic_fetch_add(arrived, 1);
	while (atomic_load(arrived) < p->board->num && !atomic_load(&p->board->late)) {
		if (util_now() > end)
			atomic_store(&p->board->late, true);
		sched_yield();
	}
}

/* ---- what a process does ---- */

static bool wait_for_kernel(struct process *p)
{
	enum util_status status;

	while ((status = gpu_launch_poll(&p->launch)) == UTIL_IN_PROGRESS)
		sched_yield();
	return status == UTIL_OK;
}

static bool wait_for_stream(struct process *p)
{
	enum util_status status;

	while ((status = gpu_stream_poll(p->stream)) == UTIL_IN_PROGRESS)
		sched_yield();
	return status == UTIL_OK;
}

/* Memory that the others are to map. */
static bool share(struct process *p, size_t bytes, uint64_t *address, struct gpu_export *export)
{
	struct gpu_scratch *scratch;
	struct gpu_pointer where;

	if (gpu_scratch_get(bytes, p->stream, &scratch) != UTIL_OK)
		return false;
	gpu_pointer_classify((void *)scratch->address, &where);
	*address = scratch->address;
	gpu_stream_clear(p->stream, (void *)scratch->address, bytes);
	gpu_ipc_export(*address, &where, export);
	return true;
}

static const uint64_t seed = 0x6770756c6c;

static bool put_card(struct process *p)
{
	char card[GPU_CARD_BYTES];

	gpu_card_make(seed, (uint32_t)p->me, card);
	return gpu_stream_copy(p->stream, (void *)seat_of(p)->cards, card, sizeof(card)) ==
		       UTIL_OK &&
	       wait_for_stream(p);
}

static void open_device(struct process *p)
{
	struct seat *seat = seat_of(p);
	struct gpu_pointer where = {.memory = GPU_MEMORY_DEVICE, .device = seat->ordinal};

	if (!gpu_driver_load() || gpu_driver.cuInit(0) != CUDA_SUCCESS)
		fail(p, "there is no CUDA driver, or it does not start");
	else if (gpu_stream_get(&where, &p->stream) != UTIL_OK)
		fail(p, "no context, or no stream");
	else if (gpu_launch_open(&p->launch, p->stream) != UTIL_OK)
		fail(p, "the library's kernels do not load there, or no memory can be pinned");
	else if (!share(p, GPU_CARDS_BYTES, &seat->cards, &seat->cards_export) ||
		 !share(p, GPU_ARENA_SLOTS, &seat->arena, &seat->arena_export) || !put_card(p))
		fail(p, "no device memory");
	seat->device = *seat->failed ? 0 : gpu_device_identity(seat->ordinal);
}

static bool map(struct process *p, int other, const struct gpu_export *export, uint64_t address,
		uint64_t *out)
{
	struct gpu_mapping *mapping;

	if (!export->buffer_id || gpu_ipc_map(other, export, -1, p->stream, &mapping) != UTIL_OK)
		return false;
	*out = gpu_mapping_address(mapping, address);
	return true;
}

static void map_all(struct process *p)
{
	struct seat *seat = seat_of(p);

	gpu_ipc_enter();
	for (int i = 0; i < p->board->num; i++) {
		const struct seat *other = &p->board->seats[i];

		if (i == p->me || !other->device ||
		    !map(p, i, &other->cards_export, other->cards, &p->cards[i]) ||
		    !map(p, i, &other->arena_export, other->arena, &p->arenas[i]))
			continue;
		seat->mapped |= UINT64_C(1) << i;
	}
}

static void verify(struct process *p, bool looks)
{
	struct seat *seat = seat_of(p);
	struct gpu_verify_args args = {.seed = seed,
				       .with = seat->mapped,
				       .mine = seat->cards,
				       .rank = (uint32_t)p->me,
				       .looks = looks};

	for (int i = 0; i < p->board->num && !looks; i++) {
		args.theirs[i] = p->cards[i];
		if (seat->mapped >> i & 1)
			gpu_card_exchange(p->stream, seat->cards, args.rank, p->cards[i],
					  (uint32_t)i);
	}
	if (gpu_launch_verify(&p->launch, &args) != UTIL_OK || !wait_for_kernel(p))
		fail(p, "a kernel failed");
	for (int i = 0; i < GPU_VERIFY_FOUND; i++)
		seat->wrong[i] = gpu_launch_found(&p->launch, i);
}

/* Within which time kernels of all processes on the device meet. */
static void probe(struct process *p, int bound)
{
	struct seat *seat = seat_of(p);
	struct gpu_probe_args args = {.epoch = (uint64_t)(bound + 1) << GPU_EPOCH_SHIFT,
				      .patience = 200000000,
				      .round_trip = bounds[bound],
				      .mine = seat->arena};

	for (int i = 0; i < p->board->num; i++) {
		if (p->board->seats[i].device != seat->device ||
		    (i != p->me && !(seat->mapped >> i & 1)))
			continue;
		if (i == p->me)
			args.rank = args.ranks;
		args.theirs[args.ranks++] = i == p->me ? seat->arena : p->arenas[i];
	}
	if (args.ranks > 1 && seat->meets == NUM_BOUNDS &&
	    gpu_launch_probe(&p->launch, &args, 1) == UTIL_OK && wait_for_kernel(p))
		seat->meets = bound;
}

/* Ranks of a node have one parent, which started them. */
static const char *board_name(char *name, size_t bytes)
{
	snprintf(name, bytes, "/gpucoll-doctor-%d-%d", (int)getuid(), (int)doctor_watch_parent());
	return name;
}

static void unlink_board(void)
{
	char name[64];

	shm_unlink(board_name(name, sizeof(name)));
}

static void take_part(struct process *p)
{
	struct seat *seat = seat_of(p);

	seat->meets = NUM_BOUNDS;
	open_device(p);
	doctor_watch_step("a context on each device");
	barrier(p);
	if (p->launched && p->me == 0)
		unlink_board();
	if (seat->device) {
		map_all(p);
		verify(p, false);
	}
	doctor_watch_step("memory of other processes");
	barrier(p);
	if (seat->device)
		verify(p, true);
	barrier(p);
	/* All probe with each bound, as the others wait for whoever does. */
	for (int i = 0; i < NUM_BOUNDS; i++) {
		if (seat->device)
			probe(p, i);
		doctor_watch_step("kernels of several processes");
		barrier(p);
	}
}

/* ---- the report, by the first ---- */

static uint64_t wrong_of(const struct seat *seat)
{
	uint64_t wrong = 0;

	for (int i = 0; i < GPU_VERIFY_FOUND; i++)
		wrong |= seat->wrong[i];
	return wrong;
}

static void say_pair(const struct board *board, int a, int b)
{
	const struct seat *one = &board->seats[a], *other = &board->seats[b];
	uint64_t bit = UINT64_C(1) << b;

	doctor_say(DOCTOR_WARN, "P2P", "messages between them go through the host's memory",
		   "switch PCI Express ACS off (BIOS, setpci), or boot with iommu=pt or iommu=off; "
		   "in a virtual machine ask its provider",
		   "devices %d and %d map each other's memory, and bytes get lost: read by kernels "
		   "%s, by copies %s, written by kernels %s, by copies %s",
		   one->ordinal, other->ordinal,
		   one->wrong[GPU_VERIFY_READ] & bit ? "wrong" : "right",
		   one->wrong[GPU_CARD_TAKEN] & bit ? "wrong" : "right",
		   one->wrong[GPU_CARD_WRITTEN] & bit ? "wrong" : "right",
		   one->wrong[GPU_CARD_COPIED] & bit ? "wrong" : "right");
}

static void say_pairs(const struct board *board)
{
	int right = 0, apart = 0, same = 0, same_apart = 0;

	for (int i = 0; i < board->num; i++) {
		for (int j = 0; j < i; j++) {
			const struct seat *a = &board->seats[i], *b = &board->seats[j];
			bool mapped = a->mapped >> j & 1 && b->mapped >> i & 1;

			if (!a->device || !b->device)
				continue;
			if (mapped && (wrong_of(a) >> j & 1 || wrong_of(b) >> i & 1))
				say_pair(board, wrong_of(a) >> j & 1 ? i : j,
					 wrong_of(a) >> j & 1 ? j : i);
			else if (a->device == b->device)
				mapped ? same++ : same_apart++;
			else
				mapped ? right++ : apart++;
		}
	}
	if (right)
		doctor_say(DOCTOR_OK, "P2P", "direct, within GPUCOLL_P2P_LEVEL", NULL,
			   "%d pairs of processes on different devices reach each other's memory; "
			   "tried by kernels and copies",
			   right);
	if (apart)
		doctor_say(DOCTOR_NOTE, "P2P", "messages between them go through the host's memory",
			   NULL,
			   "%d pairs of processes on different devices do not reach each other's "
			   "memory",
			   apart);
	if (same)
		doctor_say(DOCTOR_OK, "IPC", "direct", NULL,
			   "%d pairs of processes on one device reach each other's memory", same);
	if (same_apart)
		doctor_say(DOCTOR_WARN, "IPC", "messages between them go through the host's memory",
			   "in containers: --ipc=host --pid=host, or one for all ranks",
			   "%d pairs of processes on one device do not reach each other's memory",
			   same_apart);
}

static int sharers_of(const struct board *board, int seat)
{
	int sharers = 0;

	for (int i = 0; i < board->num; i++)
		sharers += board->seats[i].device == board->seats[seat].device;
	return sharers;
}

static void say_meetings(const struct board *board)
{
	enum { TOGETHER }; /* index of the library's own bound (core_together.c) */

	for (int i = 0; i < board->num; i++) {
		const struct seat *seat = &board->seats[i];
		bool first = seat->device && sharers_of(board, i) > 1;

		for (int j = 0; j < i; j++)
			first &= board->seats[j].device != seat->device;
		if (!first)
			continue;
		if (seat->meets <= TOGETHER)
			doctor_say(DOCTOR_OK, "shared GPU", "fused: kernels wait for each other",
				   NULL,
				   "kernels of %d processes on device %d run together, and meet "
				   "within %llu us",
				   sharers_of(board, i), seat->ordinal,
				   (unsigned long long)bounds[seat->meets] / 1000);
		else
			doctor_say(
				DOCTOR_WARN, "shared GPU",
				"calls with messages are stepped: hosts order the steps; in others one rank "
				"works for its GPU",
				"NVIDIA's MPS: nvidia-cuda-mps-control -d, before the job",
				"kernels of %d processes on device %d take turns%s",
				sharers_of(board, i), seat->ordinal,
				seat->meets < NUM_BOUNDS ? ", in slices of time" : "");
	}
}

static void report(const struct board *board, bool launched)
{
	if (launched)
		doctor_say(DOCTOR_NOTE, "ranks", NULL, NULL, "%d ranks of this node were tried",
			   board->num);
	if (board->late)
		doctor_say(DOCTOR_BAD, "processes", NULL, NULL,
			   "one did not come within %d s, or was lost", LIMIT_S);
	for (int i = 0; i < board->num; i++) {
		if (*board->seats[i].failed)
			doctor_say(DOCTOR_BAD, "device", "all is staged there",
				   "a driver as new as the toolkit (nvidia-smi shows its version)",
				   "%d: %s", board->seats[i].ordinal, board->seats[i].failed);
	}
	say_pairs(board);
	say_meetings(board);
}

/* ---- processes ---- */

struct devices {
	int num;
	bool exclusive; /* the first, at least: for one process at a time */
};

static void say_no_driver(CUresult result)
{
	if (result != CUDA_ERROR_NO_DEVICE)
		doctor_say(
			DOCTOR_BAD, "driver", NULL,
			result == CUDA_ERROR_SYSTEM_NOT_READY
				? "nvidia-fabricmanager must be running; dmesg"
			: result == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
				? "the kernel's module of libcuda's version: reload it, or restart"
				: "nvidia-smi; dmesg",
			"it does not start: %s (%d)", doctor_name_of(result), (int)result);
}

static void look_at_devices(struct devices *devices, bool says)
{
	CUresult result;
	CUdevice first;
	int mode = 0;

	if (!gpu_driver_load())
		return;
	result = gpu_driver.cuInit(0);
	if (result != CUDA_SUCCESS) {
		if (says)
			say_no_driver(result);
		return;
	}
	if (gpu_driver.cuDeviceGetCount(&devices->num) != CUDA_SUCCESS || !devices->num)
		return;
	devices->num = devices->num < MOST ? devices->num : MOST - 1;
	if (gpu_driver.cuDeviceGet(&first, 0) == CUDA_SUCCESS)
		gpu_driver.cuDeviceGetAttribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, first);
	devices->exclusive = mode == CU_COMPUTEMODE_EXCLUSIVE_PROCESS && !doctor_has_mps();
}

/* In a process of its own, as who has started CUDA can't be forked. */
static struct devices find_devices(bool says)
{
	struct devices found = {0}, *devices = mmap(NULL, sizeof(*devices), PROT_READ | PROT_WRITE,
						    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child;

	if (devices == MAP_FAILED)
		return found;
	child = doctor_watch_fork();
	if (!child) {
		look_at_devices(devices, says);
		_exit(0);
	}
	if (child > 0 && waitpid(child, NULL, 0) == child)
		found = *devices;
	munmap(devices, sizeof(*devices));
	return found;
}

static void run(struct board *board, int me, bool launched)
{
	struct process process = {.board = board, .me = me, .launched = launched};

	take_part(&process);
}

static void run_forked(void)
{
	struct devices devices = find_devices(true);
	struct board *board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (!devices.num || board == MAP_FAILED) {
		doctor_say(DOCTOR_BAD, "device", "host buffers go to the MPI as ever",
			   "nvidia-smi; in containers --gpus all; CUDA_VISIBLE_DEVICES",
			   "no CUDA driver (libcuda.so.1), or no device");
		return;
	}
	if (devices.exclusive)
		doctor_say(DOCTOR_NOTE, "shared GPU", "a second rank on a GPU can't use it",
			   "MPS, or nvidia-smi -c DEFAULT, for several ranks on a GPU",
			   "it is for one process at a time (EXCLUSIVE_PROCESS)");
	else
		doctor_look_at_ipc();
	/* One more than devices, so that two share one. */
	board->num = devices.num + !devices.exclusive;
	for (int i = 0; i < board->num; i++)
		board->seats[i].ordinal = i % devices.num;
	for (int i = 1; i < board->num; i++) {
		if (doctor_watch_fork() == 0) {
			run(board, i, false);
			_exit(0);
		}
	}
	run(board, 0, false);
	while (wait(NULL) > 0)
		;
	report(board, false);
	munmap(board, sizeof(*board));
}

/* ---- under a launcher ---- */

static int number_of(const char *const names[])
{
	for (int i = 0; names[i]; i++) {
		if (getenv(names[i]))
			return atoi(getenv(names[i]));
	}
	return -1;
}

/* Tasks of a step on each of its nodes, as Slurm tells it: "8(x2)", or "4,3", which says too much.
 */
static int number_by_slurm(void)
{
	const char *tasks = getenv("SLURM_STEP_TASKS_PER_NODE");

	return tasks && !strchr(tasks, ',') ? atoi(tasks) : -1;
}

/* The name is there only until all have come. */
static struct board *open_board(void)
{
	struct board *board = MAP_FAILED;
	char name[64];
	int fd;

	fd = shm_open(board_name(name, sizeof(name)), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd >= 0 && !ftruncate(fd, sizeof(*board)))
		board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	return board;
}

static bool run_launched(int rank, int size)
{
	struct board *board = open_board();
	int devices = find_devices(rank == 0).num;

	if (board == MAP_FAILED || !devices || size > MOST) {
		unlink_board();
		if (rank == 0)
			doctor_say(DOCTOR_BAD, "ranks", NULL, NULL,
				   "no device, no shared memory, or more than %d ranks on a node",
				   MOST);
		return rank == 0;
	}
	board->num = size;
	board->seats[rank].ordinal = rank % devices;
	run(board, rank, true);
	if (rank == 0)
		report(board, true);
	return rank == 0;
}

bool doctor_look_at_pairs(void)
{
	static const char *const ranks[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
					    "SLURM_LOCALID", NULL};
	static const char *const sizes[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", NULL};
	int rank = number_of(ranks), size = number_of(sizes);

	if (size < 0)
		size = number_by_slurm();
	if (rank >= 0 && size > 1)
		return run_launched(rank, size);
	run_forked();
	return true;
}
