/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Numbers as C writes them. A program may have chosen a locale in which 12.5 is written 12,5; what
 * processes tell each other and keep in files must not depend on that.
 */
#ifndef UTIL_LOCALE_H
#define UTIL_LOCALE_H

#include <locale.h>

/* Have this thread read and write numbers as C does. Returns what util_locale_leave is to be given.
 */
locale_t util_locale_enter(void);

/* Have this thread read and write numbers as it did before. */
void util_locale_leave(locale_t before);

#endif
