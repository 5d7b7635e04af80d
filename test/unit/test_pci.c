/* SPDX-License-Identifier: BSD-3-Clause */
/* What PCI Express links and NICs carry, by folders such as sysfs has. */
#include "topo/topo_nic.h"
#include "topo/topo_pci.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char port[] = "/tmp/gpucoll-test-pci-XXXXXX";
static char device[64];

static void put(const char *folder, const char *name, const char *text)
{
	char path[256];
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

/* A file below the folder that stands for sysfs. */
static void tell(const char *path, const char *text)
{
	char folder[256];

	for (const char *end = path; (end = strchr(end, '/')); end++) {
		snprintf(folder, sizeof(folder), "%s/%.*s", port, (int)(end - path), path);
		mkdir(folder, 0700);
	}
	put(port, path, text);
}

static void nics(void **state)
{
	char text[32];

	(void)state;
	tell("infiniband/mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)\n");
	tell("infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
	tell("infiniband/mlx5_1/ports/1/rate", "10 Gb/sec (4X SDR)\n");
	tell("infiniband/mlx5_1/ports/1/state", "1: DOWN\n");
	tell("net/eth7/speed", "25000\n");
	tell("net/eth7/operstate", "up\n");
	tell("net/eth8/speed", "-1\n");
	tell("net/eth8/operstate", "down\n");
	tell("net/veth9/operstate", "unknown\n");
	is_about(topo_nic_rate(port, "mlx5_0"), 12.5);
	is_about(topo_nic_rate(port, "eth7"), 3.125);
	assert_true(topo_nic_rate(port, "eth8") == 0 && topo_nic_rate(port, "veth9") == 0);
	assert_true(topo_nic_is_down(port, "mlx5_1") && topo_nic_is_down(port, "eth8"));
	assert_false(topo_nic_is_down(port, "mlx5_0") || topo_nic_is_down(port, "eth7"));
	assert_false(topo_nic_is_down(port, "veth9") || topo_nic_is_down(port, "nothing"));
	assert_true(topo_nic_device(port, "mlx5_0", text, sizeof(text)));
	assert_string_equal(text, "mlx5_0:1");
	/* The second port is the one at work. */
	tell("infiniband/mlx5_2/ports/1/state", "1: DOWN\n");
	tell("infiniband/mlx5_2/ports/2/state", "4: ACTIVE\n");
	tell("infiniband/mlx5_2/ports/2/rate", "200 Gb/sec (4X HDR)\n");
	tell("infiniband/mlx5_2/ports/2/link_layer", "InfiniBand\n");
	tell("infiniband/mlx5_2/ports/2/gids/0", "fe80:0000:0000:0007:0c42:a103:0065:bcda\n");
	assert_false(topo_nic_is_down(port, "mlx5_2"));
	is_about(topo_nic_rate(port, "mlx5_2"), 25);
	assert_true(topo_nic_device(port, "mlx5_2", text, sizeof(text)));
	assert_string_equal(text, "mlx5_2:2");
	assert_true(topo_nic_network(port, "mlx5_2", text, sizeof(text)));
	assert_string_equal(text, "ib fe80:0000:0000:0007");
	/* Over Ethernet it is the interface's. */
	tell("infiniband/mlx5_0/ports/1/link_layer", "Ethernet\n");
	assert_false(topo_nic_network(port, "mlx5_0", text, sizeof(text)));
	tell("infiniband/mlx5_0/device/net/lo/operstate", "unknown\n");
	assert_true(topo_nic_network(port, "mlx5_0", text, sizeof(text)));
	assert_string_equal(text, "ip 127.0.0.0/8");
	assert_true(topo_nic_network(port, "lo", text, sizeof(text)));
	assert_string_equal(text, "ip 127.0.0.0/8");
	assert_false(topo_nic_network(port, "nothing", text, sizeof(text)));
	/* The kernel has no such interface. */
	assert_false(topo_nic_device(port, "eth7 ", text, sizeof(text)));
	assert_false(topo_nic_device(port, "mlx5_0", text, 8));
}

static int make_folders(void **state)
{
	(void)state;
	if (!mkdtemp(port))
		return -1;
	snprintf(device, sizeof(device), "%s/0000:01:00.0", port);
	return mkdir(device, 0700);
}

static int remove_entry(const char *path, const struct stat *stat, int type, struct FTW *place)
{
	(void)stat;
	(void)type;
	(void)place;
	return remove(path);
}

static int remove_folders(void **state)
{
	(void)state;
	return nftw(port, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(rates), cmocka_unit_test(nics)};

	return cmocka_run_group_tests(tests, make_folders, remove_folders);
}
