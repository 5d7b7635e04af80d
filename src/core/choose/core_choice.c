/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/choose/core_choice.h"
#include "core/agree/core_terms.h"
#include "core/call/core_coll.h"
#include "core/choose/core_choices.h"
#include "core/wire/core_arena_layout.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ENTRIES = 128 };

/* Of this thread's last call. */
static _Thread_local struct {
	struct core_tuning_key key;
	enum sched_coll coll;
	uint64_t bytes;
	struct algo_choice way; /* without algorithm: there was no choice */
} last;

/*
 * Who wishes for LL128 and nothing else takes it on himself where it is not sure that lines arrive
 * whole.
 */
static bool wishes_for_lines(const struct core_facts *facts)
{
	return facts->common.wish.protos == 1 << SCHED_LL128;
}

static enum sched_lines lines_of(const struct core_facts *facts)
{
	return wishes_for_lines(facts) ? SCHED_LINES_UNSURE : SCHED_LINES_WHOLE;
}

/* A file that says what the node is may be wrong. */
static bool trusts_picture(const struct core_facts *facts, const struct core_choices *all)
{
	return wishes_for_lines(facts) || !all->machines[0] || !all->machines[0]->source;
}

/* Those that can be, by what does not depend on the algorithm. */
static uint32_t protos_of(const struct core_facts *facts, const struct core_choices *all,
			  bool fused)
{
	uint32_t protos = 1 << SCHED_SIMPLE;

	if (!fused || facts->comm->num_nodes == facts->comm->size || !facts->knows_sizes)
		return protos;
	protos |= 1 << SCHED_LL;
	if (!facts->comm->spans && core_terms_all_reach(facts->comm, GPU_TRANSPORT_P2P) &&
	    trusts_picture(facts, all))
		protos |= 1 << SCHED_LL128;
	return protos;
}

/*
 * Before there are arenas, which on several nodes there always are, they are taken to be as they
 * are by default: options may differ among ranks.
 */
static size_t arena_of(const struct core_facts *facts, const struct core_choices *all)
{
	enum { SCRATCH = 32 << 20 };

	return facts->common.arena ? facts->common.arena
				   : core_arena_layout_bytes(SCRATCH, all->fullest_gpu);
}

static struct algo_setting setting_of(const struct core_facts *facts,
				      const struct core_choices *all, bool mapped)
{
	const struct core_summary *common = &facts->common;
	bool fused = core_terms_may_fuse(facts, false);
	int gpu = all->cluster.parts[0].fabric->costs.blocks * all->fullest_gpu;
	int blocks = common->arena ? (int)common->blocks
				   : core_arena_layout_resident(gpu, all->fullest_gpu);

	struct algo_setting setting = {
		.room = core_terms_room(facts->comm, arena_of(facts, all), false),
		.most_links = GPU_MAX_LINKS,
		.most_lanes = GPU_MAX_LANES,
		.most_operands = GPU_MAX_OPERANDS,
		.most_places = GPU_MAX_PLACES,
		.mapped = mapped,
		.nodes_mapped = core_summary_is_mapped(common),
		.fused = fused,
		.protos = protos_of(facts, all, fused),
		.resident = blocks,
		.lines = lines_of(facts),
		.sizes_differ = core_coll_sizes_differ(facts->coll),
		.channels = facts->common.wish.channels};

	core_samples_set(&all->cluster, &setting);
	return setting;
}

static bool is_same(const struct core_choices_entry *entry, const struct sched_request *request,
		    const struct algo_setting *setting)
{
	const struct algo_setting *mine = &entry->setting;

	return entry->request.coll == request->coll &&
	       entry->request.in_place == request->in_place &&
	       entry->request.ordered == request->ordered &&
	       entry->request.all_mapped == request->all_mapped &&
	       mine->mapped == setting->mapped && mine->nodes_mapped == setting->nodes_mapped &&
	       mine->fused == setting->fused && mine->gdr == setting->gdr &&
	       mine->protos == setting->protos && mine->resident == setting->resident &&
	       mine->sizes_differ == setting->sizes_differ && mine->channels == setting->channels &&
	       mine->lines == setting->lines &&
	       mine->room.bytes[SCHED_SIMPLE] == setting->room.bytes[SCHED_SIMPLE] &&
	       sched_pairs_equal(entry->request.pairs, request->pairs);
}

static struct core_choices_entry *find_entry(struct core_choices *all,
					     const struct sched_request *request,
					     const struct algo_setting *setting)
{
	struct core_choices_entry **link = &all->entries, *entry;

	while ((entry = *link) && !is_same(entry, request, setting))
		link = &entry->next;
	if (!entry)
		return NULL;
	*link = entry->next;
	entry->next = all->entries;
	all->entries = entry;
	return entry;
}

/* False: no memory. What was measured is of exchanges of all. */
static bool fill(struct core_choices *all, struct core_choices_entry *entry)
{
	struct sched_request *request = &entry->request;

	if (request->pairs) {
		request->pairs = entry->pairs = sched_pairs_copy(request->pairs);
		if (!entry->pairs)
			return false;
	}
	entry->table = algo_table_new(request, &entry->setting);
	if (!entry->table || request->pairs)
		return entry->table;
	return core_tuning_apply(&all->key, request->coll, entry->table);
}

/* For one more; the last ones were not used for longest. */
static void make_room_for_entry(struct core_choices *all)
{
	struct core_choices_entry **link = &all->entries, *entry;

	for (int i = 1; (entry = *link); i++) {
		if (i < MOST_ENTRIES) {
			link = &entry->next;
			continue;
		}
		*link = entry->next;
		core_choices_free_entry(entry);
	}
}

static struct core_choices_entry *add_entry(struct core_choices *all,
					    const struct sched_request *request,
					    const struct algo_setting *setting)
{
	struct core_choices_entry *entry = calloc(1, sizeof(*entry));

	if (!entry)
		return NULL;
	entry->request = *request;
	entry->setting = *setting;
	entry->num = -1;
	if (!fill(all, entry)) {
		core_choices_free_entry(entry);
		return NULL;
	}
	make_room_for_entry(all);
	entry->next = all->entries;
	return all->entries = entry;
}

static bool is_asked_again(const struct core_choices_entry *entry, uint64_t bytes,
			   const struct algo_wish *wish)
{
	return entry->num >= 0 && entry->bytes == bytes && entry->wish.algos == wish->algos &&
	       entry->wish.protos == wish->protos;
}

static int rank(struct core_choices_entry *entry, uint64_t bytes, const struct algo_wish *wish)
{
	if (is_asked_again(entry, bytes, wish))
		return entry->num;
	entry->bytes = bytes;
	entry->wish = *wish;
	entry->expected = NAN;
	entry->num = algo_table_rank(entry->table, bytes, wish, entry->choices, CORE_CHOICE_MOST);
	return entry->num;
}

/* Of what was asked for last. Negative: no memory. */
static double expected_of(struct core_choices_entry *entry)
{
	if (isnan(entry->expected))
		entry->expected = algo_table_expect(entry->table, entry->bytes, &entry->wish);
	return entry->expected;
}

/* NULL: no memory. */
static struct core_choices_entry *get(struct core_choices *all, const struct sched_request *request,
				      const struct algo_setting *setting)
{
	struct core_choices_entry *entry = find_entry(all, request, setting);

	return entry ? entry : add_entry(all, request, setting);
}

/*
 * GPUDirect spares the host's memory, and kernels where data only move; but kernels can't wait for
 * what it writes, so where much is added, or little moved, it may be slower. NULL: no memory.
 */
static struct core_choices_entry *get_faster(const struct core_facts *facts,
					     struct core_choices *all,
					     const struct sched_request *request,
					     const struct algo_setting *setting,
					     const struct algo_wish *wish, bool *gdr)
{
	struct algo_setting by_gdr = *setting;
	uint64_t bytes = facts->common.longest;
	struct core_choices_entry *entry = get(all, request, setting), *other;

	if (!entry || rank(entry, bytes, wish) < 0)
		return NULL;
	if (!(facts->common.any & CORE_OFFER_DEVICE_WIRE))
		return entry;
	by_gdr.room = core_terms_room(facts->comm, arena_of(facts, all), true);
	by_gdr.gdr = true;
	by_gdr.fused = false;
	by_gdr.protos = 1 << SCHED_SIMPLE;
	other = get(all, request, &by_gdr);
	if (!other || rank(other, bytes, wish) < 0 || expected_of(entry) < 0 ||
	    expected_of(other) < 0)
		return NULL;
	*gdr = facts->common.any & CORE_OFFER_WANTS_GDR || expected_of(other) < expected_of(entry);
	return *gdr ? other : entry;
}

int core_choice_make(struct core_comm *comm, const struct core_facts *facts,
		     struct sched_request *request, bool mapped, const struct algo_wish *wish,
		     struct algo_choice *choices, bool *gdr)
{
	struct core_choices *all = core_choices_of(comm, facts);
	struct algo_setting setting;
	struct core_choices_entry *entry;
	int num;

	if (!all)
		return -1;
	*gdr = false;
	setting = setting_of(facts, all, mapped);
	/* The neighbours of a part of the ranks are not a part of an exchange of few. */
	if (request->pairs)
		setting.samples = NULL;
	request->num_rings = all->cluster.parts[0].num_rings;
	request->rings = all->cluster.parts[0].rings;
	request->nodes = all->cluster.parts[0].nodes;
	request->gpus = all->fullest_gpu > 1 ? all->cluster.parts[0].fabric->sites : NULL;
	pthread_mutex_lock(&all->lock);
	entry = get_faster(facts, all, request, &setting, wish, gdr);
	num = entry ? entry->num : -1;
	if (num > 0)
		memcpy(choices, entry->choices, (size_t)num * sizeof(*choices));
	pthread_mutex_unlock(&all->lock);
	return num;
}

bool core_choice_keeps_lines(const struct core_facts *facts, const struct sched *sched)
{
	const struct core_choices *all = facts->comm->choices;

	if (!all || facts->comm->spans)
		return false;
	for (int i = 0; i < facts->comm->size; i++) {
		if (core_agree_offer(facts->agree, i)->device != all->seats[i].device)
			return false;
	}
	return trusts_picture(facts, all) &&
	       sched_fabric_lines(all->cluster.parts[0].fabric, sched) >= lines_of(facts);
}

void core_choice_forget(void)
{
	last.way.algo = NULL;
}

void core_choice_note(const struct core_comm *comm, enum sched_coll coll, uint64_t bytes,
		      const struct algo_choice *way)
{
	core_choice_forget();
	if (!comm->choices)
		return;
	last.key = comm->choices->key;
	last.coll = coll;
	last.bytes = bytes;
	last.way = *way;
}

bool core_choice_last(char *text, size_t bytes)
{
	if (!last.way.algo)
		return false;
	core_tuning_describe(&last.key, last.coll, last.bytes, &last.way, text, bytes);
	return true;
}
