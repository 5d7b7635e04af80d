/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/util_locale.h"

#include <pthread.h>

static locale_t plain;

static void make_locale(void)
{
	plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

locale_t util_locale_enter(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, make_locale);
	return plain ? uselocale(plain) : (locale_t)0;
}

void util_locale_leave(locale_t before)
{
	if (before)
		uselocale(before);
}
