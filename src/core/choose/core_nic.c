/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/choose/core_nic.h"
#include "core/job/core_machines.h"
#include "core/job/core_mpi_job.h"
#include "gpu/gpu_context.h"
#include "gpu/gpu_driver.h"
#include "topo/topo_nic.h"
#include "topo/topo_path.h"
#include "util/util_hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/*
 * The GPU of a number in the order of their PCI addresses, in which NVML has them; so does CUDA
 * where they are alike, or CUDA_DEVICE_ORDER says so.
 */
static int gpu_of_number(const struct topo_machine *machine, int number)
{
	char name[TOPO_NAME_BYTES];

	snprintf(name, sizeof(name), "gpu%d", number);
	return topo_machine_find(machine, name);
}

/* The `which`-th, round and round, of a list such as "0,2,3". -1: it has other names, or none. */
static int number_in(const char *list, int which)
{
	int numbers[64], num = 0;
	const char *at = list;
	char *end;

	while (num < (int)(sizeof(numbers) / sizeof(numbers[0]))) {
		long number = strtol(at, &end, 10);

		if (end == at || number < 0 || number > 1000)
			return -1;
		numbers[num++] = (int)number;
		if (*end != ',')
			break;
		at = end + 1;
	}
	return *end ? -1 : numbers[which % num];
}

/* The one whose context is current, or else the one by number of those that may be seen. */
static int likely_gpu(const struct topo_machine *machine)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	struct gpu_pointer where;
	unsigned long long id;
	int gpus = 0, number;

	if (gpu_driver_present() && gpu_context_current(&where, &id))
		return core_machines_gpu(machine, gpu_device_identity(where.device));
	if (visible) {
		number = number_in(visible, core_mpi_job.local_rank);
		return number < 0 ? -1 : gpu_of_number(machine, number);
	}
	while (topo_machine_nth(machine, TOPO_GPU, gpus) >= 0)
		gpus++;
	return gpus ? topo_machine_nth(machine, TOPO_GPU, core_mpi_job.local_rank % gpus) : -1;
}

/*
 * The NIC of the GPU, as the node's machine calls it; NULL: it is not known, or there is but one.
 */
static const char *nearest_nic(void)
{
	const struct topo_machine *machine = core_machines_of(core_mpi_job.node);
	int gpu, nic;

	if (!machine || topo_machine_nth(machine, TOPO_NIC, 1) < 0)
		return NULL;
	gpu = likely_gpu(machine);
	nic = gpu < 0 ? -1 : topo_path_nic_of(machine, gpu);
	return nic < 0 ? NULL : machine->objects[nic].name;
}

/* Of a network namespace of a machine. */
static uint64_t network_identity(void)
{
	uint64_t identity[] = {core_mpi_node_machine(core_mpi_job.node), 0};
	struct stat status;

	if (!stat("/proc/self/ns/net", &status))
		identity[1] = (uint64_t)status.st_ino;
	return util_hash(UTIL_HASH_START, identity, sizeof(identity));
}

bool core_nic_interface(bool loopback, char *text, size_t bytes)
{
	if (loopback && core_mpi_job_same(network_identity()))
		return snprintf(text, bytes, "lo") < (int)bytes;
	return topo_nic_interface(TOPO_SYSFS, text, bytes);
}

bool core_nic_choose(char *text, size_t bytes)
{
	const char *nic = nearest_nic();
	char network[64] = "";
	uint64_t hash = 0;

	if (nic && !topo_nic_is_down(TOPO_SYSFS, nic) &&
	    topo_nic_device(TOPO_SYSFS, nic, text, bytes) &&
	    topo_nic_network(TOPO_SYSFS, nic, network, sizeof(network)))
		hash = util_hash_text(UTIL_HASH_START, network);
	return core_mpi_job_same(hash) && hash;
}
