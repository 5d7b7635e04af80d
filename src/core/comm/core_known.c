/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/comm/core_known.h"
#include "util/util_hash.h"

#include <stdlib.h>

/* Powers of two; at most half of the places are taken. */
enum { FIRST_PLACES = 32, MOST_PLACES = 8192 };

/*
 * Of the id, or the free one where it would be. Knuth's multiplicative hash: the upper half of the
 * product depends on all bits of an id.
 */
static size_t place_of(const struct core_known *known, uint64_t id)
{
	size_t place = (size_t)(id * UTIL_GOLDEN >> 32) & (known->places - 1);

	while (known->ids[place] && known->ids[place] != id)
		place = (place + 1) & (known->places - 1);
	return place;
}

bool core_known_has(const struct core_known *known, uint64_t id)
{
	return known->places && known->ids[place_of(known, id)] == id;
}

static bool grow_known(struct core_known *known)
{
	size_t places = known->places ? 2 * known->places : FIRST_PLACES;
	struct core_known larger = {.ids = calloc(places, sizeof(*larger.ids)), .places = places};

	if (!larger.ids)
		return false;
	for (size_t i = 0; i < known->places; i++)
		core_known_add(&larger, known->ids[i]);
	free(known->ids);
	*known = larger;
	return true;
}

void core_known_add(struct core_known *known, uint64_t id)
{
	if (!id || core_known_has(known, id))
		return;
	if (2 * known->num >= MOST_PLACES)
		core_known_clear(known);
	if (2 * known->num >= known->places && !grow_known(known))
		return;
	known->ids[place_of(known, id)] = id;
	known->num++;
}

void core_known_clear(struct core_known *known)
{
	free(known->ids);
	*known = (struct core_known){0};
}
