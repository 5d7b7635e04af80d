/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NVLinks, as the driver's management library (NVML, libnvidia-ml.so.1) knows them. It is opened
 * when asked, and not needed.
 */
#ifndef TOPO_NVML_H
#define TOPO_NVML_H

#include "topo/topo_machine.h"

#include <stdbool.h>

/* Begin to ask it. False: there is none, and nothing to be ended. Not thread-safe. */
bool topo_nvml_open(void);

/* End to ask it. Not thread-safe. */
void topo_nvml_close(void);

/* The GPUs that it knows, `most` at most. Returns their number. */
int topo_nvml_list(struct topo_gpu *gpus, int most);

/*
 * Add to the machine the NVLinks between its GPUs, whose PCI addresses and compute capabilities are
 * known, and between them and NVSwitches. False: no memory; the machine has what could be had.
 */
bool topo_nvml_add_links(struct topo_machine *machine);

#endif
