/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/accel/core_reserve.h"
#include "core/accel/core_eager.h"
#include "core/accel/core_failure.h"
#include "core/accel/core_together.h"
#include "core/call/core_coll.h"
#include "core/choose/core_wish.h"
#include "core/comm/core_board.h"
#include "core/job/core_mpi_job.h"
#include "core/wire/core_arena.h"
#include "core/wire/core_arena_layout.h"
#include "core/wire/core_leaving.h"
#include "core/wire/core_wire.h"
#include "gpu/gpu_context.h"
#include "gpu/gpu_pointer.h"
#include "util/util_config.h"

enum { LEAST_WINDOW = 64 << 10 };

/* So many LL messages, and all flags are cleared before they are used again. */
#define LL_FLAGS (UINT32_C(1) << 31)

/*
 * Each round costs a launch and two waits for all ranks, so a window is large; but few calls are,
 * and it stays this process's: of ranks that share a GPU each has a part.
 */
static uint64_t window_bytes(const struct core_accel *accel)
{
	enum { USUAL = 4 << 20 };
	uint64_t most = util_config.window, all;

	if (accel->sharers > 1)
		most /= (uint64_t)accel->sharers;
	all = accel->offer.longest * (uint64_t)accel->comm->size;
	if (most < USUAL || all <= USUAL)
		most = util_config.window < USUAL ? util_config.window : USUAL;
	return most > LEAST_WINDOW ? most : LEAST_WINDOW;
}

/* In the stream's context: as many as there are pointers to. */
static bool take_windows(struct core_accel *accel, uint64_t bytes, struct gpu_scratch **windows[],
			 int num)
{
	for (int i = 0; i < num; i++) {
		if (gpu_scratch_get(bytes, accel->stream, windows[i]) == UTIL_OK)
			continue;
		while (i-- > 0) {
			gpu_scratch_put(*windows[i]);
			*windows[i] = NULL;
		}
		return false;
	}
	return true;
}

/*
 * The id of a window that could not be exported, by which all know that nothing of this process can
 * be; 0: that has not happened. So it is under drivers without IPC (WSL, Tegra).
 */
static uint64_t not_exported; /* relaxed: it says all that there is to know */

/*
 * The others' kernels use a window in the buffer's stead. UTIL_ERR_UNSUPPORTED: none of them could.
 */
static enum util_status offer_window(struct core_accel *accel, const struct core_candidate *c,
				     const struct gpu_scratch *window)
{
	struct core_offer *offer = &accel->offer;
	struct gpu_export *export = &offer->exports[c->number];
	struct gpu_pointer where;

	gpu_pointer_classify((void *)window->address, &where);
	if (where.memory == GPU_MEMORY_LOST)
		return UTIL_ERR_CUDA;
	offer->regions[c->number].address = window->address;
	if (core_offer_export(offer, c->number, window->address, &where, accel->passes_descriptors))
		return UTIL_OK;
	if (!export->buffer_id || export->kind != GPU_EXPORT_NONE)
		return UTIL_ERR_CUDA;
	__atomic_store_n(&not_exported, export->buffer_id, __ATOMIC_RELAXED);
	return UTIL_ERR_UNSUPPORTED;
}

static enum util_status offer_windows(struct core_accel *accel, const struct core_candidate *in,
				      const struct core_candidate *out)
{
	enum util_status status = UTIL_OK;

	if (in->windowed)
		status = offer_window(accel, in, accel->windows.in);
	if (out->windowed && status == UTIL_OK)
		status = offer_window(accel, out, accel->windows.out);
	return status;
}

/* Nobody reaches the buffer, which a vote finds out, once for all buffers. */
static void offer_nothing(struct core_offer *offer, struct core_candidate *c)
{
	if (!c->windowed)
		return;
	c->windowed = false;
	offer->regions[c->number].address = c->buffer->address;
	offer->regions[c->number].buffer_id = __atomic_load_n(&not_exported, __ATOMIC_RELAXED);
	offer->exports[c->number] = (struct gpu_export){
		.kind = GPU_EXPORT_NONE, .buffer_id = offer->regions[c->number].buffer_id};
}

/*
 * There may be messages, through the host's memory, of what this process's kernels can use as it
 * is.
 */
static enum util_status do_without_windows(struct core_accel *accel, struct core_candidate *in,
					   struct core_candidate *out)
{
	if (accel->scattered || in->where.memory == GPU_MEMORY_HOST_VMM ||
	    out->where.memory == GPU_MEMORY_HOST_VMM)
		return core_accel_stage(accel, CORE_REASON_NOT_EXPORTED);
	offer_nothing(&accel->offer, in);
	offer_nothing(&accel->offer, out);
	return UTIL_OK;
}

void core_reserve_put_windows(struct core_accel *accel)
{
	if (accel->windows.out && accel->windows.out != accel->windows.in)
		gpu_scratch_put(accel->windows.out);
	if (accel->windows.in)
		gpu_scratch_put(accel->windows.in);
	if (accel->windows.copies)
		gpu_stream_put(accel->windows.copies);
	accel->windows.in = accel->windows.out = NULL;
	accel->windows.copies = NULL;
}

enum util_status core_reserve_windows(struct core_accel *accel, struct core_candidate *in,
				      struct core_candidate *out)
{
	const struct core_shape *shape = &accel->shape;
	bool is_one = in->windowed && shape->op != GPU_OP_NONE && shape->in_place;
	struct gpu_scratch **windows[2];
	uint64_t bytes = window_bytes(accel);
	enum util_status status;
	int num = 0;

	if (in->windowed)
		windows[num++] = &accel->windows.in;
	if (out->windowed && !is_one)
		windows[num++] = &accel->windows.out;
	if (!num)
		return UTIL_OK;
	if (__atomic_load_n(&not_exported, __ATOMIC_RELAXED))
		return do_without_windows(accel, in, out);
	if (gpu_stream_get(gpu_stream_where(accel->stream), &accel->windows.copies) != UTIL_OK)
		return core_failure_stage(accel, CORE_REASON_NO_STREAM);
	while (bytes >= LEAST_WINDOW && !take_windows(accel, bytes, windows, num))
		bytes /= 2;
	if (bytes < LEAST_WINDOW)
		return core_failure_stage(accel, CORE_REASON_NO_WINDOW);
	if (is_one && out->windowed)
		accel->windows.out = accel->windows.in;
	status = offer_windows(accel, in, out);
	if (status == UTIL_ERR_UNSUPPORTED) {
		core_reserve_put_windows(accel);
		return do_without_windows(accel, in, out);
	}
	if (status != UTIL_OK)
		return core_failure_stage(accel, CORE_REASON_NOT_EXPORTED);
	accel->offer.window = bytes;
	accel->offer.flags |= in->windowed ? CORE_OFFER_WINDOW_IN : 0;
	accel->offer.flags |= out->windowed ? CORE_OFFER_WINDOW_OUT : 0;
	return UTIL_OK;
}

enum util_status core_reserve_resources(struct core_accel *accel, const struct gpu_pointer *where)
{
	const struct core_shape *shape = &accel->shape;

	/* The program goes on, on its managed memory perhaps, of which it need not tell us. */
	if (accel->nonblocking && !gpu_device_leaves_managed(where->device))
		return core_accel_stage(accel, CORE_REASON_MANAGED_ALONE);
	if (gpu_stream_get(where, &accel->stream) != UTIL_OK)
		return gpu_context_is_lost(where) ? core_failure_lose_device(accel)
						  : core_accel_stage(accel, CORE_REASON_NO_STREAM);
	if (gpu_launch_open(&accel->launch, accel->stream) != UTIL_OK)
		return core_failure_stage(accel, CORE_REASON_NO_LAUNCH);
	accel->launches = true;
	accel->offer.device = gpu_device_identity(where->device);
	accel->sharers = core_board_share_gpu(accel->offer.device, core_shape_has_data(shape));
	if (!shape->own.bytes || !shape->in_place)
		return UTIL_OK;
	if (gpu_scratch_get(shape->own.bytes, accel->stream, &accel->scratch) != UTIL_OK)
		return core_failure_stage(accel, CORE_REASON_NO_SCRATCH);
	return UTIL_OK;
}

static bool may_need_links(const struct core_accel *accel)
{
	const struct core_comm *comm = accel->comm;

	return comm->links.wanted || comm->spans ||
	       core_wish_wants_links(core_coll_sched(accel->shape.coll));
}

/*
 * Without one the call may still be done in another way, but not over several nodes. What is in
 * pinned memory takes the place of all GPUs' together, so it is less than a GPU's.
 */
enum { HOST_FACTOR = 2 };

static enum util_status open_arenas(struct core_accel *accel)
{
	struct core_comm *comm = accel->comm;
	int processes = core_mpi_job.local_size, sharers = accel->sharers;
	size_t bytes = core_arena_layout_bytes(util_config.scratch, sharers ? sharers : processes);
	size_t most = core_arena_layout_bytes(HOST_FACTOR * util_config.scratch, processes);
	enum util_status status;

	if ((comm->spans || comm->links.shm_wanted) && bytes > most)
		bytes = most;
	if (comm->links.most_arena && bytes > comm->links.most_arena)
		bytes = comm->links.most_arena;
	if (core_arena_would_grow(comm->arena, bytes, accel->stream))
		core_leaving_look();
	status = core_arena_open(comm->arena, bytes, comm->links.shm_wanted, accel->stream,
				 &accel->clearing);

	if (status == UTIL_OK && comm->spans)
		status = core_wire_open(comm->wire, comm->arena->bytes, accel->stream);
	return status;
}

/* The user says that no call takes as long as the driver gives a kernel on a display's device. */
static bool is_asked_to_wait(const struct core_accel *accel)
{
	return util_config.exec == UTIL_EXEC_FUSED ||
	       (accel->comm->standing && util_config.stream_exec == UTIL_STREAM_EXEC_FUSED);
}

/*
 * Whether this process's kernels may wait for others', of how many blocks. Not where others may use
 * the GPU that can't be counted, or where the driver ends kernels that take long, unless the user
 * says so; nor where a launch does not come back before its kernel has ended, and that waits for
 * messages that this process is to carry.
 */
static bool may_wait(const struct core_accel *accel, uint32_t *blocks)
{
	int most = (int)gpu_launch_most(&accel->launch);
	int share = accel->sharers ? core_arena_layout_resident(most, accel->sharers) : 0;

	share -= (int)gpu_launch_drawn(gpu_stream_where(accel->stream)->device);
	share = share > 0 ? share : 0;
	*blocks = share ? (uint32_t)share : 1;
	if (!share || util_config.exec == UTIL_EXEC_STEPPED)
		return false;
	if (util_config.exec != UTIL_EXEC_FUSED && accel->comm->neighbors)
		return false;
	if (!is_asked_to_wait(accel) &&
	    gpu_device_limits_kernels(gpu_stream_where(accel->stream)->device))
		return false;
	return !accel->comm->spans || !gpu_launch_is_blocking();
}

/*
 * The process carries messages for one call's kernel between nodes at a time, whatever devices it
 * has: who carries one's does nothing for others (core_queue.c). Relaxed, as for a device. Kernels
 * wait on a process's first device only, for now (core_board_share_gpu), whose own reservation
 * comes first.
 */
static bool carries;

static bool reserve(const struct core_accel *accel)
{
	int device = gpu_stream_where(accel->stream)->device;

	if (!gpu_launch_reserve(device))
		return false;
	if (!accel->comm->spans || !__atomic_exchange_n(&carries, true, __ATOMIC_RELAXED))
		return true;
	gpu_launch_release(device);
	return false;
}

void core_reserve_give_back(struct core_accel *accel)
{
	if (accel->comm->spans)
		__atomic_store_n(&carries, false, __ATOMIC_RELAXED);
	gpu_launch_release(gpu_stream_where(accel->stream)->device);
}

/*
 * Kernels that are to wait for messages, and a network that writes to device memory, are two wishes
 * that don't go together.
 */
static uint32_t offer_gdr(const struct core_comm *comm)
{
	if (!comm->spans || !core_wire_takes_memory(comm->wire))
		return 0;
	if (util_config.net_gdr == UTIL_GDR_ON)
		return CORE_OFFER_DEVICE_WIRE | CORE_OFFER_WANTS_GDR;
	return util_config.exec == UTIL_EXEC_FUSED ? 0 : CORE_OFFER_DEVICE_WIRE;
}

/*
 * Many communicators see nothing but short calls, and arenas are large, and slow to make. If it
 * turns out that the call needs them it is staged, and the next one has them.
 */
static bool may_do_without_arenas(const struct core_accel *accel)
{
	const struct core_comm *comm = accel->comm;

	return !comm->links.wanted && !comm->arena->bytes && core_eager_is_certain(accel);
}

enum util_status core_reserve_arenas(struct core_accel *accel)
{
	struct core_comm *comm = accel->comm;
	struct core_offer *offer = &accel->offer;
	struct core_region *arenas = &offer->regions[CORE_REGION_ARENAS];
	struct gpu_pointer where;
	bool reserved;

	if (!accel->stream || !may_need_links(accel))
		return UTIL_OK;
	if (may_do_without_arenas(accel))
		return core_wire_open_ahead(comm->wire, accel->stream) == UTIL_OK
			       ? UTIL_OK
			       : core_accel_stage(accel, CORE_REASON_NO_ARENA);
	if (open_arenas(accel) != UTIL_OK)
		return comm->spans ? core_accel_stage(accel, CORE_REASON_NO_ARENA) : UTIL_OK;
	gpu_pointer_classify((void *)comm->arena->device->address, &where);
	/* Of one without even an id nobody would find out that it is not there. */
	if (!core_offer_export(offer, CORE_REGION_ARENAS + GPU_TRANSPORT_P2P,
			       comm->arena->device->address, &where, accel->passes_descriptors) &&
	    !arenas[GPU_TRANSPORT_P2P].buffer_id)
		return core_failure_stage(accel, CORE_REASON_NO_ARENA);
	if ((comm->links.ll_flag >= LL_FLAGS || comm->links.flags_moved) &&
	    core_arena_clear_flags(comm->arena, accel->stream) == UTIL_OK) {
		accel->clearing = true;
		offer->flags |= CORE_OFFER_FLAGS_CLEAR;
	}
	arenas[GPU_TRANSPORT_P2P].address = comm->arena->device->address;
	arenas[GPU_TRANSPORT_P2P].bytes = comm->arena->bytes;
	if (comm->spans && core_wire_bytes(comm->wire) < comm->arena->bytes)
		arenas[GPU_TRANSPORT_P2P].bytes = core_wire_bytes(comm->wire);
	if (comm->arena->shm && accel->passes_descriptors) {
		struct gpu_export *export = &offer->exports[CORE_REGION_ARENAS + GPU_TRANSPORT_SHM];

		gpu_shm_export(comm->arena->shm, export);
		arenas[GPU_TRANSPORT_SHM].address =
			gpu_shm_address(comm->arena->shm, accel->stream);
		arenas[GPU_TRANSPORT_SHM].buffer_id = export->buffer_id;
	}
	/* While the device is reserved nobody draws blocks that are counted here. */
	reserved = reserve(accel);
	accel->reserved = may_wait(accel, &offer->blocks) && reserved;
	if (reserved && !accel->reserved)
		core_reserve_give_back(accel);
	offer->flags |= accel->reserved ? CORE_OFFER_CAN_FUSE : 0;
	offer->flags |= core_together_are_apart() ? CORE_OFFER_APART : 0;
	offer->flags |= comm->links.failed ? CORE_OFFER_LINKS_FAILED : 0;
	offer->flags |= offer_gdr(comm);
	return UTIL_OK;
}

enum util_status core_reserve_without_data(struct core_accel *accel)
{
	const struct gpu_scratch *arena = accel->comm->arena->device;
	struct gpu_pointer where;
	unsigned long long id;

	if (!may_need_links(accel) || !gpu_context_current(&where, &id) ||
	    (arena && arena->context_id != id))
		return UTIL_OK;
	return core_reserve_resources(accel, &where);
}
