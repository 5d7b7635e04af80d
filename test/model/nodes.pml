/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The agreement of the nodes of a communicator on the path of each call, as in src/core/core_nodes.c, core_service.c and
 * core_agree.c, whose names it uses. What happens inside a node is agreement.pml's, and is here as little as it takes:
 * members announce themselves, the first to see that somebody is past the call stages it, and when all have announced
 * themselves the node is READY.
 *
 * The speaker of a node that is ready disseminates that: in round k to the node 2^k further on. Who has heard of all
 * accelerates. A node that stages tells nobody; its service answers, when asked, from what the node's board shows, which
 * may be of later calls by then. A staged call in the real MPI returns at once, or not before all ranks have entered it;
 * an accelerated one returns at once.
 *
 * With MIXED, some calls are nonblocking. In one, a member may give way at any time: it has the call decided, and if that
 * is for the real MPI, leaves it there and waits for some other rank to come to the call, as a program may by a message. For
 * that a node that is ready can take it back: whether such a call is accelerated is decided on the first node's board, by its
 * speaker, when that has heard of all, or against it by the first to take back, by its service if on another node. Who is
 * told that somebody stages such a call takes back as well, and so all obey what was decided there.
 *
 * Safety: no call is accelerated on one node and staged on another. Liveness: no invalid end state; all waits are guards.
 * Messages and answers may take any time, and overtake each other.
 *
 * BREAK_* weaken the protocol, one each; the tests expect an error from every one of them.
 */
#ifndef NODES
#define NODES 2
#endif
#ifndef MEMBERS
#define MEMBERS 1 /* of each node; the first one is its speaker */
#endif
#ifndef FIRST_MEMBERS
#define FIRST_MEMBERS MEMBERS /* of the first node, and of each other: or 1 */
#endif
#ifndef OTHER_MEMBERS
#define OTHER_MEMBERS MEMBERS
#endif
#ifndef CALLS
#define CALLS 4
#endif
#ifndef SLOTS
#define SLOTS 2
#endif
#define ROUNDS (NODES > 2 -> 2 : 1)
#define RANKS (NODES * MEMBERS)

#define NOTHING 0
#define STAGE 1
#define READY 2
#define ACCEL 3

/* Of a node's board. The word is the call, + 1, and the decision, in one. */
typedef board {
	byte number[SLOTS];
	byte word[SLOTS];
	byte announced[SLOTS * MEMBERS]; /* the call, + 1 */
	byte passed[MEMBERS];
	byte ready[2]; /* the last calls, + 1, for which the node was ready */
	bool behind;   /* the speaker offers that the call had better be staged */
};
board boards[NODES];
/* Of the first node's: the last nonblocking call, + 1, that was decided, and whether to accelerate it. */
byte decided;
bool committed;
bool nonblocking[CALLS];
/* On their way or there, a bit for each call. */
byte told[NODES * 2]; /* to a node's speaker, in each round */
byte asked[NODES * NODES];
byte staged[NODES];
byte takes_back[RANKS];           /* to the first node's service */
byte taken_back[RANKS];           /* its answers */
byte accelerates[RANKS];          /* the same, and by the first node's speaker to the others */
byte reached[RANKS];              /* calls begun, of whatever kind */

byte entered[RANKS]; /* calls of the real MPI, or accelerated ones, begun */
bool any_staged[CALLS], any_accelerated[CALLS];

#define B boards[n]
#define SLOT(c) ((c) % SLOTS)
#define HAS(set, c) (((set) >> (c)) & 1)
#define DECIDED(c) (B.number[SLOT(c)] == (c) + 1)
#define IS(c, what) (DECIDED(c) && B.word[SLOT(c)] == (what))

inline decide(c, what)
{
	d_step {
		if
		:: !DECIDED(c) -> B.number[SLOT(c)] = (c) + 1; B.word[SLOT(c)] = (what)
		:: else
		fi
	}
}

/* core_agree_where says STAGE. */
#define WAS_READY(c) (B.ready[0] == (c) + 1 || B.ready[1] == (c) + 1)
#define LAST (n == 0 -> FIRST_MEMBERS - 1 : OTHER_MEMBERS - 1)
#define ANYBODY_PAST(c) (B.passed[0] > (c) || B.passed[LAST] > (c))
#define BY_BOARD(c) (DECIDED(c) -> B.word[SLOT(c)] == STAGE : (ANYBODY_PAST(c) && !WAS_READY(c)))
/* Of the first node. Of a later call decided: somebody is past this one. */
#define IS_COMMITTED(c) (decided == (c) + 1 && committed)
#define IS_TAKEN_BACK(c) (decided > (c) && !IS_COMMITTED(c) && !WAS_READY(c))
#define STAGES(c) (!(n == 0 && IS_COMMITTED(c)) && (BY_BOARD(c) || (n == 0 && IS_TAKEN_BACK(c))))
#define ALL_ANNOUNCED(c) (B.announced[SLOT(c) * MEMBERS] == (c) + 1 && \
			  B.announced[SLOT(c) * MEMBERS + LAST] == (c) + 1)
#define ALL_PAST(c) (B.passed[0] >= (c) && B.passed[LAST] >= (c))

inline remember(c)
{
	B.ready[1] = B.ready[0];
	B.ready[0] = (c) + 1
}

/* By the speaker, before the others are told. What can be taken back is remembered when that is decided. */
inline promise(c)
{
	if
#ifdef BREAK_RECORD
	:: remember(c)
#else
	:: nonblocking[c]
	:: !nonblocking[c] -> remember(c)
#endif
	fi
}

/* By the speaker, of a blocking call. */
inline settle_staged(c)
{
#ifndef BREAK_HISTORY
	if
	:: B.ready[0] == (c) + 1 -> B.ready[0] = B.ready[1]
	:: else
	fi;
#endif
	settle(c, STAGE)
}

/* On the first node's board, against it. */
inline decide_first(c)
{
	d_step {
		if
		:: decided <= (c) -> decided = (c) + 1; committed = false
		:: else
		fi
	}
}

/* By any member, once for a call; on the first node there is nobody to ask. */
inline take_back(c)
{
	if
	:: n == 0 ->
		decide_first(c);
		if
		:: IS_TAKEN_BACK(c) -> settle(c, STAGE)
		:: !IS_TAKEN_BACK(c)
		fi
	:: n > 0 -> takes_back[n * MEMBERS + m] = takes_back[n * MEMBERS + m] | (1 << c)
	fi
}
#define MAY_TAKE_BACK(c) (nonblocking[c] && !taking && wants)
#define IS_TO_TAKE_BACK(c) (nonblocking[c] && !taking && HAS(staged[n], c))
#define WAS_TAKEN_BACK(c) HAS(taken_back[n * MEMBERS + m], c)

inline tell_all(c)
{
	d_step {
		for (i : 1 .. NODES - 1) {
			accelerates[i * MEMBERS] = accelerates[i * MEMBERS] | (1 << c)
		}
	}
}

inline settle(c, what)
{
	d_step {
		if
		:: IS(c, READY) -> B.word[SLOT(c)] = (what)
		:: else
		fi
	}
}

/* Round r: tell, then wait; and ask all, at any time. */
inline speak(c)
{
	promise(c);
	r = 0;
	do
	:: r < ROUNDS ->
		d_step {
			told[((n + (1 << r)) % NODES) * 2 + r] = told[((n + (1 << r)) % NODES) * 2 + r] | (1 << c);
#ifndef BREAK_ASK
			asked[n * NODES + (n + 1) % NODES] = asked[n * NODES + (n + 1) % NODES] | (1 << c);
			asked[n * NODES + (n + NODES - 1) % NODES] = asked[n * NODES + (n + NODES - 1) % NODES] | (1 << c)
#endif
		}
		if
		:: HAS(told[n * 2 + r], c) -> r++
		:: !nonblocking[c] && HAS(staged[n], c) -> settle_staged(c); break
#ifdef BREAK_RETRACT
		:: settle(c, STAGE); break
#endif
		:: MAY_TAKE_BACK(c) || IS_TO_TAKE_BACK(c) -> taking = true; take_back(c)
		:: WAS_TAKEN_BACK(c) -> settle(c, STAGE); break
		:: IS(c, STAGE) -> break
		fi
#ifdef BREAK_ROUNDS
	:: r == ROUNDS - 1 -> settle(c, ACCEL); break
#endif
	:: r == ROUNDS && !nonblocking[c] -> settle(c, ACCEL); break
	:: r == ROUNDS && nonblocking[c] && n == 0 ->
		if
#ifdef BREAK_COMMIT
		:: atomic { true -> decided = c + 1; committed = true };
#else
		:: atomic { decided <= c -> decided = c + 1; committed = true };
#endif
#ifdef BREAK_LATE
		   tell_all(c);
		   remember(c);
#else
		   remember(c);
		   tell_all(c);
#endif
		   settle(c, ACCEL)
		:: decided > c -> settle(c, STAGE)
		fi;
		break
	:: r == ROUNDS && nonblocking[c] && n > 0 ->
		if
#ifdef BREAK_WAIT
		:: settle(c, ACCEL); break
#endif
		:: HAS(accelerates[n * MEMBERS], c) -> settle(c, ACCEL); break
		:: MAY_TAKE_BACK(c) || IS_TO_TAKE_BACK(c) -> taking = true; take_back(c)
		:: WAS_TAKEN_BACK(c) -> settle(c, STAGE); break
		:: IS(c, STAGE) -> break
		fi
	od
}

/* Another member: waits, and may take back. */
inline listen(c)
{
	do
	:: IS(c, STAGE) || IS(c, ACCEL) -> break
	:: MAY_TAKE_BACK(c) -> taking = true; take_back(c)
	:: WAS_TAKEN_BACK(c) -> settle(c, STAGE); break
	od
}


inline stage(c)
{
	assert(!any_accelerated[c]);
	any_staged[c] = true;
	B.passed[m] = (c) + 1;
	entered[n * MEMBERS + m] = (c) + 1;
	if
	:: true
	:: nonblocking[c] && reached[(n * MEMBERS + m + 1) % RANKS] > c
	:: !nonblocking[c] && entered[0] > c && entered[RANKS - 1] > c && entered[1] > c && entered[RANKS - 2] > c
	fi
}

proctype member(byte n; byte m)
{
	byte c = 0, r, i;
	bool wants, taking;

	do
	:: c == CALLS -> break
	:: c < CALLS ->
		reached[n * MEMBERS + m] = c + 1;
		if
		:: wants = nonblocking[c]
		:: wants = false
		fi;
		if
		:: true
		:: c < SLOTS || ALL_PAST(c + 1 - SLOTS) || ANYBODY_PAST(c) /* it waits until then */
		fi;
		if
#ifdef ONE_STAGES /* a part of the space, for bounds that are too wide otherwise */
		:: n == NODES - 1 && c > 0 -> stage(c)
#else
		:: stage(c) /* host buffers, or by its own choice */
#endif
		:: c < SLOTS || ALL_PAST(c + 1 - SLOTS) ->
			if
			:: m == 0 -> B.behind = false
#if !defined(MIXED) && !defined(ONE_STAGES)
			:: m == 0 -> B.behind = true
#endif
			:: m > 0
			fi;
			B.announced[SLOT(c) * MEMBERS + m] = c + 1;
			/* Until it is decided here, */
			if
			:: DECIDED(c)
			:: !DECIDED(c) && ANYBODY_PAST(c) -> decide(c, STAGE)
			:: !DECIDED(c) && ALL_ANNOUNCED(c) ->
				if
				:: B.behind -> decide(c, STAGE)
				:: !B.behind -> decide(c, READY)
				fi
			fi;
			/* and everywhere. */
			if
			:: m == 0 && IS(c, READY) -> speak(c)
			:: m > 0 && nonblocking[c] -> listen(c)
			:: !(m == 0 && IS(c, READY)) && !(m > 0 && nonblocking[c])
			fi;
			if
			:: IS(c, STAGE) -> stage(c)
			:: IS(c, ACCEL) ->
				assert(!any_staged[c]);
				any_accelerated[c] = true;
				entered[n * MEMBERS + m] = c + 1;
				B.passed[m] = c + 1
			fi
		fi;
		wants = false; taking = false; r = 0; i = 0; /* fewer states */
		c++
	od
}

/* Of a node, for one question. */
proctype service(byte n; byte from; byte c)
{
end:
	HAS(asked[from * NODES + n], c) && STAGES(c);
	staged[from] = staged[from] | (1 << c)
}

/* Of the first node, for who takes a call back. */
proctype decider(byte from; byte c)
{
	byte n = 0;

end:
	HAS(takes_back[from], c);
	decide_first(c);
	/*
	 * Who hears that it is committed, and goes on, may decide a later one: it must be remembered by then. Who asked may
	 * be gone, and the call forgotten.
	 */
	if
#ifdef BREAK_EARLY
	:: IS_COMMITTED(c) -> accelerates[from] = accelerates[from] | (1 << c)
#endif
	:: WAS_READY(c) || (IS_COMMITTED(c) && B.ready[0] > c + 1) -> accelerates[from] = accelerates[from] | (1 << c)
	:: IS_TAKEN_BACK(c) -> taken_back[from] = taken_back[from] | (1 << c)
	fi
}

init
{
	byte n, m, c;

	atomic {
#ifdef MIXED
		for (c : 0 .. CALLS - 1) {
			if
			:: nonblocking[c] = true
#ifndef NONBLOCKING
			:: true
#endif
			fi
		}
#endif
		for (n : 0 .. NODES - 1) {
			for (m : 0 .. LAST) {
				run member(n, m)
			}
			for (m : LAST + 1 .. MEMBERS - 1) {
				entered[n * MEMBERS + m] = CALLS;
				reached[n * MEMBERS + m] = CALLS
			}
			for (m : 0 .. NODES - 1) {
				for (c : 0 .. CALLS - 1) {
					if
					:: m != n -> run service(n, m, c)
					:: else
					fi
				}
			}
			for (m : 0 .. MEMBERS - 1) {
				for (c : 0 .. CALLS - 1) {
					if
					:: n > 0 && nonblocking[c] -> run decider(n * MEMBERS + m, c)
					:: else
					fi
				}
			}
		}
	}
}
