/* SPDX-License-Identifier: BSD-3-Clause */
#include "pmpi/pmpi_call.h"
#include "core/core_mpi_revoke.h"
#include "core/core_mpi_async.h"
#include "core/core_mpi_check.h"
#include "core/core_mpi_comm.h"
#include "core/core_run.h"
#include "core/mpi/core_mpi.h"
#include "core/report/core_journal.h"
#include "util/util_log.h"

#include <dlfcn.h>
#include <pthread.h>

_Thread_local int pmpi_depth;
_Thread_local enum pmpi_door pmpi_door;
_Thread_local char *pmpi_frame;
_Thread_local void *pmpi_return;
bool pmpi_off;

/*
 * On the machines that we know a frame begins with the caller's and the address of return, which
 * stays also when the function ends by jumping to another one. The place may be another function's
 * by now, so AddressSanitizer is not asked.
 */
__attribute__((no_sanitize("address"))) bool pmpi_is_left(const char *here, const char *frame,
							  const void *ret)
{
	enum { SAME_STACK = 64 << 20 };

	if (here >= frame)
		return here - frame < SAME_STACK;
	return frame - here < SAME_STACK && ((const void *const volatile *)frame)[1] != ret;
}

/*
 * MPI_IN_PLACE is no memory. NULL may be MPI_BOTTOM, under which the datatype says where the data
 * are, so it needs the longer look that core takes.
 */
static bool may_be_device(const void *buffer)
{
	if (!buffer)
		return true;
	return !core_mpi_is_in_place(buffer) && gpu_pointer_is_device(buffer);
}

/* Whether the data begin at the buffers' addresses, so that these tell what memory it is. */
static bool addresses_tell(const struct core_call *call)
{
	return !call->sdispls && !call->rdispls &&
	       (!call->recvtype || core_mpi_type_is_plain(call->recvtype)) &&
	       (!call->sendtype || core_mpi_type_is_plain(call->sendtype));
}

static bool may_be_on_device(const struct core_call *call)
{
	if (!gpu_driver_present() || __atomic_load_n(&pmpi_off, __ATOMIC_RELAXED))
		return false;
	return !addresses_tell(call) || may_be_device(call->recvbuf) ||
	       (call->coll != CORE_BCAST && may_be_device(call->sendbuf));
}

/* The call, or one in `own` that adds up in order. */
static const struct core_call *take_in_order(const struct core_call *call, struct core_call *own)
{
	if (!util_config.reproducible || call->coll == CORE_REDUCE_LOCAL)
		return call;
	*own = *call;
	core_ordered_take(own, core_awake ? core_mpi_comm_find(call->comm) : NULL);
	return own;
}

int pmpi_collective(const struct core_call *call, enum pmpi_door door)
{
	struct core_call own;
	int result;

	pmpi_enter(door);
	if (core_requests_are_pending())
		core_requests_look();
	call = take_in_order(call, &own);
	if (may_be_on_device(call))
		result = core_run(call);
	else
		result = core_run_host(call);
	pmpi_leave();
	return result;
}

int pmpi_async(const struct core_call *call, enum pmpi_door door)
{
	struct core_call own;
	int result;

	pmpi_enter(door);
	if (core_requests_are_pending())
		core_requests_look();
	call = take_in_order(call, &own);
	if (may_be_on_device(call))
		result = core_async_run(call);
	else
		result = core_async_run_host(call);
	pmpi_leave();
	return result;
}

/* The type of a buffer with an address is not asked for more than where its ends are. */
static bool may_have_device(const void *buffer, core_handle type)
{
	return type && (may_be_device(buffer) || !core_mpi_type_is_plain(type));
}

/*
 * Inside a call that came in by the other door, too, this one goes on by its own. Returns the door
 * of the call around it.
 */
static inline __attribute__((always_inline)) enum pmpi_door enter_by(enum pmpi_door door)
{
	enum pmpi_door outer = pmpi_door;

	pmpi_enter_any(door);
	pmpi_door = door;
	return outer;
}

static void leave_to(enum pmpi_door outer)
{
	pmpi_leave();
	pmpi_door = outer;
}

void pmpi_yield(enum pmpi_door door)
{
	enum pmpi_door outer = enter_by(door);

	core_drive_yield();
	leave_to(outer);
}

void pmpi_drive(enum pmpi_door door)
{
	enum pmpi_door outer;

	if (pmpi_is_inside()) /* the library's own */
		return;
	outer = enter_by(door);
	core_drive_step();
	leave_to(outer);
}

int pmpi_message(const struct core_message_call *call, enum pmpi_door door)
{
	enum pmpi_door outer = enter_by(door);
	int result;

	if (core_requests_are_pending())
		core_requests_look();
	if (may_have_device(call->sendbuf, call->sendtype) ||
	    may_have_device(call->recvbuf, call->recvtype))
		result = core_message_run(call);
	else
		result = call->real(call);
	leave_to(outer);
	return result;
}

int pmpi_pack(const struct core_pack_call *call, enum pmpi_door door)
{
	enum pmpi_door outer = enter_by(door);
	int result;

	if (may_have_device(call->inbuf, call->datatype) ||
	    may_have_device(call->outbuf, call->datatype))
		result = core_pack_run(call);
	else
		result = call->real(call);
	leave_to(outer);
	return result;
}

int pmpi_file(const struct core_io_call *call, enum pmpi_door door)
{
	enum pmpi_door outer = enter_by(door);
	int result;

	if (call->form == CORE_IO_END)
		result = core_io_is_pending() ? core_io_end(call) : call->real(call);
	else if ((call->count > 0 && may_have_device(call->buf, call->datatype)) ||
		 (call->form == CORE_IO_BEGIN && core_io_is_pending()))
		result = core_io_run(call);
	else
		result = call->real(call);
	leave_to(outer);
	return result;
}

/* Nobody is there to be read from or written to: the buffers don't matter. */
static bool is_to_nobody(const struct core_rma_call *call)
{
	return call->target_rank == MPI_PROC_NULL;
}

int pmpi_rma(const struct core_rma_call *call, enum pmpi_door door)
{
	enum pmpi_door outer = enter_by(door);
	core_handle result_type = call->single ? call->origin_type : call->result_type;
	int result;

	if (!is_to_nobody(call) && (may_have_device(call->origin, call->origin_type) ||
				    may_have_device(call->result, result_type) ||
				    (call->compare && may_be_device(call->compare))))
		result = core_rma_run(call);
	else
		result = call->real(call);
	leave_to(outer);
	return result;
}

bool pmpi_asleep(void)
{
	return pmpi_is_inside() || !core_awake;
}

int pmpi_note(struct core_note *note, const char *name, MPI_Comm comm, bool pends)
{
	struct core_comm *state = core_mpi_comm_find((core_handle)comm);
	int error;

	*note = core_journal_begin_other(name, state, !pends);
	error = core_check_is_on(state) ? core_check_run_other(name, pends, state, note)
					: MPI_SUCCESS;
	if (error == MPI_SUCCESS)
		return error;
	pmpi_note_end(note, error, false); /* before an error handler may jump */
	return core_check_raise((core_handle)comm, error);
}

struct core_note pmpi_note_last(enum pmpi_door door, const char *name, MPI_Comm comm)
{
	struct core_comm *state;
	struct core_note note;

	pmpi_enter(door);
	state = core_mpi_comm_find((core_handle)comm);
	if (state)
		core_check_close(state);
	note = core_journal_begin_other(name, state, true);
	pmpi_leave();
	return note;
}

void pmpi_note_end(const struct core_note *note, int result, bool pends)
{
	struct core_journal_end end = {.where = result  ? CORE_WHERE_FAILED
						: pends ? CORE_WHERE_GIVEN
							: CORE_WHERE_ENDED,
				       .path = CORE_PATH_PASS};

	core_journal_end(note, &end);
}

void pmpi_revoke_comm(enum pmpi_door door, MPI_Comm comm)
{
	pmpi_enter_any(door);
	core_mpi_revoke((core_handle)comm);
	pmpi_leave();
}

int pmpi_leave_constructor(int result, MPI_Comm *newcomm)
{
	if (result == MPI_SUCCESS)
		core_mpi_comm_identify((core_handle)*newcomm);
	pmpi_leave();
	return result;
}

int pmpi_leave_late_constructor(int result, MPI_Comm *newcomm)
{
	if (result == MPI_SUCCESS)
		core_mpi_late_expect((core_handle)*newcomm);
	pmpi_leave();
	return result;
}

/* Not seen before, in a process with CUDA, of an MPI that is not known to take device memory. */
static bool is_for_an_unaware_mpi(void)
{
	return !pmpi_depth && gpu_driver_present() &&
	       !__atomic_load_n(&pmpi_off, __ATOMIC_RELAXED) && !pmpi_mpi_is_cuda_aware();
}

/* The user may know better. */
bool pmpi_looks_at_refused(void)
{
	return is_for_an_unaware_mpi() && util_config.p2p != UTIL_MESSAGES_MPI;
}

int pmpi_refuse(const char *function, MPI_Comm comm)
{
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_PMPI,
		 "%s was given a device buffer: the library has no partitioned messages, and this "
		 "MPI is not CUDA-aware: see gpucoll(7)",
		 function);
	PMPI_Comm_call_errhandler(comm, MPI_ERR_BUFFER);
	return MPI_ERR_BUFFER;
}

/* Of this process. */
static bool is_refused_window(const char *function, const void *base, int64_t size)
{
	if (size <= 0 || !pmpi_looks_at_refused() || !gpu_pointer_is_out_of_reach(base))
		return false;
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_PMPI,
		 "%s was given device memory, which other processes can't reach through this MPI, "
		 "as it is not CUDA-aware: windows must be in host or managed memory. What is sent "
		 "from and received into may be on the device",
		 function);
	return true;
}

/*
 * One rank's error would leave the others waiting in the call. On a communicator without an
 * identity some may not have the library.
 */
int pmpi_refuse_window(const char *function, const void *base, int64_t size, MPI_Comm comm)
{
	int mine, all, error;

	if (pmpi_is_inside())
		return MPI_SUCCESS;
	mine = all = is_refused_window(function, base, size);
	if (core_awake && core_mpi_comm_find((core_handle)comm)) {
		pmpi_enter(PMPI_DOOR_PMPI); /* it is none of the program's */
		error = PMPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MAX, comm);
		pmpi_leave();
		if (error)
			return error;
	}
	if (!all)
		return MPI_SUCCESS;
	PMPI_Comm_call_errhandler(comm, MPI_ERR_BUFFER);
	return MPI_ERR_BUFFER;
}

int pmpi_refuse_attached(const char *function, const void *base, int64_t size, MPI_Win win)
{
	if (pmpi_is_inside() || !is_refused_window(function, base, size))
		return MPI_SUCCESS;
	PMPI_Win_call_errhandler(win, MPI_ERR_RMA_ATTACH);
	return MPI_ERR_RMA_ATTACH;
}

void pmpi_bind(const struct pmpi_binding *bindings, size_t num_bindings)
{
	for (size_t i = 0; i < num_bindings; i++) {
		bindings[i].next[PMPI_DOOR_PMPI] = dlsym(RTLD_NEXT, bindings[i].symbol);
		bindings[i].next[PMPI_DOOR_MPI] = dlsym(RTLD_NEXT, bindings[i].symbol + 1);
	}
}

void pmpi_bind_once(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, pmpi_bind_all);
}

/*
 * Before main. A library of the application may come earlier with MPI_Init in a constructor of its
 * own, so that binds too.
 */
__attribute__((constructor)) static void bind_at_load(void)
{
	pmpi_bind_once();
}
