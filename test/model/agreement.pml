/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The agreement of the ranks of a communicator on the path of each collective call, as in
 * src/core/core_agree.c, whose names it uses.
 *
 * Every rank makes CALLS calls, each with host or with device buffers as it likes. A host call publishes "past s" and
 * enters the real MPI. A device call may stage alone, which is the same as a host call; otherwise it announces itself in
 * the slot s % SLOTS and waits until the slot's word says what all do. An announcement may ask for a vote (a buffer that
 * the others have not mapped yet); then ACCEL needs every member's yes.
 *
 * The real MPI is unknown: a call in it returns at once, or not before all ranks have entered that call. A call that is
 * accelerated ends when all have passed it.
 *
 * Safety: no call is accelerated by one rank and not by another; what a rank reads in a slot belongs to its own call.
 * Liveness: no state without a successor but the end of all ranks (nobody waits for what never comes), checked by
 * Spin's search for invalid end states, since every wait is a guard.
 *
 * Each shared variable is one atomic word of the code. Spin's memory is sequentially consistent; why acquire and release
 * are enough is said where core_agree.c uses them.
 *
 * BREAK_* weaken the protocol, one each; the tests expect an error from every one of them.
 */
#ifndef RANKS
#define RANKS 3
#endif
#ifndef CALLS
#define CALLS 3
#endif
#ifndef SLOTS
#define SLOTS 2
#endif

#define UNDECIDED 0
#define STAGE 1
#define ACCEL 2

typedef slot {
	byte number;          /* the call that the decision is for, + 1: one word with the decision */
	byte decision;
	byte announced[RANKS]; /* the call, + 1 */
	bool asks[RANKS];      /* part of the announcement: a vote is needed */
	byte voted[RANKS];     /* the call, + 1: mapped all that was announced */
};

slot slots[SLOTS];
byte passed[RANKS];  /* calls that the rank has passed */
byte entered[RANKS]; /* calls of the real MPI, or accelerated ones, begun: what a synchronising MPI sees */
byte path[CALLS * RANKS];

#define AT(s) slots[(s) % SLOTS]
#define PATH(s, r) path[(s) * RANKS + (r)]

/* Compare-and-swap of the slot's word from any older value; whoever comes second changes nothing. */
inline decide(s, what)
{
	atomic {
		assert(AT(s).number <= (s) + 1);
		if
		:: AT(s).number < (s) + 1 -> AT(s).number = (s) + 1; AT(s).decision = what
		:: else
		fi
	}
}

inline check_path(s, what)
{
	d_step {
		PATH(s, me) = what;
		i = 0;
		do
		:: i < RANKS ->
			assert(!(PATH(s, i) == ACCEL && what == STAGE));
			assert(!(PATH(s, i) == STAGE && what == ACCEL));
			i++
		:: else -> break
		od;
		i = 0
	}
}

/* The call in the real MPI, host or staged. */
inline real_call(s)
{
	check_path(s, STAGE);
	passed[me] = (s) + 1;
	entered[me] = (s) + 1;
	i = 0;
	if
	:: true /* the MPI lets the rank go on */
	:: true -> /* the MPI synchronises */
		do
		:: i < RANKS -> entered[i] > (s); i++
		:: else -> break
		od
	fi;
	i = 0
}

/* Whether every rank is past the call that had the slot before. */
inline slot_is_free(s)
{
	free = true;
	i = 0;
#ifndef BREAK_REUSE
	do
	:: i < RANKS ->
		if
		:: passed[i] + SLOTS < (s) + 1 -> free = false
		:: else
		fi;
		i++
	:: else -> break
	od;
#endif
	i = 0
}

/* Look at the members in turn until the word is there. `i` is the first that has not been seen here. */
inline wait_for_members(s)
{
	i = 0;
	vote = false;
	do
	:: AT(s).number == (s) + 1 -> break
	:: AT(s).number != (s) + 1 && i < RANKS ->
		if
		:: AT(s).announced[i] == (s) + 1 -> vote = vote || AT(s).asks[i]; i++
#ifdef BREAK_HOST
		:: passed[i] > (s) && AT(s).announced[i] != (s) + 1 -> i++
#else
		:: passed[i] > (s) -> decide(s, STAGE)
		/* And whoever else has not been seen: with three ranks these are all. */
		:: passed[(i + 1) % RANKS] > (s) -> decide(s, STAGE)
		:: passed[RANKS - 1] > (s) -> decide(s, STAGE)
#endif
		:: AT(s).number == (s) + 1
		fi
	:: AT(s).number != (s) + 1 && i == RANKS && !vote -> decide(s, ACCEL)
	:: AT(s).number != (s) + 1 && i == RANKS && vote -> break
	od;
	all = (i == RANKS);
	i = 0
}

/* All have announced and somebody asked: map what was announced, say yes, or say STAGE for all. */
inline take_vote(s)
{
	if
	:: true ->
		AT(s).voted[me] = (s) + 1;
		do
		:: AT(s).number == (s) + 1 -> break
		:: AT(s).number != (s) + 1 && i < RANKS ->
			if
			:: AT(s).voted[i] == (s) + 1 -> i++
			:: AT(s).number == (s) + 1
			fi
		:: AT(s).number != (s) + 1 && i == RANKS -> decide(s, ACCEL)
		od
#ifdef BREAK_VOTE
	:: true -> AT(s).voted[me] = (s) + 1; refused = true
#else
	:: true -> decide(s, STAGE); refused = true
#endif
	fi;
	i = 0
}

inline accelerated(s)
{
	check_path(s, ACCEL);
	assert(!refused);
	/* It reads all announcements, and its kernel uses what they name, until it says that it is past. */
	do
	:: i < RANKS -> assert(AT(s).announced[i] == (s) + 1); i++
	:: else -> break
	od;
	i = 0;
	passed[me] = (s) + 1;
	entered[me] = (s) + 1;
	do
	:: i < RANKS -> passed[i] > (s); i++
	:: else -> break
	od;
	i = 0
}

#define HAS_LEFT_SLOT(r) (passed[r] + SLOTS >= (s) + 1)
#define IS_PAST(r) (passed[r] > (s))

inline device_call(s)
{
	if
	:: true
	:: (HAS_LEFT_SLOT(0) && HAS_LEFT_SLOT(1) && HAS_LEFT_SLOT(RANKS - 1)) || /* it waits until then */
	   IS_PAST(0) || IS_PAST(1) || IS_PAST(RANKS - 1)
	fi;
	slot_is_free(s);
	if
	:: !free -> real_call(s)
	:: free ->
		d_step {
			AT(s).asks[me] = ask;
			AT(s).announced[me] = (s) + 1
		}
		wait_for_members(s);
		if
		:: AT(s).number != (s) + 1 -> take_vote(s)
		:: else
		fi;
		AT(s).number == (s) + 1;
		if
		:: AT(s).decision == ACCEL -> accelerated(s)
		:: else -> real_call(s)
		fi
	fi
}

proctype rank(byte me)
{
	byte s, i;
	bool free, vote, all, ask, refused;

	do
	:: s < CALLS ->
		refused = false;
		if
		:: real_call(s) /* host buffers, or a call that the kernels can't do */
		:: ask = false; device_call(s)
		:: ask = true; device_call(s)
		fi;
		s++
	:: else -> break
	od
}

init {
	byte r;

	atomic {
		do
		:: r < RANKS -> run rank(r); r++
		:: else -> break
		od
	}
}
