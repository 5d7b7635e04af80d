/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/util_status.h"

const char *util_status_text(enum util_status status)
{
	switch (status) {
	case UTIL_ERR_NO_MEMORY:
		return "no memory";
	case UTIL_ERR_PEER:
		return "another rank has failed in it, or is lost";
	case UTIL_ERR_LOST:
		return "another rank is lost";
	case UTIL_ERR_REVOKED:
		return "the communicator was revoked";
	case UTIL_ERR_TRUNCATE:
		return "more has come than there is room for";
	case UTIL_ERR_TYPE:
		return "the MPI does not take a datatype";
	default:
		return "see above";
	}
}
