#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Make ./configure in a fresh checkout.
set -e
cd "$(dirname "$0")"
command -v autoreconf >/dev/null || { echo "autogen.sh: install the packages autoconf, automake and pkg-config" >&2; exit 1; }
exec autoreconf --install --force
