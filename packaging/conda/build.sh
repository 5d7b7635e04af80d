#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
set -euo pipefail
./autogen.sh
mkdir -p build && cd build
../configure --prefix="$PREFIX" --with-mpi="$PREFIX" --with-ucx="$PREFIX" --with-hwloc="$PREFIX"
make -j"${CPU_COUNT:-2}" install
