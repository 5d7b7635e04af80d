# SPDX-License-Identifier: BSD-3-Clause
"""MPI-IO."""
import re

import pytest

from conftest import ON_GPU, assert_passed
from helpers import count_calls, each_mpi

WAYS = {"usual": {}, "unpinned": {"GPUCOLL_STAGING_POOL": "0"}, "no kernels": {"CUEMU_FAULT": "cuModuleLoadData+=209"}}


@pytest.mark.quick
@each_mpi
@pytest.mark.parametrize("ranks,way", [(1, "usual"), (2, "usual"), (3, "unpinned"), (2, "no kernels")])
def test_files(run_mpi, mpi, ranks, way, tmp_path):
    if "CUEMU_FAULT" in WAYS[way] and ON_GPU:
        pytest.skip("a GPU's faults are not for the asking")
    result = run_mpi(mpi, ranks, "test_io", tmp_path / "file", env={"GPUCOLL_STATS": "1", **WAYS[way]})
    assert_passed(result)
    for call in ("write_at", "iread_shared", "write_all_begin"):
        assert count_calls(result.output, "stage", f"MPI_File_{call}") > 4, result.output


@each_mpi
def test_without_the_library(run_mpi, mpi, tmp_path):
    """Without it the MPI writes and reads something else, or nothing."""
    result = run_mpi(mpi, 1, "test_io", tmp_path / "file", library=False)
    assert result.status != 0 and not re.search("checks passed, 0 failed", result.output), result.output
