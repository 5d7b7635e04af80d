/* SPDX-License-Identifier: BSD-3-Clause */
#include "algos/algo_choose.h"

#include <math.h>
#include <stdlib.h>

/*
 * Sizes at which times are known: 2^FIRST bytes and so on, and so many from each to its double; one
 * where there are many ranks, whose schedules take long to look at.
 */
enum { FIRST = 3, DOUBLINGS = 31, STEPS = 4, NUM_SIZES = DOUBLINGS * STEPS + 1, MANY_RANKS = 16 };

/*
 * Of schedules larger than this, in steps, channels are not multiplied: where they are looked at,
 * and where they are only made, if they are chosen.
 */
enum { MOST_STEPS = 16384, MOST_STEPS_MADE = 1 << 20 };

/* A call takes longer at once where it needs a round more: looked at up to so many of them. */
enum { FEW_ROUNDS = 8 };

/* Measured times say nothing of sizes that are so many times larger. */
static const double reach = 16;

/*
 * A candidate this many times slower than the best at one size cannot be the best at the next size,
 * which is less than twice as large. Its time is not computed exactly.
 */
static const double hopeless = 2;

/* What is so many times slower with twice the channels is not faster with four times as many. */
static const double loss = 1.25;

/* us, of what is possible but can't be told from samples: it is taken if nothing else is. */
static const double unknown = 1e9;

/* What was measured. */
struct point {
	uint64_t bytes;
	double time;
};

/* Times that are as near as this are alike to the model. */
static const double alike = 1.02;

struct candidate {
	const struct algo *algo;
	int channels;
	enum sched_proto proto;
	bool scratch;             /* its schedule has some, if it was looked at */
	uint32_t looked_at, made; /* steps of schedules: those looked at, and the job's */
	int num_points;
	struct point *points;     /* by bytes */
	uint64_t width;           /* of a block, in a round; 0: not known, or there are no rounds */
	struct point (*edges)[2]; /* of each few rounds, the least bytes and the most */
};

struct algo_table {
	struct sched_request request;
	struct algo_setting setting;
	int steps;                /* from a size to its double */
	double *times[NUM_SIZES]; /* by candidate; NULL: not yet known */
	uint64_t measured;        /* the largest size that was; 0: none */
	int num;
	struct candidate *candidates;
	struct algo_choice *ranked; /* those that a wish grants */
};

/* By sums and products only, which all processes compute alike. */
double algo_go_on(const double samples[ALGO_NUM_SAMPLES], double doublings)
{
	double first = samples[1] - samples[0], growth = samples[2] - samples[1];
	double figure = samples[2], ratio;
	const double most = 4; /* of what is quadratic */

	if (first <= 0 || growth <= 0)
		return figure;
	ratio = fmin(growth / first, most);
	for (; doublings >= 1; doublings--) {
		growth *= ratio;
		figure += growth;
	}
	return figure + doublings * growth * ratio;
}

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
	if (algo->needs & ALGO_NEEDS_NODES_MAPPED && !setting->nodes_mapped)
		return false;
	if (algo->needs & ALGO_NEEDS_ALL_MAPPED && !table->request.all_mapped)
		return false;
	return is_linked(algo) || setting->mapped;
}

static void add_choice(struct algo_table *table, const struct algo *algo, int channels,
		       enum sched_proto proto)
{
	table->candidates[table->num++] =
		(struct candidate){.algo = algo, .channels = channels, .proto = proto};
}

/* The algorithm with its channels and protocols, that of one first. */
static void add_all(struct algo_table *table, const struct algo *algo)
{
	if (!is_linked(algo) || table->request.ranks == 1) {
		add_choice(table, algo, 1, SCHED_SIMPLE);
		return;
	}
	for (int channels = 1; channels <= ALGO_MOST_CHANNELS; channels *= 2) {
		int number = table->setting.channels ? table->setting.channels : channels;

		for (int proto = 0; proto < SCHED_NUM_PROTOS; proto++) {
			if (table->setting.protos >> proto & 1)
				add_choice(table, algo, number, (enum sched_proto)proto);
		}
		if (table->setting.channels)
			return;
	}
}

struct algo_table *algo_table_new(const struct sched_request *request,
				  const struct algo_setting *setting)
{
	enum { NUMBERS = 5 }; /* of channels */
	struct algo_table *table = calloc(1, sizeof(*table));
	size_t most = 0;

	if (!table)
		return NULL;
	table->request = *request;
	table->request.root = 0;
	table->setting = *setting;
	table->steps = request->ranks > MANY_RANKS ? 1 : STEPS;
	while (algo_catalogue[most].name)
		most++;
	table->candidates = calloc(most * SCHED_NUM_PROTOS * NUMBERS, sizeof(*table->candidates));
	table->ranked = calloc(most * SCHED_NUM_PROTOS * NUMBERS, sizeof(*table->ranked));
	if (!table->candidates || !table->ranked) {
		algo_table_free(table);
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
	for (int i = 0; i < table->num; i++) {
		free(table->candidates[i].points);
		free(table->candidates[i].edges);
	}
	for (int i = 0; i < NUM_SIZES; i++)
		free(table->times[i]);
	free(table->candidates);
	free(table->ranked);
	free(table);
}

/* ---- times ---- */

static bool is_cut(const struct algo_table *table, enum sched_proto proto,
		   const struct sched *sched)
{
	return proto == SCHED_LL128 &&
	       sched_fabric_lines(table->setting.fabric, sched) < table->setting.lines;
}

/* What a job's schedule comes to. */
enum figure { STEPS_OF_ALL, LINKS, LANES, PLACES, OPERANDS, TIME, NUM_FIGURES };

/* What is looked at: samples, or the job itself. */
struct view {
	const struct algo_table *table;
	struct candidate *candidate;
	int num;
	const struct algo_sample *samples;
	struct algo_sample whole;
	struct sched *scheds[ALGO_NUM_SAMPLES];
	double figures[NUM_FIGURES][ALGO_NUM_SAMPLES];
};

static void free_scheds(struct view *v)
{
	for (int i = 0; i < v->num; i++) {
		sched_free(v->scheds[i]);
		v->scheds[i] = NULL;
	}
}

static double figure_of(const struct view *v, enum figure figure)
{
	return v->num > 1 ? algo_go_on(v->figures[figure], v->table->setting.doublings)
			  : v->figures[figure][0];
}

/* False: the algorithm is not for it, or there is no memory (`enough`). */
static bool make_sample(struct view *v, int i, bool *enough)
{
	const struct algo_sample *sample = &v->samples[i];
	const struct candidate *c = v->candidate;
	struct sched_request request = v->table->request;
	struct algo any = *c->algo;

	/* Part of a grid need not be one: a ring does. */
	any.needs &= ~(unsigned)ALGO_NEEDS_GRID;
	request.ranks = sample->ranks;
	request.num_nodes = sample->num_nodes;
	request.nodes = sample->nodes;
	request.num_rings = sample->num_rings;
	request.rings = sample->rings;
	request.gpus = request.gpus ? sample->fabric->sites : NULL;
	request.channels = c->channels;
	if (v->num > 1 && algo_refuses(&any, &request, v->table->setting.sizes_differ))
		return false;
	v->scheds[i] = algo_make(c->algo, &request);
	if (!v->scheds[i]) {
		*enough = false;
		return false;
	}
	v->figures[STEPS_OF_ALL][i] = v->scheds[i]->num_steps;
	v->figures[LINKS][i] = sched_most_links(v->scheds[i]);
	v->figures[LANES][i] = sched_most_lanes(v->scheds[i]);
	v->figures[PLACES][i] = sched_most_places(v->scheds[i]);
	v->figures[OPERANDS][i] = sched_most_operands(v->scheds[i]);
	for (int j = LINKS; j <= PLACES; j++)
		*enough &= v->figures[j][i] < UINT32_MAX;
	return *enough;
}

/*
 * Slots are as large as the job's can be. INFINITY: there is no room for them; negative: no memory.
 */
static double time_of_sample(const struct view *v, int i, double most, uint64_t bytes)
{
	const struct algo_setting *setting = &v->table->setting;
	const struct candidate *c = v->candidate;
	struct sched_terms terms = {.fused = setting->fused,
				    .gdr = setting->gdr,
				    .proto = c->proto,
				    .blocks = setting->resident,
				    .bytes = bytes,
				    .most = most};

	if (is_linked(c->algo) && v->scheds[i]->num_connections &&
	    !sched_slots_fit(v->scheds[i], (uint32_t)lround(figure_of(v, LINKS)),
			     (uint32_t)c->algo->slots, &setting->room, c->proto, &terms.slots))
		return INFINITY;
	v->candidate->width = v->num == 1 ? terms.slots.width : 0;
	return sched_time(v->scheds[i], v->samples[i].fabric, &terms);
}

/* Whether a rank has too much to do with. Lanes that wait in a kernel are resident together. */
static bool is_too_wide(const struct view *v)
{
	const struct algo_setting *setting = &v->table->setting;

	if (figure_of(v, PLACES) > setting->most_places ||
	    figure_of(v, OPERANDS) > setting->most_operands)
		return true;
	if (!is_linked(v->candidate->algo) || !v->scheds[0]->num_connections)
		return false;
	return figure_of(v, LINKS) > setting->most_links ||
	       figure_of(v, LANES) > setting->most_lanes ||
	       (setting->fused && figure_of(v, LANES) > setting->resident);
}

/* Have the job itself looked at, if its schedule is small. */
static void look_at_whole(struct view *v)
{
	if (v->num == 1 || figure_of(v, STEPS_OF_ALL) > MOST_STEPS)
		return;
	free_scheds(v);
	v->samples = &v->whole;
	v->num = 1;
}

/* INFINITY: it is not for the algorithm. Negative: no memory. */
static double make_samples(struct view *v)
{
	bool enough = true;

	for (int i = 0; i < v->num; i++) {
		if (!v->scheds[i] && !make_sample(v, i, &enough))
			return enough ? INFINITY : -1;
	}
	return 0;
}

/* What takes too long already in a sample is not looked at further. */
static double time_of_view(struct view *v, double most, uint64_t bytes)
{
	double made = make_samples(v);

	if (made == 0) {
		look_at_whole(v);
		made = make_samples(v);
	}
	if (made != 0)
		return made;
	v->candidate->scratch = v->scheds[v->num - 1]->scratch_blocks > 0;
	v->candidate->looked_at = v->scheds[v->num - 1]->num_steps;
	v->candidate->made = (uint32_t)fmin(figure_of(v, STEPS_OF_ALL), UINT32_MAX);
	if (is_too_wide(v) || is_cut(v->table, v->candidate->proto, v->scheds[0]))
		return INFINITY;
	/* Flags are for messages within nodes, of which rails have none. */
	if (v->candidate->proto != SCHED_SIMPLE && !sched_has_near_messages(v->scheds[v->num - 1]))
		return INFINITY;
	/* Smaller grids tell nothing of a grid: it is their divisors that count. */
	if (v->num > 1 && v->candidate->algo->needs & ALGO_NEEDS_GRID)
		return unknown;
	for (int i = 0; i < v->num; i++) {
		double time = time_of_sample(v, i, most, bytes);

		if (time < 0 || time > most)
			return time;
		v->figures[TIME][i] = time;
	}
	return figure_of(v, TIME);
}

/* INFINITY: it is not possible. Negative: no memory. */
static double time_of(const struct algo_table *table, struct candidate *c, double most,
		      uint64_t bytes)
{
	const struct sched_request *request = &table->request;
	struct view view = {.table = table,
			    .candidate = c,
			    .num = table->setting.samples ? ALGO_NUM_SAMPLES : 1,
			    .samples = table->setting.samples,
			    .whole = {request->ranks, request->num_nodes, request->num_rings,
				      request->nodes, request->rings, table->setting.fabric}};
	double time;

	if (!view.samples)
		view.samples = &view.whole;
	time = time_of_view(&view, most, bytes);
	free_scheds(&view);
	return time;
}

static uint64_t bytes_of_size(const struct algo_table *table, int size)
{
	int steps = table->steps;

	return (UINT64_C(1) << (FIRST + size / steps)) / (uint64_t)steps *
	       (uint64_t)(steps + size % steps);
}

/* The same with half as many channels; -1: there is none. */
static int narrower(const struct algo_table *table, int index)
{
	const struct candidate *c = &table->candidates[index];

	for (int i = 0; i < index; i++) {
		const struct candidate *other = &table->candidates[i];

		if (other->algo == c->algo && other->proto == c->proto &&
		    2 * other->channels == c->channels)
			return i;
	}
	return -1;
}

/*
 * Whether it is not to be looked at: twice the channels lost something already, or it would be too
 * large.
 */
static bool is_no_use(const struct algo_table *table, int index, const double *times)
{
	int half = narrower(table, index), quarter = half < 0 ? -1 : narrower(table, half);

	const struct candidate *c = &table->candidates[half < 0 ? index : half];

	/*
	 * What was not looked at here: whether it was elsewhere is not the same for all processes.
	 */
	if (half >= 0 && isinf(times[half]))
		return true;
	if (half >= 0 && (c->looked_at > MOST_STEPS / 2 || c->made > MOST_STEPS_MADE / 2))
		return true;
	return quarter >= 0 && times[half] > loss * times[quarter];
}

/*
 * Of those with links, or of the others, which have few steps. `best`: the least time so far.
 * False: no memory.
 */
static bool know_some(struct algo_table *table, int size, bool linked, double *times, double *best)
{
	for (int i = 0; i < table->num; i++) {
		struct candidate *c = &table->candidates[i];

		if (is_linked(c->algo) != linked)
			continue;
		times[i] = INFINITY;
		if (!is_no_use(table, i, times))
			times[i] = time_of(table, c, hopeless * *best, bytes_of_size(table, size));
		if (times[i] < 0)
			return false;
		*best = times[i] < *best ? times[i] : *best;
	}
	return true;
}

/* ---- what was measured ---- */

static bool add_point(struct candidate *c, uint64_t bytes, double time)
{
	struct point *points = realloc(c->points, ((size_t)c->num_points + 1) * sizeof(*points));
	int i;

	if (!points)
		return false;
	c->points = points;
	for (i = c->num_points++; i > 0 && points[i - 1].bytes > bytes; i--)
		points[i] = points[i - 1];
	points[i] = (struct point){bytes, time};
	return true;
}

/* What was measured may have been so between other GPUs of the machine. */
static bool is_cut_here(const struct algo_table *table, const struct candidate *c)
{
	struct sched_request request = table->request;
	struct sched *sched;
	bool cut;

	if (c->proto != SCHED_LL128)
		return false;
	request.channels = c->channels;
	sched = algo_make(c->algo, &request);
	cut = !sched || is_cut(table, c->proto, sched);
	sched_free(sched);
	return cut;
}

bool algo_table_measure(struct algo_table *table, uint64_t bytes, const struct algo_choice *way)
{
	for (int i = 0; i < table->num; i++) {
		struct candidate *c = &table->candidates[i];

		if (c->algo != way->algo || c->proto != way->proto ||
		    c->channels != way->channels || is_cut_here(table, c))
			continue;
		table->measured = bytes > table->measured ? bytes : table->measured;
		return add_point(c, bytes, way->time);
	}
	return true;
}

/*
 * Along lines from point to point; below the first as long as that, above the last in proportion,
 * as far as that reaches.
 */
static double measured_time(const struct candidate *c, double bytes)
{
	const struct point *p = c->points, *last;

	if (!c->num_points)
		return INFINITY;
	last = p + c->num_points - 1;
	if (bytes <= (double)p->bytes)
		return p->time;
	if (bytes > reach * (double)last->bytes)
		return INFINITY;
	while (p < last && (double)p[1].bytes < bytes)
		p++;
	if (p == last)
		return p->time * bytes / (double)p->bytes;
	return p->time +
	       (p[1].time - p->time) * (bytes - (double)p->bytes) / (double)(p[1].bytes - p->bytes);
}

/* ---- choices ---- */

/* The times at the size. False: no memory. */
static bool know(struct algo_table *table, int size)
{
	double best = INFINITY, *times;

	if (table->times[size])
		return true;
	times = malloc(((size_t)table->num + 1) * sizeof(*times));
	if (!times)
		return false;
	if (!know_some(table, size, false, times, &best) ||
	    !know_some(table, size, true, times, &best)) {
		free(times);
		return false;
	}
	table->times[size] = times;
	return true;
}

static bool is_faster(const struct algo_choice *a, const struct algo_choice *b)
{
	if (a->time != b->time)
		return a->time < b->time;
	/* Of those that are alike the first of the catalogue, with the fewest channels. */
	if (a->algo != b->algo)
		return a->algo < b->algo;
	return a->channels != b->channels ? a->channels < b->channels : a->proto < b->proto;
}

/* Among the fastest so far, `num` of at most `most`. Returns their number then. */
static int insert(const struct algo_choice *choice, struct algo_choice *choices, int num, int most)
{
	int i = num < most ? num++ : most;

	for (; i > 0 && is_faster(choice, &choices[i - 1]); i--) {
		if (i < most)
			choices[i] = choices[i - 1];
	}
	if (i < most)
		choices[i] = *choice;
	return num;
}

/* The last size but one, at most, that is not above so many bytes. */
static int size_below(const struct algo_table *table, uint64_t bytes)
{
	int size = 0;

	while (size + 1 < DOUBLINGS * table->steps && bytes_of_size(table, size + 1) <= bytes)
		size++;
	return size;
}

/* The least bytes that take so many rounds, or the most. NULL: no memory. */
static const struct point *edge_of(const struct algo_table *table, struct candidate *c,
				   uint64_t rounds, bool most)
{
	struct point *edge;

	if (!c->edges)
		c->edges = calloc(FEW_ROUNDS, sizeof(*c->edges));
	if (!c->edges)
		return NULL;
	edge = &c->edges[rounds - 1][most];
	if (edge->bytes)
		return edge;
	edge->bytes = most ? rounds * c->width : (rounds - 1) * c->width + 1;
	edge->time = time_of(table, c, INFINITY, edge->bytes);
	if (edge->time >= 0)
		return edge;
	edge->bytes = 0;
	return NULL;
}

/* From two sizes to those next to `bytes` with as many rounds. False: no memory. */
static bool narrow(const struct algo_table *table, struct candidate *c, uint64_t bytes,
		   struct point *low, struct point *high)
{
	uint64_t rounds = c->width ? (bytes + c->width - 1) / c->width : 0;
	const struct point *least = low, *most = high;

	if (rounds == 0 || rounds > FEW_ROUNDS)
		return true;
	if ((rounds - 1) * c->width >= low->bytes)
		least = edge_of(table, c, rounds, false);
	if (rounds * c->width < high->bytes)
		most = edge_of(table, c, rounds, true);
	if (!least || !most)
		return false;
	*low = *least;
	*high = *most;
	return true;
}

/* `enough`: what takes longer with fewer bytes need not be known well. Negative: no memory. */
static double between(const struct algo_table *table, int candidate, int size, uint64_t bytes,
		      double enough)
{
	struct point low = {bytes_of_size(table, size), table->times[size][candidate]}, high;

	if (bytes <= low.bytes || isinf(low.time))
		return low.time;
	high = (struct point){bytes_of_size(table, size + 1), table->times[size + 1][candidate]};
	if (isinf(high.time))
		return INFINITY;
	if (low.time <= enough && !narrow(table, &table->candidates[candidate], bytes, &low, &high))
		return -1;
	if (high.bytes == low.bytes)
		return low.time;
	return low.time + (double)(bytes - low.bytes) / (double)(high.bytes - low.bytes) *
				  (high.time - low.time);
}

/*
 * What an algorithm takes besides time: nothing; memory for messages, for which ranks wait in
 * kernels; or scratch as well, through which data are copied once more.
 */
static int burden_of(const struct algo_table *table, const struct algo *algo)
{
	int burden = is_linked(algo) ? 1 : 0;

	for (int i = 0; i < table->num; i++) {
		if (table->candidates[i].algo == algo && table->candidates[i].scratch)
			return burden + 1;
	}
	return burden;
}

/* Whether a is b with fewer channels. */
static bool is_leaner(const struct algo_choice *a, const struct algo_choice *b)
{
	return a->algo == b->algo && a->proto == b->proto && a->channels < b->channels;
}

/*
 * Of those that are alike to the model the fastest of those that take least comes first, with the
 * fewest channels that are alike to it.
 */
static void prefer_modest(const struct algo_table *table, struct algo_choice *choices, int num)
{
	struct algo_choice choice;
	int first = 0;
	double most;

	if (!num)
		return;
	most = alike * choices[0].time;
	for (int i = 1; i < num && choices[i].time <= most; i++) {
		if (burden_of(table, choices[i].algo) < burden_of(table, choices[first].algo))
			first = i;
	}
	most = alike * choices[first].time;
	for (int i = 0; i < num && choices[i].time <= most; i++) {
		if (is_leaner(&choices[i], &choices[first]))
			first = i;
	}
	choice = choices[first];
	for (int i = first; i > 0; i--)
		choices[i] = choices[i - 1];
	choices[0] = choice;
}

/* Add the candidate to the choices, if it is one. Returns their number then. */
static int consider(const struct candidate *c, double time, const struct algo_wish *wish,
		    struct algo_choice *choices, int num, int most)
{
	struct algo_choice choice = {c->algo, c->channels, c->proto, time};

	if (isinf(time) || !algo_wish_grants(wish, c->algo) ||
	    !algo_wish_grants_way(wish, c->algo, c->proto))
		return num;
	return insert(&choice, choices, num, most);
}

static int rank_measured(const struct algo_table *table, uint64_t bytes,
			 const struct algo_wish *wish, struct algo_choice *choices, int most)
{
	int num = 0;

	if ((double)bytes > reach * (double)table->measured)
		return 0;
	for (int i = 0; i < table->num; i++) {
		const struct candidate *c = &table->candidates[i];

		num = consider(c, measured_time(c, (double)bytes), wish, choices, num, most);
	}
	return num;
}

/* The least time of those that the wish grants, at a size that is known. */
static double least_at(const struct algo_table *table, int size, const struct algo_wish *wish)
{
	struct algo_choice best = {.time = INFINITY};

	for (int i = 0; i < table->num; i++)
		consider(&table->candidates[i], table->times[size][i], wish, &best, 1, 1);
	return best.time;
}

/*
 * All, since which comes first is not only a matter of time, and must not depend on how many are
 * asked for. Returns their number in table->ranked; -1: no memory.
 */
static int rank_modelled(struct algo_table *table, uint64_t bytes, const struct algo_wish *wish)
{
	int size = size_below(table, bytes), num = 0;
	bool exact = bytes <= bytes_of_size(table, size);
	double enough;

	if (!know(table, size) || (!exact && !know(table, size + 1)))
		return -1;
	enough = exact ? 0 : least_at(table, size + 1, wish);
	for (int i = 0; i < table->num; i++) {
		double time = between(table, i, size, bytes, enough);

		if (time < 0)
			return -1;
		num = consider(&table->candidates[i], time, wish, table->ranked, num, table->num);
	}
	prefer_modest(table, table->ranked, num);
	return num;
}

int algo_table_rank(struct algo_table *table, uint64_t bytes, const struct algo_wish *wish,
		    struct algo_choice *choices, int most)
{
	int num = table->measured ? rank_measured(table, bytes, wish, choices, most) : 0;

	if (num)
		return num;
	num = rank_modelled(table, bytes, wish);
	num = num < most ? num : most;
	for (int i = 0; i < num; i++)
		choices[i] = table->ranked[i];
	return num;
}

double algo_table_expect(struct algo_table *table, uint64_t bytes, const struct algo_wish *wish)
{
	int num = rank_modelled(table, bytes, wish);

	return num > 0 ? table->ranked[0].time : num ? -1 : INFINITY;
}
