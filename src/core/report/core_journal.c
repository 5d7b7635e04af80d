/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/report/core_journal.h"
#include "core/comm/core_board.h"
#include "core/mpi/core_mpi.h"
#include "core/mpi/core_mpi_predefined.h"
#include "core/report/core_trace.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

static struct core_journal *mine; /* NULL: there is none */

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

void core_journal_know(const struct core_comm *comm)
{
	uint64_t num;

	if (!mine)
		return;
	num = mine->num_comms++;
	if (num >= CORE_JOURNAL_COMMS) /* the first, MPI_COMM_WORLD, stays */
		num = 1 + num % (CORE_JOURNAL_COMMS - 1);
	mine->comms[num] = (struct core_journal_comm){comm->id, comm->rank, comm->size};
}

/*
 * The next entry, but not one of a call that has not ended, if there is another. Its serial is 0
 * from here on. Acquire: what is written later is not there earlier, so that nobody takes it for
 * what was there.
 */
static struct core_entry *take(uint64_t serial)
{
	struct core_entry *call = NULL;
	uint64_t last;

	for (uint64_t i = 0; i < CORE_JOURNAL_CALLS; i++) {
		call = &mine->calls[(serial + i) % CORE_JOURNAL_CALLS];
		last = atomic_load_explicit(&call->serial, memory_order_relaxed);
		if (!last || atomic_load_explicit(&call->ended, memory_order_relaxed))
			break;
	}
	atomic_exchange_explicit(&call->serial, 0, memory_order_acquire);
	return call;
}

static void copy_text(char *to, const char *from, size_t bytes)
{
	size_t i;

	for (i = 0; i + 1 < bytes && from[i]; i++)
		to[i] = from[i];
	to[i] = 0;
}

static struct core_entry *begin(struct core_note *note, struct core_comm *comm, enum core_coll coll,
				const char *name)
{
	struct core_entry *call;

	note->serial = 1 + atomic_fetch_add_explicit(&mine->serials, 1, memory_order_relaxed);
	call = note->call = take(note->serial);
	call->comm = comm ? comm->id : 0;
	call->number = comm ? comm->made++ : 0;
	call->rank = comm ? comm->rank : 0;
	call->ranks = comm ? comm->size : 0;
	call->call_number = 0;
	call->sendcount = call->recvcount = -1;
	call->began = coarse_now();
	call->bytes = 0;
	call->root = -1;
	call->has_send = call->has_recv = call->has_op = call->in_place = false;
	call->coll = (uint8_t)coll;
	if (name) {
		call->coll = CORE_COLL_NUM;
		copy_text(call->name, name, sizeof(call->name));
	}
	call->why[0] = 0;
	atomic_store_explicit(&call->ended, false, memory_order_relaxed);
	atomic_store_explicit(&call->where, CORE_WHERE_ENTERED, memory_order_relaxed);
	return call;
}

/* Release: who reads the serial reads what was written before. */
static void publish(struct core_note *note)
{
	atomic_store_explicit(&note->call->serial, note->serial, memory_order_release);
	if (core_trace_on)
		note->trace = core_trace_begin(note->call);
}

struct core_note core_journal_begin(const struct core_call *call, struct core_comm *comm,
				    uint64_t number)
{
	struct core_note note = {0};
	struct core_entry *entry;

	if (!mine || call->coll == CORE_REDUCE_LOCAL)
		return note;
	entry = begin(&note, comm, call->coll, call->name);
	entry->call_number = number;
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
	publish(&note);
	return note;
}

struct core_note core_journal_begin_other(const char *name, struct core_comm *comm)
{
	struct core_note note = {0};

	if (!mine)
		return note;
	begin(&note, comm, CORE_COLL_NUM, name);
	publish(&note);
	core_journal_where(&note, CORE_WHERE_REAL);
	return note;
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

/* Relaxed: a reader that sees the end too early sees empty texts. */
void core_journal_end(const struct core_note *note, const struct core_journal_end *end)
{
	struct core_entry *call = note->call;

	if (!is_its(note))
		return;
	call->path = (uint8_t)end->path;
	call->bytes = end->bytes;
	if (end->why)
		copy_text(call->why, end->why, sizeof(call->why));
	atomic_store_explicit(&call->where, end->where, memory_order_relaxed);
	if (note->trace)
		core_trace_end(note->trace, call);
	atomic_store_explicit(&call->ended, true, memory_order_relaxed);
}

/*
 * Acquire: the pair of publish. The second look writes nothing new, but as a write it can't come
 * before what was read (Boehm, Can seqlocks get along with programming language memory models?,
 * 2012).
 */
bool core_journal_read(struct core_entry *call, struct core_entry *copy)
{
	uint64_t serial = atomic_load_explicit(&call->serial, memory_order_acquire);

	if (!serial)
		return false;
	memcpy(copy, call, sizeof(*copy));
	return atomic_fetch_add_explicit(&call->serial, 0, memory_order_release) == serial;
}
