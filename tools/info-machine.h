/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine, as the library sees it: its text, and, as comments in that, the paths in it. */
#ifndef INFO_MACHINE_H
#define INFO_MACHINE_H

#include "topo/topo_machine.h"

/* Print the machine that this program is on, with the GPUs of the CUDA driver, if there is one; or
 * the one that is recorded in a file. Returns the program's exit status. */
int info_print_machine(FILE *out);
int info_print_recorded(FILE *out, const char *file);

#endif
