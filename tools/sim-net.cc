// SPDX-License-Identifier: BSD-3-Clause
#include "sim-net.h"

#include <climits>
#include <cmath>
#include <deque>
#include <simgrid/s4u.hpp>
#include <string>
#include <vector>

namespace s4u = simgrid::s4u;

// It does not see that the callbacks of s4u::ClusterCallbacks are empty unless they are set.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace
{

const double us = 1e-6; // SimGrid counts in seconds

// Of a dragonfly: NICs of a router, routers of a group, each joined with each, NICs of a group.
// There can't be more groups than routers in one, as SimGrid has the i-th of each joined with group
// i.
enum { NICS = 8, ROUTERS = 32, GROUP = NICS * ROUTERS };

struct message {
	int to, number;
	double bytes;
};

// Each NIC has an actor that sends and one that receives; one more carries out the schedule, tells
// the senders, and hears of arrivals. Actors take turns, so nothing here needs a lock.
class network
{
      public:
	explicit network(const struct sim_network *what) : what(what)
	{
		int hosts = what->nodes * what->nics;

		unsent.resize(hosts);
		bell = s4u::Semaphore::create(0);
		for (int i = 0; i < hosts; i++) {
			s4u::Host *host = s4u::Host::by_name(name(i));

			wakers.push_back(s4u::Semaphore::create(0));
			boxes.push_back(s4u::Mailbox::by_name(name(i)));
			s4u::Actor::create("sender", host, [this, i] { send_all(i); })->daemonize();
			auto receiver =
				s4u::Actor::create("receiver", host, [this, i] { receive_all(i); });
			receiver->daemonize();
			boxes[i]->set_receiver(receiver);
		}
	}

	static std::string name(int host)
	{
		return std::to_string(host);
	}

	void send(double at, int from, int to, double bytes, int number)
	{
		int host = host_of(from);

		s4u::this_actor::sleep_until(at * us);
		unsent[host].push_back({host_of(to), number, bytes});
		wakers[host]->release();
	}

	int wait(double until, double *at)
	{
		double limit = until * us - s4u::Engine::get_clock();

		// The bell has been rung for each that has arrived.
		if (!arrived.empty() || std::isinf(until))
			bell->acquire();
		else if (limit <= 0 || bell->acquire_timeout(limit))
			return SCHED_NO_MESSAGE;
		*at = s4u::Engine::get_clock() / us;
		int number = arrived.front();
		arrived.pop_front();
		return number;
	}

      private:
	// Leaves of rails join NICs of one number, so those stand next to each other; in a group of
	// a dragonfly too.
	int host_of(int site) const
	{
		int node = what->node_of_site[site], nic = what->nic_of_site[site];
		int together = what->shape == SIM_RAILS      ? what->nodes
			       : what->shape == SIM_FAT_TREE ? 1
							     : GROUP / what->nics;
		int first = node / together * together;

		if (together > what->nodes - first)
			together = what->nodes - first;
		return first * what->nics + nic * together + node - first;
	}

	// Messages that are done are let go of by and by. (Those that SimGrid calls detached stand
	// in one list, in which each is searched for.)
	void send_all(int host)
	{
		std::deque<s4u::CommPtr> underway;

		for (;;) {
			wakers[host]->acquire();
			while (!underway.empty() && underway.front()->test())
				underway.pop_front();
			message m = unsent[host].front();
			unsent[host].pop_front();
			// One without bytes would never arrive.
			underway.push_back(boxes[m.to]->put_async(
				new int(m.number), m.bytes < 1 ? 1 : (uint64_t)m.bytes));
		}
	}

	void receive_all(int host)
	{
		for (;;) {
			int *number = boxes[host]->get<int>();

			arrived.push_back(*number);
			delete number;
			bell->release();
		}
	}

	const struct sim_network *what;
	std::vector<std::deque<message>> unsent;
	std::vector<s4u::SemaphorePtr> wakers;
	std::vector<s4u::Mailbox *> boxes;
	std::deque<int> arrived;
	s4u::SemaphorePtr bell;
};

using place = std::vector<unsigned long>;

s4u::ClusterCallbacks make_hosts()
{
	return s4u::ClusterCallbacks([](s4u::NetZone *zone, const place &, unsigned long id) {
		s4u::Host *host = zone->create_host(network::name((int)id), 1e9)->seal();

		return std::make_pair(host->get_netpoint(),
				      (simgrid::kernel::routing::NetPoint *)nullptr);
	});
}

// Whole ones of a size: a platform may have more hosts than are used.
unsigned number_of(unsigned size, unsigned all)
{
	return (all + size - 1) / size;
}

// Of switches of 64 ports, half of them up.
const unsigned down = 32;

s4u::FatTreeParams fat_tree(unsigned hosts)
{
	if (hosts <= down)
		return {1, {hosts}, {1}, {1}};
	if (hosts <= down * down)
		return {2, {down, number_of(down, hosts)}, {1, down}, {1, 1}};
	return {3, {down, down, number_of(down * down, hosts)}, {1, down, down}, {1, 1, 1}};
}

unsigned links_between_groups(unsigned groups)
{
	return groups < GROUP ? GROUP / groups : 1;
}

void make_platform(const struct sim_network *what)
{
	unsigned hosts = (unsigned)what->nodes * (unsigned)what->nics;
	double rate = what->rate / us, hop = what->hop * us;
	auto policy = s4u::Link::SharingPolicy::SPLITDUPLEX;
	s4u::NetZone *zone;

	if (what->shape == SIM_DRAGONFLY) {
		unsigned groups = number_of(GROUP, hosts);
		unsigned routers = groups > 1 ? (unsigned)ROUTERS : number_of(NICS, hosts);

		zone = s4u::create_dragonfly_zone(
			"network", nullptr,
			{{groups, links_between_groups(groups)}, {1, 1}, {routers, 1}, NICS},
			make_hosts(), rate, hop, policy);
	} else {
		zone = s4u::create_fatTree_zone("network", nullptr, fat_tree(hosts), make_hosts(),
						rate, hop, policy);
	}
	zone->seal();
}

} // namespace

int sim_net_most_nics(enum sim_shape shape)
{
	return shape == SIM_DRAGONFLY ? ROUTERS * GROUP : INT_MAX;
}

double sim_net_bisection(const struct sim_network *what)
{
	unsigned hosts = (unsigned)what->nodes * (unsigned)what->nics;
	unsigned groups = number_of(GROUP, hosts);

	if (what->shape != SIM_DRAGONFLY || groups == 1)
		return hosts / 2 * what->rate;
	return groups / 2 * (groups - groups / 2) * links_between_groups(groups) * what->rate;
}

// A leaf of rails has NICs of as many nodes as it has ports, and all other rails' leaves have those
// of the same nodes, if they are filled.
int sim_net_levels(const struct sim_network *what, struct sim_level levels[SIM_MOST_LEVELS])
{
	int hosts = 1, num = 0;

	while (what->shape != SIM_DRAGONFLY && num < SIM_MOST_LEVELS) {
		hosts *= down;
		int nodes = what->shape == SIM_RAILS ? hosts : hosts / what->nics;

		if (nodes >= what->nodes || what->nodes % nodes ||
		    (what->shape == SIM_FAT_TREE && hosts % what->nics))
			break;
		levels[num++] = {nodes, SIM_LEAST_HOPS * (num + 1)};
	}
	return num;
}

void sim_net_run(const struct sim_network *what,
		 void (*run)(const struct sched_net *net, void *argument), void *argument)
{
	// As fluids: no window of TCP, no factor.
	static char program[] = "gpucoll-sim", log[] = "--log=root.thresh:error",
		    model[] = "--cfg=network/model:CM02", late[] = "--cfg=network/latency-factor:1",
		    wide[] = "--cfg=network/bandwidth-factor:1",
		    weight[] = "--cfg=network/weight-S:0", cross[] = "--cfg=network/crosstraffic:0",
		    window[] = "--cfg=network/TCP-gamma:0",
		    stack[] = "--cfg=contexts/stack-size:64",
		    guard[] = "--cfg=contexts/guard-size:0"; // or there are too many mappings
	char *words[] = {program, log,    model, late,  wide,   weight,
			 cross,   window, stack, guard, nullptr};
	int num = (int)(sizeof(words) / sizeof(words[0])) - 1;
	s4u::Engine engine(&num, words);

	make_platform(what);
	network net(what);
	struct sched_net calls = {
		&net,
		[](void *state, double at, int from, int to, double bytes, int number) {
			static_cast<network *>(state)->send(at, from, to, bytes, number);
		},
		[](void *state, double until, double *at) {
			return static_cast<network *>(state)->wait(until, at);
		}};

	s4u::Actor::create("schedule", s4u::Host::by_name(network::name(0)),
			   [&] { run(&calls, argument); });
	engine.run();
}
