#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Build libgpucoll and pass its tests: check.sh [--quick] [PYTEST-OPTION...], for example check.sh -k fortran. --quick: in
# some two minutes those that are for before each commit.
set -euo pipefail
cd "$(dirname "$0")"
./setup.sh
make -s -j2 -C build check-programs >build/check-programs.log 2>&1 || {
	tail -n 40 build/check-programs.log >&2
	exit 1
}
exec make -s -C build check TEST_FLAGS="${*@Q}"
