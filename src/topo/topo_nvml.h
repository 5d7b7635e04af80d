/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NVLinks, as the driver's management library (NVML, libnvidia-ml.so.1) knows them. It is opened
 * when asked, and not needed.
 */
#ifndef TOPO_NVML_H
#define TOPO_NVML_H

#include "topo/topo_machine.h"

#include <stdbool.h>

/*
 * Add to the machine the NVLinks between its GPUs, whose PCI addresses and compute capabilities are
 * known, and between them and NVSwitches. False: there is no NVML, or no memory; the machine has
 * what could be had. Not thread-safe.
 */
bool topo_nvml_add_links(struct topo_machine *machine);

/* The GPUs that NVML knows, `most` at most. Returns their number; -1: there is no NVML. Not
 * thread-safe. */
int topo_nvml_list(struct topo_gpu *gpus, int most);

#endif
