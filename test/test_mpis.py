# SPDX-License-Identifier: BSD-3-Clause
"""MPIs newer than the distribution's, as tools/get-mpis.sh gets them into the build tree. Two of them share the other files'
tests with those that configure found (conftest.py); here is what they have alone."""
import os

import pytest

from conftest import BUILD, MPIS, NEWER, ON_GPU, SANITIZED, SOURCE, assert_passed, run_command, run_work
from helpers import CUDART, HOSTID, PATHS, RECOVERY, SURVIVING, assert_survived, count_calls, on_nodes

NAMES = ["openmpi5", "mpich5"]
PROGRAMS = ["test_async", "test_coll", "test_queue"]


def get(name):
    got = run_command([str(SOURCE / "tools/get-mpis.sh"), str(BUILD / "mpis"), name], os.environ.copy(), 300)
    if got.status != 0:
        pytest.skip(f"no {name} could be got here: {got.output[-300:]}")


@pytest.fixture(scope="module")
def newer():
    """Those that the library was built for."""
    if ON_GPU or SANITIZED:
        pytest.skip("newer MPIs are tried on the emulated device, without sanitizers")
    for name in NAMES:
        get(name)
    assert NEWER == NAMES, "they were got, but not built for: make -C build newer-mpis does that"


@pytest.fixture(scope="module")
def standard_abi(newer):
    """The library and the programs for the standard ABI."""
    targets = [f"mpi/mpi_abi/{name}" for name in ["libgpucoll.so.0", *PROGRAMS]]
    wrapper = BUILD / "mpis/mpich5/bin/mpicc_abi"
    made = run_work(["make", "-s", "-C", str(BUILD), "MPI_NAMES=mpi_abi", f"MPI_WRAPPERS={wrapper}", *targets], os.environ.copy(), 300)
    assert made.status == 0, made.output
    return "mpi_abi"


def test_standard_abi(run_mpi, standard_abi):
    """Blocking, nonblocking and persistent collectives of all kinds, random programs, and what is queued."""
    mpi = standard_abi
    for form in ([], ["nonblocking"], ["persistent"]):
        result = run_mpi(mpi, 2, "test_coll", 1, "all", *form, env=PATHS["accel"])
        assert_passed(result)
        assert count_calls(result.output, "accel") > 30, result.output
    assert_passed(run_mpi(mpi, 2, "test_async", "random", 7, 1000, env=PATHS["accel"]))
    for case in ("alone", "before_host", "before_message", "late_comm", "many", "persistent_alone", "persistent_before", "persistent_orders"):
        assert_passed(run_mpi(mpi, 2, "test_queue", case, env=PATHS["accel"]))


@pytest.mark.parametrize("name", NAMES)
def test_mpi4py_on_newer_mpis(run_mpi, newer, name, monkeypatch):
    """A build for several MPIs, which loads the one that it finds, and has persistent calls."""
    get("mpi4py")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(BUILD / "mpis" / name / "lib"))
    env = {"PYTHONPATH": str(BUILD / "mpis/mpi4py"), **PATHS["accel"]}
    result = run_mpi(name, 2, "/usr/bin/python3", SOURCE / "test/door/python_door.py", CUDART, env=env)
    assert_passed(result)
    assert "persistent" in result.output and count_calls(result.output, "accel") == 7, result.output


@pytest.mark.parametrize("mpi", MPIS)
def test_newer_ucx(run_mpi, mpi, monkeypatch):
    """UCX 1.22, which the MPI then uses, too: messages of all kinds of collectives from the host's memory, and by its own CUDA
    module from the device's; a peer that is lost."""
    if ON_GPU or SANITIZED:
        pytest.skip("UCX 1.22 is tried on the emulated device, without sanitizers")
    get("ucx")
    folders = [str(BUILD / "mpis/ucx/libucx/lib"), str(BUILD / "emu/nvml")]
    far = {"GPUCOLL_EAGER_MAX": "0"}
    for env, way, nvml in (({}, "eager", False), ({"GPUCOLL_EXEC": "fused", "CUEMU_SMS": "16", **far}, "fused", False),
                           ({"GPUCOLL_NET_GDR": "on", **far}, "stepped gdr", True)):
        # Without NVML the module is not loaded.
        monkeypatch.setenv("LD_LIBRARY_PATH", ":".join(folders if nvml else folders[:1]))
        result = on_nodes(run_mpi, mpi, "0011", "test_coll", 1, env={"GPUCOLL_DEBUG": "info", **env})
        assert_passed(result)
        assert result.output.count(" UCX 1.22.") >= 4 and " WARN net" not in result.output, result.output
        assert way in result.output, result.output
    assert_passed(on_nodes(run_mpi, mpi, "01", "test_message", "stress", 100, env={"GPUCOLL_NET_GDR": "on"}))
    script = SURVIVING.format(environment=HOSTID.format(shape="0011"))
    result = run_mpi(mpi, 4, "/bin/sh", "-c", script, "sh", BUILD / "mpi" / mpi / "test_agree", "killed", 3, 5,
                     options=RECOVERY[mpi], timeout=60, env={"CUEMU_SMS": "8", "GPUCOLL_NET_GDR": "on"})
    assert_survived(result, 3)


def test_standard_abi_on_another_mpi(standard_abi):
    """One program, and one library, for the standard ABI also run on Intel MPI, if that was got by hand."""
    prefix = BUILD / "mpis" / "intelmpi"
    if not (prefix / "bin/mpiexec.hydra").exists():
        pytest.skip("no Intel MPI, of 130 MB: tools/get-mpis.sh build/mpis intelmpi gets it")
    env = {**os.environ, "I_MPI_ROOT": str(prefix), "I_MPI_FABRICS": "shm", "LD_LIBRARY_PATH": f"{prefix}/lib:{BUILD}/emu"}
    for form in ([], ["nonblocking"]):
        command = [str(prefix / "bin/mpiexec.hydra"), "-n", "2", "-env", "LD_PRELOAD", str(BUILD / "mpi/mpi_abi/libgpucoll.so.0"),
                   str(BUILD / "mpi/mpi_abi/test_coll"), "1", "all", *form]
        assert_passed(run_command(command, env, 120))
