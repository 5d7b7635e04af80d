/* SPDX-License-Identifier: BSD-3-Clause */
/* What the library would choose, and how long it thinks that takes. */
#ifndef INFO_CHOICE_H
#define INFO_CHOICE_H

#include "info-schedule.h"
#include "topo/topo_machine.h"

/*
 * Print the best ways to do the call, size by size, or those for the call's size if `one_size`:
 * with ranks on the machine's GPUs in turn, or with GPUs of which nothing is known if it has none
 * or is NULL. Several nodes are machines like it. Returns an exit status.
 */
int info_print_choices(FILE *out, const struct info_call *call, const struct topo_machine *machine,
		       bool one_size);

#endif
