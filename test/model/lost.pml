/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What becomes of a communicator that has lost a member, as in src/core/core_accel.c (refuse, has_lost_member),
 * core_agree.c (look_for_reason, core_agree_give_up, core_agree_where) and core_service.c, whose names it uses. The members
 * here are those that live, all with buffers on devices: nobody stages a call by itself.
 *
 * Any node may find at any moment that somebody is lost, which is a flag on its board; it tells the other nodes. Who is in a
 * call then fails in it, unless it is done, and each later call is refused: it fails without an offer. Members that have not
 * heard of the loss see others pass a call without an offer, which otherwise means that these have staged it; so does a
 * node's service that is asked. What is told may take any time.
 *
 * Safety: who has failed never succeeds again. Liveness: nobody waits for ever, in an accelerated call or, which is what
 * BREAK_* lead to, alone in the real MPI, where a call ends when all have entered it.
 */
#ifndef NODES
#define NODES 2
#endif
#ifndef MEMBERS
#define MEMBERS 2 /* of each node; the first one is its speaker */
#endif
#ifndef CALLS
#define CALLS 2
#endif
#define RANKS (NODES * MEMBERS)

#define STAGE 1
#define READY 2
#define ACCEL 3
#define FAIL 4 /* ACCEL, in which a member has failed already */

bool lost[NODES];
byte announced[RANKS], passed[RANKS], entered[RANKS], begun[RANKS]; /* the last call, + 1 */
byte word[NODES * CALLS];
bool failed[RANKS];

#define ME (n * MEMBERS + m)
#define PEER (n * MEMBERS + MEMBERS - 1 - m)
#define OTHER (NODES - 1 - n) /* node */
#define WORD word[n * CALLS + c]
#define ALL(what) (what[0] > c && what[1] > c && what[RANKS - 2] > c && what[RANKS - 1] > c)

/* core_agree_where, of the other node, and whether the word of a call was READY there, which is remembered. */
#define OTHER_PAST (passed[OTHER * MEMBERS] > c || passed[OTHER * MEMBERS + MEMBERS - 1] > c)
#define OTHER_READY (word[OTHER * CALLS + c] >= READY)

inline stage()
{
	entered[ME] = c + 1;
	passed[ME] = c + 1;
	ALL(entered)
}

inline fail()
{
	failed[ME] = true;
	passed[ME] = c + 1
}

/* Nobody here could have set the word to ACCEL without this one's offer; it fails for all who come. */
inline give_up()
{
	d_step {
		if
		:: WORD == 0 || WORD == READY -> WORD = FAIL
		:: else
		fi
	}
}

inline look_for_reason()
{
#ifdef BREAK_ORDER
	seen_lost = lost[n];
	seen_past = passed[PEER] > c && announced[PEER] <= c;
#else
	seen_past = passed[PEER] > c && announced[PEER] <= c;
	seen_lost = lost[n];
#endif
	if
	:: seen_lost -> give_up()
	:: !seen_lost && seen_past -> d_step { if :: WORD == 0 -> WORD = STAGE :: else fi }
	:: !seen_lost && !seen_past
	fi
}

/* The service of the other node, asked by a speaker that is ready. Its answers may come late, or never if it waits. */
inline ask()
{
	if
	:: OTHER_PAST && !OTHER_READY ->
#ifndef BREAK_ANSWER
		if
		:: lost[OTHER] -> lost[n] = true
		:: !lost[OTHER] ->
#endif
			d_step { if :: WORD == READY -> WORD = STAGE :: else fi }
#ifndef BREAK_ANSWER
		fi
#endif
	:: else
	fi
}

inline agree()
{
	announced[ME] = c + 1;
	do
	:: WORD != 0 && WORD != READY -> break
	:: WORD == 0 && announced[PEER] > c && NODES == 1 -> d_step { if :: WORD == 0 -> WORD = ACCEL :: else fi }
	:: WORD == 0 && announced[PEER] > c && NODES > 1 -> d_step { if :: WORD == 0 -> WORD = READY :: else fi }
	:: WORD == 0 && (announced[PEER] <= c || lost[n]) -> look_for_reason()
	:: WORD == READY && m == 0 && OTHER_READY -> d_step { if :: WORD == READY -> WORD = ACCEL :: else fi }
	:: WORD == READY && m == 0 && OTHER_PAST && !OTHER_READY -> ask()
	:: WORD == READY && lost[n] -> give_up()
	od
}

proctype member(byte n; byte m)
{
	byte c = 0;
	bool seen_lost, seen_past;

	do
	:: c == CALLS -> break
	:: c < CALLS ->
		seen_lost = lost[n];
		if
		:: seen_lost ->
#ifdef BREAK_REFUSE
			stage()
#else
			fail()
#endif
		:: !seen_lost ->
			agree();
			if
			:: WORD == STAGE -> stage()
			:: WORD == FAIL -> fail()
			:: WORD == ACCEL ->
				/* Its messages are out; it waits for the others'. */
				begun[ME] = c + 1;
				if
				:: ALL(begun) -> assert(!failed[ME]); passed[ME] = c + 1
				:: lost[n] -> fail()
				fi
			fi
		fi;
		c++
	od
}

/* A node finds the loss, or never does; what it tells comes some time later. */
proctype watch(byte n)
{
	if
	:: lost[n] = true
	:: true
	fi
#ifndef BREAK_TELL
	;
end:	lost[n];
	lost[OTHER] = true
#endif
}

init
{
	byte n, m;

	atomic {
		for (n : 0 .. NODES - 1) {
			run watch(n);
			for (m : 0 .. MEMBERS - 1) {
				run member(n, m)
			}
		}
	}
}
