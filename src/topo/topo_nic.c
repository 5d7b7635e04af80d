/* SPDX-License-Identifier: BSD-3-Clause */
#include "topo/topo_nic.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_PORTS = 8 };

/*
 * The first line of a file. False: there is none; the speed of an interface that is down can't be
 * read.
 */
static bool read_line(const char *path, char *line, int bytes)
{
	FILE *in = fopen(path, "r");
	bool found;

	if (!in)
		return false;
	found = fgets(line, bytes, in) != NULL;
	fclose(in);
	line[strcspn(line, "\n")] = '\0';
	return found;
}

/* Of a port, if verbs know the NIC. */
static bool read_port(const char *sysfs, const char *name, int port, const char *what, char *line,
		      int bytes)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/infiniband/%s/ports/%d/%s", sysfs, name, port, what);
	return read_line(path, line, bytes);
}

static bool read_interface(const char *sysfs, const char *name, const char *what, char *line,
			   int bytes)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/net/%s/%s", sysfs, name, what);
	return read_line(path, line, bytes);
}

/*
 * The port that is at work, or else the first one. "4: ACTIVE" is its state. 0: verbs do not know
 * the NIC.
 */
static int find_port(const char *sysfs, const char *name, bool *active)
{
	char state[64];
	int first = 0;

	*active = false;
	for (int port = 1; port <= MOST_PORTS && !*active; port++) {
		if (!read_port(sysfs, name, port, "state", state, sizeof(state)))
			continue;
		*active = strstr(state, "ACTIVE");
		if (!first || *active)
			first = port;
	}
	return first;
}

/* "100 Gb/sec (4X EDR)" of a port, and "100000", Mbit/s, of an interface; -1 where it is down. */
double topo_nic_rate(const char *sysfs, const char *name)
{
	char line[64];
	bool active;
	int port = find_port(sysfs, name, &active);
	double bits = 0;

	if (port && read_port(sysfs, name, port, "rate", line, sizeof(line)))
		bits = strtod(line, NULL);
	else if (!port && read_interface(sysfs, name, "speed", line, sizeof(line)))
		bits = 1e-3 * strtod(line, NULL);
	return bits > 0 && bits < 1e5 ? bits / 8 : 0;
}

/* Virtual interfaces are often "unknown". */
bool topo_nic_is_down(const char *sysfs, const char *name)
{
	char line[64];
	bool active;

	if (find_port(sysfs, name, &active))
		return !active;
	return read_interface(sysfs, name, "operstate", line, sizeof(line)) &&
	       !strcmp(line, "down");
}

bool topo_nic_device(const char *sysfs, const char *name, char *text, size_t bytes)
{
	bool active;
	int port = find_port(sysfs, name, &active);

	if (port)
		return snprintf(text, bytes, "%s:%d", name, port) < (int)bytes;
	/* Sysfs may be that of another network namespace. */
	return if_nametoindex(name) && snprintf(text, bytes, "%s", name) < (int)bytes;
}

static bool network_of_interface(const char *name, char *text, size_t bytes)
{
	char address[INET_ADDRSTRLEN] = "";
	struct ifaddrs *all, *one;
	int bits = 0;

	if (getifaddrs(&all))
		return false;
	for (one = all; one; one = one->ifa_next) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)one->ifa_addr;
		const struct sockaddr_in *mask = (const struct sockaddr_in *)one->ifa_netmask;
		struct in_addr network;

		if (strcmp(one->ifa_name, name) || !in || in->sin_family != AF_INET || !mask)
			continue;
		network.s_addr = in->sin_addr.s_addr & mask->sin_addr.s_addr;
		inet_ntop(AF_INET, &network, address, sizeof(address));
		bits = __builtin_popcount(mask->sin_addr.s_addr);
		break;
	}
	freeifaddrs(all);
	return *address && snprintf(text, bytes, "ip %s/%d", address, bits) < (int)bytes;
}

/*
 * The network interface of a device that does RDMA over Ethernet. False: there is none, or there
 * are several, and it is not known whose the port is.
 */
static bool interface_of(const char *sysfs, const char *name, char *text, size_t bytes)
{
	char path[PATH_MAX];
	struct dirent *entry;
	int found = 0;
	DIR *folder;

	snprintf(path, sizeof(path), "%s/infiniband/%s/device/net", sysfs, name);
	folder = opendir(path);
	while (folder && (entry = readdir(folder))) {
		if (*entry->d_name == '.')
			continue;
		found++;
		snprintf(text, bytes, "%s", entry->d_name);
	}
	if (folder)
		closedir(folder);
	return found == 1;
}

bool topo_nic_network(const char *sysfs, const char *name, char *text, size_t bytes)
{
	enum { PREFIX = 19 }; /* characters of an address: fe80:0000:0000:0000 */
	char line[64], interface[NAME_MAX + 1];
	bool active;
	int port = find_port(sysfs, name, &active);

	if (!port)
		return network_of_interface(name, text, bytes);
	if (!read_port(sysfs, name, port, "link_layer", line, sizeof(line)))
		return false;
	if (strcmp(line, "InfiniBand"))
		return interface_of(sysfs, name, interface, sizeof(interface)) &&
		       network_of_interface(interface, text, bytes);
	return read_port(sysfs, name, port, "gids/0", line, sizeof(line)) &&
	       snprintf(text, bytes, "ib %.*s", PREFIX, line) < (int)bytes;
}

static bool has_folder(const char *sysfs, const char *name, const char *what)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/net/%s/%s", sysfs, name, what);
	return !access(path, F_OK);
}

static bool has_default_route(const char *name)
{
	char line[256], interface[64], destination[16];
	FILE *in = fopen("/proc/net/route", "r");
	bool found = false;

	while (in && !found && fgets(line, sizeof(line), in))
		found = sscanf(line, "%63s %15s", interface, destination) == 2 &&
			!strcmp(interface, name) && !strcmp(destination, "00000000");
	if (in)
		fclose(in);
	return found;
}

/* Rates are below 1e5. */
static double worth(const char *sysfs, const char *name)
{
	bool inner = has_folder(sysfs, name, "bridge") || has_folder(sysfs, name, "tun_flags");

	return (inner ? 1 : 1e6) + topo_nic_rate(sysfs, name) +
	       (has_default_route(name) ? 1e-6 : 0);
}

static bool is_usable(const struct ifaddrs *one)
{
	unsigned wanted = IFF_UP | IFF_RUNNING, flags = one->ifa_flags;

	return one->ifa_addr && one->ifa_addr->sa_family == AF_INET &&
	       (flags & (wanted | IFF_LOOPBACK)) == wanted;
}

bool topo_nic_interface(const char *sysfs, char *name, size_t bytes)
{
	struct ifaddrs *all;
	double best = 0;

	if (getifaddrs(&all))
		return false;
	for (struct ifaddrs *one = all; one; one = one->ifa_next) {
		double this = is_usable(one) ? worth(sysfs, one->ifa_name) : 0;

		if (this > best && snprintf(name, bytes, "%s", one->ifa_name) < (int)bytes)
			best = this;
	}
	freeifaddrs(all);
	return best > 0;
}
