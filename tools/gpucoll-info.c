/* SPDX-License-Identifier: BSD-3-Clause */
/* gpucoll-info: the library's version, its options and the devices that it would see. */
#include "gpu/gpu_driver.h"
#include "util/util_config.h"

#include <getopt.h>
#include <stdio.h>

static void usage(FILE *out)
{
	fputs("usage: gpucoll-info [-v] [-c] [-d]\n"
	      "  -v, --version   version and build (default)\n"
	      "  -c, --config    every option with its value, where that comes from, and what it "
	      "does\n"
	      "  -d, --devices   the CUDA devices as the library sees them\n"
	      "  -h, --help      this text\n",
	      out);
}

static void print_version(void)
{
	printf("libgpucoll %s\nbuilt with CUDA %d.%d headers, %s\n", GPUCOLL_VERSION_STRING,
	       CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10, __VERSION__);
}

static int check(CUresult result, const char *call)
{
	if (result != CUDA_SUCCESS)
		gpu_driver_error(result, call);
	return result == CUDA_SUCCESS;
}

static void print_device(int ordinal)
{
	char name[256] = "?", bus[32] = "?";
	int major = 0, minor = 0, sms = 0;
	size_t bytes = 0;
	CUdevice device;

	if (!check(gpu_driver.cuDeviceGet(&device, ordinal), "cuDeviceGet"))
		return;
	gpu_driver.cuDeviceGetName(name, sizeof(name), device);
	gpu_driver.cuDeviceGetPCIBusId(bus, sizeof(bus), device);
	gpu_driver.cuDeviceTotalMem(&bytes, device);
	gpu_driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
					device);
	gpu_driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
					device);
	gpu_driver.cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
	printf("device %d: %s, PCI %s, compute capability %d.%d, %d multiprocessors, %.1f GiB\n",
	       ordinal, name, bus, major, minor, sms, (double)bytes / (1 << 30));
}

static int print_devices(void)
{
	int version = 0, count = 0;

	if (!gpu_driver_load()) {
		printf("no CUDA driver: libcuda.so.1 is not on the loader's path\n");
		return 1;
	}
	gpu_driver.cuDriverGetVersion(&version);
	printf("CUDA driver for CUDA %d.%d\n", version / 1000, version % 1000 / 10);
	if (!check(gpu_driver.cuInit(0), "cuInit") ||
	    !check(gpu_driver.cuDeviceGetCount(&count), "cuDeviceGetCount"))
		return 1;
	for (int i = 0; i < count; i++)
		print_device(i);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option long_options[] = {
		{"version", no_argument, NULL, 'v'},
		{"config", no_argument, NULL, 'c'},
		{"devices", no_argument, NULL, 'd'},
		{"help", no_argument, NULL, 'h'},
		{"man-options", no_argument, NULL,
		 'm'}, /* for the build: the table as man page text */
		{NULL, 0, NULL, 0},
	};
	int option, result = 0, done = 0;

	util_config_load();
	while ((option = getopt_long(argc, argv, "vcdh", long_options, NULL)) != -1) {
		done = 1;
		switch (option) {
		case 'v':
			print_version();
			break;
		case 'c':
			util_config_print(stdout);
			break;
		case 'd':
			result |= print_devices();
			break;
		case 'm':
			util_config_print_man(stdout);
			break;
		case 'h':
			usage(stdout);
			break;
		default:
			usage(stderr);
			return 2;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "gpucoll-info: unexpected argument '%s'\n", argv[optind]);
		usage(stderr);
		return 2;
	}
	if (!done)
		print_version();
	return result;
}
