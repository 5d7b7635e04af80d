/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI_Pack and MPI_Unpack, and their external forms, from and to device memory. */
#ifndef CORE_PACK_H
#define CORE_PACK_H

#include "core/call/core_call.h"

enum core_pack_kind { CORE_PACK, CORE_UNPACK, CORE_PACK_EXTERNAL, CORE_UNPACK_EXTERNAL };

/* As struct core_message_call. */
struct core_pack_call {
	enum core_pack_kind kind;
	const char *datarep; /* of the external forms */
	const void *inbuf;
	void *outbuf;
	int64_t incount, outcount; /* elements, of the side that is not packed; */
	int64_t insize, outsize;   /* bytes, of the one that is */
	core_handle datatype;
	void *position; /* an int, or 64 bits if wide */
	bool wide;
	core_handle comm;
	int (*real)(const struct core_pack_call *call);
};

/*
 * Carry out the call, one of whose buffers may be in device memory; returns what MPI returns. Under
 * the door's guard. Thread-safe.
 */
int core_pack_run(const struct core_pack_call *call);

#endif
