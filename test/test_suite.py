# SPDX-License-Identifier: BSD-3-Clause
"""All tests of the built tree: each runs a program, or a few, and looks at what came out."""
import os
import subprocess
import sys

import pytest

from conftest import BUILD, MPIS, ON_GPU, SOURCE, asan_preload, assert_passed, environment, launcher, run_command

UNIT_TESTS = [p.name for p in sorted(BUILD.glob("test_*")) if os.access(p, os.X_OK) and p.is_file()]
RANKS = [1, 2, 3, 4, 5, 8]

each_mpi = pytest.mark.parametrize("mpi", MPIS)
emulated_only = pytest.mark.skipif(ON_GPU, reason="the emulated device makes the fault or the timing that is tested")


def test_there_is_something_to_test():
    assert MPIS, f"no library was built in {BUILD}"
    assert UNIT_TESTS, f"no unit tests were built in {BUILD}"


@pytest.mark.parametrize("name", UNIT_TESTS)
def test_unit(name):
    env = dict(os.environ, LD_LIBRARY_PATH=str(BUILD / "emu"), CUEMU_DEVICES="2",
               ASAN_OPTIONS="detect_leaks=0:protect_shadow_gap=0:use_sigaltstack=0")
    result = run_command([str(BUILD / name)], env, 120)
    assert result.status == 0, result.output


def test_layering():
    result = run_command([sys.executable, str(SOURCE / "test/check-layering.py"), str(SOURCE)], os.environ, 60)
    assert result.status == 0, result.output


def test_layering_is_checked(tmp_path):
    """The check fails on a tree that breaks the rules."""
    bad = tmp_path / "src/algos"
    bad.mkdir(parents=True)
    (bad / "algo_bad.c").write_text('#include <mpi.h>\n#include "gpu/gpu_driver.h"\n')
    result = run_command([sys.executable, str(SOURCE / "test/check-layering.py"), str(tmp_path)], os.environ, 60)
    assert result.status != 0 and "mpi.h" in result.output and "gpu/gpu_driver.h" in result.output


@each_mpi
@pytest.mark.parametrize("ranks", RANKS)
def test_collectives(run_mpi, mpi, ranks):
    assert_passed(run_mpi(mpi, ranks, "test_coll", env={"CUEMU_DEVICES": "2"}))


@each_mpi
@pytest.mark.parametrize("ranks", RANKS)
def test_types_and_ops(run_mpi, mpi, ranks):
    assert_passed(run_mpi(mpi, ranks, "test_types"))


@each_mpi
def test_without_the_library_it_fails(run_mpi, mpi):
    """What the tests test is the library: without it the MPI touches device memory and dies."""
    result = run_mpi(mpi, 2, "test_coll", library=False)
    assert result.status != 0 and "checks passed, 0 failed" not in result.output


@each_mpi
@pytest.mark.parametrize("case", ["late_work", "reallocation", "pool_memory", "other_context", "reset", "threads",
                                  "rendezvous", "communicators", "idup", "fork", "huge"])
def test_life(run_mpi, mpi, case):
    assert_passed(run_mpi(mpi, 2, "test_life", case))


@each_mpi
def test_errors(run_mpi, mpi):
    if mpi == "mpich":
        pytest.skip("Debian's MPICH is built without argument checks: wrong ones crash it on host buffers too")
    assert_passed(run_mpi(mpi, 2, "test_life", "errors"))


FAULTS = {"cuMemHostRegister": "survived", "cuStreamCreate": "error", "cuMemcpyAsync:1": "error",
          "cuMemcpyAsync:2": "error", "cuStreamQuery:2": "error", "cuPointerSetAttribute": "survived",
          "cuCtxPushCurrent": "error", "cuMemcpyAsync=719": "error"}


@emulated_only
@each_mpi
@pytest.mark.parametrize("fault", FAULTS)
def test_fault(run_mpi, mpi, fault):
    result = run_mpi(mpi, 1, "test_life", "fault", env={"CUEMU_FAULT": fault})
    if fault.endswith("=719"):
        # The device is lost: the test itself can't read its buffer any more. The error must have come.
        assert "cuMemcpyAsync failed" in result.output and result.status != "timeout", result.output
        return
    assert_passed(result)
    assert f"fault: {FAULTS[fault]}" in result.output


@each_mpi
def test_bounded_staging_pool(run_mpi, mpi):
    """Buffers larger than the pool go through ordinary memory."""
    assert_passed(run_mpi(mpi, 2, "test_life", "late_work", env={"GPUCOLL_STAGING_POOL": "64K"}))


@each_mpi
def test_nodes_by_hostid(run_mpi, mpi):
    assert_passed(run_mpi(mpi, 3, "/bin/sh", "-c",
                          f"GPUCOLL_HOSTID=n$(( ${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}} / 2 )) "
                          f"exec {BUILD}/mpi/{mpi}/test_life communicators"))


@each_mpi
def test_disabled(run_mpi, mpi):
    """GPUCOLL_DISABLE=1 hands device buffers to the real MPI, which dies of them."""
    assert run_mpi(mpi, 2, "test_life", "reallocation", env={"GPUCOLL_DISABLE": "1"}).status != 0


@each_mpi
def test_asleep_without_driver(mpi, tmp_path):
    """Where no process has a driver the library maps nothing, starts no thread and loads no libcuda."""
    source = tmp_path / "quiet.c"
    source.write_text(r"""
#include <mpi.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv)
{
	int one = 1, sum, rank, found = 0;
	char line[4096];
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	FILE *maps = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof(line), maps))
		found |= strstr(line, "libcuda") || strstr(line, "/gpucoll-");
	fclose(maps);
	if (rank == 0)
		printf("sum %d, traces %d\n", sum, found);
	MPI_Finalize();
	return 0;
}
""")
    program = tmp_path / "quiet"
    subprocess.run([f"mpicc.{mpi}", "-o", program, source], check=True)
    env = environment(mpi, [str(BUILD / "mpi" / mpi / "libgpucoll.so.0")], {"GPUCOLL_DEBUG": "info"})
    if not ON_GPU:
        env.pop("LD_LIBRARY_PATH")
    result = run_command([*launcher(mpi, 2), "env", *[f"{k}={v}" for k, v in env.items()], str(program)],
                         os.environ.copy(), 60)
    assert result.status == 0 and "sum 2, traces 0" in result.output, result.output
    assert ON_GPU or "asleep" in result.output, result.output


@each_mpi
def test_statistics(run_mpi, mpi):
    result = run_mpi(mpi, 2, "test_life", "reallocation", env={"GPUCOLL_STATS": "1"})
    assert_passed(result)
    rows = [line.split() for line in result.output.splitlines() if line.split()[:2] == ["MPI_Allreduce", "stage"]]
    # Fifty calls of the case; each check makes one more, on host buffers.
    assert rows and rows[0][2] == "50", result.output
    host = [line.split() for line in result.output.splitlines() if line.split()[:2] == ["MPI_Allreduce", "pass"]]
    assert host and host[0][2] == "50", result.output


@each_mpi
def test_bad_options_are_named(run_mpi, mpi):
    result = run_mpi(mpi, 1, "test_life", "idup",
                     env={"GPUCOLL_DEBUGG": "1", "GPUCOLL_STAGING_POOL": "many", "GPUCOLL_DEBUG": "warn"})
    assert_passed(result)
    assert "GPUCOLL_DEBUGG is no option" in result.output
    assert "GPUCOLL_STAGING_POOL=many is not understood" in result.output


@each_mpi
def test_log_file(run_mpi, mpi, tmp_path):
    result = run_mpi(mpi, 1, "test_life", "idup",
                     env={"GPUCOLL_DEBUG": "trace", "GPUCOLL_DEBUG_FILE": f"{tmp_path}/%h.%p.log"})
    assert_passed(result)
    logs = list(tmp_path.glob("*.log"))
    assert len(logs) == 1 and "MPI_Allreduce staged" in logs[0].read_text()
