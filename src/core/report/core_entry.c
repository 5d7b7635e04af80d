/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/report/core_entry.h"

const char *core_entry_name(const struct core_entry *call)
{
	return call->coll < CORE_COLL_NUM ? core_coll_name((enum core_coll)call->coll) : call->name;
}

const char *core_entry_words(enum core_where where)
{
	static const char *const texts[CORE_WHERE_NUM] = {
		[CORE_WHERE_ENTERED] = "has begun",
		[CORE_WHERE_CHECK] = "waits for the others to come to it (GPUCOLL_CHECK=args)",
		[CORE_WHERE_OFFER] = "looks at its buffers",
		[CORE_WHERE_SLOT] = "waits for others that are calls behind",
		[CORE_WHERE_READY] = "waits for earlier work on the buffers",
		[CORE_WHERE_AGREE] = "waits for the others to come to the call",
		[CORE_WHERE_FILL] = "copies its input",
		[CORE_WHERE_MUSTER] = "waits for the others to be ready for a part of it",
		[CORE_WHERE_TRY] = "tries whether kernels run together",
		[CORE_WHERE_RUN] = "waits for its kernel or the network",
		[CORE_WHERE_MEET] = "waits for the others to end their part",
		[CORE_WHERE_LAST] = "copies its result",
		[CORE_WHERE_ALL_BUT_DONE] = "is at its end",
		[CORE_WHERE_EARLIER] = "waits for earlier work on the buffers",
		[CORE_WHERE_COPY_IN] = "copies its input to the host",
		[CORE_WHERE_REAL] = "is in the real MPI",
		[CORE_WHERE_ISSUED] = "is in the real MPI",
		[CORE_WHERE_COPY_OUT] = "copies its result to the device",
		[CORE_WHERE_LEAVING] = "is at its end",
		[CORE_WHERE_WIRE] = "waits for the network",
		[CORE_WHERE_LAUNCH] = "starts its kernel",
		[CORE_WHERE_GIVEN] = "was handed on",
		[CORE_WHERE_ENDED] = "has ended",
		[CORE_WHERE_FAILED] = "has failed",
	};

	return texts[where < CORE_WHERE_NUM ? where : CORE_WHERE_ENTERED];
}
