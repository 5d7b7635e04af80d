/* SPDX-License-Identifier: BSD-3-Clause */
#include "algos/algo_choose.h"

#include <math.h>
#include <stdlib.h>

/* Sizes at which times are known: 2^FIRST bytes and so on, and so many from each to its double. */
enum { FIRST = 3, DOUBLINGS = 31, STEPS = 4, NUM_SIZES = DOUBLINGS * STEPS + 1 };

/* What is so many times slower than the best at one size can't be the best at the next, as no time
 * grows faster than the size: it is not looked at closely. */
static const double hopeless = 4;

struct candidate {
	const struct algo *algo;
	int channels;
	bool ll;
	double times[NUM_SIZES];
};

struct algo_table {
	struct sched_request request;
	struct algo_setting setting;
	bool known[NUM_SIZES]; /* the times */
	int num;
	struct candidate *candidates;
};

/* ---- candidates ---- */

static bool is_linked(const struct algo *algo)
{
	return !(algo->needs & ALGO_NEEDS_MAPPED);
}

static bool is_possible(const struct algo_table *table, const struct algo *algo)
{
	const struct algo_setting *setting = &table->setting;

	if (algo_refuses(algo, &table->request, setting->sizes_differ))
		return false;
	if (is_linked(algo))
		return setting->linked;
	return setting->mapped && !(algo->needs & ALGO_NEEDS_ALL_MAPPED);
}

static void add(struct algo_table *table, const struct algo *algo, int channels, bool ll)
{
	table->candidates[table->num++] =
		(struct candidate){.algo = algo, .channels = channels, .ll = ll};
}

/* The algorithm with its channels and protocols, that of one first. */
static void add_all(struct algo_table *table, const struct algo *algo)
{
	if (!is_linked(algo) || table->request.ranks == 1) {
		add(table, algo, 1, false);
		return;
	}
	for (int channels = 1; channels <= ALGO_MOST_CHANNELS; channels *= 2) {
		add(table, algo, channels, false);
		if (table->setting.fused)
			add(table, algo, channels, true);
	}
}

struct algo_table *algo_table_new(const struct sched_request *request,
				  const struct algo_setting *setting)
{
	enum { WAYS = 2 * 5 }; /* of an algorithm: protocols, and numbers of channels */
	struct algo_table *table = calloc(1, sizeof(*table));
	size_t most = 0;

	if (!table)
		return NULL;
	table->request = *request;
	table->request.root = 0;
	table->setting = *setting;
	while (algo_catalogue[most].name)
		most++;
	table->candidates = calloc(most * WAYS, sizeof(*table->candidates));
	if (!table->candidates) {
		free(table);
		return NULL;
	}
	for (const struct algo *algo = algo_catalogue; algo->name; algo++) {
		if (is_possible(table, algo))
			add_all(table, algo);
	}
	return table;
}

void algo_table_free(struct algo_table *table)
{
	if (!table)
		return;
	free(table->candidates);
	free(table);
}

/* ---- times ---- */

/* Lanes that wait in a kernel are resident together. */
static bool is_too_wide(const struct algo_table *table, const struct sched *sched)
{
	return table->setting.fused &&
	       sched_most_lanes(sched) > (uint32_t)table->setting.fabric->costs.blocks;
}

/* INFINITY: there is no room for it; negative: no memory. */
static double time_of_schedule(const struct algo_table *table, const struct candidate *c,
			       const struct sched *sched, double most, uint64_t bytes)
{
	const struct algo_setting *setting = &table->setting;
	struct sched_terms terms = {
		.fused = setting->fused, .ll = c->ll, .bytes = bytes, .most = most};
	uint32_t links = sched_most_links(sched);

	if (is_linked(c->algo) && sched->num_connections &&
	    (links > setting->most_links || is_too_wide(table, sched) ||
	     !sched_slots_fit(sched, links, (uint32_t)c->algo->slots, &setting->room, c->ll,
			      &terms.slots)))
		return INFINITY;
	return sched_time(sched, setting->fabric, &terms);
}

static double time_of(const struct algo_table *table, const struct candidate *c, double most,
		      uint64_t bytes)
{
	struct sched_request request = table->request;
	struct sched *sched;
	double time = -1;

	request.channels = c->channels;
	sched = algo_make(c->algo, &request);
	if (sched)
		time = time_of_schedule(table, c, sched, most, bytes);
	sched_free(sched);
	return time;
}

static uint64_t bytes_of_size(int size)
{
	return (UINT64_C(1) << (FIRST + size / STEPS)) / STEPS * (uint64_t)(STEPS + size % STEPS);
}

/* False: no memory. */
static bool know(struct algo_table *table, int size)
{
	double best = INFINITY;

	if (table->known[size])
		return true;
	for (int i = 0; i < table->num; i++) {
		double time =
			time_of(table, &table->candidates[i], hopeless * best, bytes_of_size(size));

		if (time < 0)
			return false;
		table->candidates[i].times[size] = time;
		best = time < best ? time : best;
	}
	table->known[size] = true;
	return true;
}

/* ---- choices ---- */

static int by_time(const void *a, const void *b)
{
	const struct algo_choice *x = a, *y = b;

	if (x->time != y->time)
		return x->time < y->time ? -1 : 1;
	/* Of those that are alike the first of the catalogue, with the fewest channels. */
	if (x->algo != y->algo)
		return x->algo < y->algo ? -1 : 1;
	return x->channels != y->channels ? x->channels - y->channels : x->ll - y->ll;
}

/* The last size but one, at most, that is not above so many bytes. */
static int size_below(uint64_t bytes)
{
	int size = 0;

	while (size + 2 < NUM_SIZES && bytes_of_size(size + 1) <= bytes)
		size++;
	return size;
}

static double between(const struct candidate *c, int size, uint64_t bytes)
{
	double low = (double)bytes_of_size(size), high = (double)bytes_of_size(size + 1);

	if ((double)bytes <= low || isinf(c->times[size]))
		return c->times[size];
	return c->times[size] +
	       ((double)bytes - low) / (high - low) * (c->times[size + 1] - c->times[size]);
}

int algo_table_rank(struct algo_table *table, uint64_t bytes, struct algo_choice *choices, int most)
{
	int size = size_below(bytes), num = 0;
	struct algo_choice *all;

	if (!know(table, size) || (bytes > bytes_of_size(size) && !know(table, size + 1)))
		return -1;
	all = malloc(((size_t)table->num + 1) * sizeof(*all));
	if (!all)
		return -1;
	for (int i = 0; i < table->num; i++) {
		const struct candidate *c = &table->candidates[i];
		double time = between(c, size, bytes);

		if (!isinf(time))
			all[num++] = (struct algo_choice){c->algo, c->channels, c->ll, time};
	}
	qsort(all, (size_t)num, sizeof(*all), by_time);
	for (int i = 0; i < num && i < most; i++)
		choices[i] = all[i];
	free(all);
	return num;
}
