/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Enqueued calls as kernels (docs/decisions/0027): RANKS ranks with BLOCKS blocks each, in CALLS calls, one kernel after the
 * other on each rank, without a host.
 *
 *     block     read the number n; wait until all others have ended call n - 2; if the rank sends in this call, write a cell
 *               in the other's half n % 2, and its flag; if it receives, wait for the own flag, read the cell; count itself as
 *               ended (atomic)
 *     the last  clears the count, raises the number, tells all others that the rank has ended call n
 *
 * A flag belongs to a block; which cell a block has differs from call to call, as parts of a slot do. Who sends in a call is
 * drawn, and known to all: one who only sends runs ahead.
 *
 * Safety: each block reads what the other's block of the same number wrote in the same call. Liveness: no state without a
 * successor but the end.
 *
 * BREAK_*: one order each is left out; the tests expect an error from every one of them.
 */
#ifndef CALLS
#define CALLS 5
#endif
#define RANKS 2
#define BLOCKS 2
#ifdef BREAK_ONE_HALF
#define HALF(n) 0
#else
#define HALF(n) ((n) % 2)
#endif
#define OTHER(r) (1 - (r))
/* By whom the cell is used changes from one use of a half to the next. */
#define CELL(r, n, b) ((r) * 4 + HALF(n) * 2 + ((b) + (n) / 2) % 2)
#define FLAG(r, n, b) ((r) * 4 + HALF(n) * 2 + (b))
#define VALUE(n, b) ((n) * BLOCKS + (b) + 1)

byte cells[8], flags[8];
byte number[RANKS], ended[RANKS]; /* in each rank's device */
byte told[RANKS];                 /* at each rank: calls that the other has ended */
byte returned[RANKS];             /* blocks, over all calls: the next kernel begins when all have */
byte senders[CALLS];              /* as bits */

#define SENDS(r, n) ((senders[n] >> (r)) & 1)

inline wait_for_room()
{
#ifdef BREAK_WAIT_LATE
	told[r] + 2 >= n
#else
	told[r] + 1 >= n
#endif
}

inline write()
{
	if
	:: SENDS(r, n) -> cells[CELL(OTHER(r), n, b)] = VALUE(n, b)
	:: else
	fi
}

inline read()
{
	if
	:: SENDS(OTHER(r), n) -> assert(cells[CELL(r, n, b)] == VALUE(n, b))
	:: else
	fi
}

proctype block(byte r; byte b)
{
	byte n, launch = 0;
	bool last;

	do
	:: launch < CALLS ->
		returned[r] >= launch * BLOCKS; /* stream order */
		n = number[r];
		assert(n == launch);
#ifdef BREAK_WRITE_BEFORE_WAIT
		write();
#endif
#ifndef BREAK_NO_WAIT
		wait_for_room();
#endif
#ifndef BREAK_WRITE_BEFORE_WAIT
		write();
#endif
		if
		:: SENDS(r, n) -> flags[FLAG(OTHER(r), n, b)] = n + 1
		:: else
		fi;
		!SENDS(OTHER(r), n) || flags[FLAG(r, n, b)] >= n + 1;
#ifndef BREAK_READ_AFTER_END
		read();
#endif
		atomic {
			ended[r]++;
			last = ended[r] == BLOCKS
		}
#ifdef BREAK_EACH_TELLS
		told[OTHER(r)] = n + 1;
#endif
		if
		:: last ->
			ended[r] = 0;
			number[r] = n + 1;
			told[OTHER(r)] = n + 1
		:: else
		fi;
#ifdef BREAK_READ_AFTER_END
		read();
#endif
		returned[r]++;
		launch++
	:: else -> break
	od
}

init
{
	byte call = 0;

	atomic {
		do
		:: call < CALLS ->
			if
			:: senders[call] = 1
			:: senders[call] = 2
			:: senders[call] = 3
			fi;
			call++
		:: else -> break
		od;
		run block(0, 0);
		run block(0, 1);
		run block(1, 0);
		run block(1, 1)
	}
}
