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
/* On their way or there, a bit for each call. */
byte told[NODES * 2]; /* to a node's speaker, in each round */
byte asked[NODES * NODES];
byte staged[NODES];

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
#ifdef BREAK_HISTORY
#define WAS_READY(c) (B.ready[0] == (c) + 1)
#else
#define WAS_READY(c) (B.ready[0] == (c) + 1 || B.ready[1] == (c) + 1)
#endif
#define ANYBODY_PAST(c) (B.passed[0] > (c) || B.passed[MEMBERS - 1] > (c))
#define STAGES(c) (DECIDED(c) -> (B.word[SLOT(c)] == STAGE && !WAS_READY(c)) : (ANYBODY_PAST(c) && !WAS_READY(c)))
#define ALL_ANNOUNCED(c) (B.announced[SLOT(c) * MEMBERS] == (c) + 1 && \
			  B.announced[SLOT(c) * MEMBERS + MEMBERS - 1] == (c) + 1)
#define ALL_PAST(c) (B.passed[0] >= (c) && B.passed[MEMBERS - 1] >= (c))

/* By who has won the decision: what has been is remembered first. */
inline get_ready(c)
{
	if
	:: atomic { !DECIDED(c) -> B.number[SLOT(c)] = (c) + 1; B.word[SLOT(c)] = READY };
	   B.ready[1] = B.ready[0];
	   B.ready[0] = (c) + 1
	:: DECIDED(c)
	fi
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
	r = 0;
	do
	:: r < ROUNDS ->
		told[((n + (1 << r)) % NODES) * 2 + r] = told[((n + (1 << r)) % NODES) * 2 + r] | (1 << c);
#ifndef BREAK_ASK
		asked[n * NODES + (n + 1) % NODES] = asked[n * NODES + (n + 1) % NODES] | (1 << c);
		asked[n * NODES + (n + NODES - 1) % NODES] = asked[n * NODES + (n + NODES - 1) % NODES] | (1 << c);
#endif
		if
		:: HAS(told[n * 2 + r], c) -> r++
		:: HAS(staged[n], c) -> settle(c, STAGE); break
#ifdef BREAK_RETRACT
		:: settle(c, STAGE); break
#endif
		fi
#ifdef BREAK_ROUNDS
	:: r == ROUNDS - 1 -> settle(c, ACCEL); break
#endif
	:: r == ROUNDS -> settle(c, ACCEL); break
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
	:: entered[0] > c && entered[RANKS - 1] > c && entered[1] > c && entered[RANKS - 2] > c
	fi
}

proctype member(byte n; byte m)
{
	byte c = 0, r;

	do
	:: c == CALLS -> break
	:: c < CALLS ->
		if
		:: stage(c) /* host buffers, or by its own choice */
		:: c < SLOTS || ALL_PAST(c + 1 - SLOTS) ->
			if
			:: m == 0 -> B.behind = false
			:: m == 0 -> B.behind = true
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
				:: !B.behind -> get_ready(c)
				fi
			fi;
			/* and everywhere. */
			if
			:: m == 0 && IS(c, READY) -> speak(c)
			:: m > 0 || !IS(c, READY)
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

init
{
	byte n, m, c;

	atomic {
		for (n : 0 .. NODES - 1) {
			for (m : 0 .. MEMBERS - 1) {
				run member(n, m)
			}
			for (m : 0 .. NODES - 1) {
				for (c : 0 .. CALLS - 1) {
					if
					:: m != n -> run service(n, m, c)
					:: else
					fi
				}
			}
		}
	}
}
