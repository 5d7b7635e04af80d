/* SPDX-License-Identifier: BSD-3-Clause */
/* What PCI Express links carry, by folders such as sysfs has. */
#include "topo/topo_pci.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char port[] = "/tmp/gpucoll-test-pci-XXXXXX";
static char device[64];

static void put(const char *folder, const char *name, const char *text)
{
	char path[128];
	FILE *out;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	if (!text) {
		unlink(path);
		return;
	}
	out = fopen(path, "w");
	assert_non_null(out);
	fputs(text, out);
	fclose(out);
}

static double rate(const char *speed, const char *width, const char *above, const char *wide)
{
	put(device, "max_link_speed", speed);
	put(device, "max_link_width", width);
	put(port, "max_link_speed", above);
	put(port, "max_link_width", wide);
	return topo_pci_rate(device);
}

static void is_about(double value, double wanted)
{
	if (value < 0.999 * wanted || value > 1.001 * wanted)
		fail_msg("%g, and not %g GB/s", value, wanted);
}

static void rates(void **state)
{
	(void)state;
	is_about(rate("16.0 GT/s PCIe\n", "16\n", "16.0 GT/s PCIe\n", "16\n"), 31.508);
	is_about(rate("8.0 GT/s\n", "16\n", "8.0 GT/s\n", "16\n"), 15.754);
	is_about(rate("5.0 GT/s\n", "8\n", "8.0 GT/s\n", "8\n"), 4);
	/* The port is narrower, or slower, or does not say. */
	is_about(rate("16.0 GT/s PCIe\n", "16\n", "16.0 GT/s PCIe\n", "4\n"), 7.877);
	is_about(rate("16.0 GT/s PCIe\n", "16\n", "8.0 GT/s PCIe\n", "16\n"), 15.754);
	is_about(rate("16.0 GT/s PCIe\n", "16\n", NULL, NULL), 31.508);
	is_about(rate("16.0 GT/s PCIe\n", "16\n", "Unknown\n", "0\n"), 31.508);
	/* The device does not. */
	assert_true(rate(NULL, NULL, "8.0 GT/s\n", "16\n") == 0);
	assert_true(rate("Unknown\n", "16\n", NULL, NULL) == 0);
	assert_true(rate("8.0 GT/s\n", "-1\n", NULL, NULL) == 0);
	assert_true(topo_pci_rate("/nowhere") == 0);
}

static int make_folders(void **state)
{
	(void)state;
	if (!mkdtemp(port))
		return -1;
	snprintf(device, sizeof(device), "%s/0000:01:00.0", port);
	return mkdir(device, 0700);
}

static int remove_folders(void **state)
{
	(void)state;
	rate(NULL, NULL, NULL, NULL);
	return rmdir(device) || rmdir(port) ? -1 : 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(rates)};

	return cmocka_run_group_tests(tests, make_folders, remove_folders);
}
