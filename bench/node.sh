#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# What a node does: MPI_Allreduce of floats, accelerated (as the library chooses, by the ring and by the tree), staged, and on
# host buffers by the real MPI, with the rate that limits it, and where a small call spends its time:
#
#   bench/node.sh [-r RANKS] MPI...        for example: bench/node.sh mpich openmpi
#
# On the GPU if there is one, otherwise on the emulated driver (one block and one thread at a time for each rank).
set -euo pipefail
repository=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD:-$repository/build}
ranks=4
while getopts r: option; do
	case $option in
	r) ranks=$OPTARG ;;
	*) sed -n '4,10s/^# \?//p' "$0" >&2; exit 2 ;;
	esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || { sed -n '4,10s/^# \?//p' "$0" >&2; exit 2; }

emulate=()
if [ ! -e /dev/nvidiactl ]; then
	emulate=(--emulate)
	export CUEMU_SMS=$ranks CUEMU_THREADS=1 CUEMU_DELAY_US=0 CUEMU_IN_CALLER=1
	"$build/copy-rate" 2
	echo "# the limit of an allreduce of S bytes on R ranks: R S bytes read and R S written at that rate"
fi
bench() { # MPI, then gpucoll-exec's and gpucoll-bench's arguments
	local mpi=$1
	shift
	case $mpi in
	openmpi) launch=(mpirun.openmpi --allow-run-as-root --oversubscribe --mca op ^avx -n "$ranks") ;;
	mpich) launch=(mpiexec.mpich -n "$ranks" -env LD_PRELOAD "$build/emu/yield_shim.so") ;;
	*) echo "node.sh: no MPI '$mpi'" >&2; exit 2 ;;
	esac
	"$build/gpucoll-exec" "${emulate[@]}" "${launch[@]}" "$build/mpi/$mpi/gpucoll-bench" "$@"
}

for mpi in "$@"; do
	for path in accel ring tree stage host; do
		echo
		echo "== $mpi, $ranks ranks, MPI_Allreduce of floats: $path"
		memory=device
		[ $path = host ] && memory=host
		algo=
		case $path in ring | tree) algo=$path ;; esac
		GPUCOLL_ALGO=$algo GPUCOLL_ACCEL=$([ $path = stage ] && echo 0 || echo 1) bench "$mpi" allreduce -b 8 -e 64M -f 2 -n 20 -w 3 \
			-m $memory | grep -E '^ +[0-9]'
	done
	echo
	echo "== $mpi, $ranks ranks, 8 B: where the time goes (rank 0)"
	GPUCOLL_STATS=1 bench "$mpi" allreduce -b 8 -e 8 -n 2000 -w 20 2>&1 | grep '^# mean'
done
