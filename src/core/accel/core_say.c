/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/accel/core_say.h"
#include "util/util_log.h"

#include <pthread.h>
#include <stdio.h>

const char *core_say_linked_name(const struct core_accel *accel)
{
	enum { STEPPED = GPU_PROTOCOL_NUM, BY_GDR, WAYS, MOST_ALGOS = 64 };
	static const char *const ways[WAYS] = {"fused simple", "fused ll", "fused ll128", "stepped",
					       "stepped gdr"};
	static char names[MOST_ALGOS][WAYS][32];
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	const struct gpu_execute_args *args = &accel->steps.args;
	int way = args->waits ? (int)args->protocol : accel->gdr ? BY_GDR : STEPPED;
	char *name = names[(accel->schedule->algo - algo_catalogue) % MOST_ALGOS][way];

	pthread_mutex_lock(&lock);
	if (!*name)
		snprintf(name, sizeof(names[0][0]), "%s %s", accel->schedule->algo->name,
			 ways[way]);
	pthread_mutex_unlock(&lock);
	return name;
}

void core_say_complaint(const struct core_accel *accel, enum core_complaint kind,
			const char *option, const char *value, const char *why)
{
	if (accel->comm->complained >> kind & 1 || accel->comm->rank)
		return;
	accel->comm->complained |= 1U << kind;
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE, "%s=%s is not possible for %s: %s", option, value,
		 core_coll_name(accel->shape.coll), why);
}
