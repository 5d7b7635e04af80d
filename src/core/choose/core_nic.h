/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which network device of the node this process is to use: the one of its GPU (topo_path_nic_of),
 * so that messages do not cross the machine, and the GPUs' processes do not share a NIC while
 * others are idle.
 *
 * UCX is to use it alone, so that is done only where the NICs of all processes are in one network:
 * the rails of a cluster may be networks of their own, and not all would reach each other.
 */
#ifndef CORE_NIC_H
#define CORE_NIC_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Its name for UCX. Collective over the job. False, for all: some process has no choice, or it is
 * not known which is near, or they are in several networks. Of a program that has not begun to use
 * CUDA at MPI_Init it is not known which GPU it will use: taken is the one by its number among the
 * node's processes, as most programs do.
 */
bool core_nic_choose(char *text, size_t bytes);

/*
 * The interface for messages by sockets: one, as the ports on it take anybody's packets (see
 * docs/security.md). The loopback, if it will do, where the job is in one machine, which no other
 * one reaches; else a guess. Collective over the job; `loopback`: the same in all. False: there is
 * none.
 */
bool core_nic_interface(bool loopback, char *text, size_t bytes);

#endif
