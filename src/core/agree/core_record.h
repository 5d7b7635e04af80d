/* SPDX-License-Identifier: BSD-3-Clause */
/* A member's input as it travels with the agreement (core_eager.h). */
#ifndef CORE_RECORD_H
#define CORE_RECORD_H

#include "core/comm/core_comm.h"

/* A member's input. */
struct core_record {
	uint32_t bytes; /* of all of it */
	uint32_t num_blocks;
	struct {
		uint32_t offset, bytes; /* in the record */
	} blocks[];                     /* as those of struct core_buffer */
};

/* Whether so many bytes, which come from elsewhere, are a record of a member. */
bool core_record_is_sound(const struct core_comm *comm, const struct core_record *record,
			  size_t bytes);

#endif
