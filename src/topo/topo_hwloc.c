/* SPDX-License-Identifier: BSD-3-Clause */
#include "topo/topo_hwloc.h"
#include "topo/topo_nic.h"
#include "topo/topo_pci.h"
#include "util/util_bind.h"

#include <hwloc.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/*
 * What we need of hwloc. It is opened for ourselves alone: if the library were linked with it, a
 * preload would put its symbols, which have no versions, before those of another hwloc that the
 * program's MPI may be linked with.
 */
#define HWLOC_CALLS(X)                                                                             \
	X(hwloc_bitmap_first)                                                                      \
	X(hwloc_bitmap_weight)                                                                     \
	X(hwloc_get_obj_by_depth)                                                                  \
	X(hwloc_get_type_depth)                                                                    \
	X(hwloc_topology_destroy)                                                                  \
	X(hwloc_topology_init)                                                                     \
	X(hwloc_topology_is_thissystem)                                                            \
	X(hwloc_topology_load)                                                                     \
	X(hwloc_topology_set_components)                                                           \
	X(hwloc_topology_set_io_types_filter)

static struct {
#define HWLOC_FIELD(name) __typeof__(&name) name;
	HWLOC_CALLS(HWLOC_FIELD)
#undef HWLOC_FIELD
} hwloc;

/* The interface of hwloc 2. */
static bool open_hwloc(void)
{
	void *library = dlopen("libhwloc.so.15", RTLD_NOW | RTLD_LOCAL);
	bool well = library;

#define HWLOC_BIND(name) well = well && util_bind(library, #name, &hwloc.name);
	HWLOC_CALLS(HWLOC_BIND)
#undef HWLOC_BIND
	return well;
}

struct finder {
	struct topo_machine *machine;
	const struct topo_gpu *gpus;
	int num_gpus; /* -1: all of NVIDIA's */
	int found;    /* then, so far */
	bool here;    /* it is the machine that this process is on */
	bool failed;  /* there was no memory */
};

static int add_object(struct finder *f, enum topo_kind kind, int parent, const char *name,
		      double rate)
{
	int index = topo_machine_add(f->machine, kind, parent, name);

	if (index < 0)
		f->failed = true;
	else
		f->machine->objects[index].rate = rate;
	return index;
}

static void write_bus(char *text, size_t bytes, const struct hwloc_pcidev_attr_s *pci)
{
	snprintf(text, bytes, "%04x:%02x:%02x.%x", (unsigned)pci->domain, (unsigned)pci->bus,
		 (unsigned)pci->dev, (unsigned)pci->func);
}

static void set_bus(struct finder *f, int index, const struct hwloc_pcidev_attr_s *pci)
{
	struct topo_object *object = &f->machine->objects[index];

	write_bus(object->bus, sizeof(object->bus), pci);
}

/* ---- devices ---- */

/* CUDA leaves out the function, or writes the domain with more digits or capitals. */
static bool is_at(const struct topo_gpu *gpu, const struct hwloc_pcidev_attr_s *pci)
{
	return pci->func == 0 && topo_bus_is(gpu->bus, pci->domain, pci->bus, pci->dev);
}

/* Which of the GPUs it is; -1: none. */
static int gpu_of(const struct finder *f, hwloc_obj_t device)
{
	enum { NVIDIA = 0x10de, DISPLAY = 3 };
	const struct hwloc_pcidev_attr_s *pci = &device->attr->pcidev;

	if (f->num_gpus < 0)
		return pci->vendor_id == NVIDIA && pci->class_id >> 8 == DISPLAY ? f->found : -1;
	for (int i = 0; i < f->num_gpus; i++) {
		if (is_at(&f->gpus[i], &device->attr->pcidev))
			return i;
	}
	return -1;
}

/*
 * What the device is called as a NIC, by verbs if they know it; NULL: it is none, or nothing goes
 * over its wire.
 */
static const char *name_of_nic(hwloc_obj_t device)
{
	const char *name = NULL;

	for (hwloc_obj_t os = device->io_first_child; os; os = os->next_sibling) {
		if (os->type != HWLOC_OBJ_OS_DEVICE)
			continue;
		if (os->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS)
			return os->name;
		if (os->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK && !name)
			name = os->name;
	}
	return name;
}

static const char *nic_of(const struct finder *f, hwloc_obj_t device)
{
	const char *name = name_of_nic(device);

	return name && f->here && topo_nic_is_down(TOPO_SYSFS, name) ? NULL : name;
}

static void add_gpu(struct finder *f, int gpu, int parent, double rate,
		    const struct hwloc_pcidev_attr_s *pci)
{
	struct topo_object *object;
	char name[TOPO_NAME_BYTES];
	int index;

	snprintf(name, sizeof(name), "gpu%d", gpu);
	index = add_object(f, TOPO_GPU, parent, name, rate);
	if (index < 0)
		return;
	if (f->num_gpus < 0) {
		set_bus(f, index, pci);
		f->found++;
		return;
	}
	object = &f->machine->objects[index];
	object->cc = f->gpus[gpu].cc;
	object->copies = f->gpus[gpu].copies;
	snprintf(object->bus, sizeof(object->bus), "%s", f->gpus[gpu].bus);
}

/* Sysfs has devices below the ports that they are at. */
static double rate_of(const struct finder *f, const struct hwloc_pcidev_attr_s *pci)
{
	char bus[TOPO_NAME_BYTES], link[64], folder[PATH_MAX];
	double most = 0;

	write_bus(bus, sizeof(bus), pci);
	snprintf(link, sizeof(link), "/sys/bus/pci/devices/%s", bus);
	if (f->here && realpath(link, folder))
		most = topo_pci_rate(folder);
	return most > (double)pci->linkspeed ? most : (double)pci->linkspeed;
}

static void add_device(struct finder *f, hwloc_obj_t device, int parent)
{
	const struct hwloc_pcidev_attr_s *pci = &device->attr->pcidev;
	const char *nic = nic_of(f, device);
	int gpu = gpu_of(f, device), index;

	if (gpu >= 0) {
		add_gpu(f, gpu, parent, rate_of(f, pci), pci);
	} else if (nic && topo_machine_find(f->machine, nic) < 0) {
		index = add_object(f, TOPO_NIC, parent, nic, rate_of(f, pci));
		if (index < 0)
			return;
		set_bus(f, index, pci);
		if (f->here)
			f->machine->objects[index].net = topo_nic_rate(TOPO_SYSFS, nic);
	}
}

/* ---- bridges ---- */

static bool matters(const struct finder *f, hwloc_obj_t object)
{
	if (object->type == HWLOC_OBJ_PCI_DEVICE)
		return gpu_of(f, object) >= 0 || nic_of(f, object);
	for (hwloc_obj_t child = object->io_first_child; child; child = child->next_sibling) {
		if (matters(f, child))
			return true;
	}
	return false;
}

/*
 * Below a host bridge there are root ports; a bridge below a port is a switch's upstream side, and
 * the bridges below that are its downstream ports. So every second one is a switch.
 */
static void add_below(struct finder *f, hwloc_obj_t above, int parent, int depth)
{
	for (hwloc_obj_t child = above->io_first_child; child; child = child->next_sibling) {
		char name[TOPO_NAME_BYTES] = "switch-";
		int index = parent;

		if (!matters(f, child))
			continue;
		if (child->type == HWLOC_OBJ_PCI_DEVICE) {
			add_device(f, child, parent);
			continue;
		}
		if (depth % 2) {
			const struct hwloc_pcidev_attr_s *pci = &child->attr->bridge.upstream.pci;

			write_bus(name + strlen(name), sizeof(name) - strlen(name), pci);
			index = add_object(f, TOPO_SWITCH, parent, name, rate_of(f, pci));
		}
		if (!f->failed)
			add_below(f, child, index, depth + 1);
	}
}

/* -1: it is near to several, or firmware does not say. */
static int numa_of(const struct finder *f, hwloc_obj_t bridge)
{
	hwloc_obj_t near = bridge->parent;
	char name[TOPO_NAME_BYTES];

	while (near && !near->nodeset)
		near = near->parent;
	if (!near || hwloc.hwloc_bitmap_weight(near->nodeset) != 1)
		return -1;
	snprintf(name, sizeof(name), "numa%d", hwloc.hwloc_bitmap_first(near->nodeset));
	return topo_machine_find(f->machine, name);
}

static void add_host_bridge(struct finder *f, hwloc_obj_t bridge)
{
	const struct hwloc_bridge_attr_s *attributes = &bridge->attr->bridge;
	char name[TOPO_NAME_BYTES];
	int index;

	if (attributes->upstream_type != HWLOC_OBJ_BRIDGE_HOST || !matters(f, bridge))
		return;
	snprintf(name, sizeof(name), "bridge-%04x:%02x",
		 (unsigned)attributes->downstream.pci.domain,
		 (unsigned)attributes->downstream.pci.secondary_bus);
	index = add_object(f, TOPO_BRIDGE, numa_of(f, bridge), name, 0);
	if (!f->failed)
		add_below(f, bridge, index, 0);
}

/* ---- all ---- */

/* hwloc says it of packages. */
static void add_cpu(struct finder *f, hwloc_topology_t topology)
{
	int depth = hwloc.hwloc_get_type_depth(topology, HWLOC_OBJ_PACKAGE);
	hwloc_obj_t package = depth >= 0 ? hwloc.hwloc_get_obj_by_depth(topology, depth, 0) : NULL;

	for (unsigned i = 0; package && i < package->infos_count; i++) {
		if (!strcmp(package->infos[i].name, "CPUVendor") && !f->machine->cpu)
			f->machine->cpu = strdup(package->infos[i].value);
	}
}

static void add_all(struct finder *f, hwloc_topology_t topology)
{
	hwloc_obj_t object;
	char name[TOPO_NAME_BYTES];

	add_cpu(f, topology);
	for (unsigned i = 0;
	     (object = hwloc.hwloc_get_obj_by_depth(topology, HWLOC_TYPE_DEPTH_NUMANODE, i)); i++) {
		snprintf(name, sizeof(name), "numa%u", object->os_index);
		add_object(f, TOPO_NUMA, -1, name, 0);
	}
	for (unsigned i = 0;
	     !f->failed &&
	     (object = hwloc.hwloc_get_obj_by_depth(topology, HWLOC_TYPE_DEPTH_BRIDGE, i));
	     i++)
		add_host_bridge(f, object);
	for (int i = 0; i < f->num_gpus && !f->failed; i++) {
		snprintf(name, sizeof(name), "gpu%d", i);
		if (topo_machine_find(f->machine, name) < 0)
			add_gpu(f, i, -1, 0, NULL);
	}
}

/* hwloc may have plugins that would start CUDA, OpenCL or an X client to look for GPUs. */
static void leave_out_gpus(hwloc_topology_t topology)
{
	static const char *const plugins[] = {"cuda", "nvml", "opencl", "gl", "rsmi", "levelzero"};

	for (size_t i = 0; i < sizeof(plugins) / sizeof(plugins[0]); i++)
		hwloc.hwloc_topology_set_components(
			topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, plugins[i]);
}

static bool load_topology(hwloc_topology_t topology)
{
	leave_out_gpus(topology);
	return !hwloc.hwloc_topology_set_io_types_filter(topology,
							 HWLOC_TYPE_FILTER_KEEP_IMPORTANT) &&
	       !hwloc.hwloc_topology_load(topology);
}

struct topo_machine *topo_hwloc_find(const struct topo_gpu *gpus, int num_gpus)
{
	struct finder f = {.gpus = gpus, .num_gpus = num_gpus};
	hwloc_topology_t topology;

	if (!open_hwloc() || hwloc.hwloc_topology_init(&topology))
		return NULL;
	f.machine = topo_machine_new();
	f.failed = !f.machine || !load_topology(topology);
	f.here = !f.failed && hwloc.hwloc_topology_is_thissystem(topology);
	if (!f.failed)
		add_all(&f, topology);
	hwloc.hwloc_topology_destroy(topology);
	if (!f.failed)
		return f.machine;
	topo_machine_free(f.machine);
	return NULL;
}
