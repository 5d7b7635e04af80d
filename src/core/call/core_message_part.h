/* SPDX-License-Identifier: BSD-3-Clause */
/* One message of a group that is enqueued at once, at this rank's end. */
#ifndef CORE_MESSAGE_PART_H
#define CORE_MESSAGE_PART_H

#include "core/call/core_call.h"

struct core_message_part {
	int rank; /* whom it is for, or from */
	bool sends;
	bool aside; /* sent as it was before the group: something is received in its place */
	void *buffer;
	int64_t count; /* elements, or with `type` 0 bytes */
	core_handle type;
};

#endif
