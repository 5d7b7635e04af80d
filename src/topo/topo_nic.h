/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What sysfs tells of a NIC: its wire, what UCX calls it, and which network it is in. hwloc tells
 * where the NIC is.
 */
#ifndef TOPO_NIC_H
#define TOPO_NIC_H

#include <stdbool.h>
#include <stddef.h>

#define TOPO_SYSFS "/sys/class"

/*
 * `sysfs`: the folder of classes, TOPO_SYSFS but for tests; `name`: as verbs or the kernel know
 * the NIC. Of several ports the first one counts that is not down.
 */

/* GB/s in each direction; 0: it does not say. */
double topo_nic_rate(const char *sysfs, const char *name);

/* Whether it says that nothing goes over its wire. */
bool topo_nic_is_down(const char *sysfs, const char *name);

/* Its name in UCX_NET_DEVICES, into `text`. False: there is no such NIC. */
bool topo_nic_device(const char *sysfs, const char *name, char *text, size_t bytes);

/*
 * The network in words: NICs of which they are alike reach each other, those of others may or may
 * not. An InfiniBand subnet's prefix, or the IPv4 network of the interface. False: not known.
 */
bool topo_nic_network(const char *sysfs, const char *name, char *text, size_t bytes);

/*
 * The interface by which other hosts are most likely reached: one with an IPv4 address, rather not
 * one that leads to this host's own containers or tunnels, the fastest, and then the one that has
 * the default route. False: there is none.
 */
bool topo_nic_interface(const char *sysfs, char *name, size_t bytes);

#endif
