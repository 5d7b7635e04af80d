/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A connection between two ranks' kernels, Simple protocol: SLOTS slots in the receiver's memory, `tail` beside them,
 * which counts the messages written, and `head` in the sender's memory, which counts those read. Both only grow.
 *
 *     sender    wait until k - head < SLOTS (acquire); all threads write slot k % SLOTS; block barrier; tail = k + 1 (release)
 *     receiver  wait until tail > k (acquire); read slot k % SLOTS; head = k + 1 (release)
 *
 * The sender's block has two threads, which write a word each; thread 0 looks at head and sets tail, with block barriers
 * between it and the other's work.
 *
 * Weak memory, explicitly: a store is first pending and becomes visible at any later moment, stores to different words in
 * any order; a release store not before the stores that come before it in its block (PTX makes releases cumulative over
 * barriers). Loads take what is visible; without an acquire the load of a word may have been carried out before the load of
 * the counter, and without a release the counter may be stored before the loads.
 *
 * Safety: every message is read as it was written. Liveness: no state without a successor but the end.
 *
 * BREAK_*: one order each is left out; the tests expect an error from every one of them.
 */
#ifndef SLOTS
#define SLOTS 2 /* 3 at most */
#endif
#ifndef MESSAGES
#define MESSAGES 5
#endif

/* What is visible to the other side. */
byte slot0[SLOTS], slot1[SLOTS]; /* the words of the two threads */
byte tail, head;

/* Stores on their way; coherence keeps two to one word in order, so there is one at most. */
bool pending0[SLOTS], pending1[SLOTS], pending_tail;
byte value0[SLOTS], value1[SLOTS], value_tail;

byte go, written; /* the block barriers before and after a message */

#define AT(k) ((k) % SLOTS)
#define HAS_ROOM(k) ((k) - head < SLOTS)

active proctype sender_thread_0()
{
	byte k = 0;

	do
	:: k < MESSAGES ->
#ifndef BREAK_HEAD_ACQUIRE
		HAS_ROOM(k);
#endif
		go = k + 1;
		atomic { !pending0[AT(k)] -> pending0[AT(k)] = true; value0[AT(k)] = k + 1 }
#ifdef BREAK_HEAD_ACQUIRE
		HAS_ROOM(k);
#endif
#ifndef BREAK_BARRIER_BEFORE_TAIL
		written >= k + 1;
#endif
		atomic { !pending_tail -> pending_tail = true; value_tail = k + 1 }
		k++
	:: else -> break
	od
}

active proctype sender_thread_1()
{
	byte k = 0;

	do
	:: k < MESSAGES ->
#ifndef BREAK_BARRIER_AFTER_HEAD
		go >= k + 1;
#endif
		atomic { !pending1[AT(k)] -> pending1[AT(k)] = true; value1[AT(k)] = k + 1 }
		written = k + 1;
		k++
	:: else -> break
	od
}

/* No later message waits for the slot of one of the last: its head is not written. */
#define TOLD(k) (k + SLOTS < MESSAGES -> k + 1 : head)

active proctype receiver()
{
	byte k = 0, a, b;

	do
	:: k < MESSAGES ->
#ifdef BREAK_TAIL_ACQUIRE
		a = slot0[AT(k)];
#endif
		tail > k;
#ifdef BREAK_HEAD_RELEASE
		head = TOLD(k);
#endif
#ifndef BREAK_TAIL_ACQUIRE
		a = slot0[AT(k)];
#endif
		b = slot1[AT(k)];
		assert(a == k + 1 && b == k + 1);
#ifndef BREAK_HEAD_RELEASE
		head = TOLD(k); /* when it becomes visible is when this step is taken */
#endif
		k++
	:: else -> break
	od
}

/* What became pending before the tail's store is visible. */
#define VISIBLE(i) (!(pending0[i] && value0[i] <= value_tail) && !(pending1[i] && value1[i] <= value_tail))
#ifdef BREAK_TAIL_RELEASE
#define RELEASED true
#else
#define RELEASED (VISIBLE(0) && VISIBLE(1 % SLOTS) && VISIBLE(2 % SLOTS))
#endif

/* The memory: each word becomes visible when it likes. */
proctype words(byte i)
{
end:
	do
	:: atomic { pending0[i] -> slot0[i] = value0[i]; pending0[i] = false }
	:: atomic { pending1[i] -> slot1[i] = value1[i]; pending1[i] = false }
	od
}

active proctype word_tail()
{
end:
	do
	:: atomic { pending_tail && RELEASED -> tail = value_tail; pending_tail = false }
	od
}

init
{
	byte i = 0;

	atomic {
		do
		:: i < SLOTS -> run words(i); i++
		:: else -> break
		od
	}
}
