/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What twins need where there is no emulated device: blocks of one thread, which are threads of the
 * program, and memory that is where its address says. Beside twins in a program without
 * libcuda.so.1.
 */
#ifndef EMU_ALONE_H
#define EMU_ALONE_H

/* The calling thread is that block, of so many. */
void emu_alone_begin(unsigned index, unsigned num);

#endif
