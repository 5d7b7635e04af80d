/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The door: how a wrapped MPI call comes in and goes on.
 *
 * A program calls MPI_X; other tools, and Open MPI's Fortran bindings, call PMPI_X. Both names are
 * taken, and each is forwarded to the next definition of the same name (dlsym RTLD_NEXT), so tools
 * above and below still stack. One call may then pass here twice (MPI_X here, MPI_X of a tool,
 * PMPI_X here): a thread-local depth marks that it has been seen.
 */
#ifndef PMPI_CALL_H
#define PMPI_CALL_H

#include "core/call/core_call.h"
#include "core/call/core_flags.h"
#include "core/comm/core_note.h"
#include "core/core_mpi_late.h"
#include "core/core_mpi_ordered.h"
#include "core/io/core_io.h"
#include "core/job/core_drive.h"
#include "core/mpi/core_mpi_hold.h"
#include "core/p2p/core_message.h"
#include "core/p2p/core_pack.h"
#include "core/request/core_mpi_request.h"
#include "core/request/core_requests.h"
#include "core/rma/core_rma.h"
#include "gpu/gpu_pointer.h"

#include <mpi.h>

/*
 * What of MPI the mpi.h has: Open MPI 5 has what is new in MPI 4, but large counts, and calls
 * itself MPI 3.1. Persistent collectives were an extension of it before.
 * ULFM is one of all.
 */
#ifdef OPEN_MPI
#define PMPI_HAS_EXT (OMPI_MAJOR_VERSION < 5)
#define PMPI_HAS_MPI4 (OMPI_MAJOR_VERSION >= 5)
#define PMPI_HAS_ULFM (OMPI_MAJOR_VERSION >= 5)
#else
#ifdef MPIX_ERR_PROC_FAILED
#define PMPI_HAS_ULFM 1
#else
#define PMPI_HAS_ULFM 0
#endif
#define PMPI_HAS_EXT 0
#define PMPI_HAS_MPI4 (MPI_VERSION >= 4)
#endif
#define PMPI_HAS_MPI41 (MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1))

enum pmpi_door { PMPI_DOOR_MPI, PMPI_DOOR_PMPI, PMPI_NUM_DOORS };

struct pmpi_binding {
	const char *symbol; /* "PMPI_X"; one letter on is "MPI_X" */
	void **next;        /* the next definitions, by door */
};

extern _Thread_local int pmpi_depth __attribute__((tls_model("initial-exec")));
extern _Thread_local enum pmpi_door pmpi_door __attribute__((tls_model("initial-exec")));
extern _Thread_local char *pmpi_frame __attribute__((tls_model("initial-exec")));
extern _Thread_local void *pmpi_return __attribute__((tls_model("initial-exec")));

/*
 * Whether a jump has left the call of a function that has this frame and is to return there: `here`
 * is the same frame or an older one, or, where it is not, the address of return does not stand in
 * the frame any more.
 */
bool pmpi_is_left(const char *here, const char *frame, const void *ret);

/*
 * Set by GPUCOLL_DISABLE, gpucoll_enable and in a forked child. Read without order: it takes effect
 * soon.
 */
extern bool pmpi_off;

/*
 * Whether this call comes from inside one that has been seen. An error handler of the application
 * may have left that one by longjmp or an exception: then this frame is the same or an older one
 * than the outermost of those inside, on the same stack; or it is where others have been since.
 */
static inline __attribute__((always_inline)) bool pmpi_is_inside(void)
{
	if (pmpi_depth && pmpi_is_left(__builtin_frame_address(0), pmpi_frame, pmpi_return))
		pmpi_depth = 0;
	return pmpi_depth > 0;
}

/* Of those that a jump has left (pmpi_callback.c) forget all. Whether others are left. */
bool pmpi_look_back(const char *here);

/* Whether this call comes from a callback. */
static inline __attribute__((always_inline)) bool pmpi_is_called_back(void)
{
	return __builtin_expect(core_called_back, false) &&
	       pmpi_look_back(__builtin_frame_address(0));
}

/*
 * Whether a collective goes to the real MPI without a look: seen already, or neither CUDA nor our
 * datatypes in the job. Where another process of the job may have CUDA, this one's calls are
 * counted.
 */
static inline bool pmpi_passes(void)
{
	return pmpi_is_inside() ||
	       (!core_attentive &&
		(!gpu_driver_present() || __atomic_load_n(&pmpi_off, __ATOMIC_RELAXED)));
}

/*
 * The same of a message and of MPI_Pack. They are looked at inside other calls, too, in callbacks
 * of the application: what is staged already is in host memory.
 */
static inline bool pmpi_passes_message(void)
{
	return !gpu_driver_present() || __atomic_load_n(&pmpi_off, __ATOMIC_RELAXED) ||
	       core_message_passes;
}

/* The same of a call that completes, starts or frees requests. */
static inline bool pmpi_passes_request(void)
{
	bool passes = core_requests_pass;

	core_requests_pass = false;
	return passes || !core_requests_are_pending();
}

/* Whether communicators need no identity: the job has no driver, or this is not the first look. */
bool pmpi_asleep(void);

/* In the wrapper's own frame, which stands as long as the call. */
static inline __attribute__((always_inline)) void pmpi_enter(enum pmpi_door door)
{
	if (pmpi_depth++ == 0) {
		pmpi_door = door;
		pmpi_frame = (char *)__builtin_frame_address(0);
		pmpi_return = __builtin_return_address(0);
		if (__builtin_expect(core_drive_holds, false))
			core_drive_leave();
		if (__builtin_expect(core_called_back, false))
			pmpi_look_back(pmpi_frame);
	}
}

static inline void pmpi_leave(void)
{
	pmpi_depth--;
}

/* Of a call that is looked at inside others, too. */
static inline __attribute__((always_inline)) void pmpi_enter_any(enum pmpi_door door)
{
	if (!pmpi_is_inside() && !pmpi_is_called_back())
		core_requests_left();
	pmpi_enter(door);
}

/*
 * MPI calls the application back in the middle of a call, in an error handler, or in a copy
 * function of the attributes of `copied`. From pmpi_step_out on what this thread calls is as if
 * from outside, until pmpi_step_in, or until a jump has left the frame that was to return there.
 * `copied` may come once more, by PMPI's door, from a tool; MPI_COMM_NULL: it is none.
 */
struct pmpi_outer { /* the call that it is in the middle of */
	int depth;
	enum pmpi_door door;
	char *frame;
	void *ret;
	int callbacks; /* around that call */
	bool message_passes;
	enum core_path last_path;
};
struct pmpi_outer pmpi_step_out(MPI_Comm copied, char *frame, void *ret);
void pmpi_step_in(const struct pmpi_outer *outer);

/* Whether a constructor's call is such a one; it is not the next time. */
bool pmpi_is_copied(MPI_Comm comm);

/* What MPI is to call in the place of an error handler of the application. Thread-safe. */
typedef void pmpi_function(void);
pmpi_function *pmpi_handler_for(pmpi_function *function);

/*
 * Nonblocking collectives are queued, and this call may wait in the real MPI; or they are to be
 * driven only (core_queue.h).
 */
void pmpi_yield(enum pmpi_door door);
void pmpi_drive(enum pmpi_door door);

/* Run a collective that came in by `door`; returns what MPI returns. */
int pmpi_collective(const struct core_call *call, enum pmpi_door door);

/* The same of a nonblocking or persistent one, of a message, of MPI_Pack and such, of a file,
 * and of a one-sided call. */
int pmpi_async(const struct core_call *call, enum pmpi_door door);
int pmpi_message(const struct core_message_call *call, enum pmpi_door door);
int pmpi_pack(const struct core_pack_call *call, enum pmpi_door door);
int pmpi_file(const struct core_io_call *call, enum pmpi_door door);
int pmpi_rma(const struct core_rma_call *call, enum pmpi_door door);

/*
 * One of the communicator's collective operations that carry no data begins, which `pends` if it
 * has a request. Anything but MPI_SUCCESS: it is not to be made, and this is its result.
 */
int pmpi_note(struct core_note *note, const char *name, MPI_Comm comm, bool pends);

/*
 * The same of the last one, which is to be made in any case: MPI lets ranks free communicators in
 * different orders. In it MPI calls what the application has hung on the communicator, whose calls
 * are as if from outside.
 */
struct core_note pmpi_note_last(enum pmpi_door door, const char *name, MPI_Comm comm);

/* It has returned `result`. Its communicator may be gone. */
void pmpi_note_end(const struct core_note *note, int result, bool given);

/*
 * After a constructor of communicators returned `result`: give the new one an identity, and leave.
 */
int pmpi_leave_constructor(int result, MPI_Comm *newcomm);

/* The same of one that does not wait: the identity comes later. */
int pmpi_leave_late_constructor(int result, MPI_Comm *newcomm);

/* Enqueue a collective or a message on a stream (core_mpi_enqueue.h). */
int pmpi_enqueue(const struct core_call *call, void *stream);
int pmpi_enqueue_message(const struct core_message_call *call, const char *name, void *stream);

/* The communicator is about to be freed. */
void pmpi_end_comm(enum pmpi_door door, MPI_Comm comm);

/* It is about to be revoked: nobody is to wait in its calls any more. */
void pmpi_revoke_comm(enum pmpi_door door, MPI_Comm comm);

/* Before anything is enqueued. */
void pmpi_start_streams(void);

/* Whether the MPI says that it is CUDA-aware. */
bool pmpi_mpi_is_cuda_aware(void);

/*
 * Whether calls that are refused on device memory are to be looked at; and refuse one: raise an
 * error on the communicator, and return it.
 */
bool pmpi_looks_at_refused(void);
int pmpi_refuse(const char *function, MPI_Comm comm);

/*
 * Refuse windows on device memory: MPI_Win_create on all ranks alike, if one's base is; collective,
 * where the library is at work. MPI_SUCCESS: it is to be made.
 */
int pmpi_refuse_window(const char *function, const void *base, int64_t size, MPI_Comm comm);
int pmpi_refuse_attached(const char *function, const void *base, int64_t size, MPI_Win win);

/*
 * Find the next definition of each symbol. pmpi_bind_all is generated and calls pmpi_bind;
 * pmpi_bind_once calls it unless that was done.
 */
void pmpi_bind(const struct pmpi_binding *bindings, size_t num_bindings);
void pmpi_bind_all(void);
void pmpi_bind_once(void);

/* Warn of what looks wrong about the MPI's release, or the way in which the process was started. */
void pmpi_look_at_start(void);

/* The library's start, once MPI is initialised. Collective over MPI_COMM_WORLD. */
void pmpi_start(void);

/*
 * The program initialises MPI: with the lock until it is done. Whether that was done for it
 * (GPUCOLL_SESSIONS): from now on it is the program's to finalise.
 */
void pmpi_session_lock(void);
void pmpi_session_unlock(void);
bool pmpi_session_hand_over(void);

/* Whether the program has one, and finalises MPI itself before it. Any thread. */
bool pmpi_session_is_open(void);

int pmpi_own_Init(int (*next)(int *, char ***), int *argc, char ***argv);
int pmpi_own_Finalize(int (*next)(void));
int pmpi_own_Initialized(int (*next)(int *), int *flag);
int pmpi_own_Query_thread(int (*next)(int *), int *provided);
int pmpi_own_Init_thread(int (*next)(int *, char ***, int, int *), int *argc, char ***argv,
			 int required, int *provided);

#if PMPI_HAS_MPI4
int pmpi_own_Session_init(int (*next)(MPI_Info, MPI_Errhandler, MPI_Session *), MPI_Info info,
			  MPI_Errhandler errhandler, MPI_Session *session);
int pmpi_own_Session_finalize(int (*next)(MPI_Session *), MPI_Session *session);
#endif

typedef int (*pmpi_spawn)(const char *, char *[], int, MPI_Info, int, MPI_Comm, MPI_Comm *, int[]);
int pmpi_own_Comm_spawn(pmpi_spawn next, const char *command, char *argv[], int maxprocs,
			MPI_Info info, int root, MPI_Comm comm, MPI_Comm *intercomm,
			int errcodes[]);

typedef int (*pmpi_spawn_multiple)(int, char *[], char **[], const int[], const MPI_Info[], int,
				   MPI_Comm, MPI_Comm *, int[]);
int pmpi_own_Comm_spawn_multiple(pmpi_spawn_multiple next, int count, char *commands[],
				 char **argvs[], const int maxprocs[], const MPI_Info infos[],
				 int root, MPI_Comm comm, MPI_Comm *intercomm, int errcodes[]);

#endif
