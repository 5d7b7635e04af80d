/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The machine that this process is on: what hwloc finds of PCI and NUMA (HWLOC_XMLFILE names
 * another machine), with the GPUs that CUDA or NVML shows. For NVLinks see topo_nvml.h.
 */
#ifndef TOPO_HWLOC_H
#define TOPO_HWLOC_H

#include "topo/topo_machine.h"

/*
 * GPU i is called gpu<i>; other GPUs than these are left out. Those that hwloc does not find hang
 * at the root. With `num_gpus` < 0 they are NVIDIA's, as they stand on PCI. NULL: hwloc failed, or
 * there is no memory. The caller frees it.
 */
struct topo_machine *topo_hwloc_find(const struct topo_gpu *gpus, int num_gpus);

#endif
