/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The proof that a schedule does what its collective promises, whatever the order in which ranks
 * and lanes happen to run.
 *
 * A symbolic run: the value of a chunk is which block and piece of the input it stands for, and the
 * set of ranks whose contributions it holds. Proved are
 *
 * - the result: every chunk of every output holds what MPI says it must, each contribution exactly
 *   once. Not the order in which contributions are combined, of which the catalogue tells
 * - no garbage: nothing is read that was not written; inputs are not written
 * - no races: two accesses to one chunk, one of them a write, are ordered by what lanes wait for,
 *   messages and the ends of phases. Buffers that are one and the same in place are so here. That a
 *   full FIFO makes its sender wait is not counted, so the proof holds for any number of slots
 * - no deadlock, with the given number of slots in each FIFO or more, and nothing is left in one
 * - bounds: of ranks, phases, buffers, blocks, pieces; a FIFO has one lane at each end, and a step
 *   uses it once
 * - sizes: where blocks may differ in size, a chunk goes only where its size does
 *
 * One run is enough. Lanes with FIFOs of one writer and one reader are a Kahn network: which value
 * goes where, and whether all get to the end, does not depend on the order in which they run, as
 * long as their other accesses to memory do not race. So the run takes any order, and races are
 * found with vector clocks. (Kahn, The Semantics of a Simple Language for Parallel Programming,
 * 1974; Mattern, Virtual Time and Global States of Distributed Systems, 1989.)
 *
 * The schedule is run through twice, for two rounds of a call, with the same scratch and FIFOs. No
 * chunk of one round is taken for another's, and what is sent in a round is received in it, so what
 * orders two rounds orders any two that follow each other.
 */
#ifndef SCHED_VERIFY_H
#define SCHED_VERIFY_H

#include "algos/sched.h"

/*
 * Whether it is proved. If not, `why` says what is wrong and where, in at most `bytes` bytes, or
 * that there was no memory to prove it with. Thread-safe.
 */
bool sched_verify(const struct sched *sched, int slots, char *why, size_t bytes);

#endif
