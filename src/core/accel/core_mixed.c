/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/accel/core_mixed.h"
#include "util/util_hash.h"

enum {
	OFTEN = 32,      /* calls in a row */
	SHORT = 1 << 20, /* bytes: asking costs longer calls little, and staging them much */
	ASKS_SHIFT = 60  /* one call in 16 asks */
};

bool core_mixed_is_habit(const struct core_comm *comm, const struct core_shape *shape)
{
	return comm->mixed.gave_way[shape->coll] >= OFTEN && core_shape_bytes(shape) < SHORT;
}

/* Not every 16th: a program's loop may be of so many calls. */
bool core_mixed_asks(uint64_t number)
{
	return number * UTIL_GOLDEN >> ASKS_SHIFT == 0;
}

void core_mixed_note(struct core_comm *comm, enum core_coll coll, bool gave_way)
{
	uint8_t *times = &comm->mixed.gave_way[coll];

	*times = !gave_way ? 0 : *times < OFTEN ? *times + 1 : OFTEN;
}
