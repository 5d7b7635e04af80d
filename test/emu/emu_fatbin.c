/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fatbins as nvcc 12 and 13 write them: a header, and then entries, each with a header of its own.
 * No document says how; these fields are what such files have. PTX is compressed by LZ4 or zstd,
 * whose libraries are loaded when they are needed.
 */
#include "emu_fatbin.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAGIC = (int)0xba55ed50, WRAPPER_MAGIC = 0x466243b1, KIND_PTX = 1, DEVICE_SM = 90 };
enum { FLAG_LZ4 = 0x2000, FLAG_ZSTD = 0x8000 };

/* What nvcc leaves in a program's data. */
struct wrapper {
	uint32_t magic, version;
	const void *image;
};

struct header {
	uint32_t magic;
	uint16_t version, header_bytes;
	uint64_t bytes; /* of the entries */
};

struct entry {
	uint16_t kind, version;
	uint32_t header_bytes;
	uint64_t padded_bytes;
	uint32_t packed_bytes, options;
	uint16_t minor, major;
	uint32_t sm;
	uint32_t name, name_bytes;
	uint64_t flags, zero, bytes; /* of the text */
};

static const char *unpack_zstd(const void *packed, size_t packed_bytes, char *text, size_t bytes)
{
	size_t (*unpack)(void *to, size_t room, const void *from, size_t size);
	void *library = dlopen("libzstd.so.1", RTLD_NOW);

	if (!library)
		return "libzstd.so.1, which this image's PTX is compressed for, is not there";
	unpack = (size_t(*)(void *, size_t, const void *, size_t))dlsym(library, "ZSTD_decompress");
	if (!unpack || unpack(text, bytes, packed, packed_bytes) != bytes)
		return "the image's PTX can't be uncompressed (zstd)";
	return NULL;
}

static const char *unpack_lz4(const void *packed, size_t packed_bytes, char *text, size_t bytes)
{
	int (*unpack)(const char *from, char *to, int size, int room);
	void *library = dlopen("liblz4.so.1", RTLD_NOW);

	if (!library)
		return "liblz4.so.1, which this image's PTX is compressed for, is not there";
	unpack = (int (*)(const char *, char *, int, int))dlsym(library, "LZ4_decompress_safe");
	if (!unpack || unpack(packed, text, (int)packed_bytes, (int)bytes) != (int)bytes)
		return "the image's PTX can't be uncompressed (LZ4)";
	return NULL;
}

struct emu_packed {
	uint64_t flags;
	size_t packed_bytes, bytes; /* as it is here, and as text */
	char data[];
};

static struct emu_packed *copy_of(const void *data, uint64_t flags, size_t packed_bytes,
				  size_t bytes, char *error, size_t error_bytes)
{
	struct emu_packed *packed = malloc(sizeof(*packed) + packed_bytes);

	if (!packed) {
		snprintf(error, error_bytes, "no memory");
		return NULL;
	}
	*packed = (struct emu_packed){flags, packed_bytes, bytes};
	memcpy(packed->data, data, packed_bytes);
	return packed;
}

struct emu_packed *emu_fatbin_copy(const struct emu_packed *packed)
{
	char error[16];

	return copy_of(packed->data, packed->flags, packed->packed_bytes, packed->bytes, error,
		       sizeof(error));
}

char *emu_fatbin_unpack(const struct emu_packed *packed, char *error, size_t bytes)
{
	char *text = calloc(1, packed->bytes + 1);
	const char *why = NULL;

	if (!text)
		why = "no memory";
	else if (packed->flags & FLAG_ZSTD)
		why = unpack_zstd(packed->data, packed->packed_bytes, text, packed->bytes);
	else if (packed->flags & FLAG_LZ4)
		why = unpack_lz4(packed->data, packed->packed_bytes, text, packed->bytes);
	else
		memcpy(text, packed->data, packed->bytes);
	if (!why)
		return text;
	snprintf(error, bytes, "%s", why);
	free(text);
	return NULL;
}

/* Nearer to the device's architecture, from below if there is one. */
static bool is_better(uint32_t sm, uint32_t than)
{
	if (sm <= DEVICE_SM)
		return than > DEVICE_SM || sm > than;
	return than > DEVICE_SM && sm < than;
}

static const struct entry *find_ptx(const struct header *header)
{
	const char *at = (const char *)header + header->header_bytes, *end = at + header->bytes;
	const struct entry *best = NULL;

	while (at < end) {
		const struct entry *entry = (const struct entry *)at;

		if (entry->kind == KIND_PTX && (!best || is_better(entry->sm, best->sm)))
			best = entry;
		at += entry->header_bytes + entry->padded_bytes;
	}
	return best;
}

bool emu_fatbin_is_image(const void *image)
{
	const uint32_t *magic = image;

	return *magic == WRAPPER_MAGIC || *magic == (uint32_t)MAGIC ||
	       !memcmp(image, "\177ELF", 4) || strstr(image, ".version");
}

struct emu_packed *emu_fatbin_take(const void *image, char *error, size_t bytes)
{
	const struct wrapper *wrapper = image;
	const struct header *header = image;
	const struct entry *entry;
	bool packed;

	if (wrapper->magic == WRAPPER_MAGIC)
		header = wrapper->image;
	if (header->magic == (uint32_t)MAGIC) {
		entry = find_ptx(header);
		if (!entry) {
			snprintf(error, bytes,
				 "the image holds machine code only, and no PTX, which is what the "
				 "emulated device runs: compile with -gencode "
				 "arch=compute_80,code=compute_80");
			return NULL;
		}
		packed = entry->flags & (FLAG_LZ4 | FLAG_ZSTD);
		return copy_of((const char *)entry + entry->header_bytes, entry->flags,
			       packed ? entry->packed_bytes : entry->padded_bytes,
			       packed ? entry->bytes : entry->padded_bytes, error, bytes);
	}
	if (memcmp(image, "\177ELF", 4))
		return copy_of(image, 0, strlen(image), strlen(image), error, bytes);
	snprintf(error, bytes, "the image is machine code, and no PTX");
	return NULL;
}
