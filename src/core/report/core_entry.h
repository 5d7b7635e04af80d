/* SPDX-License-Identifier: BSD-3-Clause */
/* An entry of the journal (core_journal.h): one collective operation of a process. */
#ifndef CORE_ENTRY_H
#define CORE_ENTRY_H

#include "core/call/core_call.h"
#include "core/comm/core_note.h"
#include "util/util_cache.h"

#include <stdatomic.h>

enum { CORE_ENTRY_NAME = 40 };

/* In place of a serial: it is being made. */
#define CORE_ENTRY_MADE UINT64_MAX

/*
 * One operation. Little is written, as the real MPI's calls on host buffers pay for it. Times in
 * ns, by a coarse clock.
 */
struct core_entry {
	_Alignas(UTIL_CACHE_LINE) _Atomic uint64_t serial; /* from 1 on; 0: none yet */
	_Atomic uint64_t open;                             /* the same until it has ended, then 0 */
	uint64_t comm;                                     /* its id; 0: has none */
	/*
	 * Among the communicator's collective operations, with barriers, constructors and such; and
	 * as the log has it, of those that carry data.
	 */
	uint64_t number, call_number;
	int64_t sendcount, recvcount; /* -1: it has none, or several */
	uint64_t began;
	uint64_t bytes;                  /* of this rank's buffers; once it has ended */
	int32_t rank, ranks;             /* of the communicator */
	int32_t root;                    /* -1: it has none */
	uint8_t sendtype, recvtype, op;  /* core_mpi_predefined.h */
	bool has_send, has_recv, has_op; /* it has these */
	bool in_place;
	uint8_t path; /* enum core_path; once it has ended */
	bool waits;   /* who made it is in it until its end */
	_Atomic uint8_t where;
	uint8_t coll; /* enum core_coll; CORE_COLL_NUM: it has a name of its own */
	char name[CORE_ENTRY_NAME];
	char why[CORE_ENTRY_NAME]; /* the algorithm, or the reason; once it has ended */
};

/* As the program called it. */
const char *core_entry_name(const struct core_entry *call);

/* What a call does there, as in "MPI_Allreduce ... copies its input". Static. */
const char *core_entry_words(enum core_where where);

#endif
