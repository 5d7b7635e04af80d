# SPDX-License-Identifier: BSD-3-Clause
"""Other languages and other tools at the door."""
import os
import re
from collections import Counter

import pytest

from conftest import BUILD, CUDA, NEWER, SOURCE, assert_passed, environment, run_command
from helpers import CUDART, PATHS, compile_with, count_calls, each_mpi, emulated_only, name_of, need_mpi4py


@pytest.mark.quick
@each_mpi
@pytest.mark.parametrize("binding", ["mpif.h", "use mpi", "use mpi_f08"])
def test_fortran(run_mpi, mpi, binding, tmp_path):
    number = ["mpif.h", "use mpi", "use mpi_f08"].index(binding) + 1
    program = tmp_path / "fortran"
    extensions = ["-DEXTENSIONS"] if mpi == "openmpi" else []
    compile_with(f"mpif90.{mpi}", f"-DBINDING={number}", *extensions, "-fallow-argument-mismatch", "-o", program,
                 SOURCE / "test/door/fortran.F90", f"-L{BUILD}/emu", f"-l:{CUDART}", "-l:libcuda.so.1")
    result = run_mpi(mpi, 3, program, env=PATHS["accel"])
    assert_passed(result)
    assert count_calls(result.output, "accel", name_of("allreduce", "persistent", mpi)) == 3, result.output
    without = run_mpi(mpi, 2, program, library=False, timeout=60)
    assert "checks passed, 0 failed" not in without.output


@emulated_only
@each_mpi
def test_functions_taken_past_the_library(run_mpi, mpi, tmp_path):
    """Who dlsyms MPI_Init is told at the end; who opens the library in the MPI's place is not, and has it."""
    program, name = tmp_path / "taken", {"mpich": "libmpich.so.12", "openmpi": "libmpi.so.40", "openmpi5": "libmpi.so.40", "mpich5": "libmpi.so.12"}[mpi]
    if mpi in NEWER:
        name = BUILD / "mpis" / mpi / "lib" / name
    compile_with("gcc", f"-I{CUDA}/include", "-o", program, SOURCE / "test/door/taken.c", f"-L{BUILD}/emu", "-l:libcuda.so.1", "-ldl")
    for library, told in ((name, True), (BUILD / "mpi" / mpi / "libgpucoll.so.0", False)):
        result = run_mpi(mpi, 2, program, library, env={"GPUCOLL_STATS": "1"})
        assert result.status == 0 and result.output.count("started") == 2, result.output
        assert ("has taken MPI_Init from the MPI's own library" in result.output) == told, result.output
        assert ("calls of this rank" in result.output) != told, result.output


def make_tool(mpi, order, tmp_path):
    """What has run_mpi preload a small tool above or below the library."""
    tool = tmp_path / "tool.so"
    compile_with(f"mpicc.{mpi}", "-shared", "-fPIC", "-o", tool, SOURCE / "test/door/tool.c")
    return {"before" if order == "above" else "after": [str(tool)]}


@each_mpi
@pytest.mark.parametrize("order", ["above", "below"])
def test_another_tool_stacks(run_mpi, mpi, order, tmp_path):
    place = make_tool(mpi, order, tmp_path)
    result = run_mpi(mpi, 2, "test_life", "reallocation", env={"GPUCOLL_STATS": "1"}, **place)
    assert_passed(result)
    # Fifty on device buffers and fifty on host buffers, each seen once by the library, and by the tool above it. Below,
    # only what the real MPI is asked to do is seen.
    assert f"tool saw {100 if order == 'above' else 50} calls" in result.output, result.output
    assert count_calls(result.output, "accel", "MPI_Allreduce") == 50, result.output


@each_mpi
@pytest.mark.parametrize("order", ["above", "below"])
@pytest.mark.parametrize("case", ["handler", "copy_function"])
def test_callbacks_through_a_tool(run_mpi, mpi, order, case, tmp_path):
    """The call that a tool makes once more, by its other name, is not one of a callback's."""
    if mpi == "mpich5" and case == "handler":
        pytest.skip("MPICH 5.0 does not always give errors of messages that are truncated")
    counts = []
    for place in ({}, make_tool(mpi, order, tmp_path)):
        trace = tmp_path / f"{len(counts)}.json"
        assert_passed(run_mpi(mpi, 2, "test_callbacks", case, env={"GPUCOLL_TRACE": str(trace)}, **place))
        counts.append(Counter(re.findall(r'"name": "(MPI_\w+)"', trace.read_text())))
        assert "left by a jump" not in trace.read_text()
    assert counts[0] == counts[1] and counts[0]["MPI_Comm_dup"] >= 4, counts


@each_mpi
@pytest.mark.parametrize("order", ["above", "below"])
def test_another_tool_sees_requests(run_mpi, mpi, order, tmp_path):
    """Above the library a tool sees what the program calls, nonblocking and persistent; below it, what the real MPI is asked to do."""
    place, seen = make_tool(mpi, order, tmp_path), {}
    for case in ("alone", "before_host", "persistent_alone", "persistent_before"):
        result = run_mpi(mpi, 2, "test_queue", case, env={"GPUCOLL_STATS": "1"}, **place)
        assert_passed(result)
        seen[case] = [int(number) for number in re.search(r"tool saw (\d+) calls, (\d+) non\w+ ones, (\d+) starts, (\d+) compl", result.output).groups()]
    # Of those cases that are "alone" all is accelerated; the program waits for each.
    if order == "above":
        assert seen["alone"][1:] == [48, 0, 48] and seen["persistent_alone"][1:] == [0, 48, 48], seen
    else:
        assert seen["alone"][1] == 0 and seen["before_host"][1] > 0, seen


def test_mpi4py(run_mpi):
    """Debian's mpi4py is linked with Open MPI."""
    need_mpi4py()
    assert_passed(run_mpi("openmpi", 2, "/usr/bin/python3", SOURCE / "test/door/python_door.py", CUDART))


def test_mpi4py_and_cupy(run_mpi):
    """The example of it, with a stand-in for CuPy, whose kernels can't run here."""
    need_mpi4py()
    env = {"PYTHONPATH": SOURCE / "test/door", "CUDART": CUDART, "GPUCOLL_STATS": "1"}
    result = run_mpi("openmpi", 3, "/usr/bin/python3", SOURCE / "python/examples/mpi4py_cupy.py", env=env)
    assert result.status == 0 and result.output.count(" of 3: 6.0, 5994.0") == 3, result.output
    assert count_calls(result.output, "accel") + count_calls(result.output, "stage") == 1, result.output


@each_mpi
def test_partitioned_messages_are_refused(run_mpi, mpi, tmp_path):
    """Partitioned messages on device buffers are an error where the MPI has them; a persistent barrier is left alone."""
    source = tmp_path / "refused.c"
    source.write_text(r"""
#include <mpi.h>
#include <cuda_runtime_api.h>
#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION < 5
#define BEFORE_PARTITIONS
#include <mpi-ext.h>
#endif
int main(int argc, char **argv)
{
	void *buffer, *managed;
	MPI_Request request;
	MPI_Init(&argc, &argv);
	cudaMalloc(&buffer, 100);
	cudaMallocManaged(&managed, 100, cudaMemAttachGlobal);
#ifndef BEFORE_PARTITIONS
	MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
	if (MPI_Psend_init(buffer, 1, 100, MPI_BYTE, 0, 0, MPI_COMM_SELF, MPI_INFO_NULL, &request) != MPI_ERR_BUFFER ||
	    MPI_Precv_init(managed, 1, 100, MPI_BYTE, 0, 0, MPI_COMM_SELF, MPI_INFO_NULL, &request) != MPI_SUCCESS)
		return 1;
#else
	MPIX_Barrier_init(MPI_COMM_SELF, MPI_INFO_NULL, &request);
	MPI_Request_free(&request);
#endif
	MPI_Finalize();
	return 0;
}
""")
    program = tmp_path / "refused"
    compile_with(f"mpicc.{mpi}", f"-I{CUDA}/include", "-o", program, source, f"-L{BUILD}/emu",
                 f"-l:{CUDART}", "-l:libcuda.so.1")
    result = run_mpi(mpi, 1, program)
    assert result.status == 0, result.output
    told = re.findall(r"(\w+) was given a device buffer", result.output)
    assert told == (["MPI_Psend_init"] if mpi != "openmpi" else []), result.output
    quiet = run_mpi(mpi, 1, program, env={"GPUCOLL_DEBUG": "none"})
    assert "device buffer" not in quiet.output


@each_mpi
def test_tasks_that_the_mpi_does_not_know(mpi):
    """srun without what the MPI needs starts tasks that are alone. So is one that a launcher has started, but that has its variables."""
    program = str(BUILD / "mpi" / mpi / "test_life")
    env = {**os.environ, **environment(mpi, [str(BUILD / "mpi" / mpi / "libgpucoll.so.0")]), "SLURM_STEP_NUM_TASKS": "4"}
    for task, variables, warns in (("0", {}, True), ("1", {}, False), ("0", {"PMIX_RANK": "0"}, False)):
        if variables and mpi != "mpich":  # others take the variable for a launcher's that can't be reached
            continue
        result = run_command([program, "reallocation"], {**env, "SLURM_PROCID": task, **variables}, 60)
        assert_passed(result)
        assert ("srun has started 4 tasks, but each is alone" in result.output) == warns, result.output
