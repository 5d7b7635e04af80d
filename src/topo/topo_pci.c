/* SPDX-License-Identifier: BSD-3-Clause */
#include "topo/topo_pci.h"

#include <limits.h>
#include <stdio.h>

/* The number that the file begins with; 0: there is none. */
static double read_number(const char *folder, const char *name)
{
	char path[PATH_MAX];
	double number = 0;
	FILE *in;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	in = fopen(path, "r");
	if (!in)
		return 0;
	if (fscanf(in, "%lf", &number) != 1 || !(number > 0 && number < 1e6))
		number = 0;
	fclose(in);
	return number;
}

static double less_of(double a, double b)
{
	return b > 0 && b < a ? b : a;
}

double topo_pci_rate(const char *folder)
{
	char port[PATH_MAX];
	double speed = read_number(folder, "max_link_speed"); /* GT/s */
	double width = read_number(folder, "max_link_width");

	if (snprintf(port, sizeof(port), "%s/..", folder) >= (int)sizeof(port))
		return 0;
	speed = less_of(speed, read_number(port, "max_link_speed"));
	width = less_of(width, read_number(port, "max_link_width"));
	/* Of each ten bits eight are data; from PCI Express 3 on, of 130 bits 128. */
	return speed * width / 8 * (speed < 8 ? 8.0 / 10 : 128.0 / 130);
}
