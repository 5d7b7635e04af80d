/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * "Who is where": the journals of a node's processes as a file (GPUCOLL_DUMP), for people and for
 * gpucoll-info --desync. JSON:
 *
 *     {"gpucoll": VERSION, "reason": WHY, "by": RANK, "job": ID, "size": RANKS OF THE JOB,
 *      "node": INDEX, "nodes": HOW MANY, "host": NAME, "time": SECONDS SINCE 1970,
 *      "ranks": [{"rank": R, "pid": P, "alive": BOOL, "serials": CALLS MADE,
 *                 "comms": [{"comm": ID, "rank": R, "size": S, "made": OPERATIONS SO FAR,
 *                            "world": BOOL}, ...],
 *                 "calls": [{"call": NAME, "serial": N, "comm": ID, "rank": R, "size": S,
 *                            "number": N, "call_number": N,
 *                            "sendcount": C, "sendtype": NAME, "recvcount": C, "recvtype": NAME,
 *                            "op": NAME, "root": R, "in_place": true, "text": WHERE IT IS,
 *                            "ended": BOOL, "failed": true, "given": true, "blocking": true,
 * "began": S AGO, "waits": WHAT FOR, "path": PATH, "why": WHY}, ...]}, ...]}
 *
 * What does not apply to a call is left out.
 */
#ifndef CORE_DUMP_H
#define CORE_DUMP_H

/*
 * Take SIGUSR2, if the program has no use of that signal so far, for good: who is told to send it
 * to all ranks is not to end those to which it means nothing.
 */
void core_dump_catch(void);

/*
 * From here on files are written; after core_journal_start. And no more: when that has returned no
 * thread is at it.
 */
void core_dump_start(void);
void core_dump_stop(void);

/*
 * Write the node's file, unless a process of the node has just done so; say where it is. Any
 * thread, and signal handlers.
 */
void core_dump(const char *reason);

#endif
