/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a PCI Express link can carry. hwloc tells what it carries now, which is less while a GPU
 * rests and its link is at a lower speed.
 */
#ifndef TOPO_PCI_H
#define TOPO_PCI_H

/*
 * GB/s in each direction, by the device's folder in sysfs: as fast and as wide as both the device
 * and the port above it can be. 0: it does not say.
 */
double topo_pci_rate(const char *folder);

#endif
