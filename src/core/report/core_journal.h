/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The flight recorder: the last collective operations of each process, in memory that all processes
 * of its node see, so that each of them, and who outlives the others, can tell where all are
 * (core_dump.h).
 *
 * A process writes its own journal only. Its threads take entries one after the other; an entry is
 * written by the thread whose call it is, then by who carries the call on. Readers look without a
 * lock: `serial` is CORE_ENTRY_MADE while an entry is being made, and what was copied counts if it
 * was the same before and after.
 */
#ifndef CORE_JOURNAL_H
#define CORE_JOURNAL_H

#include "core/call/core_flags.h"
#include "core/comm/core_comm.h"
#include "core/comm/core_note.h"
#include "core/report/core_entry.h"

#include <stdatomic.h>

enum { CORE_JOURNAL_CALLS = 64, CORE_JOURNAL_COMMS = 64, CORE_JOURNAL_TEXT = 160 };

/* The process as a member of a communicator that there is. */
struct core_journal_comm {
	_Atomic uint64_t id; /* 0: nothing is there */
	int32_t rank, size;
	_Atomic uint64_t made; /* operations that the process has come to */
};

struct core_journal {
	int32_t pid; /* 0: nobody has come yet */
	int32_t process;
	_Atomic uint64_t serials;      /* drawn */
	_Atomic uint64_t dumped;       /* of the node's first: when somebody wrote a file, ns */
	_Atomic uint64_t of_words;     /* the serial of the call to which belong: */
	char words[CORE_JOURNAL_TEXT]; /* what it has waited for long */
	/* MPI_COMM_WORLD first; where there are more, the others go round. */
	struct core_journal_comm comms[CORE_JOURNAL_COMMS];
	struct core_entry calls[CORE_JOURNAL_CALLS]; /* in turn, but for those not ended */
};

/* Begin this process's, which is on the board. Without a board there is none. */
void core_journal_start(void);
void core_journal_stop(void);

/* That of a process of the node; NULL: there are none. */
struct core_journal *core_journal_of(int local_rank);

/* This process is a member of the communicator, and is so no more. */
void core_journal_know(struct core_comm *comm);
void core_journal_forget(struct core_comm *comm);

/*
 * A collective operation begins: `call`, which is call `number` of the communicator; one that is
 * enqueued on a stream, which has an order with such ones only; or another one, which has a name
 * only, and waits or not. `comm` may be NULL. The note is to be given back to an `end`.
 */
struct core_note core_journal_begin(const struct core_call *call, struct core_comm *comm,
				    uint64_t number);
struct core_note core_journal_begin_enqueued(const struct core_call *call, struct core_comm *comm);
struct core_note core_journal_begin_other(const char *name, struct core_comm *comm, bool waits);

/* MPI_Finalize, which others see as long as they are there. It has no end. */
void core_journal_finalize(struct core_comm *world);

/* It waits for long, as `words` say. */
void core_journal_say(const struct core_note *note, const char *words);

/* How it ended: CORE_WHERE_GIVEN, _ENDED or _FAILED. Any thread. */
struct core_journal_end {
	enum core_where where;
	enum core_path path;
	const char *why;
	uint64_t bytes;
};
void core_journal_end(const struct core_note *note, const struct core_journal_end *end);

/* Copy an entry if it is whole; for any process. */
bool core_journal_read(struct core_entry *call, struct core_entry *copy);

#endif
