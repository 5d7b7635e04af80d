/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The barrier of all ranks' kernels between phases, over mapped memory. Each rank has a row of words, one for each rank,
 * which only grow: nothing is cleared between barriers and calls.
 *
 *     for all ranks j: arrived[j][me] = epoch (release); wait until arrived[me][j] >= epoch (acquire), for all j
 *
 * Each rank writes its datum, meets the others, reads all data, and meets the others again before it writes the next.
 *
 * Weak memory as in fifo.pml: stores become visible in any order, a release not before those that come before it; without
 * the acquire, data may have been read before the words.
 *
 * Safety: what is read is of this epoch. Liveness: no state without a successor but the end.
 *
 * BREAK_*: the tests expect an error from every one of them.
 */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef EPOCHS
#define EPOCHS 3
#endif

byte data[RANKS];
byte arrived[RANKS * RANKS]; /* to, from */
bool pending_data[RANKS], pending_word[RANKS * RANKS];
byte value_data[RANKS], value_word[RANKS * RANKS];

#define WORD(to, from) ((to) * RANKS + (from))
#ifdef BREAK_EQUAL
#define HAS_COME(word, epoch) ((word) == (epoch))
#else
#define HAS_COME(word, epoch) ((word) >= (epoch))
#endif

inline meet(epoch)
{
	i = 0;
	do
	:: i < RANKS ->
		atomic {
			!pending_word[WORD(i, me)] ->
			pending_word[WORD(i, me)] = true;
			value_word[WORD(i, me)] = epoch
		}
		i++
	:: else -> break
	od;
	i = 0;
	do
	:: i < RANKS -> HAS_COME(arrived[WORD(me, i)], epoch); i++
	:: else -> break
	od
}

proctype rank(byte me)
{
	byte e = 1, i, early;

	do
	:: e <= EPOCHS ->
		atomic { !pending_data[me] -> pending_data[me] = true; value_data[me] = e }
#ifdef BREAK_ACQUIRE
		early = data[(me + 1) % RANKS];
#endif
		meet(2 * e - 1);
#ifndef BREAK_ACQUIRE
		early = data[(me + 1) % RANKS];
#endif
		assert(early == e);
		i = 0;
		do
		:: i < RANKS -> assert(data[i] == e); i++
		:: else -> break
		od;
#ifndef BREAK_SECOND
		meet(2 * e);
#endif
		e++
	:: else -> break
	od
}

#ifdef BREAK_RELEASE
#define RELEASED(from) true
#else
#define RELEASED(from) (!pending_data[from])
#endif

/* The memory: each word becomes visible when it likes. */
proctype datum(byte i)
{
end:
	do
	:: atomic { pending_data[i] -> data[i] = value_data[i]; pending_data[i] = false }
	od
}

proctype word(byte i)
{
end:
	do
	:: atomic { pending_word[i] && RELEASED(i % RANKS) -> arrived[i] = value_word[i]; pending_word[i] = false }
	od
}

init
{
	byte i = 0;

	atomic {
		do
		:: i < RANKS -> run rank(i); run datum(i); i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < RANKS * RANKS -> run word(i); i++
		:: else -> break
		od
	}
}
