/* SPDX-License-Identifier: BSD-3-Clause */
/* Hashes: FNV-1a, 64 bits (http://www.isthe.com/chongo/tech/comp/fnv), and of one word. */
#ifndef UTIL_HASH_H
#define UTIL_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define UTIL_HASH_START 0xcbf29ce484222325ull

/*
 * 2^64 over the golden ratio: a word times this has its differences in the upper bits (Knuth, The
 * Art of Computer Programming, 6.4).
 */
#define UTIL_GOLDEN UINT64_C(0x9e3779b97f4a7c15)

/* The hash of what was hashed before, or UTIL_HASH_START, with more bytes. */
static inline uint64_t util_hash(uint64_t hash, const void *data, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3ull;
	return hash;
}

static inline uint64_t util_hash_text(uint64_t hash, const char *text)
{
	return util_hash(hash, text, strlen(text));
}

#endif
