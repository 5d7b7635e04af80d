/* SPDX-License-Identifier: BSD-3-Clause */
/* What the arguments of a collective say, for ranks to compare (GPUCOLL_CHECK=args). */
#ifndef CORE_MPI_ARGS_H
#define CORE_MPI_ARGS_H

#include "core/call/core_call.h"
#include "core/comm/core_comm.h"
#include "core/report/core_entry.h"

#include <stdbool.h>
#include <stdint.h>

/* What all ranks tell all others. Bytes without meaning are zero, as all of it is compared. */
struct core_mpi_args {
	char name[CORE_ENTRY_NAME];
	int64_t bytes;    /* that all are to have alike; -1: there is no such number */
	uint64_t nowhere; /* the address of a buffer that is none; 0: there is no such */
	int32_t root;     /* -1: none */
	uint8_t type, op;
	bool has_op;
};

/*
 * Those of `call`, made on the communicator by the name `name`. NULL: of one without data, that has
 * a name only.
 */
struct core_mpi_args core_mpi_args_of(const struct core_call *call, const char *name,
				      const struct core_comm *comm);

/* MPI_SUCCESS, or the error that it is to differ so; `*what` is then what differs, a static text.
 */
int core_mpi_args_compare(const struct core_mpi_args *a, const struct core_mpi_args *b,
			  const char **what);

/* In words, cut off at `bytes`. */
void core_mpi_args_describe(const struct core_mpi_args *args, char *text, size_t bytes);

/* Whether each rank has blocks for each, or for one, of which both sides say how long they are. */
bool core_mpi_args_is_exchange(const struct core_call *call);

/*
 * The bytes that this rank of the communicator sends to each, and takes from each, in such a call;
 * -1: not known. The blocks in which this rank has nothing to do with another stay as they are, at
 * 0.
 */
void core_mpi_args_blocks(const struct core_call *call, const struct core_comm *comm,
			  int64_t *sends, int64_t *takes);

#endif
