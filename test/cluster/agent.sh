#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# What launchers take for a remote shell: run a command on a host of cluster.py's. CLUSTER_STATE is the folder with a file
# for each host, which has its address's name and its process's number.
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
pid=$(cat "$CLUSTER_STATE/$host") || exit 1
exec nsenter --target "$pid" --net --uts --ipc --mount --pid -- /bin/sh -c "$*"
