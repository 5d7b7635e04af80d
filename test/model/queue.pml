/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The queue of collective calls on one communicator (core_queue.c), where nonblocking calls wait for the agreement
 * (agreement.pml) and the application goes on meanwhile.
 *
 * Every rank makes CALLS calls, blocking or nonblocking alike, with host or device buffers as it likes. A call on device buffers is
 * queued. The head of the queue announces itself; any member may decide STAGE until all have announced themselves and somebody has
 * decided ACCEL. What is to be staged is issued to the real MPI, whose calls must come in one order on all ranks. Calls on host
 * buffers go to the real MPI at once, and so consume that order: before, the rank yields. It decides STAGE for its head, unless ACCEL
 * was decided: then it waits until that is done, for which nobody needs to make a call. It issues all that is queued behind, of which
 * it has announced nothing.
 *
 * An offer needs a slot, and so that all are past the call that had it before. A rank whose nonblocking call comes earlier, as those
 * before it were staged, waits for them, unless somebody is past the call already; if it blocks, it may be staged at once.
 *
 * Two threads of a rank drive its queue: the application's, when it is in a call of the library that waits, and one for progress,
 * which issues no calls. Nobody waits for what that one does: all goes well without it, too (NO_THREAD). `passed` tells the others that
 * the rank is past the calls below: all that is before the head, as nothing overtakes it.
 *
 * A blocking call in the real MPI returns at once, or when all ranks have issued it; meanwhile the application's thread does
 * nothing. Between calls it may wait for a message that another rank sends when it has returned from its calls so far. It drives then,
 * or yields before.
 *
 * Safety: one order of issued calls on all ranks; none is accelerated by one rank and issued by another; nobody is past a call that
 * its kernel is in. Liveness: no state without a successor but the end of all calls.
 *
 * BREAK_* weaken the rules, one each; the tests expect an error from every one of them.
 */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef CALLS
#define CALLS 3
#endif

#ifndef SLOTS
#define SLOTS 2
#endif

mtype = {NONE, QUEUED, ISSUED, RUNNING, DONE};
#define UNDECIDED 0
#define STAGE 1
#define ACCEL 2

typedef state {
	mtype call[CALLS];
	bool told[CALLS];  /* announced */
	byte called;       /* calls that the application has made */
	byte head;         /* all below are issued or done */
	byte passed;       /* published */
	byte returned;     /* calls that the application has returned from */
	byte order[CALLS]; /* what was issued, in order */
	byte issued;
};

state rank[RANKS];
byte decided[CALLS];
byte in_real[CALLS]; /* ranks that have issued the call */
bool nonblocking[CALLS];

#define HEAD rank[me].call[rank[me].head]
#define TOLD rank[me].told[rank[me].head]
#define WORD decided[rank[me].head]
#define HAS_HEAD (rank[me].head < rank[me].called)

/* The real MPI matches the n-th call of each rank. */
inline issue(c)
{
	assert(decided[c] != ACCEL);
	i = 0;
	do
	:: i < RANKS ->
		assert(rank[i].issued <= rank[me].issued || rank[i].order[rank[me].issued] == c);
		i++
	:: else -> break
	od;
	rank[me].order[rank[me].issued] = c;
	rank[me].issued++;
	rank[me].call[c] = ISSUED;
	in_real[c]++;
	i = 0
}

inline decide_accel(c)
{
	i = 0;
	do
	:: i < RANKS ->
		assert(rank[i].call[c] == QUEUED && rank[i].passed <= c);
		i++
	:: else -> break
	od;
	decided[c] = ACCEL;
	i = 0
}

/* Of a rank: whether it holds for any, or for all. */
#if RANKS == 2
#define ANY(what) (what(0) || what(1))
#define ALL(what) (what(0) && what(1))
#else
#define ANY(what) (what(0) || what(1) || what(2))
#define ALL(what) (what(0) && what(1) && what(2))
#endif
#define IS_PAST(r) (rank[r].passed > rank[me].head)
#define HAS_LEFT_SLOT(r) (rank[r].passed + SLOTS > rank[me].head)
#define HAS_TOLD(r) rank[r].told[rank[me].head]
#define HAS_BEGUN(r) (rank[r].call[rank[me].head] == RUNNING || rank[r].call[rank[me].head] == DONE)

/* Nobody is past a call that its kernel is in. */
inline publish(calls)
{
	d_step {
		assert(calls <= rank[me].head || (HEAD != QUEUED && HEAD != RUNNING));
		rank[me].passed = calls
	}
}

/* What can be done now, each a step. `can_issue`: by a thread that may call the real MPI. */
#define STEPS(can_issue)                                                                            \
	:: atomic { HAS_HEAD && HEAD == QUEUED && !TOLD && ALL(HAS_LEFT_SLOT) -> TOLD = true }      \
	:: atomic { can_issue && HAS_HEAD && HEAD == QUEUED && !TOLD &&                             \
		    (ANY(IS_PAST) || (!nonblocking[rank[me].head] && !ALL(HAS_LEFT_SLOT))) ->       \
		issue(rank[me].head) }                                                              \
	:: atomic { HAS_HEAD && HEAD == QUEUED && TOLD && WORD == UNDECIDED && ANY(IS_PAST) ->      \
		WORD = STAGE }                                                                      \
	:: atomic { HAS_HEAD && HEAD == QUEUED && TOLD && WORD == UNDECIDED && ALL(HAS_TOLD) ->     \
		decide_accel(rank[me].head) }                                                       \
	:: atomic { can_issue && HAS_HEAD && HEAD == QUEUED && WORD == STAGE ->                     \
		issue(rank[me].head) }                                                              \
	:: atomic { HAS_HEAD && HEAD == QUEUED && WORD == ACCEL -> HEAD = RUNNING }                 \
	:: atomic { HAS_HEAD && HEAD == RUNNING && ALL(HAS_BEGUN) -> HEAD = DONE }                  \
	:: atomic { HAS_HEAD && (HEAD == ISSUED || HEAD == DONE) -> rank[me].head++ }

#define PUBLISH                                                                                     \
	:: atomic { rank[me].passed < rank[me].head -> publish(rank[me].head) }

#ifdef BREAK_SLOT
#define IN_SLOT &&ALL(HAS_LEFT_SLOT)
#else
#define IN_SLOT
#endif

/* Before the order of the real MPI's calls is consumed. */
inline yield()
{
#ifdef BREAK_YIELD
	skip
#else
	do
#ifdef BREAK_RETRACT
	:: atomic { HAS_HEAD && HEAD == QUEUED && TOLD -> WORD = STAGE; issue(rank[me].head) }
#else
	:: atomic { HAS_HEAD && HEAD == QUEUED && TOLD && WORD == UNDECIDED -> WORD = STAGE }
#endif
	:: atomic { HAS_HEAD && HEAD == QUEUED && ((!TOLD IN_SLOT) || WORD == STAGE) -> issue(rank[me].head)
#ifdef BREAK_BEHIND
		; break
#endif
	   }
	:: atomic { HAS_HEAD && (HEAD == ISSUED || HEAD == DONE) -> rank[me].head++ }
	:: atomic { HAS_HEAD && HEAD == QUEUED && WORD == ACCEL -> HEAD = RUNNING }
	:: atomic { HAS_HEAD && HEAD == RUNNING && ALL(HAS_BEGUN) -> HEAD = DONE }
#ifdef BREAK_OVERTAKE
	:: atomic { HAS_HEAD && HEAD == RUNNING -> break }
#endif
	:: atomic { !HAS_HEAD -> break }
	od
#endif
}

#define IS_COMPLETE(c) (rank[me].call[c] == DONE || (rank[me].call[c] == ISSUED && in_real[c] == RANKS))

/*
 * A message of the next rank is sent after as many calls as this rank has made. EARLY: rank 0 alone waits for messages, but also for
 * those of calls that its next ones, which are nonblocking, do not hold up.
 */
#ifdef EARLY
#define MAY_WAIT me == 0
#define IS_LONG(k) (c + k < CALLS && nonblocking[(c + k) % CALLS])
#define SENT_AFTER (c + (!IS_LONG(0) -> 0 : (!IS_LONG(1) -> 1 : (!IS_LONG(2) -> 2 : 3))))
#else
#define MAY_WAIT true
#define SENT_AFTER c
#endif

proctype application(byte me)
{
	byte c, i;
	bool host;

	do
	:: c < CALLS ->
		if
		:: true /* it goes on */
		:: MAY_WAIT -> /* a message from the next rank, which is sent after so many calls */
			do
			:: rank[(me + 1) % RANKS].returned >= SENT_AFTER -> break
			STEPS(true)
			PUBLISH
			od
		:: MAY_WAIT -> /* the same in the real MPI, without driving */
			yield();
			rank[(me + 1) % RANKS].returned >= SENT_AFTER
		fi;
		if
		:: host = true
		:: host = false
		fi;
		if
		:: host ->
			yield();
			publish(c + 1);
			atomic { rank[me].called = c + 1; issue(c) };
			if
			:: nonblocking[c]
			:: !nonblocking[c] -> /* the real MPI lets it go, or synchronises */
				if
				:: true
				:: true -> in_real[c] == RANKS
				fi
			fi
		:: else ->
			atomic { rank[me].call[c] = QUEUED; rank[me].called = c + 1 };
			if
			:: nonblocking[c]
			:: !nonblocking[c] ->
				do
				:: IS_COMPLETE(c) -> break
				STEPS(true)
				PUBLISH
				od
			fi
		fi;
		atomic { host = false; c++; rank[me].returned = c }
	:: c == CALLS -> break
	od;
	c = 0;
	do
	:: c < CALLS && IS_COMPLETE(c) -> c++
	:: c == CALLS -> break
	STEPS(true)
	PUBLISH
	od
}

proctype progress(byte me)
{
	byte i;

end:	do
	STEPS(false)
	PUBLISH
	od
}

init {
	byte r = 0;

	atomic {
		do
		:: r < CALLS ->
			if
			:: nonblocking[r] = true
			:: nonblocking[r] = false
			fi;
			r++
		:: else -> break
		od;
		r = 0;
		do
		:: r < RANKS ->
			run application(r);
#ifndef NO_THREAD
			run progress(r);
#endif
			r++
		:: else -> break
		od
	}
}
