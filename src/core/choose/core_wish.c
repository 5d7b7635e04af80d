/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/choose/core_wish.h"
#include "util/util_config.h"
#include "util/util_log.h"

#include <string.h>

static struct algo_wish wishes[SCHED_NUM_COLLS];

void core_wish_read(bool warns)
{
	const struct {
		const char *name, *text;
		bool (*read)(const char *text, struct algo_wish *wishes, char *error, size_t bytes);
	} lists[] = {
		{"GPUCOLL_ALGO", util_config.algo, algo_wish_algos},
		{"GPUCOLL_PROTO", util_config.proto, algo_wish_protos},
		{"GPUCOLL_CHANNELS", util_config.channels, algo_wish_channels},
	};
	char error[256];

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		if (!lists[i].read(lists[i].text, wishes, error, sizeof(error)) && warns)
			util_log(UTIL_LOG_WARN, UTIL_SUBSYS_INIT,
				 "%s=%.80s is not understood and ignored: %s", lists[i].name,
				 lists[i].text, error);
	}
}

bool core_wish_set(const char *algos, const char *protos, const char *channels)
{
	struct algo_wish other[SCHED_NUM_COLLS] = {0};
	char error[256];

	if (!algo_wish_algos(algos, other, error, sizeof(error)) ||
	    !algo_wish_protos(protos, other, error, sizeof(error)) ||
	    !algo_wish_channels(channels, other, error, sizeof(error)))
		return false;
	memcpy(wishes, other, sizeof(wishes));
	return true;
}

const struct algo_wish *core_wish_of(enum sched_coll coll)
{
	return &wishes[coll];
}

bool core_wish_wants_links(enum sched_coll coll)
{
	const struct algo_wish *wish = core_wish_of(coll);

	for (const struct algo *algo = algo_catalogue; wish->algos && algo->name; algo++) {
		if (!(algo->needs & ALGO_NEEDS_MAPPED) && algo_wish_grants(wish, algo))
			return true;
	}
	return false;
}
