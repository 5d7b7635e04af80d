/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine, as the library sees it: its text, and, as comments in that, the paths in it. */
#ifndef INFO_MACHINE_H
#define INFO_MACHINE_H

#include "topo/topo_machine.h"

/*
 * The machine that this program is on, with the GPUs of the CUDA driver, if there is one; or the
 * one that is recorded in a file. NULL: it was said why not. The caller frees it.
 */
struct topo_machine *info_find_machine(void);
struct topo_machine *info_read_machine(const char *file);

void info_print_machine(FILE *out, const struct topo_machine *machine);

/* The same as a picture (SVG). False: no memory. */
bool info_draw_machine(FILE *out, const struct topo_machine *machine);

#endif
