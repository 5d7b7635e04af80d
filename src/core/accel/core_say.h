/* SPDX-License-Identifier: BSD-3-Clause */
/* An accelerated call in words, for statistics and warnings. */
#ifndef CORE_SAY_H
#define CORE_SAY_H

#include "core/accel/core_accel_call.h"

/* A schedule with links, and how it is carried out, in words that live as long as the program. */
const char *core_say_linked_name(const struct core_accel *accel);

/* Warn, once for a communicator and kind, about something that was asked for and can't be. */
enum core_complaint { CORE_COMPLAINT_ALGO, CORE_COMPLAINT_EXEC, CORE_COMPLAINT_PROTO };
void core_say_complaint(const struct core_accel *accel, enum core_complaint kind,
			const char *option, const char *value, const char *why);

/* What the call waits for, into `text`. */
void core_say_what_is_awaited(const struct core_accel *accel, char *text, size_t bytes);

/* Note for core_choice_last how an accelerated call was done. */
void core_say_note_choice(const struct core_accel *accel);

#endif
