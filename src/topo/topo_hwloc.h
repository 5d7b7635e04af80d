/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The machine that this process is on: what hwloc finds of PCI and NUMA (HWLOC_XMLFILE names
 * another machine), with the GPUs that CUDA shows. For NVLinks see topo_nvml.h.
 */
#ifndef TOPO_HWLOC_H
#define TOPO_HWLOC_H

#include "topo/topo_machine.h"

/* A GPU as CUDA knows it. */
struct topo_gpu {
	char bus[TOPO_NAME_BYTES]; /* PCI address: domain:bus:device.function, hexadecimal */
	int cc;                    /* compute capability, times 10 */
};

/*
 * GPU i is called gpu<i>; other GPUs than these are left out. Those that hwloc does not find hang
 * at the root. NULL: hwloc failed, or there is no memory. The caller frees it.
 */
struct topo_machine *topo_hwloc_find(const struct topo_gpu *gpus, int num_gpus);

#endif
