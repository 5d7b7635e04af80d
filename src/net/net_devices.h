/* SPDX-License-Identifier: BSD-3-Clause */
/* What UCX is told to use. */
#ifndef NET_DEVICES_H
#define NET_DEVICES_H

/*
 * Of the network, in UCX's words, to be used alone where the user has not chosen and UCX has them;
 * NULL: UCX chooses.
 */
struct net_devices {
	const char *nic;
	const char *interface; /* if messages go by sockets */
};

/*
 * What UCX sends and receives by a socket at a time, headers included, unless the user says
 * otherwise.
 */
enum { NET_SEGMENT = 128 << 10 };

#endif
