/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/agree/core_record.h"
#include "core/agree/core_area.h"

bool core_record_is_sound(const struct core_comm *comm, const struct core_record *record,
			  size_t bytes)
{
	if (bytes < sizeof(*record) || bytes > core_area_record_bytes(comm) ||
	    record->bytes != bytes || record->num_blocks > (uint32_t)comm->size ||
	    bytes < sizeof(*record) + record->num_blocks * sizeof(record->blocks[0]))
		return false;
	for (uint32_t i = 0; i < record->num_blocks; i++) {
		if (record->blocks[i].offset > bytes ||
		    record->blocks[i].bytes > bytes - record->blocks[i].offset)
			return false;
	}
	return true;
}
