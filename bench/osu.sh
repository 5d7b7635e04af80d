#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Run the blocking collectives of the OSU micro-benchmarks, with their own validation, on device buffers under libgpucoll:
#
#   bench/osu.sh [-d cuda|managed] [-r RANKS] [-m MIN:MAX] MPI=OSU-BUILD-FOLDER...
#   bench/osu.sh mpich=/tmp/osu/mpich openmpi=/tmp/osu/openmpi
#
# A line for each benchmark: how many sizes passed, and the latencies of the smallest and the largest. Runs on the GPU if
# there is one, otherwise on the emulated driver. Exits with 1 if a size failed or a benchmark did not finish.
set -euo pipefail
repository=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD:-$repository/build}
where=cuda ranks=4 sizes=4:262144
while getopts d:r:m: option; do
	case $option in
	d) where=$OPTARG ;;
	r) ranks=$OPTARG ;;
	m) sizes=$OPTARG ;;
	*) sed -n '4,10s/^# \?//p' "$0" >&2; exit 2 ;;
	esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || { sed -n '4,10s/^# \?//p' "$0" >&2; exit 2; }

emulate=(--emulate=2)
if [ -e /dev/nvidiactl ]; then
	emulate=()
fi
benchmarks=(allgather allgatherv allreduce alltoall alltoallv alltoallw bcast gather gatherv reduce reduce_scatter
	reduce_scatter_block scatter scatterv)
bad=0

# Of those that tools/get-mpis.sh got it is beside the compiler wrapper.
tool() {
	local wrapper
	wrapper=$(cat "$build/mpi/$1/wrapper")
	case $wrapper in
	*/*) echo "${wrapper%/*}/$2" ;;
	*) echo "$2.$1" ;;
	esac
}

printf '%-8s %-8s %-22s %8s %8s %12s %12s\n' mpi buffers benchmark passed failed first_us last_us
for pair in "$@"; do
	mpi=${pair%%=*} folder=${pair#*=}/c/mpi/collective/blocking
	case $mpi in
	# Open MPI's op/avx saturates sums of MPI_CHAR, on host buffers too, and so fails OSU's validation.
	openmpi*) launch=("$(tool "$mpi" mpirun)" --allow-run-as-root --oversubscribe --mca op ^avx -n "$ranks") ;;
	mpich*) launch=("$(tool "$mpi" mpiexec)" -n "$ranks" -env LD_PRELOAD "$build/emu/yield_shim.so") ;;
	*) echo "osu.sh: '$pair' does not begin with mpich= or openmpi=, or mpich5= and so on" >&2; exit 2 ;;
	esac
	[ -x "$folder/osu_bcast" ] || { echo "osu.sh: no osu_bcast in $folder" >&2; exit 2; }
	for benchmark in "${benchmarks[@]}"; do
		finished=yes
		output=$(timeout 600 "$build/gpucoll-exec" "${emulate[@]}" "${launch[@]}" "$folder/osu_$benchmark" -d "$where" \
			-c -m "$sizes" -i 20 -x 2 2>&1) || finished=no
		awk -v head="$(printf '%-8s %-8s %-22s' "$mpi" "$where" "osu_$benchmark")" -v finished=$finished '
			$NF == "Pass" { passed++; last = $2; if (passed == 1) first = $2 }
			$NF == "Fail" { failed++ }
			END {
				printf "%s %8d %8d %12s %12s%s\n", head, passed, failed, first, last,
				       finished == "yes" ? "" : "   did not finish"
				exit finished != "yes" || failed > 0 || passed == 0
			}' <<<"$output" || {
			bad=1
			tail -n 5 <<<"$output"
		}
	done
done
exit $bad
