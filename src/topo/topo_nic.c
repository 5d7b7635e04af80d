/* SPDX-License-Identifier: BSD-3-Clause */
#include "topo/topo_nic.h"

#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The first line of the file of the first port, if verbs know the NIC, or of the network interface.
 * False: there is none. */
static bool read_line(const char *sysfs, const char *name, const char *of_port, const char *of_net,
		      char *line, int bytes)
{
	char path[PATH_MAX];
	bool found;
	FILE *in;

	snprintf(path, sizeof(path), "%s/infiniband/%s/ports/1/%s", sysfs, name, of_port);
	in = fopen(path, "r");
	if (!in) {
		snprintf(path, sizeof(path), "%s/net/%s/%s", sysfs, name, of_net);
		in = fopen(path, "r");
	}
	if (!in)
		return false;
	/* The speed of an interface that is down can't be read. */
	found = fgets(line, bytes, in) != NULL;
	fclose(in);
	return found;
}

/* "100 Gb/sec (4X EDR)" of a port, and "100000", Mbit/s, of an interface; -1 where it is down. */
double topo_nic_rate(const char *sysfs, const char *name)
{
	char line[64];
	double bits;

	if (!read_line(sysfs, name, "rate", "speed", line, sizeof(line)))
		return 0;
	bits = strtod(line, NULL) * (strstr(line, "Gb/sec") ? 1 : 1e-3);
	return bits > 0 && bits < 1e5 ? bits / 8 : 0;
}

/* "1: DOWN" to "4: ACTIVE" of a port; virtual interfaces are often "unknown". */
bool topo_nic_is_down(const char *sysfs, const char *name)
{
	char line[64];

	if (!read_line(sysfs, name, "state", "operstate", line, sizeof(line)))
		return false;
	return strchr(line, ':') ? !strstr(line, "ACTIVE") : !strncmp(line, "down", 4);
}

bool topo_nic_device(const char *sysfs, const char *name, char *text, size_t bytes)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/infiniband/%s", sysfs, name);
	if (!access(path, F_OK))
		return snprintf(text, bytes, "%s:1", name) < (int)bytes;
	/* Sysfs may be that of another network namespace. */
	return if_nametoindex(name) && snprintf(text, bytes, "%s", name) < (int)bytes;
}
