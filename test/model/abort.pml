/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leaving a fused kernel early. Each rank has a kernel, which writes into its peer's memory, waits for a message of the
 * peer's, and writes again; and a host, which waits for its kernel. A rank may die at any moment and is not heard of any more.
 * Who finds a peer dead sets the abort word, which all see and every wait of a kernel looks at. A kernel that leaves says so;
 * only when the kernels of all that live have left is memory given back.
 *
 * Safety: no kernel touches memory that was given back; who reports success has had the message. Liveness: every rank that
 * lives gets to its end.
 *
 * BREAK_*: the tests expect an error from every one of them.
 */
#define RANKS 2
#define PEER (1 - me)

bool dead[RANKS], sent[RANKS], left[RANKS], failed[RANKS], given_back[RANKS]; /* given_back: the rank's memory */
bool abort_word;

#ifdef BREAK_POLL
#define ABORTED false
#else
#define ABORTED abort_word
#endif

proctype kernel(byte me)
{
	/* A dead rank's memory stays as long as it is mapped here. */
	assert(!given_back[PEER]);
	sent[me] = true;
	if
	:: sent[PEER] ->
		assert(!given_back[PEER]);
		skip
	:: ABORTED -> failed[me] = true
	fi;
	left[me] = true
}

/* The kernel of a process that dies ends with it, in any state: to the others it is as if it had not gone on. */
proctype mortal_kernel(byte me)
{
	if
	:: dead[me] = true
	:: sent[me] = true;
	   if
	   :: dead[me] = true
	   :: sent[PEER] || abort_word -> left[me] = true
	   fi
	fi
}

proctype host(byte me)
{
	/* Its kernel has left, or the peer is found dead: then everybody is told, and it waits on. */
	do
	:: left[me] -> break
	:: dead[PEER] && !abort_word -> abort_word = true
	od;
#ifndef BREAK_FREE
	left[PEER] || dead[PEER];
#endif
	given_back[me] = true;
	assert(failed[me] || sent[PEER])
}

init
{
	atomic {
		if
		:: run kernel(0); run kernel(1); run host(0); run host(1)
		:: run kernel(0); run mortal_kernel(1); run host(0)
		:: run mortal_kernel(0); run kernel(1); run host(1)
		fi
	}
}
