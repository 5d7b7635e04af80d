#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# What two hosts do over one link: collectives on device buffers by the library, through pinned memory and where UCX is given
# device memory (GPUDirect RDMA, emulated), and on host buffers by the real MPI, beside the rate of the wire:
#
#   bench/cluster.sh MPI...        for example: bench/cluster.sh mpich openmpi
#
# The hosts are namespaces of this machine (test/cluster/cluster.py; needs root), one rank on each, on the emulated driver.
# Waiting processes yield, MPICH's and ucx_perftest's by the tests' shim: the kernel moves packets of veth links in threads of
# its own, which wait for 4 ms where every core spins. Kernels run in the thread that launches them, so they can't wait for messages.
set -euo pipefail
repository=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD:-$repository/build}
[ $# -gt 0 ] || { sed -n '4,11s/^# \?//p' "$0" >&2; exit 2; }

shim=$build/emu/yield_shim.so
on_hosts() { # MPI, then a command for each of the two ranks
	local mpi=$1
	shift
	timeout 120 "$repository/test/cluster/cluster.py" --hosts 2 "$mpi" 1 env UCX_NET_DEVICES=eth0 UCX_WARN_UNUSED_ENV_VARS=n "$@"
}

echo "# ucx_perftest, active messages: of 64 B, us one way; of 512 KiB, MB/s in one direction"
for test in "ucp_am_lat -s 64 -n 20000" "ucp_am_bw -s 524288 -n 800"; do
	# shellcheck disable=SC2016
	on_hosts openmpi LD_PRELOAD="$shim" sh -c 'if [ "$OMPI_COMM_WORLD_RANK" = 0 ]; then ucx_perftest; else
		sleep 1; ucx_perftest 10.77.0.1 -w 20 -t '"$test"'; fi' 2>/dev/null |
		awk -v test="$test" '/^Final/ {print "#", test ~ /_lat/ ? $3 " us" : $6 " MB/s"}'
done

bench() { # MPI, libraries, GPUCOLL_NET_GDR, then gpucoll-bench's arguments
	local mpi=$1 libraries=$2 gdr=$3
	shift 3
	[ "$mpi" = mpich ] && libraries=$libraries:$shim
	on_hosts "$mpi" LD_PRELOAD="$libraries" LD_LIBRARY_PATH="$build/emu" CUEMU_THREADS=1 CUEMU_DELAY_US=0 CUEMU_SMS=1 \
		CUEMU_IN_CALLER=1 GPUCOLL_EXEC=stepped GPUCOLL_NET_GDR="$gdr" \
		"$build/mpi/$mpi/gpucoll-bench" "$@" 2>&1 | grep -E '^ +[0-9]|WARN'
}

for mpi in "$@"; do
	for collective in allreduce bcast alltoall; do
		for size in "8 4K 8 2000" "64K 64M 32 10"; do
			read -r least most factor times <<<"$size"
			common=("$collective" -b "$least" -e "$most" -f "$factor" -n "$times" -w 2)
			echo "== $mpi, $collective: the library"
			bench "$mpi" "$build/mpi/$mpi/libgpucoll.so.0" off "${common[@]}" || true
			echo "== $mpi, $collective: the library, device memory given to UCX"
			bench "$mpi" "$build/mpi/$mpi/libgpucoll.so.0:$build/emu/emu_ucp.so" on "${common[@]}" || true
			echo "== $mpi, $collective: the MPI, host buffers"
			bench "$mpi" "" off "${common[@]}" -m host || true
		done
	done
done
