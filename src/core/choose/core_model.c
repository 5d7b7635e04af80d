/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/choose/core_model.h"
#include "net/net_port.h"
#include "topo/topo_way.h"

#include <stdlib.h>

static const double bytes_per_us = 1e3; /* of a GB/s */
static const double carried = 0.8;      /* of a link's rate, by data, in practice */
static const double read_well = 0.85;   /* of a memory's */
/* GB/s of what is not known: PCI Express 3, and a network of 100 Gbit/s. */
static const double unknown_way = 12, unknown_net = 12.5;
static const double unknown_latency = 1.5, net_latency = 4; /* us */
/* By sockets: us, and GB/s that a process moves. */
static const double socket_latency = 10, socket_rate = 3, socket_message = 6;
/*
 * Loads over PCI Express are answered, in parts, where stores are just sent: an estimate, 20 of 25
 * GB/s on PCI Express 4. NCCL loads over NVLinks only (src/graph/paths.cc, ncclTopoCheckP2p).
 */
static const double pcie_read_more = 0.25;
static const double own_latency = 0.7; /* of a message between ranks on one GPU */

/*
 * By compute capability: the memory's rate, GB/s, and the multiprocessors, of the usual one in
 * servers; NVIDIA's data sheets of V100, T4, A100 40 GB, A10, L40, H100 SXM, B200, and RTX 5090.
 */
static const struct generation {
	int cc;
	double memory;
	int multiprocessors;
} generations[] = {
	{120, 1792, 170}, {100, 8000, 148}, {90, 3350, 132}, {89, 864, 142}, {86, 600, 72},
	{80, 1555, 108},  {75, 320, 40},    {70, 900, 80},   {0, 900, 80},
};

/*
 * us; see sched_time.h. The first three and a step were measured on an H100 and an H200
 * (bench/results), the others are orders of magnitude.
 */
static const struct sched_costs usual_costs = {
	.call = 6.5,
	.launch = 10,
	.meet = 0.5,
	.tell = 0.3,
	.post = 0.3,
	.step = 3,
	.fence = 1,
	.fetched = NET_LONG,
	.line = 0.3, /* of the way from LL to Simple as much as in NCCL's table of latencies */
	.block_rate = 15000,
};

/* A GPU with ranks. */
struct site {
	struct core_seat seat;
	int ranks;
	int up, down; /* its own ways */
	int last;     /* the node's site before it; -1: there is none */
};

struct maker {
	struct sched_fabric *fabric;
	int num_nodes;
	bool sockets;
	const struct topo_machine *const *machines;
	int *bases; /* of each node: its machine's first way; its network's is behind these */
	int *last;  /* of each node: its last site so far */
	struct site *sites;
	bool failed;
};

/* ---- sites ---- */

static bool is_one_site(const struct core_seat *a, const struct core_seat *b)
{
	if (a->node != b->node || a->gpu != b->gpu)
		return false;
	return a->gpu >= 0 || a->device == b->device;
}

static int site_of(struct maker *m, const struct core_seat *seat)
{
	struct sched_fabric *fabric = m->fabric;
	int i = m->last[seat->node];

	while (i >= 0 && !is_one_site(&m->sites[i].seat, seat))
		i = m->sites[i].last;
	if (i < 0) {
		i = fabric->num_sites++;
		m->sites[i].seat = *seat;
		m->sites[i].last = m->last[seat->node];
		m->last[seat->node] = i;
		fabric->homes[i].node = seat->node;
		fabric->homes[i].number = fabric->nodes[seat->node].num++;
	}
	m->sites[i].ranks++;
	return i;
}

static const struct topo_machine *machine_of(const struct maker *m, const struct site *site)
{
	return m->machines[site->seat.node];
}

static int cc_of(const struct maker *m, const struct site *site)
{
	return site->seat.gpu < 0 ? 0 : machine_of(m, site)->objects[site->seat.gpu].cc;
}

static const struct generation *generation_of(int cc)
{
	const struct generation *g = generations;

	while (g->cc > cc)
		g++;
	return g;
}

/*
 * ---- ways: the sites' memories; of each node its machine's, then one each way for each NIC or for
 * one that is not known; of each GPU that is not known two ----
 */

static int num_nics(const struct topo_machine *machine)
{
	int num = 0;

	while (machine && topo_machine_nth(machine, TOPO_NIC, num) >= 0)
		num++;
	return num;
}

static void number_ways(struct maker *m)
{
	int ways = m->fabric->num_sites;

	for (int i = 0; i < m->num_nodes; i++) {
		int nics = num_nics(m->machines[i]);

		m->bases[i] = ways;
		ways += m->machines[i] ? topo_way_count(m->machines[i]) : 0;
		ways += 2 * (nics ? nics : 1);
	}
	for (int i = 0; i < m->fabric->num_sites; i++) {
		struct site *site = &m->sites[i];
		int base = m->bases[site->seat.node];

		site->up = site->seat.gpu < 0 ? ways++ : base + topo_way_up(site->seat.gpu);
		site->down = site->seat.gpu < 0 ? ways++ : base + topo_way_down(site->seat.gpu);
	}
	m->fabric->num_ways = ways;
}

static void set_rates_of_node(struct maker *m, int node)
{
	const struct topo_machine *machine = m->machines[node];
	double *rates = &m->fabric->rates[m->bases[node]];
	int ways = machine ? topo_way_count(machine) : 0;
	int nics = num_nics(machine);

	if (machine)
		topo_way_rates(machine, rates);
	for (int i = 0; i < ways; i++)
		rates[i] *= carried;
	for (int i = 0; i < (nics ? nics : 1); i++) {
		double net =
			nics ? machine->objects[topo_machine_nth(machine, TOPO_NIC, i)].net : 0;

		net = net > 0 ? net : unknown_net;
		rates[ways + 2 * i] = rates[ways + 2 * i + 1] = net * carried;
	}
}

static bool set_rates(struct maker *m)
{
	struct sched_fabric *fabric = m->fabric;

	fabric->rates = malloc((size_t)fabric->num_ways * sizeof(*fabric->rates));
	if (!fabric->rates)
		return false;
	for (int i = 0; i < fabric->num_ways; i++)
		fabric->rates[i] = unknown_way * carried;
	for (int i = 0; i < fabric->num_sites; i++)
		fabric->rates[i] = generation_of(cc_of(m, &m->sites[i]))->memory * read_well;
	for (int i = 0; i < m->num_nodes; i++)
		set_rates_of_node(m, i);
	for (int i = 0; i < fabric->num_ways; i++)
		fabric->rates[i] *= bytes_per_us;
	return true;
}

/* Which of a machine's NICs it is. */
static int number_of_nic(const struct topo_machine *machine, int nic)
{
	int number = 0;

	while (nic >= 0 && topo_machine_nth(machine, TOPO_NIC, number) != nic)
		number++;
	return nic < 0 ? 0 : number;
}

static void choose_nics(struct maker *m)
{
	for (int i = 0; i < m->fabric->num_sites; i++) {
		const struct site *site = &m->sites[i];
		const struct topo_machine *machine = machine_of(m, site);
		struct sched_home *home = &m->fabric->homes[i];
		int nic = 0;

		if (machine && site->seat.gpu >= 0)
			nic = number_of_nic(machine, topo_path_nic_of(machine, site->seat.gpu));
		home->out = m->bases[home->node] + 2 * nic;
		home->out += machine ? topo_way_count(machine) : 0;
		home->in = home->out + 1;
	}
}

/* ---- routes ---- */

static void set_legs(struct maker *m, struct sched_route *route, int num, double latency)
{
	route->latency = latency;
	route->num = num;
	route->legs = calloc((size_t)num + 1, sizeof(*route->legs));
	m->failed |= !route->legs;
}

static void set_two(struct maker *m, struct sched_route *route, int a, int b, double latency)
{
	set_legs(m, route, 2, latency);
	if (!route->legs)
		return;
	route->legs[0] = (struct sched_leg){a, 1};
	route->legs[1] = (struct sched_leg){b, 1};
}

/*
 * GPUs of which it is known that lines arrive whole over their NVLinks: those on which NCCL takes
 * LL128 by itself; it warns of others.
 */
static bool has_lines(int cc)
{
	return cc == 70 || cc == 80 || cc == 90 || cc == 100 || cc == 120;
}

static enum sched_lines lines_of_links(const struct maker *m, const struct site *from,
				       const struct site *to)
{
	int cc = cc_of(m, from);

	if (!has_lines(cc) || cc != cc_of(m, to))
		return SCHED_LINES_CUT;
	if (topo_machine_find(machine_of(m, from), TOPO_HIDDEN_SWITCH) >= 0)
		return SCHED_LINES_UNSURE;
	return SCHED_LINES_WHOLE;
}

static void set_hop(struct maker *m, struct sched_route *route, const struct site *from,
		    const struct site *to)
{
	struct topo_hop hop;

	if (!topo_way_hop(machine_of(m, from), from->seat.gpu, to->seat.gpu, &hop)) {
		m->failed = true;
		return;
	}
	if (hop.path.class == TOPO_NVL)
		route->lines = lines_of_links(m, from, to);
	else
		route->read_more = pcie_read_more;
	set_legs(m, route, hop.num, hop.path.latency);
	for (int i = 0; route->legs && i < hop.num; i++)
		route->legs[i] = (struct sched_leg){m->bases[from->seat.node] + hop.parts[i].way,
						    hop.parts[i].share};
	topo_way_free(&hop);
}

static void set_unknown(struct maker *m, struct sched_route *route, const struct site *from,
			const struct site *to)
{
	route->read_more = pcie_read_more;
	set_two(m, route, from->up, to->down, unknown_latency);
}

static void set_route(struct maker *m, struct sched_route *route, const struct site *from,
		      const struct site *to)
{
	if (from == to && (has_lines(cc_of(m, from)) || !cc_of(m, from)))
		route->lines = SCHED_LINES_UNSURE; /* NCCL has no LL128 inside a GPU */
	if (from == to)
		set_legs(m, route, 0, own_latency);
	else if (from->seat.gpu >= 0 && to->seat.gpu >= 0)
		set_hop(m, route, from, to);
	else
		set_unknown(m, route, from, to);
}

static void set_host(struct maker *m, struct sched_route *route, int way)
{
	set_legs(m, route, 1, unknown_latency);
	if (route->legs)
		route->legs[0] = (struct sched_leg){way, 1};
}

static bool set_routes(struct maker *m)
{
	struct sched_fabric *fabric = m->fabric;

	for (int i = 0; i < m->num_nodes; i++) {
		fabric->nodes[i].first = fabric->num_routes;
		fabric->num_routes += (size_t)fabric->nodes[i].num * (size_t)fabric->nodes[i].num;
	}
	fabric->routes = calloc(fabric->num_routes, sizeof(*fabric->routes));
	if (!fabric->routes)
		return false;
	for (int i = 0; i < fabric->num_sites; i++) {
		struct sched_home *home = &fabric->homes[i];

		for (int j = m->last[home->node]; j >= 0; j = m->sites[j].last)
			set_route(m, &fabric->routes[sched_fabric_route(fabric, i, j)],
				  &m->sites[i], &m->sites[j]);
		set_host(m, &home->to_host, m->sites[i].up);
		set_host(m, &home->from_host, m->sites[i].down);
	}
	return !m->failed;
}

/* ---- all ---- */

/* Those of the GPU that has least for each of its ranks. */
static void set_costs(struct maker *m)
{
	struct sched_costs *costs = &m->fabric->costs;

	*costs = usual_costs;
	for (int i = 0; i < m->fabric->num_sites; i++) {
		const struct site *site = &m->sites[i];
		int blocks = generation_of(cc_of(m, site))->multiprocessors / site->ranks;

		blocks = blocks ? blocks : 1;
		costs->blocks = i && costs->blocks < blocks ? costs->blocks : blocks;
	}
	if (!m->sockets)
		return;
	costs->post = costs->take = socket_message;
	costs->carry = 1 / (socket_rate * bytes_per_us);
	costs->fetched = 0; /* core_wire.h */
}

static bool make_model(struct maker *m, const struct core_seat *seats)
{
	if (!m->fabric->sites || !m->fabric->homes || !m->fabric->nodes || !m->bases || !m->last ||
	    !m->sites)
		return false;
	for (int i = 0; i < m->num_nodes; i++)
		m->last[i] = -1;
	for (int i = 0; i < m->fabric->ranks; i++)
		m->fabric->sites[i] = site_of(m, &seats[i]);
	number_ways(m);
	choose_nics(m);
	set_costs(m);
	return set_rates(m) && set_routes(m);
}

bool core_model_make(int ranks, const struct core_seat *seats, int num_nodes,
		     const struct topo_machine *const *machines, bool sockets,
		     struct sched_fabric *fabric)
{
	struct maker m = {
		.fabric = fabric, .num_nodes = num_nodes, .sockets = sockets, .machines = machines};
	bool made;

	*fabric = (struct sched_fabric){.ranks = ranks,
					.num_nodes = num_nodes,
					.net_latency = sockets ? socket_latency : net_latency};
	fabric->sites = calloc((size_t)ranks, sizeof(*fabric->sites));
	fabric->homes = calloc((size_t)ranks, sizeof(*fabric->homes));
	fabric->nodes = calloc((size_t)num_nodes, sizeof(*fabric->nodes));
	m.last = calloc((size_t)num_nodes, sizeof(*m.last));
	m.bases = calloc((size_t)num_nodes, sizeof(*m.bases));
	m.sites = calloc((size_t)ranks, sizeof(*m.sites));
	made = make_model(&m, seats);
	free(m.bases);
	free(m.last);
	free(m.sites);
	if (!made)
		sched_fabric_free(fabric);
	return made;
}
