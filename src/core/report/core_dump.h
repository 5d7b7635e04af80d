/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * "Who is where": the journals of a node's processes as a file (GPUCOLL_DUMP), for people and for
 * gpucoll-info --desync. JSON:
 *
 *     {"gpucoll": VERSION, "reason": WHY, "by": RANK, "job": ID, "size": RANKS OF THE JOB,
 *      "node": INDEX, "nodes": HOW MANY, "host": NAME, "time": SECONDS SINCE 1970,
 *      "ranks": [{"rank": R, "pid": P, "alive": BOOL, "serials": CALLS MADE,
 *                 "comms": [{"comm": ID, "rank": R, "size": S}, ...],
 *                 "calls": [{"call": NAME, "serial": N, "comm": ID, "number": N, "call_number": N,
 *                            "sendcount": C, "sendtype": NAME, "recvcount": C, "recvtype": NAME,
 *                            "op": NAME, "root": R, "in_place": true, "text": WHERE IT IS,
 *                            "ended": BOOL, "failed": true, "began": S AGO, "waits": WHAT FOR,
 *                            "path": PATH, "why": WHY}, ...]}, ...]}
 *
 * What does not apply to a call is left out.
 */
#ifndef CORE_DUMP_H
#define CORE_DUMP_H

/*
 * After core_journal_start. Has SIGUSR2 write the file, if the program has no use of that signal so
 * far. Stop takes that back.
 */
void core_dump_start(void);
void core_dump_stop(void);

/*
 * Write the node's file, unless a process of the node has just done so; say where it is. Any
 * thread, and signal handlers.
 */
void core_dump(const char *reason);

#endif
