/* SPDX-License-Identifier: BSD-3-Clause */
#include "topo/topo_nvml.h"
#include "util/util_bind.h"

#include <stdio.h>
#include <string.h>

/* What we need of nvml.h, which toolkits may lack; NVML keeps what has been published. */
enum {
	NVML_SUCCESS = 0,
	NVML_MOST_LINKS = 36,
	NVML_REMOTE_SWITCH = 2,
	NVML_P2P_OK = 0,
	NVML_P2P_UNKNOWN = 6
};
enum { NVML_P2P_READ, NVML_P2P_WRITE, NVML_P2P_USES };

struct nvml_pci {
	char legacy_bus[16];
	unsigned domain, bus, device, device_id, subsystem_id;
	char bus_id[32];
};

static struct {
	int (*init)(void);
	int (*shutdown)(void);
	int (*count)(unsigned *count);
	int (*device_of)(unsigned index, void **device);
	int (*pci_of)(void *device, struct nvml_pci *pci);
	int (*cc_of)(void *device, int *major, int *minor);
	int (*device_at)(const char *bus, void **device);
	int (*link_state)(void *device, unsigned link, int *active);
	int (*link_remote)(void *device, unsigned link, struct nvml_pci *pci);
	int (*link_remote_type)(void *device, unsigned link, int *type);
	int (*p2p_status)(void *a, void *b, int what, int *status); /* NULL: an old one */
} nvml;

bool topo_nvml_open(void)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);

	if (!library)
		return false;
	util_bind(library, "nvmlDeviceGetP2PStatus", &nvml.p2p_status);
	return util_bind(library, "nvmlInit_v2", &nvml.init) &&
	       util_bind(library, "nvmlShutdown", &nvml.shutdown) &&
	       util_bind(library, "nvmlDeviceGetCount_v2", &nvml.count) &&
	       util_bind(library, "nvmlDeviceGetHandleByIndex_v2", &nvml.device_of) &&
	       util_bind(library, "nvmlDeviceGetPciInfo_v3", &nvml.pci_of) &&
	       util_bind(library, "nvmlDeviceGetCudaComputeCapability", &nvml.cc_of) &&
	       util_bind(library, "nvmlDeviceGetHandleByPciBusId_v2", &nvml.device_at) &&
	       util_bind(library, "nvmlDeviceGetNvLinkState", &nvml.link_state) &&
	       util_bind(library, "nvmlDeviceGetNvLinkRemotePciInfo_v2", &nvml.link_remote) &&
	       util_bind(library, "nvmlDeviceGetNvLinkRemoteDeviceType", &nvml.link_remote_type) &&
	       nvml.init() == NVML_SUCCESS;
}

void topo_nvml_close(void)
{
	nvml.shutdown();
}

/* GB/s of a link in each direction, as NVIDIA publishes them; NVML gives a version only. */
static double rate_of(int cc)
{
	if (cc >= 100)
		return 50;
	if (cc == 86)
		return 14.0625;
	return cc >= 70 ? 25 : 20;
}

/* The machine's GPU there; -1: it has none. */
static int gpu_at(const struct topo_machine *machine, const struct nvml_pci *pci)
{
	for (int i = 0, gpu; (gpu = topo_machine_nth(machine, TOPO_GPU, i)) >= 0; i++) {
		if (topo_bus_is(machine->objects[gpu].bus, pci->domain, pci->bus, pci->device))
			return gpu;
	}
	return -1;
}

/* The NVSwitch there, which a hypervisor may hide: all that it hides are one then. */
static int switch_at(struct topo_machine *machine, const struct nvml_pci *pci)
{
	char name[TOPO_NAME_BYTES];
	int found;

	if (pci->domain || pci->bus || pci->device)
		snprintf(name, sizeof(name), "nvswitch-%04x:%02x:%02x", pci->domain & 0xffff,
			 pci->bus & 0xff, pci->device & 0xff);
	else
		snprintf(name, sizeof(name), "%s", TOPO_HIDDEN_SWITCH);
	found = topo_machine_find(machine, name);
	return found >= 0 ? found : topo_machine_add(machine, TOPO_NVSWITCH, -1, name);
}

/* What is at the link's other end; -1: nothing, or a GPU that is hidden from this process. */
static int remote_of(struct topo_machine *machine, void *device, unsigned link)
{
	struct nvml_pci pci = {0};
	int active = 0, type = -1, gpu;

	if (nvml.link_state(device, link, &active) != NVML_SUCCESS || !active)
		return -1;
	nvml.link_remote(device, link, &pci); /* not where a hypervisor hides it */
	gpu = gpu_at(machine, &pci);
	if (gpu >= 0)
		return gpu;
	if (nvml.link_remote_type(device, link, &type) != NVML_SUCCESS ||
	    type != NVML_REMOTE_SWITCH)
		return -1;
	return switch_at(machine, &pci);
}

/* Several links between the same two become one. */
static bool add_link(struct topo_machine *machine, int a, int b, double rate)
{
	for (int i = 0; i < machine->num_links; i++) {
		struct topo_link *link = &machine->links[i];

		if (link->a == a && link->b == b) {
			link->rate += rate;
			return true;
		}
	}
	return topo_machine_link(machine, a, b, rate) == 0;
}

/* Of a link between GPUs both tell; the first one counts. */
static bool add_links_of(struct topo_machine *machine, int gpu)
{
	bool well = true;
	void *device;

	if (nvml.device_at(machine->objects[gpu].bus, &device) != NVML_SUCCESS)
		return true;
	for (unsigned link = 0; link < NVML_MOST_LINKS && well; link++) {
		int remote = remote_of(machine, device, link);

		if (remote > gpu)
			well = add_link(machine, gpu, remote, rate_of(machine->objects[gpu].cc));
	}
	return well;
}

/* Of what NVML does not know nothing is said. */
static bool are_apart(void *a, void *b)
{
	int status;

	for (int use = NVML_P2P_READ; use < NVML_P2P_USES; use++) {
		if (nvml.p2p_status(a, b, use, &status) == NVML_SUCCESS && status != NVML_P2P_OK &&
		    status != NVML_P2P_UNKNOWN)
			return true;
	}
	return false;
}

/* GPUs of which the driver says that one can't read or write the other's memory. */
static bool part_from(struct topo_machine *machine, int gpu)
{
	void *device, *other_device;
	bool well = true;

	if (!nvml.p2p_status || nvml.device_at(machine->objects[gpu].bus, &device) != NVML_SUCCESS)
		return true;
	for (int i = 0, other; well && (other = topo_machine_nth(machine, TOPO_GPU, i)) >= 0; i++) {
		if (other > gpu &&
		    nvml.device_at(machine->objects[other].bus, &other_device) == NVML_SUCCESS &&
		    are_apart(device, other_device))
			well = topo_machine_part(machine, gpu, other) == 0;
	}
	return well;
}

bool topo_nvml_add_links(struct topo_machine *machine)
{
	bool well = true;

	for (int i = 0, gpu; well && (gpu = topo_machine_nth(machine, TOPO_GPU, i)) >= 0; i++)
		well = add_links_of(machine, gpu) && part_from(machine, gpu);
	return well;
}

static bool describe_gpu(unsigned index, struct topo_gpu *gpu)
{
	struct nvml_pci pci = {0};
	int major = 0, minor = 0;
	void *device;

	if (nvml.device_of(index, &device) != NVML_SUCCESS ||
	    nvml.pci_of(device, &pci) != NVML_SUCCESS)
		return false;
	nvml.cc_of(device, &major, &minor);
	*gpu = (struct topo_gpu){.cc = 10 * major + minor}; /* NVML does not tell of copy engines */
	snprintf(gpu->bus, sizeof(gpu->bus), "%04x:%02x:%02x.0", pci.domain, pci.bus & 0xff,
		 pci.device & 0xff);
	return true;
}

int topo_nvml_list(struct topo_gpu *gpus, int most)
{
	unsigned count = 0;
	int num = 0;

	nvml.count(&count);
	for (unsigned i = 0; i < count && num < most; i++)
		num += describe_gpu(i, &gpus[num]);
	return num;
}
