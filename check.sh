#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Build libgpucoll and pass its tests: check.sh [PYTEST-OPTION...], for example check.sh -k fortran
set -euo pipefail
cd "$(dirname "$0")"
./setup.sh
exec make -s -C build check TEST_FLAGS="${*@Q}"
