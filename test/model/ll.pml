/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A connection between two ranks' kernels, LL protocol: a packet is one 8-byte word, half data and half flag, stored and
 * loaded whole, so that data need no fence; who finds the flag has the data. The flag is the number of the pass through
 * the slots, so nothing is cleared between messages and calls. `head` counts the messages read, as in fifo.pml.
 *
 *     sender    wait until k - head < SLOTS (acquire); write the packets of slot k % SLOTS with flag k / SLOTS + 1
 *     receiver  load each packet of the slot until its flag is k / SLOTS + 1; block barrier; head = k + 1 (release)
 *
 * LL128 is the same with lines of 128 bytes for packets, where a line arrives whole; TORN is what PCI Express may do to one.
 *
 * Messages are of 1 to PACKETS packets, as both sides know, so a slot may hold packets of older passes.
 *
 * Weak memory as in fifo.pml: stores become visible in any order; without its release, head may be stored before the loads.
 *
 * Safety: every packet is read as it was written for this message. Liveness: no state without a successor but the end.
 *
 * BREAK_*: the tests expect an error from every one of them.
 */
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef PACKETS
#define PACKETS 2
#endif
#ifndef MESSAGES
#define MESSAGES 5
#endif

typedef packet {
	byte data, flag;               /* visible; one word */
	bool pending, pending_flag;    /* on their way; pending_flag only where a word is torn */
	byte value, value_flag;
};

packet slots[SLOTS * PACKETS];
byte head;
byte length[MESSAGES]; /* agreed on beforehand */

#define AT(k, i) slots[((k) % SLOTS) * PACKETS + (i)]
#ifdef BREAK_FLAG
#define FLAG(k) 1
#else
#define FLAG(k) ((k) / SLOTS + 1)
#endif

active proctype sender()
{
	byte k = 0, i;

	length[MESSAGES - 1] > 0; /* the lengths are drawn */
	do
	:: k < MESSAGES ->
#ifndef BREAK_HEAD_WAIT
		k - head < SLOTS;
#endif
		i = 0;
		do
		:: i < length[k] ->
			atomic {
				!AT(k, i).pending && !AT(k, i).pending_flag ->
				AT(k, i).value = k + 1;
				AT(k, i).value_flag = FLAG(k);
				AT(k, i).pending = true;
				AT(k, i).pending_flag = true
			}
			i++
		:: else -> break
		od;
		k++
	:: else -> break
	od
}

active proctype receiver()
{
	byte k = 0, i;

	length[MESSAGES - 1] > 0;
	do
	:: k < MESSAGES ->
#ifdef BREAK_HEAD_RELEASE
		head = k + 1;
#endif
		i = 0;
		do
		:: i < length[k] ->
			/* One load: what the flag and the data are at that moment. */
			atomic { AT(k, i).flag == FLAG(k) -> assert(AT(k, i).data == k + 1) }
			i++
		:: else -> break
		od;
#ifndef BREAK_HEAD_RELEASE
		head = k + 1;
#endif
		k++
	:: else -> break
	od
}

/* The memory: each word becomes visible when it likes. */
proctype word(byte i)
{
end:
	do
#ifdef BREAK_TORN
	:: atomic { slots[i].pending -> slots[i].data = slots[i].value; slots[i].pending = false }
	:: atomic { slots[i].pending_flag -> slots[i].flag = slots[i].value_flag; slots[i].pending_flag = false }
#else
	:: atomic {
		slots[i].pending ->
		slots[i].data = slots[i].value;
		slots[i].flag = slots[i].value_flag;
		slots[i].pending = false;
		slots[i].pending_flag = false
	   }
#endif
	od
}

init
{
	byte i = 0;

	atomic {
		do
		:: i < SLOTS * PACKETS -> run word(i); i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < MESSAGES ->
			if
			:: length[i] = 1
			:: length[i] = PACKETS
			fi;
			i++
		:: else -> break
		od
	}
}
