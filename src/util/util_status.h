/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What an internal function returns. The message is logged once, where the error is found; callers
 * pass the status up and the MPI door turns it into an MPI error class (pmpi_call.c).
 */
#ifndef UTIL_STATUS_H
#define UTIL_STATUS_H

enum util_status {
	UTIL_OK = 0,
	UTIL_IN_PROGRESS = 1, /* not an error: call progress again */
	UTIL_STAGE = 2,       /* not an error: the call is to be staged */
	UTIL_ERR_NO_MEMORY = -1,
	UTIL_ERR_CUDA = -2,        /* a CUDA driver call failed; its text has been logged */
	UTIL_ERR_UNSUPPORTED = -3, /* it can't be done so; the caller does it otherwise */
	UTIL_ERR_SYSTEM = -4,      /* errno's text has been logged */
	UTIL_ERR_MPI = -5,         /* the real MPI returned an error code, kept beside the status */
	UTIL_ERR_PEER = -6,        /* another process could not do its part; it has logged why */
	UTIL_ERR_TRUNCATE = -7,    /* a message is longer than its receiver's buffer */
	UTIL_ERR_TYPE = -8,        /* the real MPI does not take the datatype */
	UTIL_ERR_LOST = -9,        /* another process has ended, or can't be reached */
	UTIL_ERR_REVOKED = -10,    /* the communicator was revoked */
};

/* What an error was, in words for the log; "see above": it has been said. */
const char *util_status_text(enum util_status status);

#endif
