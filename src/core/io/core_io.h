/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI-IO from and to device memory, through stages in host memory: the file is the real MPI's,
 * which gets the application's own count and datatype, as a file may have a representation other
 * than the memory's.
 */
#ifndef CORE_IO_H
#define CORE_IO_H

#include "core/call/core_call.h"

enum core_io_form {
	CORE_IO_BLOCKING,
	CORE_IO_NONBLOCKING,
	CORE_IO_BEGIN, /* the halves of a split collective */
	CORE_IO_END,
};

/* One call as the application made it; what the form lacks is zero. */
struct core_io_call {
	const char *name; /* "MPI_File_read" */
	enum core_io_form form;
	bool writes;
	core_handle fh;
	int64_t offset;
	void *buf;
	int64_t count;
	core_handle datatype;
	void *status, *request; /* MPI_Status *, MPI_Request * */
	int (*real)(const struct core_io_call *call);
};

/*
 * Carry out the call, whose buffer may be in device memory; returns what MPI returns. Under the
 * door's guard. Thread-safe.
 */
int core_io_run(const struct core_io_call *call);

/* The same of the second half of a split collective. */
int core_io_end(const struct core_io_call *call);

/* Whether a split collective has begun on device memory. One load, as core_requests_pending. */
extern uint64_t core_io_pending;

static inline bool core_io_is_pending(void)
{
	return __atomic_load_n(&core_io_pending, __ATOMIC_RELAXED) != 0;
}

#endif
