/* SPDX-License-Identifier: BSD-3-Clause */
#include "info-choice.h"
#include "core/choose/core_samples.h"
#include "core/wire/core_arena_layout.h"
#include "gpu/kernels/gpu_program.h"
#include "util/util_config.h"

#include <inttypes.h>
#include <stdlib.h>

enum { MOST_SHOWN = 200 };

static const struct algo_wish anything;

static int node_of(const struct sched_request *request, int rank)
{
	return request->num_nodes ? request->nodes[rank] : 0;
}

/* A rank's number on its node. */
static int local_number(const struct sched_request *request, int rank)
{
	int local = 0;

	for (int i = 0; i < rank; i++)
		local += node_of(request, i) == node_of(request, rank);
	return local;
}

/* Ranks of a node sit on its GPUs in turn; where there are none each has one to itself. */
static void take_seats(const struct sched_request *request, const struct topo_machine *machine,
		       struct core_seat *seats)
{
	for (int rank = 0; rank < request->ranks; rank++) {
		int node = node_of(request, rank), local = local_number(request, rank), gpus = 0;

		while (machine && topo_machine_nth(machine, TOPO_GPU, gpus) >= 0)
			gpus++;
		seats[rank] = (struct core_seat){node, -1, (uint64_t)local};
		if (gpus)
			seats[rank].gpu = topo_machine_nth(machine, TOPO_GPU, local % gpus);
	}
}

/* Of ranks that share a GPU one works for all, as core_plan.c has it. */
static void share_gpus(struct sched_request *request, const struct sched_fabric *fabric)
{
	if (request->num_nodes > 1 || sched_fabric_fullest(fabric) < 2)
		return;
	request->gpus = fabric->sites;
	request->all_mapped = true;
}

/* What schedules are timed on, and the request's rings and GPUs in it. */
static bool make_cluster(struct sched_request *request, const struct topo_machine *machine,
			 bool sockets, struct core_samples *cluster)
{
	int nodes = request->num_nodes ? request->num_nodes : 1;
	struct core_seat *seats = calloc((size_t)request->ranks, sizeof(*seats));
	const struct topo_machine **machines = calloc((size_t)nodes, sizeof(*machines));
	bool made = false;

	for (int i = 0; machines && i < nodes; i++)
		machines[i] = machine;
	if (seats && machines) {
		take_seats(request, machine, seats);
		made = core_samples_make(request->ranks, seats, nodes, machines, sockets, cluster);
		request->num_rings = cluster->parts[0].num_rings;
		request->rings = cluster->parts[0].rings;
		share_gpus(request, cluster->parts[0].fabric);
	}
	free(seats);
	free(machines);
	return made;
}

/* Whether the ranks of a node reach each other's memory: no two of the GPUs used are apart. */
static bool is_mapped(const struct sched_request *request, const struct topo_machine *machine)
{
	int most = 0;

	for (int rank = 0; rank < request->ranks; rank++) {
		int local = local_number(request, rank);

		most = local > most ? local : most;
	}
	for (int i = 0; machine && i < machine->num_apart; i++) {
		int last = topo_machine_nth(machine, TOPO_GPU, most);

		if (last < 0 || (machine->apart[i].a <= last && machine->apart[i].b <= last))
			return false;
	}
	return true;
}

static void print_choice(FILE *out, const struct algo_choice *choice)
{
	char text[64] = "";

	if (choice->algo->needs & ALGO_NEEDS_MAPPED)
		snprintf(text, sizeof(text), "%s", choice->algo->name);
	else
		snprintf(text, sizeof(text), "%s %s x%d", choice->algo->name,
			 sched_proto_name(choice->proto), choice->channels);
	fprintf(out, " %-26s %11.1f", text, choice->time);
}

static int no_memory(void)
{
	fputs("gpucoll-info: there is not enough memory to choose\n", stderr);
	return 1;
}

/* All that can do it, one in a line. */
static int print_all(FILE *out, struct algo_table *table, uint64_t bytes)
{
	struct algo_choice choices[MOST_SHOWN];
	int num = algo_table_rank(table, bytes, &anything, choices, MOST_SHOWN);

	for (int i = 0; i < num && i < MOST_SHOWN; i++) {
		print_choice(out, &choices[i]);
		fputs("\n", out);
	}
	return num < 0 ? no_memory() : 0;
}

/* The best three for each size. */
static int print_sizes(FILE *out, struct algo_table *table)
{
	enum { SHOWN = 3 };

	fprintf(out, "%12s %-26s %11s %-26s %11s %-26s %11s\n", "bytes", "best", "us", "second",
		"us", "third", "us");
	for (uint64_t bytes = 8; bytes <= UINT64_C(1) << 30; bytes *= 2) {
		struct algo_choice choices[SHOWN];
		int num = algo_table_rank(table, bytes, &anything, choices, SHOWN);

		if (num < 0)
			return no_memory();
		fprintf(out, "%12" PRIu64, bytes);
		for (int i = 0; i < num && i < SHOWN; i++)
			print_choice(out, &choices[i]);
		fputs("\n", out);
	}
	return 0;
}

/* As core_choice.c has them. */
static uint32_t protos_of(const struct info_call *call)
{
	const struct sched_request *request = &call->request;
	uint32_t protos = 1 << SCHED_SIMPLE;

	if (call->exec != INFO_FUSED)
		return protos;
	if (request->num_nodes < 2)
		return protos | 1 << SCHED_LL | 1 << SCHED_LL128;
	return request->num_nodes < request->ranks ? protos | 1 << SCHED_LL : protos;
}

static int print(FILE *out, const struct info_call *call, const struct core_samples *cluster,
		 bool mapped, bool one_size)
{
	const struct sched_fabric *fabric = cluster->parts[0].fabric;
	const struct sched_request *request = &call->request;
	int sharers = sched_fabric_fullest(fabric);
	size_t arena = core_arena_layout_bytes(util_config.scratch, sharers);
	struct algo_setting setting = {
		.room = core_arena_layout_for(arena, call->sockets, call->exec == INFO_GDR),
		.most_links = GPU_MAX_LINKS,
		.most_lanes = GPU_MAX_LANES,
		.most_operands = GPU_MAX_OPERANDS,
		.most_places = GPU_MAX_PLACES,
		.mapped = mapped && request->num_nodes < 2,
		.nodes_mapped = mapped,
		.gdr = call->exec == INFO_GDR,
		.fused = call->exec == INFO_FUSED,
		.protos = protos_of(call),
		.lines = SCHED_LINES_WHOLE,
		.resident = core_arena_layout_resident(fabric->costs.blocks * sharers, sharers)};
	struct algo_table *table;
	int result;

	core_samples_set(cluster, &setting);
	table = algo_table_new(request, &setting);
	if (!table)
		return no_memory();
	result = one_size ? print_all(out, table, call->bytes) : print_sizes(out, table);
	algo_table_free(table);
	return result;
}

static void print_exception(FILE *out, const struct sched_request *request)
{
	size_t most = util_config.eager_max / (size_t)request->ranks;

	if (request->num_nodes > 1 && request->ranks < GPU_MAX_OPERANDS && most)
		fprintf(out,
			"(where no rank's input has more than %zu bytes calls go another way, see "
			"GPUCOLL_EAGER_MAX)\n",
			most);
}

int info_print_choices(FILE *out, const struct info_call *call, const struct topo_machine *machine,
		       bool one_size)
{
	struct info_call mine = *call;
	struct core_samples cluster = {.num_parts = 0};
	int result;

	if (!make_cluster(&mine.request, machine, call->sockets, &cluster)) {
		core_samples_free(&cluster);
		return no_memory();
	}
	fprintf(out, "\nPredicted times on %s, %d ranks on %d GPUs:\n",
		machine && machine->name ? machine->name : "this machine", call->request.ranks,
		cluster.parts[0].fabric->num_sites);
	print_exception(out, &mine.request);
	result = print(out, &mine, &cluster, is_mapped(&mine.request, machine), one_size);
	core_samples_free(&cluster);
	return result;
}
