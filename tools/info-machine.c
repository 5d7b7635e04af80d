/* SPDX-License-Identifier: BSD-3-Clause */
#include "info-machine.h"
#include "gpu/gpu_driver.h"
#include "topo/topo_hwloc.h"
#include "topo/topo_nvml.h"
#include "topo/topo_path.h"
#include "topo/topo_ring.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ---- paths ---- */

/* What paths are between, in this order. */
static const enum topo_kind ends[] = {TOPO_GPU, TOPO_NIC};

static bool is_end(const struct topo_machine *machine, int object)
{
	enum topo_kind kind = machine->objects[object].kind;

	return kind == ends[0] || kind == ends[1];
}

static int widest_name(const struct topo_machine *machine)
{
	int widest = 4;

	for (int i = 0; i < machine->num_objects; i++) {
		int width = (int)strlen(machine->objects[i].name);

		if (is_end(machine, i) && width > widest)
			widest = width;
	}
	return widest;
}

static void print_class(FILE *out, const struct topo_path *path, int width)
{
	fprintf(out, "  %*s", width, path->class == TOPO_LOC ? "X" : topo_class_name(path->class));
}

static void print_rate(FILE *out, const struct topo_path *path, int width)
{
	if (path->class == TOPO_LOC)
		fprintf(out, "  %*s", width, "X");
	else if (path->rate > 0)
		fprintf(out, "  %*.4g", width, path->rate);
	else
		fprintf(out, "  %*s", width, "?");
}

static void print_row(FILE *out, const struct topo_machine *machine, int object, int width,
		      void (*print)(FILE *out, const struct topo_path *path, int width))
{
	fprintf(out, "# %-*s", width, object < 0 ? "" : machine->objects[object].name);
	for (int i = 0; i < 2; i++) {
		for (int j = 0, to; (to = topo_machine_nth(machine, ends[i], j)) >= 0; j++) {
			struct topo_path path = {0};

			if (object < 0) {
				fprintf(out, "  %*s", width, machine->objects[to].name);
				continue;
			}
			path = topo_path_between(machine, object, to);
			print(out, &path, width);
		}
	}
	fputs("\n", out);
}

static void print_matrix(FILE *out, const struct topo_machine *machine, const char *title,
			 void (*print)(FILE *out, const struct topo_path *path, int width))
{
	int width = widest_name(machine);

	fprintf(out, "#\n# %s\n", title);
	print_row(out, machine, -1, width, NULL);
	for (int i = 0; i < 2; i++) {
		for (int j = 0, from; (from = topo_machine_nth(machine, ends[i], j)) >= 0; j++)
			print_row(out, machine, from, width, print);
	}
}

static void print_nics(FILE *out, const struct topo_machine *machine)
{
	fputs("#\n# The NIC that is best for each GPU:\n", out);
	for (int i = 0, gpu; (gpu = topo_machine_nth(machine, TOPO_GPU, i)) >= 0; i++) {
		int nic = topo_path_nic_of(machine, gpu);

		fprintf(out, "# %s %s\n", machine->objects[gpu].name, machine->objects[nic].name);
	}
}

static void print_rings(FILE *out, const struct topo_machine *machine)
{
	static struct topo_rings rings;

	if (!topo_ring_find_all(machine, &rings) || !rings.num)
		return;
	fprintf(out, "#\n# Rings of %.4g GB/s each, the way round that they are listed:\n",
		rings.rate);
	for (int i = 0; i < rings.num; i++) {
		fputs("#", out);
		for (int j = 0; j < rings.num_gpus; j++)
			fprintf(out, " %s", machine->objects[rings.order[i][j]].name);
		fputs("\n", out);
	}
}

void info_print_machine(FILE *out, const struct topo_machine *machine)
{
	topo_machine_write(machine, out);
	if (topo_machine_nth(machine, TOPO_GPU, 0) < 0) {
		fputs("#\n# no GPUs\n", out);
		return;
	}
	print_matrix(out, machine,
		     "Paths: NVL NVLinks; PIX one PCI switch at most; PXB several; PHB host "
		     "bridges of one NUMA node; SYS between NUMA nodes",
		     print_class);
	print_matrix(out, machine, "GB/s in each direction, where it is known:", print_rate);
	if (topo_machine_nth(machine, TOPO_NIC, 0) >= 0)
		print_nics(out, machine);
	print_rings(out, machine);
}

/* ---- machines ---- */

static bool read_gpu(int ordinal, struct topo_gpu *gpu)
{
	int major = 0, minor = 0;
	CUdevice device;

	if (gpu_driver.cuDeviceGet(&device, ordinal) != CUDA_SUCCESS ||
	    gpu_driver.cuDeviceGetPCIBusId(gpu->bus, sizeof(gpu->bus), device) != CUDA_SUCCESS)
		return false;
	gpu_driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
					device);
	gpu_driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
					device);
	gpu->cc = major * 10 + minor;
	gpu_driver.cuDeviceGetAttribute(&gpu->copies, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT,
					device);
	return true;
}

/* Returns how many there are, in `*gpus`, which the caller frees. */
static int read_gpus(struct topo_gpu **gpus)
{
	int count = 0, num = 0;

	*gpus = NULL;
	if (!gpu_driver_load() || gpu_driver.cuInit(0) != CUDA_SUCCESS ||
	    gpu_driver.cuDeviceGetCount(&count) != CUDA_SUCCESS)
		return 0;
	*gpus = calloc((size_t)count + 1, sizeof(**gpus));
	while (*gpus && num < count && read_gpu(num, &(*gpus)[num]))
		num++;
	return num;
}

/* Those that CUDA does not let reach each other. */
static void part_gpus(struct topo_machine *machine, int num)
{
	for (int i = 0; i < num * num; i++) {
		int from = i / num, to = i % num, can = 1;
		char names[2][TOPO_NAME_BYTES];

		if (from >= to ||
		    gpu_driver.cuDeviceCanAccessPeer(&can, from, to) != CUDA_SUCCESS || can)
			continue;
		snprintf(names[0], sizeof(names[0]), "gpu%d", from);
		snprintf(names[1], sizeof(names[1]), "gpu%d", to);
		topo_machine_part(machine, topo_machine_find(machine, names[0]),
				  topo_machine_find(machine, names[1]));
	}
}

struct topo_machine *info_find_machine(void)
{
	struct topo_gpu *gpus;
	int num = read_gpus(&gpus);
	struct topo_machine *machine = topo_hwloc_find(gpus, num);

	free(gpus);
	if (!machine) {
		fputs("gpucoll-info: hwloc can't say what machine this is\n", stderr);
		return NULL;
	}
	if (topo_nvml_open()) {
		topo_nvml_add_links(machine);
		topo_nvml_close();
	}
	part_gpus(machine, num);
	return machine;
}

struct topo_machine *info_read_machine(const char *file)
{
	FILE *in = fopen(file, "r");
	struct topo_machine *machine;
	char error[512];

	if (!in) {
		fprintf(stderr, "gpucoll-info: %s: %s\n", file, strerror(errno));
		return NULL;
	}
	machine = topo_machine_read(in, file, error, sizeof(error));
	fclose(in);
	if (!machine)
		fprintf(stderr, "gpucoll-info: %s\n", error);
	return machine;
}
