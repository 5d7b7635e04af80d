#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Build libgpucoll and show it at work: collectives on CUDA buffers, 4 ranks, under each MPI that was found, on the GPU
# if the machine has one and on the emulated CUDA driver otherwise.
set -euo pipefail
cd "$(dirname "$0")"
start=$SECONDS
./setup.sh
make -s -C build demo-programs

where=(--emulate=2) device="the emulated CUDA driver (2 devices; its times say nothing about a GPU)"
if [ -e /dev/nvidiactl ] && build/gpucoll-info -d >/dev/null 2>&1; then
	where=() device="this machine's GPU"
fi

wrong=0
for program in build/mpi/*/demo; do
	mpi=$(basename "$(dirname "$program")")
	echo
	echo "== $mpi, 4 ranks, on $device"
	wrapper=$(cat "build/mpi/$mpi/wrapper")
	case $wrapper in
	*/*) suffix='' bin=${wrapper%/*}/ ;;
	*) suffix=.$mpi bin='' ;;
	esac
	if [[ $mpi == openmpi* ]]; then
		launch=("${bin}mpirun$suffix" --allow-run-as-root --oversubscribe -n 4)
	else
		# MPICH's waiting ranks never give up their core; on fewer cores than ranks this shim makes them.
		launch=("${bin}mpiexec$suffix" -n 4 -env LD_PRELOAD "$PWD/build/emu/yield_shim.so")
	fi
	GPUCOLL_DEBUG=none build/gpucoll-exec "${where[@]}" "${launch[@]}" "$program" || wrong=1
done
echo
if [ $wrong -ne 0 ]; then
	echo "Something went wrong above: values were wrong or a program failed."
	exit 1
fi
cat <<EOF
What you saw: an ordinary MPI program that passes CUDA device pointers to MPI_Allreduce, MPI_Bcast and MPI_Alltoall. The
MPIs here are not CUDA-aware: without libgpucoll the same program crashes at the first call (try it: run build/mpi/*/demo
without gpucoll-exec). With the library preloaded each call took the path "accel": kernels read and write
the other ranks' device memory. Every value was compared with arithmetic on the host. (GPUCOLL_ACCEL=0 takes the path
"stage": through pinned host memory and the real MPI.) This took $((SECONDS - start)) s in all. Next: README.md says how to run your own program, ./check.sh runs the tests.
EOF
