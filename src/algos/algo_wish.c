/* SPDX-License-Identifier: BSD-3-Clause */
#include "algos/algo_wish.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A list being read: what it is of, and where complaints go. */
struct reader {
	/* The bits of a word for a collective; false: there is no such word. */
	bool (*read)(const char *word, enum sched_coll coll, uint64_t *bits);
	const char *kind, *valid;
	uint64_t all;
	char *error;
	size_t bytes;
};

/* ---- words ---- */

/* A name is one if some collective has it; which bits depends on the collective. */
static bool read_algo(const char *word, enum sched_coll coll, uint64_t *bits)
{
	bool found = false;

	*bits = 0;
	for (int i = 0; algo_catalogue[i].name; i++) {
		if (strcasecmp(algo_catalogue[i].name, word))
			continue;
		found = true;
		if (algo_catalogue[i].colls >> coll & 1)
			*bits |= UINT64_C(1) << i;
	}
	return found;
}

static bool read_proto(const char *word, enum sched_coll coll, uint64_t *bits)
{
	int proto = sched_proto_of(word);

	(void)coll;
	*bits = proto < 0 ? 0 : UINT64_C(1) << proto;
	return proto >= 0;
}

/* A bit for each number, the lowest for 1. */
static bool read_channels(const char *word, enum sched_coll coll, uint64_t *bits)
{
	char *end;
	long number = strtol(word, &end, 10);

	(void)coll;
	if (*word < '0' || *word > '9' || *end || number < 1 || number > ALGO_MOST_CHANNELS)
		return false;
	*bits = UINT64_C(1) << (number - 1);
	return true;
}

/* NCCL's names for some collectives are others. */
static int coll_of(const char *name)
{
	for (int i = 0; i < SCHED_NUM_COLLS; i++) {
		if (!strcasecmp(name, sched_coll_name((enum sched_coll)i)))
			return i;
	}
	if (!strcasecmp(name, "broadcast"))
		return SCHED_BCAST;
	return !strcasecmp(name, "reducescatter") ? SCHED_REDUCE_SCATTER : -1;
}

/* ---- lists ---- */

static bool complain(const struct reader *reader, const char *what, const char *word,
		     const char *valid)
{
	snprintf(reader->error, reader->bytes, "there is no %s '%s'; valid: %s", what, word, valid);
	return false;
}

/* Of one collective; the text is cut up. */
static bool read_list(const struct reader *reader, char *text, enum sched_coll coll,
		      uint64_t *wanted)
{
	bool invert = *text == '^';
	char *rest = text + invert, *word;

	if (invert && !reader->all)
		return complain(reader, reader->kind, text, reader->valid);
	*wanted = 0;
	while ((word = strsep(&rest, ","))) {
		uint64_t bits;

		if (!reader->read(word, coll, &bits))
			return complain(reader, reader->kind, word, reader->valid);
		*wanted |= bits;
	}
	if (invert)
		*wanted = reader->all & ~*wanted;
	return true;
}

static void list_colls(char *text, size_t bytes)
{
	size_t used = 0;

	for (int i = 0; i < SCHED_NUM_COLLS && used < bytes; i++)
		used += (size_t)snprintf(text + used, bytes - used, "%s%s", i ? ", " : "",
					 sched_coll_name((enum sched_coll)i));
}

/* "bcast:ring", or "ring", which is for all. */
static bool read_entry(const struct reader *reader, char *entry, uint64_t *wanted)
{
	char *colon = strchr(entry, ':'), valid[160];
	int only = -1;

	if (colon) {
		*colon = '\0';
		only = coll_of(entry);
		list_colls(valid, sizeof(valid));
		if (only < 0)
			return complain(reader, "collective", entry, valid);
		entry = colon + 1;
	}
	for (int i = 0; i < SCHED_NUM_COLLS; i++) {
		char *copy = strdup(entry);
		bool well =
			copy && (only >= 0 && only != i
					 ? true
					 : read_list(reader, copy, (enum sched_coll)i, &wanted[i]));

		free(copy);
		if (!well)
			return false;
	}
	return true;
}

static bool read_all(const struct reader *reader, const char *text, uint64_t *wanted)
{
	char *copy = text ? strdup(text) : NULL, *rest = copy, *entry;
	bool well = true;

	memset(wanted, 0, SCHED_NUM_COLLS * sizeof(*wanted));
	if (!copy || !*copy)
		rest = NULL;
	while (well && (entry = strsep(&rest, ";")))
		well = read_entry(reader, entry, wanted);
	free(copy);
	return well;
}

/* ---- the three ---- */

bool algo_wish_algos(const char *text, struct algo_wish *wishes, char *error, size_t bytes)
{
	const struct reader reader = {.read = read_algo,
				      .kind = "algorithm",
				      .valid = "those that gpucoll-info -p lists",
				      .all = UINT64_MAX,
				      .error = error,
				      .bytes = bytes};
	uint64_t wanted[SCHED_NUM_COLLS];

	if (!read_all(&reader, text, wanted))
		return false;
	for (int i = 0; i < SCHED_NUM_COLLS; i++)
		wishes[i].algos = wanted[i];
	return true;
}

bool algo_wish_protos(const char *text, struct algo_wish *wishes, char *error, size_t bytes)
{
	const struct reader reader = {.read = read_proto,
				      .kind = "protocol",
				      .valid = "simple, ll, ll128",
				      .all = (1 << SCHED_NUM_PROTOS) - 1,
				      .error = error,
				      .bytes = bytes};
	uint64_t wanted[SCHED_NUM_COLLS];

	/* As it was before there were lists. */
	if (text && !strcasecmp(text, "auto"))
		text = NULL;
	if (!read_all(&reader, text, wanted))
		return false;
	for (int i = 0; i < SCHED_NUM_COLLS; i++)
		wishes[i].protos = (uint16_t)wanted[i];
	return true;
}

bool algo_wish_channels(const char *text, struct algo_wish *wishes, char *error, size_t bytes)
{
	const struct reader reader = {.read = read_channels,
				      .kind = "number of channels",
				      .valid = "1 to 16",
				      .all = 0,
				      .error = error,
				      .bytes = bytes};
	uint64_t wanted[SCHED_NUM_COLLS];

	if (text && !strcmp(text, "0"))
		text = NULL;
	if (!read_all(&reader, text, wanted))
		return false;
	for (int i = 0; i < SCHED_NUM_COLLS; i++) {
		if (wanted[i] & (wanted[i] - 1)) {
			snprintf(error, bytes, "one number of channels for a collective");
			return false;
		}
	}
	for (int i = 0; i < SCHED_NUM_COLLS; i++) {
		wishes[i].channels = 0;
		while (wanted[i] >> wishes[i].channels)
			wishes[i].channels++;
	}
	return true;
}

bool algo_wish_grants(const struct algo_wish *wish, const struct algo *algo)
{
	return !wish->algos || wish->algos >> (algo - algo_catalogue) & 1;
}

bool algo_wish_grants_way(const struct algo_wish *wish, const struct algo *algo,
			  enum sched_proto proto)
{
	return !wish->protos || algo->needs & ALGO_NEEDS_MAPPED || wish->protos >> proto & 1;
}
