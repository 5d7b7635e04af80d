/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/report/core_journal.h"
#include "core/call/core_flags.h"
#include "core/comm/core_board.h"
#include "core/mpi/core_mpi.h"
#include "core/mpi/core_mpi_predefined.h"
#include "core/report/core_trace.h"

#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct core_journal *mine; /* NULL: there is none */
static pthread_mutex_t knowing =
	PTHREAD_MUTEX_INITIALIZER; /* who changes which communicator is shown where */

/* Where it is to the ms: that costs a quarter of the other clock. */
static uint64_t coarse_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

struct core_journal *core_journal_of(int local_rank)
{
	return core_board_journal(local_rank);
}

void core_journal_start(void)
{
	struct core_journal *journal = core_journal_of(core_mpi_job.local_rank);

	if (!journal)
		return;
	journal->process = core_mpi_job.rank;
	journal->pid = (int32_t)getpid();
	mine = journal;
}

void core_journal_stop(void)
{
	mine = NULL;
}

/* Under `knowing`. */
static struct core_journal_comm *find_place(void)
{
	static unsigned turn;

	for (int i = 0; i < CORE_JOURNAL_COMMS; i++) {
		if (!atomic_load_explicit(&mine->comms[i].id, memory_order_relaxed))
			return &mine->comms[i];
	}
	return &mine->comms[1 + turn++ % (CORE_JOURNAL_COMMS - 1)];
}

void core_journal_know(struct core_comm *comm)
{
	struct core_journal_comm *place;

	if (!mine)
		return;
	pthread_mutex_lock(&knowing);
	place = find_place();
	place->rank = comm->rank;
	place->size = comm->size;
	atomic_store_explicit(&place->made, comm->made, memory_order_relaxed);
	atomic_store_explicit(&place->id, comm->id, memory_order_release);
	pthread_mutex_unlock(&knowing);
	comm->shown = place;
}

/* Another may have taken its place. */
static bool is_shown(const struct core_comm *comm)
{
	return mine && comm->shown &&
	       atomic_load_explicit(&comm->shown->id, memory_order_relaxed) == comm->id;
}

void core_journal_forget(struct core_comm *comm)
{
	pthread_mutex_lock(&knowing);
	if (is_shown(comm))
		atomic_store_explicit(&comm->shown->id, 0, memory_order_relaxed);
	pthread_mutex_unlock(&knowing);
}

/*
 * The next entry, but not one of a call that has not ended: NULL, if there is no other. Nobody else
 * takes it from here on, and nobody reads it. Acquire: what is written later is not there earlier,
 * so that nobody takes it for what was there.
 */
static struct core_entry *take_entry(uint64_t serial)
{
	struct core_entry *entry;
	uint64_t last;

	for (uint64_t i = 0; i < CORE_JOURNAL_CALLS; i++) {
		entry = &mine->calls[(serial + i) % CORE_JOURNAL_CALLS];
		last = atomic_load_explicit(&entry->serial, memory_order_relaxed);
		if (last == CORE_ENTRY_MADE ||
		    atomic_load_explicit(&entry->open, memory_order_acquire))
			continue;
		if (atomic_compare_exchange_strong_explicit(&entry->serial, &last, CORE_ENTRY_MADE,
							    memory_order_acquire,
							    memory_order_relaxed))
			return entry;
	}
	return NULL;
}

static void copy_text(char *to, const char *from, size_t bytes)
{
	size_t i;

	for (i = 0; i + 1 < bytes && from[i]; i++)
		to[i] = from[i];
	to[i] = 0;
}

/*
 * Operations of a communicator are made one at a time, but for those of callbacks: a call that
 * waits was left by a jump then.
 */
static void end_left(struct core_comm *comm)
{
	static const struct core_journal_end end = {.where = CORE_WHERE_FAILED,
						    .why = "left by a jump"};

	if (comm->blocking.call)
		core_journal_end(&comm->blocking, &end);
	comm->blocking.call = NULL;
}

/* One more of the communicator's operations, which is counted also where there is no entry for it.
 */
static uint64_t count_call(struct core_comm *comm)
{
	uint64_t number = comm->made++;

	if (is_shown(comm))
		atomic_store_explicit(&comm->shown->made, comm->made, memory_order_relaxed);
	return number;
}

static struct core_entry *take_new(struct core_note *note, const struct core_comm *comm,
				   enum core_coll coll, const char *name)
{
	struct core_entry *entry;

	note->serial = 1 + atomic_fetch_add_explicit(&mine->serials, 1, memory_order_relaxed);
	entry = note->call = take_entry(note->serial);
	if (!entry)
		return NULL;
	entry->comm = comm ? comm->id : 0;
	entry->number = 0;
	entry->waits = false;
	entry->rank = comm ? comm->rank : 0;
	entry->ranks = comm ? comm->size : 0;
	entry->call_number = 0;
	entry->sendcount = entry->recvcount = -1;
	entry->began = coarse_now();
	entry->bytes = 0;
	entry->root = -1;
	entry->has_send = entry->has_recv = entry->has_op = entry->in_place = false;
	entry->coll = (uint8_t)coll;
	if (name) {
		entry->coll = CORE_COLL_NUM;
		copy_text(entry->name, name, sizeof(entry->name));
	}
	entry->why[0] = 0;
	atomic_store_explicit(&entry->open, note->serial, memory_order_relaxed);
	atomic_store_explicit(&entry->where, CORE_WHERE_ENTERED, memory_order_relaxed);
	return entry;
}

/* The same of one that has a place in the order of its communicator's. */
static struct core_entry *begin_entry(struct core_note *note, struct core_comm *comm,
				      enum core_coll coll, const char *name, bool waits)
{
	struct core_entry *entry;
	uint64_t number = 0;

	if (!mine)
		return NULL;
	if (comm) {
		if (!core_called_back)
			end_left(comm);
		number = count_call(comm);
	}
	entry = take_new(note, comm, coll, name);
	if (!entry)
		return NULL;
	entry->number = number;
	entry->waits = waits;
	return entry;
}

static bool is_open(const struct core_note *note)
{
	return note->call &&
	       atomic_load_explicit(&note->call->open, memory_order_relaxed) == note->serial;
}

/* Release: who reads the serial reads what was written before. */
static void publish(const struct core_note *note)
{
	atomic_store_explicit(&note->call->serial, note->serial, memory_order_release);
}

static void follow(struct core_note *note, struct core_comm *comm, bool waits)
{
	if (core_trace_on)
		note->trace = core_trace_begin(note->call);
	if (comm && waits && !(core_called_back && is_open(&comm->blocking)))
		comm->blocking = *note;
}

static void describe_entry(struct core_entry *entry, const struct core_call *call)
{
	entry->root = core_coll_is_rooted(call->coll) ? call->root : -1;
	entry->has_send = call->sendtype || call->sendtypes;
	entry->has_recv = call->recvtype || call->recvtypes;
	entry->has_op = call->op != 0;
	entry->sendtype = call->sendtype ? core_mpi_type_number(call->sendtype) : 0;
	entry->recvtype = call->recvtype ? core_mpi_type_number(call->recvtype) : 0;
	entry->op = call->op ? core_mpi_op_number(call->op) : 0;
	entry->sendcount = call->sendtype && !call->sendcounts ? call->sendcount : -1;
	entry->recvcount = call->recvtype && !call->recvcounts ? call->recvcount : -1;
	entry->in_place =
		core_mpi_is_in_place(call->sendbuf) || core_mpi_is_in_place(call->recvbuf);
}

struct core_note core_journal_begin(const struct core_call *call, struct core_comm *comm,
				    uint64_t number)
{
	struct core_note note = {0};
	struct core_entry *entry;

	if (call->coll == CORE_REDUCE_LOCAL)
		return note;
	entry = begin_entry(&note, comm, call->coll, call->name, !call->request);
	if (!entry)
		return note;
	entry->call_number = number;
	describe_entry(entry, call);
	publish(&note);
	follow(&note, comm, !call->request);
	return note;
}

struct core_note core_journal_begin_enqueued(const struct core_call *call, struct core_comm *comm)
{
	struct core_note note = {0};
	struct core_entry *entry = mine ? take_new(&note, comm, call->coll, call->name) : NULL;

	if (!entry)
		return note;
	if (comm) {
		entry->comm = ~comm->id;
		entry->number = comm->enqueued++;
	}
	describe_entry(entry, call);
	publish(&note);
	follow(&note, NULL, false);
	return note;
}

static struct core_note begin_other(const char *name, struct core_comm *comm, bool waits)
{
	struct core_note note = {0};
	struct core_entry *entry = begin_entry(&note, comm, CORE_COLL_NUM, name, waits);

	if (!entry)
		return note;
	atomic_store_explicit(&entry->where, CORE_WHERE_REAL, memory_order_relaxed);
	publish(&note);
	return note;
}

struct core_note core_journal_begin_other(const char *name, struct core_comm *comm, bool waits)
{
	struct core_note note = begin_other(name, comm, waits);

	if (note.call)
		follow(&note, comm, waits);
	core_note_where(&note, CORE_WHERE_REAL);
	return note;
}

void core_journal_finalize(struct core_comm *world)
{
	begin_other("MPI_Finalize", world, true);
}

/* Whether the entry is this call's. If the journal went round meanwhile it is another's. */
static bool is_its(const struct core_note *note)
{
	return note->call && mine &&
	       atomic_load_explicit(&note->call->serial, memory_order_relaxed) == note->serial;
}

void core_journal_where(const struct core_note *note, enum core_where where)
{
	if (note->trace)
		core_trace_where(note->trace, where);
	atomic_store_explicit(&note->call->where, where, memory_order_relaxed);
}

void core_journal_say(const struct core_note *note, const char *words)
{
	if (!is_its(note))
		return;
	atomic_exchange_explicit(&mine->of_words, 0, memory_order_acquire); /* as in take */
	copy_text(mine->words, words, sizeof(mine->words));
	atomic_store_explicit(&mine->of_words, note->serial, memory_order_release);
}

/* Release: who takes the entry next writes after what was written here. */
void core_journal_end(const struct core_note *note, const struct core_journal_end *end)
{
	struct core_entry *call = note->call;

	/* The last note of a communicator may be that of a call that has ended long ago. */
	if (!mine || !is_open(note))
		return;
	call->path = (uint8_t)end->path;
	call->bytes = end->bytes;
	if (end->why)
		copy_text(call->why, end->why, sizeof(call->why));
	atomic_store_explicit(&call->where, end->where, memory_order_relaxed);
	if (note->trace)
		core_trace_end(note->trace, call);
	atomic_store_explicit(&call->open, 0, memory_order_release);
}

/*
 * Acquire: the pair of publish. The second look writes nothing new, but as a write it can't come
 * before what was read (Boehm, Can seqlocks get along with programming language memory models?,
 * 2012).
 */
bool core_journal_read(struct core_entry *call, struct core_entry *copy)
{
	uint64_t serial = atomic_load_explicit(&call->serial, memory_order_acquire);

	if (!serial || serial == CORE_ENTRY_MADE)
		return false;
	memcpy(copy, call, sizeof(*copy));
	return atomic_fetch_add_explicit(&call->serial, 0, memory_order_release) == serial;
}
