/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of core_mpi_check.h share. */
#ifndef CORE_MPI_CHECK_PARTS_H
#define CORE_MPI_CHECK_PARTS_H

#include "core/call/core_mpi_handle.h"
#include "core/core_mpi_args.h"

#include <stdatomic.h>

/* How far a check is; each step but the last is an operation of the real MPI that has been begun.
 */
enum core_check_step {
	CORE_CHECK_ARGS,    /* all tell all what they have come to */
	CORE_CHECK_BLOCKS,  /* each tells each what it sends, if it is an exchange */
	CORE_CHECK_VERDICT, /* whether somebody has found something, if so */
	CORE_CHECK_DONE
};

struct core_check {
	struct core_check *next; /* in its lane */
	enum core_check_step step;
	uint64_t number; /* as the journal has it */
	bool waited_for; /* a thread waits for it, and frees it */
	bool broken;     /* the MPI could not do it, as after a loss: it says nothing */
	_Atomic bool done;
	int error;                        /* MPI_SUCCESS, or what is to be raised */
	struct core_mpi_args mine, *args; /* of all ranks */
	bool exchanges;
	/* What each rank sends to each, and takes from each, in bytes; -1: not known. */
	int64_t *sends, *takes, *comes;
	int found, worst;
	MPI_Request request;
};

/*
 * Those of a communicator, the oldest first. Their first steps are begun as they come, so on
 * `firsts` they have the order of the calls. The other steps are the oldest one's alone, so on
 * `rest` they have that order, too.
 */
struct core_checks {
	struct core_checks *next; /* of all lanes */
	MPI_Comm comm;            /* the application's; MPI_COMM_NULL: it has been freed */
	MPI_Comm firsts, rest;
	int rank, size;
	char name[64]; /* when the communicator was made, or freed */
	struct core_check *first, **end;
	/* Of enqueued calls, which have an order of their own, and whose errors nobody raises. */
	bool enqueued;
	void (*fail)(void *argument, int error); /* told them, under the lock; NULL: not any more */
	void *argument;
	uint64_t calls;
	bool broken; /* one was found: ranks may have come to different calls, and don't go on */
};

/*
 * What is wrong with what the ranks have told: MPI_SUCCESS, or the error that it is, of which a
 * line was said. Arguments: the same on all ranks, of which the first says it; blocks: on this
 * rank.
 */
int core_check_find_args(const struct core_checks *lane, const struct core_check *check);
int core_check_find_blocks(const struct core_checks *lane, const struct core_check *check);

/* Those of enqueued calls, of which the application hears otherwise: whether some are pending. */
void core_check_look_enqueued(void);
bool core_check_has_enqueued(void);

/* The thread that does so, if it may call the MPI: have it look, and end it. */
void core_check_wake_thread(void);
void core_check_stop_thread(void);

#endif
