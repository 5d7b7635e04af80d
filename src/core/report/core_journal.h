/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The flight recorder: the last collective operations of each process, in memory that all processes
 * of its node see, so that each of them, and who outlives the others, can tell where all are
 * (core_dump.h).
 *
 * A process writes its own journal only. Its threads take entries one after the other; an entry is
 * written by the thread whose call it is, then by who carries the call on. Readers look without a
 * lock: `serial` is 0 while an entry is being made, and what was copied counts if it was the same
 * before and after.
 */
#ifndef CORE_JOURNAL_H
#define CORE_JOURNAL_H

#include "core/call/core_call.h"
#include "core/call/core_flags.h"
#include "core/comm/core_comm.h"
#include "core/report/core_note.h"
#include "util/util_cache.h"

#include <stdatomic.h>

enum {
	CORE_JOURNAL_CALLS = 64,
	CORE_JOURNAL_COMMS = 64,
	CORE_JOURNAL_NAME = 40,
	CORE_JOURNAL_TEXT = 160
};

/*
 * One operation. Little is written, as the real MPI's calls on host buffers pay for it. Times in
 * ns, by a coarse clock.
 */
struct core_journal_call {
	_Alignas(UTIL_CACHE_LINE) _Atomic uint64_t serial; /* from 1 on, in the process */
	uint64_t comm;                                     /* its id; 0: has none */
	/*
	 * Among the communicator's collective operations, with barriers, constructors and such; and
	 * as the log has it, of those that carry data.
	 */
	uint64_t number, call_number;
	int64_t sendcount, recvcount; /* -1: it has none, or several */
	uint64_t began;
	uint64_t bytes;                  /* of this rank's buffers; once it has ended */
	int32_t root;                    /* -1: it has none */
	uint8_t sendtype, recvtype, op;  /* core_mpi_predefined.h */
	bool has_send, has_recv, has_op; /* it has these */
	bool in_place;
	uint8_t path; /* enum core_path; once it has ended */
	_Atomic bool ended;
	_Atomic uint8_t where;
	uint8_t coll; /* enum core_coll; CORE_COLL_NUM: it has a name of its own */
	char name[CORE_JOURNAL_NAME];
	char why[CORE_JOURNAL_NAME]; /* the algorithm, or the reason; once it has ended */
};

/* The process as a member of a communicator. */
struct core_journal_comm {
	uint64_t id;
	int32_t rank, size;
};

struct core_journal {
	int32_t pid; /* 0: nobody has come yet */
	int32_t process;
	_Atomic uint64_t serials;      /* drawn */
	_Atomic uint64_t dumped;       /* of the node's first: when somebody wrote a file, ns */
	_Atomic uint64_t of_words;     /* the serial of the call to which belong: */
	char words[CORE_JOURNAL_TEXT]; /* what it has waited for long */
	uint64_t num_comms;
	struct core_journal_comm comms[CORE_JOURNAL_COMMS]; /* the last ones, in turn */
	struct core_journal_call calls[CORE_JOURNAL_CALLS]; /* in turn, but for those not ended */
};

/* Begin this process's, which is on the board. Without a board there is none. */
void core_journal_start(void);
void core_journal_stop(void);

/* That of a process of the node; NULL: there are none. */
struct core_journal *core_journal_of(int local_rank);

/* This process is a member of the communicator. */
void core_journal_know(const struct core_comm *comm);

/*
 * A collective operation begins: `call`, which is call `number` of the communicator; or another
 * one, which has a name only. `comm` may be NULL. The note is to be given back to an `end`.
 */
struct core_note core_journal_begin(const struct core_call *call, struct core_comm *comm,
				    uint64_t number);
struct core_note core_journal_begin_other(const char *name, struct core_comm *comm);

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

/* As the program called it. */
const char *core_journal_name(const struct core_journal_call *call);

/* Copy an entry if it is whole; for any process. */
bool core_journal_read(struct core_journal_call *call, struct core_journal_call *copy);

/* What a call does there, as in "MPI_Allreduce ... copies its input". Static. */
const char *core_journal_where_text(enum core_where where);

#endif
