/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/accel/core_mixed.h"

enum {
	OFTEN = 32, /* calls in a row */
	/* Calls on the communicator between those in which it asks. */
	PERIOD = 64,
	FAR_PERIOD = 1024 /* over several nodes, where that takes milliseconds */
};

/* Ranks number calls alike, so that those who ask do so in one call, and may find each other. */
static bool is_time_to_ask(struct core_comm *comm, enum core_coll coll, uint64_t number)
{
	uint64_t period = number / (comm->num_nodes > 1 ? FAR_PERIOD : PERIOD) + 1;

	if (comm->mixed.asked[coll] == period)
		return false;
	comm->mixed.asked[coll] = period;
	return true;
}

bool core_mixed_gives_way(struct core_comm *comm, enum core_coll coll, uint64_t number)
{
	return comm->mixed.gave_way[coll] >= OFTEN && !is_time_to_ask(comm, coll, number);
}

void core_mixed_note(struct core_comm *comm, enum core_coll coll, bool gave_way)
{
	uint8_t *times = &comm->mixed.gave_way[coll];

	*times = !gave_way ? 0 : *times < OFTEN ? *times + 1 : OFTEN;
}
