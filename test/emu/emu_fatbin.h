/* SPDX-License-Identifier: BSD-3-Clause */
/* What a fatbin holds for the emulated device, which knows PTX and no GPU's machine code. */
#ifndef EMU_FATBIN_H
#define EMU_FATBIN_H

#include <stdbool.h>
#include <stddef.h>

/* Whether it is one of any kind. */
bool emu_fatbin_is_image(const void *image);

/* The PTX of an image, which may be compressed. */
struct emu_packed;

/*
 * A copy of it: of a fatbin's that for the highest architecture that is not above the device's, or
 * else the lowest; or the image itself, if it is text. To be freed. NULL: there is none; `error`
 * says why.
 */
struct emu_packed *emu_fatbin_take(const void *image, char *error, size_t bytes);

/* Another of it, to be freed. NULL: no memory. */
struct emu_packed *emu_fatbin_copy(const struct emu_packed *packed);

/* As text, ended with 0, to be freed. NULL: it can't be; `error` says why. */
char *emu_fatbin_unpack(const struct emu_packed *packed, char *error, size_t bytes);

#endif
