#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Install what libgpucoll is built with on Debian or Ubuntu, as root or with sudo, and build it in ./build. Says what it
# installs; does nothing that is done already. demo.sh and check.sh call it.
set -euo pipefail
cd "$(dirname "$0")"

packages=(autoconf automake g++ gcc gfortran gnuplot-nox iproute2 libcmocka-dev libhwloc-dev libjansson-dev libmpich-dev libopenmpi-dev
	libsimgrid-dev libucx-dev make mpich openmpi-bin pkg-config procps python3 python3-dev python3-mpi4py python3-pip python3-pytest python3-pytest-xdist spin
	valgrind xz-utils)

# Not in every release; a test is skipped without it.
optional=(clang-format-14 debootstrap rpm)

say() {
	echo "== $*"
}

missing=()
for package in "${packages[@]}"; do
	dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
	sudo=()
	if [ "$(id -u)" -ne 0 ]; then
		command -v sudo >/dev/null || {
			echo "setup.sh: not root, and no sudo; have an administrator install: ${missing[*]}" >&2
			exit 1
		}
		sudo=(sudo)
	fi
	say "installing packages: ${missing[*]}"
	"${sudo[@]}" apt-get update -qq
	for package in "${optional[@]}"; do
		apt-cache show "$package" >/dev/null 2>&1 && missing+=("$package")
	done
	"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
if ! command -v nvcc >/dev/null && [ ! -x /usr/local/cuda/bin/nvcc ]; then
	echo "setup.sh: no CUDA Toolkit: install NVIDIA's package cuda-toolkit (12 or newer); a GPU is not needed" >&2
	exit 1
fi

# A build tree of another checkout, or of an older configure.ac, is made anew.
if [ ! -e configure ] || [ configure.ac -nt configure ] || [ Makefile.am -nt Makefile.in ]; then
	say "making ./configure"
	./autogen.sh >/dev/null 2>&1 || ./autogen.sh
fi
mkdir -p build
cd build
if [ ! -e Makefile ] || [ ../configure -nt Makefile ]; then
	say "configuring in ./build"
	rm -f mpi/*/*.d mpi/*/*.o # they name sources where these were
	../configure --enable-werror >configure.log 2>&1 || {
		tail -n 20 configure.log >&2
		exit 1
	}
fi
say "building in ./build"
make -s -j2 >make.log 2>&1 || {
	tail -n 40 make.log >&2
	exit 1
}
