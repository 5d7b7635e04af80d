/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups of messages as kernels (docs/decisions/0030): RANKS ranks in a ring, each with one kernel for each of GROUPS groups, one after
 * the other, in which it sends LENGTH units to the next rank and receives as many from the one before, more than a FIFO of ROOM units
 * holds; the first unit is the header. One block has both ends. A rank may be odd: its sender's first group has a message for it of
 * which it does not know. Hosts may have a kernel give up, at any time once one has found something wrong, or, with ABORTS, before.
 *
 *     kernel  read how far both ends are, ever; go round: put a unit into the next one's FIFO if there is room, then tell the tail;
 *             take a unit if there is one, then tell the head; keep how far they are. One that gives up is the rank's last.
 *
 * Safety: what a rank takes for a group's data are that group's. Liveness: no state without a successor but the end.
 *
 * BREAK_*: one order each is left out; the tests expect an error from every one of them.
 */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef GROUPS
#define GROUPS 2
#endif
#define LENGTH 3
#define ROOM 2
#define NEXT(r) (((r) + 1) % RANKS)
#define BEFORE(r) (((r) + RANKS - 1) % RANKS)
/* Of a unit; the header is the first. */
#define VALUE(r, g, i) (((r) * GROUPS + (g)) * LENGTH + (i) + 1)
#define CELL(r, n) ((r) * ROOM + (n) % ROOM)

byte cells[RANKS * ROOM];           /* FIFOs from the rank before */
byte tails[RANKS], heads[RANKS];    /* of what the rank receives; of what it sends */
byte sent[RANKS], taken[RANKS];     /* its own counts, between kernels */
bool dead[RANKS], abort[RANKS];
byte odd;                           /* RANKS: nobody */
byte wrong;                         /* kernels that have found something */

inline put()
{
#ifdef BREAK_TAIL_FIRST
	tails[NEXT(r)] = out + 1;
#endif
	cells[CELL(NEXT(r), out)] = VALUE(r, g, done_out);
#ifndef BREAK_TAIL_FIRST
	tails[NEXT(r)] = out + 1;
#endif
	out++;
	done_out++
}

inline take()
{
#ifdef BREAK_HEAD_FIRST
	heads[BEFORE(r)] = in + 1;
#endif
	got = cells[CELL(r, in)];
	if
#ifdef BREAK_NO_ID
	:: done_in == 0 && (got - 1) % LENGTH != 0 -> well = false
#else
	:: done_in == 0 && got != VALUE(BEFORE(r), g, 0) -> well = false
#endif
	:: else ->
		assert(got == VALUE(BEFORE(r), g, done_in));
#ifndef BREAK_HEAD_FIRST
		heads[BEFORE(r)] = in + 1;
#endif
		in++;
		done_in++
	fi
}

proctype rank(byte r)
{
	byte g = 0, in, out, done_in, done_out, got;
	bool well = true;

	do
	:: g < GROUPS && (well || !dead[r]) ->
#ifdef BREAK_FORGET
		out = 0;
		in = 0;
#else
		out = sent[r];
		in = taken[r];
#endif
		done_out = 0;
		well = true;
		done_in = (odd == r && g == 0 -> LENGTH : 0);
		do
		:: well && (done_out < LENGTH || done_in < LENGTH) ->
			if
#ifdef BREAK_ROOM
			:: done_out < LENGTH && out - heads[r] <= ROOM -> put()
#else
			:: done_out < LENGTH && out - heads[r] < ROOM -> put()
#endif
#ifdef BREAK_IN_ORDER
			:: done_out == LENGTH && done_in < LENGTH && tails[r] > in -> take()
#else
			:: done_in < LENGTH && tails[r] > in -> take()
#endif
			:: abort[r] -> well = false
			fi
		:: else -> break
		od;
		sent[r] = out;
		taken[r] = in;
#ifndef BREAK_NO_DEAD
		dead[r] = !well;
#else
		abort[r] = false;
#endif
		wrong = wrong + !well;
		g++
	:: else -> break
	od
}

/* Of all ranks; a host comes to it or not. */
proctype hosts()
{
	byte r = 0;

	do
	:: r < RANKS ->
#ifdef ABORTS
		if
		:: abort[r] = true
		:: wrong > 0 -> abort[r] = true
		fi;
#else
end:
		wrong > 0 -> abort[r] = true;
#endif
		r++
	:: else -> break
	od
}

init
{
	byte r = 0;

	atomic {
		odd = RANKS;
		if
		:: skip
#ifndef NOBODY_IS_ODD
		:: odd = 0
#endif
		fi;
		do
		:: r < RANKS -> run rank(r); r++
		:: else -> break
		od;
		run hosts()
	}
}
