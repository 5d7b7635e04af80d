/* SPDX-License-Identifier: BSD-3-Clause */
/* A call's entry in the journal (core_journal.h), as who carries it out holds it. */
#ifndef CORE_NOTE_H
#define CORE_NOTE_H

#include <stddef.h>
#include <stdint.h>

/* Where a call is. */
enum core_where {
	CORE_WHERE_ENTERED,
	CORE_WHERE_CHECK,
	/* As enum core_accel_state: */
	CORE_WHERE_OFFER,
	CORE_WHERE_SLOT,
	CORE_WHERE_READY,
	CORE_WHERE_AGREE,
	CORE_WHERE_FILL,
	CORE_WHERE_MUSTER,
	CORE_WHERE_TRY,
	CORE_WHERE_RUN,
	CORE_WHERE_MEET,
	CORE_WHERE_LAST,
	CORE_WHERE_ALL_BUT_DONE,
	/* As enum core_op_state behind its first: */
	CORE_WHERE_EARLIER,
	CORE_WHERE_COPY_IN,
	CORE_WHERE_REAL,
	CORE_WHERE_ISSUED,
	CORE_WHERE_COPY_OUT,
	CORE_WHERE_LEAVING,
	/* Inside RUN and AGREE: */
	CORE_WHERE_WIRE,
	CORE_WHERE_LAUNCH,
	CORE_WHERE_GIVEN, /* to the real MPI, or to a stream, and not looked at any more */
	CORE_WHERE_ENDED,
	CORE_WHERE_FAILED,
	CORE_WHERE_NUM
};

struct core_entry;
struct core_trace_call;

/* Zeroed: of a call that is not in the journal. */
struct core_note {
	struct core_entry *call;
	uint64_t serial;
	struct core_trace_call *trace; /* see core_trace.h; NULL: nobody wants events */
};

/* In core_journal.c. The call has come there. Any thread. */
void core_journal_where(const struct core_note *note, enum core_where where);

static inline void core_note_where(const struct core_note *note, enum core_where where)
{
	if (note && note->call)
		core_journal_where(note, where);
}

#endif
