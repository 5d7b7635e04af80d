# SPDX-License-Identifier: BSD-3-Clause
"""docs/lessons: each program shows what its page says, and its cure cures it."""
import os
import re
import shutil

import pytest

from conftest import BUILD, CUDA, MPIS, SOURCE, family, tool
from helpers import CUDART, RECOVERY, SURVIVING, compile_with, each_mpi, emulated_only, on_nodes, run_tool

LESSONS = SOURCE / "docs/lessons"
pytestmark = [emulated_only, pytest.mark.skipif(not LESSONS.exists(), reason="a bundle has no documents")]
PAGE = (LESSONS / "README.md").read_text() if LESSONS.exists() else ""
NAMES = sorted(path.name for path in LESSONS.glob("*.c*"))


def said(text):
    """What the page quotes, with its line breaks and what differs from run to run taken out."""
    words = " ".join(line.strip() for line in text.splitlines())
    return re.sub(r"0x[0-9a-f.]+|communicator [0-9a-f]{4}\b|\d+ s\b", "#", words)


def is_quoted(sentence):
    return said(sentence) in said(PAGE)


@pytest.fixture
def lesson(run_mpi, tmp_path):
    def run(mpi, number, *arguments, ranks=3, shape=None, env=(), timeout=60, survives=False):
        source = next(path for path in LESSONS.glob(f"{number:02}-*"))
        program = tmp_path / source.stem
        if source.suffix == ".cu":
            nvcc = shutil.which("nvcc") or f"{CUDA}/bin/nvcc"
            if not os.path.exists(nvcc):
                pytest.skip("no nvcc")
            cxx = tool(mpi, "mpicc").replace("mpicc", "mpicxx")
            compile_with(nvcc, "-ccbin", cxx, "-cudart", "shared", "-arch=compute_80", "-code=compute_80", source, "-o", program)
        else:
            compile_with(tool(mpi, "mpicc"), "-Wall", "-Wextra", f"-I{CUDA}/include", source, "-o", program, f"-L{BUILD}/emu", f"-l:{CUDART}",
                         "-l:libcuda.so.1")
        env = {"GPUCOLL_TIMEOUT": "3", "GPUCOLL_DUMP": f"{tmp_path}/%p.json", **dict(env)}
        if shape:
            return on_nodes(run_mpi, mpi, shape, program, *arguments, env=env, timeout=timeout)
        if survives:
            return run_mpi(mpi, ranks, "/bin/sh", "-c", SURVIVING.format(environment=""), "sh", program, env=env, timeout=timeout,
                           options=RECOVERY[family(mpi)])
        return run_mpi(mpi, ranks, program, *arguments, env=env, timeout=timeout)
    return run


def test_the_page_has_them_all():
    assert len(NAMES) == 10 and all(f"[{name}]({name})" in PAGE for name in NAMES)


@pytest.mark.parametrize("number,mpi", [(number, MPIS[i % len(MPIS)]) for i, number in enumerate([1, 2, 3, 4, 5, 6, 8, 10])])
def test_the_cure(lesson, mpi, number):
    result = lesson(mpi, number, "right", env={"GPUCOLL_CHECK": "args,streams", "GPUCOLL_TIMEOUT": "60"})
    assert result.status == 0 and "WARN" not in result.output, result.output
    assert len(re.findall(r"^rank \d( is through|: the sum is 3, and is to be 3|: .* ms for each sum)$", result.output, re.MULTILINE)) == 3, result.output


@each_mpi
@pytest.mark.parametrize("number", [1, 3, 4, 10])
def test_arguments(lesson, mpi, number):
    result = lesson(mpi, number, env={"GPUCOLL_CHECK": "args"})
    line = re.search(r"GPUCOLL_CHECK: .*", result.output)
    assert result.status != 0 and line, result.output
    assert is_quoted(line[0]), line[0]


@each_mpi
def test_a_stream(lesson, mpi):
    result = lesson(mpi, 2)
    assert "the sum is 0, and is to be 3" in result.output, result.output
    result = lesson(mpi, 2, env={"GPUCOLL_CHECK": "streams"})
    lines = re.findall(r"GPUCOLL_CHECK: .*", result.output)
    assert len(lines) == 3 and all(is_quoted(line) for line in lines), result.output


@each_mpi
def test_a_host_buffer(lesson, mpi):
    result = lesson(mpi, 5, env={"GPUCOLL_DEBUG": "info", "GPUCOLL_DEBUG_SUBSYS": "core"})
    line = re.search(r"gpucoll\[1\] INFO core: MPI_Allreduce on MPI_COMM_WORLD, < 16 MiB: .*", result.output)
    assert result.status == 0 and line and is_quoted(line[0]), result.output


@each_mpi
def test_two_communicators(lesson, mpi, tmp_path):
    result = lesson(mpi, 6, timeout=12)
    assert result.status == "timeout", result.output
    text = run_tool(BUILD / "gpucoll-info", "--desync", *tmp_path.glob("*.json")).output
    assert re.search(r"did not come to MPI_Allreduce .*: it is in MPI_Allreduce ", text), text
    assert "ranks 0 and 1 wait for each other: they have come to collectives on two communicators in different orders" in text, text
    assert is_quoted("ranks 0 and 1 wait for each other: they have come to collectives on two communicators in different orders")


@each_mpi
def test_a_full_gpu(lesson, mpi, tmp_path):
    room = {"CUEMU_ROOM": "1", "CUEMU_SMS": "2"}
    result = lesson(mpi, 7, "right", ranks=2, env=room)
    assert result.status == 0 and result.output.count("is through") == 2, result.output
    result = lesson(mpi, 7, ranks=2, env=room, timeout=12)
    assert result.status == "timeout", result.output
    text = result.output + run_tool(BUILD / "gpucoll-info", "--desync", *tmp_path.glob("*.json")).output
    for line in ("MPI_Allreduce has waited 3 s for its kernel or copies and goes on waiting", "rank 0 waits for its kernel or the network"):  # and for what, if it has said so before the file was written
        assert line in text and is_quoted(line), text


@each_mpi
def test_a_lost_peer(lesson, mpi, tmp_path):
    result = lesson(mpi, 8, survives=True, timeout=30)
    line = re.search(r"rank 1 of communicator 0x\w+, rank 1 of MPI_COMM_WORLD, is lost in call 5", result.output)
    assert line and is_quoted(line[0]), result.output
    text = run_tool(BUILD / "gpucoll-info", "--desync", *tmp_path.glob("*.json")).output
    line = re.search(r"the process of rank 1 has ended; its last collective was .*", text)
    assert line and is_quoted(line[0]), text


@each_mpi
def test_a_network(lesson, mpi):
    result = lesson(mpi, 9, shape="01", env={"UCX_NET_DEVICES": "nosuch0"})
    line = re.search(r"gpucoll\[0\] WARN net: UCX finds no way .*", result.output)
    assert result.status == 0 and result.output.count("is through") == 2 and line and is_quoted(line[0]), result.output
