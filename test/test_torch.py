# SPDX-License-Identifier: BSD-3-Clause
"""torch.distributed over the library: python/, installed as a user would into an environment of the build tree. Collectives,
messages, works, groups and errors with tensors of the CPU, beside gloo and the host's arithmetic; and, as torch's own kernels
can't run here, with tensors in the emulated device's memory that a stand-in of torch's CUDA part makes (torch/standin.cpp)."""
import os
import re
import shutil

import pytest

from conftest import BUILD, CUDA, MPIS, ON_GPU, SANITIZED, SOURCE, family, launcher, run_command, run_work, tool

HOME = BUILD / "torch"
TORCH = BUILD / "mpis/torch"
PYTHON = "/usr/bin/python3"
CASES = ["reductions", "moves", "overlaps", "coalesced", "messages", "works", "groups"]
HOST_CASES = [*CASES, "layouts", "callbacks", "ddp"]
DEVICE_CASES = [*CASES, "mixed"]
HERE = SOURCE / "test/torch"
EXAMPLES = SOURCE / "python/examples"
# torch is a build for CUDA 13; the real runtime, which is not called, over the emulated driver.
LIBRARIES = f"{CUDA}/lib64:{BUILD / 'emu'}"


# That of the machine, but for torch's modules, which are compiled when one is loaded: that is to be once.
def environment(**more):
    return {**os.environ, "PATH": f"/usr/bin:{os.environ['PATH']}", "LD_LIBRARY_PATH": LIBRARIES, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "", **more}


@pytest.fixture(scope="module")
def torch():
    """torch itself, and the sources of the extension, which is not to be built among ours."""
    if ON_GPU or SANITIZED:
        pytest.skip("torch is tried on the emulated device, without sanitizers")
    got = run_command([str(SOURCE / "tools/get-mpis.sh"), str(BUILD / "mpis"), "torch"], environment(), 600)
    if got.status != 0:
        pytest.skip(f"no torch could be got here: {got.output[-300:]}")
    loaded = run_work([PYTHON, "-c", "import torch.distributed"], environment(PYTHONPATH=str(TORCH)), 60)
    if loaded.status != 0:
        pytest.skip(f"torch is not to be loaded here: {loaded.output[-300:]}")
    shutil.rmtree(HOME, ignore_errors=True)
    for folder in ("python", "include"):
        shutil.copytree(SOURCE / folder, HOME / folder)


@pytest.fixture(scope="module")
def installed(torch):
    """A function: an environment with the backend for an MPI; its interpreter."""
    made = {}

    def install(mpi):
        if mpi in made:
            return made[mpi]
        home = HOME / mpi
        python = home / "bin/python"
        assert run_work([PYTHON, "-m", "venv", "--without-pip", str(home)], environment(), 60).status == 0
        packages = next(home.glob("lib/python3*/site-packages"))
        (packages / "torch.pth").write_text(f"{TORCH}\n")
        flags = "-O0 -g0 -Wextra -Werror -Wno-unused-parameter -Wno-error=deprecated-declarations"  # not optimised, to be built sooner
        result = run_work([PYTHON, "-m", "pip", "--python", str(python), "install", "--no-compile", str(HOME / "python")],
                          environment(MPICC=tool(mpi, "mpicc"), GPUCOLL_LIBDIR=str(BUILD / "mpi" / mpi), CFLAGS=flags, CXXFLAGS=flags), 200)
        if "No matching distribution found for setuptools" in result.output:
            pytest.skip("pip could get no setuptools here")
        assert result.status == 0, result.output[-4000:]
        made[mpi] = python
        return python
    return install


@pytest.fixture(scope="module")
def standin(torch):
    """The folder of the stand-in for torch's CUDA part."""
    include = [f"-isystem{TORCH / 'torch/include' / sub}" for sub in ("", "torch/csrc/api/include")]
    result = run_work(["g++", "-std=c++17", "-O0", "-fPIC", "-shared", "-Wall", "-Werror", *include, f"-isystem{CUDA}/include",
                       f"-I{python_headers()}", "-DTORCH_API_INCLUDE_EXTENSION_H",
                       "-o", str(HOME / "standin.so"), str(HERE / "standin.cpp"), f"-L{TORCH / 'torch/lib'}",
                       "-ltorch_python", "-ltorch_cpu", "-lc10", f"-L{BUILD / 'emu'}", "-l:libcuda.so.1"], environment(), 200)
    assert result.status == 0, result.output[-4000:]
    return HOME


def python_headers():
    return run_command([PYTHON, "-c", "import sysconfig; print(sysconfig.get_paths()['include'])"], environment(), 20).output.strip()


def run(mpi, ranks, command, options=(), timeout=200, **env):
    variables = [f"{key}={value}" for key, value in env.items()]
    return run_command([*launcher(mpi, ranks), *options, "env", *variables, *map(str, command)],
                       environment(OMPI_MCA_mpi_yield_when_idle="1"), timeout)


def assert_case_passed(result, case, ranks):
    assert len(re.findall(f"^{case}: [0-9]+ checks passed, 0 failed$", result.output, re.M)) == ranks, result.output[-4000:]


@pytest.fixture(scope="module")
def run_cases(installed):
    """A function: a job that makes some cases, once for all of their tests: to load torch takes longer than most of them."""
    made = {}

    def run_once(mpi, ranks, cases, **env):
        if (mpi, *cases, *env) not in made:
            made[mpi, *cases, *env] = run(mpi, ranks, [installed(mpi), HERE / "program.py", *cases], timeout=400, **env)
        assert made[mpi, *cases, *env].status == 0, made[mpi, *cases, *env].output[-4000:]
        return made[mpi, *cases, *env]
    return run_once


@pytest.mark.parametrize("case", [*HOST_CASES, "ends"])
@pytest.mark.parametrize("mpi", MPIS)
def test_host_tensors(run_cases, mpi, case):
    ranks = {"mpich": 3}.get(family(mpi), 2)
    assert_case_passed(run_cases(mpi, ranks, HOST_CASES if case in HOST_CASES else [case]), case, ranks)


@pytest.mark.parametrize("case", DEVICE_CASES)
@pytest.mark.parametrize("mpi", MPIS)
def test_device_tensors(run_cases, standin, mpi, case):
    assert_case_passed(run_cases(mpi, 2, DEVICE_CASES, STANDIN="1", PYTHONPATH=standin), case, 2)


@pytest.mark.parametrize("mpi", MPIS)
def test_errors(installed, mpi):
    """Bad arguments, and a rank that does not come. MPI can't be ended then, so that the launcher complains."""
    assert_case_passed(run(mpi, 3, [installed(mpi), HERE / "program.py", "errors"]), "errors", 3)


@pytest.mark.parametrize("mpi", MPIS)
def test_a_late_rank_on_a_stream(installed, standin, mpi):
    """What waits in a stream can't be taken back, so that the process says what it waits for, and ends."""
    result = run(mpi, 2, [installed(mpi), HERE / "program.py", "late"], STANDIN="1", PYTHONPATH=standin, timeout=60)
    assert result.status not in (0, "timeout"), result.output[-4000:]
    assert "rank 0: gpucoll:all_reduce of 2 elements did not end within 1000 ms" in result.output, result.output[-4000:]


@pytest.mark.parametrize("mpi", MPIS)
def test_torchrun(installed, mpi):
    """One under each process of MPI's."""
    command = [installed(mpi), "-m", "torch.distributed.run", "--nnodes", 2, "--nproc-per-node", 1, "--rdzv-backend", "c10d", "--rdzv-id", 1,
               "--rdzv-endpoint", f"127.0.0.1:{20000 + os.getpid() % 10000}", HERE / "program.py", "groups"]
    assert_case_passed(run(mpi, 2, command, ["-pmi-port"] if family(mpi) == "mpich" else []), "groups", 2)


@pytest.mark.parametrize("mpi", MPIS)
def test_torchrun_without_mpi(installed, mpi):
    result = run_command([str(installed(mpi)), "-m", "torch.distributed.run", "--nproc-per-node", "2", str(HERE / "program.py"), "groups"],
                         environment(), 100)
    assert "each rank is a process that the MPI's launcher started" in result.output, result.output[-4000:]


@pytest.mark.parametrize("mpi", MPIS)
def test_examples(installed, mpi):
    python = installed(mpi)
    env = {"CUDA_VISIBLE_DEVICES": ""}
    result = run(mpi, 2, [python, EXAMPLES / "allreduce.py"], **env)
    assert result.status == 0 and result.output.count(" of 2: [1.0, 1.0, 1.0, 1.0]") == 2, result.output[-4000:]
    result = run(mpi, 4, [python, EXAMPLES / "ring.py"], **env)
    assert result.status == 0 and result.output.count(": equal, [6.0, 10.0, 14.0] ...") == 4, result.output[-4000:]
    losses = [re.findall("epoch .*", run(mpi, 2, [python, EXAMPLES / "train.py", *group], **env).output) for group in ([], ["gloo"])]
    assert len(losses[0]) == 4 and losses[0] == losses[1], losses


@pytest.mark.parametrize("mpi", MPIS)
def test_a_rank_that_ends_with_an_error(installed, mpi):
    """The others are not waited for, nor wait: the launcher ends them."""
    program = ("import gpucoll_torch, torch.distributed as dist, torch, sys; dist.init_process_group('gpucoll', init_method='mpi://')\n"
               "if dist.get_rank() == 1: raise SystemExit(3)\n"
               "dist.all_reduce(torch.ones(1))")
    result = run(mpi, 2, [installed(mpi), "-c", program], timeout=60)
    assert result.status not in (0, "timeout"), result.output[-4000:]
