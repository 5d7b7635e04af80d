# SPDX-License-Identifier: BSD-3-Clause
"""Compiled kernels on the emulated device, which interprets their PTX: this project's, whose twins all other tests run, and applications'."""
import ctypes
import os
import re
import shutil

import pytest

from conftest import BUILD, CUDA, MPIS, SOURCE, assert_passed, family, run_command, tool
from helpers import CUDART, PATHS, compile_with, count_calls, each_mpi, emulated_only, get_wheel

pytestmark = emulated_only

PTX = {"CUEMU_KERNELS": "ptx", **PATHS["accel"]}
FUSED = {"GPUCOLL_EXEC": "fused", "CUEMU_SMS": "32"}
# What reaches all of them: steps in messages, in every protocol; windows, packing; the proof that peers' memory works, and the probe.
CASES = {
    "direct": (["test_coll", 2, "bcast,allgather,alltoallw,reduce_scatter"], {}, "direct"),
    "simple": (["test_coll", 2, "allreduce,allgather,reduce"], {**FUSED, "GPUCOLL_ALGO": "ring", "GPUCOLL_PROTO": "simple"}, "ring fused simple"),
    "ll": (["test_coll", 2, "allreduce,bcast"], {**FUSED, "GPUCOLL_ALGO": "tree", "GPUCOLL_PROTO": "ll"}, "tree fused ll"),
    "ll128": (["test_coll", 2, "allreduce,bcast"], {**FUSED, "GPUCOLL_ALGO": "ring", "GPUCOLL_PROTO": "ll128"}, "ring fused ll128"),
    "types": (["test_types", "once"], {"CUEMU_DEVICES": "2"}, "direct"),
    "types in messages": (["test_types", "once"], {**FUSED, "GPUCOLL_ALGO": "ring"}, "ring fused"),
    "windows": (["test_coll", 2, "allreduce"], {"GPUCOLL_WINDOW": "64K", "CUEMU_DEVICES": "2"}, "through windows"),
}


@pytest.mark.parametrize("case", CASES)
def test_compiled_kernels(run_mpi, case):
    """With a block of the size that the launch asks for, once."""
    mpi = MPIS[list(CASES).index(case) % len(MPIS)]
    program, env, way = CASES[case]
    more = {"CUEMU_THREADS": "512"} if case == "ll128" else {}
    result = run_mpi(mpi, 2, *program, env={**PTX, **env, **more})
    assert_passed(result)
    assert count_calls(result.output, "accel") > 10 and way in result.output, result.output


@pytest.mark.parametrize("env", [{}, {"GPUCOLL_ALGO": "ring,tree,linear,pairwise", "GPUCOLL_PROTO": "ll"}, {"GPUCOLL_ALGO": "ring,chain", "GPUCOLL_PROTO": "ll128"},
                                 {"GPUCOLL_ALGO": "ring,tree,linear,bruck", "GPUCOLL_PROTO": "simple", "GPUCOLL_SCRATCH": "1", "GPUCOLL_CHANNELS": "2"}])
def test_no_races(run_mpi, env):
    """In shared memory."""
    result = run_mpi(MPIS[0], 3, "test_coll", 1, env={**PTX, "CUEMU_SMS": "16", "CUEMU_DEVICES": "3", "CUEMU_CHECK_SHARED": "1", **env})
    assert_passed(result)
    assert "cuemu" not in result.output, result.output


@pytest.mark.parametrize("arch", [80, 90])
def test_other_architectures(run_mpi, arch, tmp_path):
    """The embedded PTX is for newer GPUs; what is compiled for these has other instructions here and there."""
    built, ptx = BUILD / f"ptx/gpu_execute.compute_{arch}.ptx", tmp_path / "gpu_execute.ptx"
    if built.exists():
        shutil.copy(built, ptx)
    else:
        compile_with(f"{CUDA}/bin/nvcc", "-I", SOURCE / "src", "-std=c++17", "-O3", "-fmad=false", f"-arch=sm_{arch}", "-ptx", "-o", ptx,
                     SOURCE / "src/gpu/kernels/gpu_execute.cu")
    env = {**PTX, **FUSED, "CUEMU_PTX": str(tmp_path), "GPUCOLL_ALGO": "ring"}
    result = run_mpi(MPIS[0], 2, "test_types", "once", env=env)
    assert_passed(result)
    assert "ring fused" in result.output, result.output
    if arch == 80:
        right = ptx.read_text()
        ptx.write_text(right.replace("bar.sync", "// bar.sync"))
        result = run_mpi(MPIS[0], 2, "test_types", "once", env={**env, "CUEMU_CHECK_SHARED": "1"})
        assert "a race in shared memory" in result.output or "nobody has stored" in result.output, result.output
        ptx.write_text(right)
    # That these were run: with other sums they are wrong.
    ptx.write_text(ptx.read_text().replace("add.rn.f64", "sub.rn.f64"))
    result = run_mpi(MPIS[-1], 2, "test_types", "once", env=env)
    assert result.status != 0 and "checks passed, 0 failed" not in result.output, result.output


def test_memory_is_global():
    """Compiled kernels don't leave it to the hardware to find out which kind of memory an address is of, but for the lists of a chunk's addresses."""
    access = re.compile(r"^\s*(?:@!?%p\d+ )?((?:ld|st|atom|red)\.[\w.:]+)", re.M)
    texts = {path.name: path.read_text() for path in (BUILD / "ptx").glob("gpu_*.ptx")}
    assert {name.split(".")[0] for name in texts} == {path.stem for path in (SOURCE / "src/gpu/kernels").glob("*.cu")}
    for name, text in texts.items():
        accesses = set(access.findall(text))
        assert any(".global" in a for a in accesses), name
        generic = {a for a in accesses if not re.search(r"\.(global|shared|local|param|const)\b", a)}
        assert generic <= ({"ld.u64"} if re.match("gpu_ex(ecute|change)", name) else set()), name


# What NVRTC has no headers for.
HEADERS = {"stdint.h": "typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;"
                       "typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned uint32_t;"
                       "typedef unsigned long long uint64_t, uintptr_t;\n#define UINT64_C(x) x##ull\n#define UINT32_MAX 0xffffffffu\n",
           "stddef.h": "#define offsetof(type, member) ((size_t)__INTADDR__(&(((type *)0)->member)))\n", "string.h": "\n", "stdbool.h": "\n"}


def compile_by_nvrtc(library, source, *options):
    """The PTX."""
    nvrtc, program, size = ctypes.CDLL(str(library)), ctypes.c_void_p(), ctypes.c_size_t()

    def strings(texts):
        return (ctypes.c_char_p * len(texts))(*[str(text).encode() for text in texts])

    def text_of(what):
        getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        getattr(nvrtc, f"nvrtcGet{what}")(program, text)
        return text.value.decode()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.read_bytes(), source.name.encode(), len(HEADERS), strings(HEADERS.values()),
                                    strings(HEADERS)) == 0
    assert nvrtc.nvrtcCompileProgram(program, len(options), strings(options)) == 0, text_of("ProgramLog")
    return text_of("PTX")


def test_the_compiler_of_cuda_12(run_mpi, tmp_path):
    """What 12.2 makes of the kernels."""
    nvrtc = get_wheel("nvrtc-12.2", "nvidia-cuda-nvrtc-cu12==12.2.140", "*/*/lib/libnvrtc.so.12")
    text = compile_by_nvrtc(nvrtc, SOURCE / "src/gpu/kernels/gpu_execute.cu", f"-I{SOURCE}/src", "--std=c++17", "-fmad=false", "-arch=compute_80")
    assert "release 12.2" in text, text[:400]
    (tmp_path / "gpu_execute.ptx").write_text(text)
    for program in (["test_types", "once"], ["test_coll", 1, "allreduce,bcast,alltoall"]):
        result = run_mpi(MPIS[0], 2, *program, env={**PTX, **FUSED, "CUEMU_PTX": str(tmp_path), "CUEMU_CHECK_SHARED": "1", "GPUCOLL_ALGO": "ring,pairwise"})
        assert_passed(result)
        assert "ring fused" in result.output and "cuemu" not in result.output, result.output


def compile_app(mpi, source, program):
    """A program with kernels, with the runtime that the emulated device has one of."""
    made = program.with_suffix(".o")
    shown = run_command([tool(mpi, "mpicc"), "-show" if family(mpi) == "mpich" else "--showme:compile"], os.environ.copy(), 20).output
    includes = re.findall(r"-I\S+", shown)
    compile_with(f"{CUDA}/bin/nvcc", "-arch=sm_80", "-fmad=false", "-lineinfo", *includes, "-c", "-o", made, source)
    compile_with(f"mpicc.{mpi}", "-o", program, made, f"-L{BUILD / 'emu'}", f"-l:{CUDART}", "-l:libcuda.so.1", "-lstdc++", "-lm")


@pytest.mark.parametrize("mpi", MPIS)
def test_an_application_with_kernels(run_mpi, mpi, tmp_path):
    compile_app(mpi, SOURCE / "test/app/heat.cu", tmp_path / "heat")
    for ranks in (1, 3):
        result = run_mpi(mpi, ranks, tmp_path / "heat", env=PATHS["accel"])
        assert result.status == 0 and f"{ranks} ranks, residual" in result.output and ": 0 wrong" in result.output, result.output
        assert count_calls(result.output, "accel", "MPI_Allreduce") == (20 if ranks > 1 else 0), result.output


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    program = tmp_path_factory.mktemp("kernels") / "kernels"
    compile_with(f"{CUDA}/bin/nvcc", "-arch=sm_80", "-fmad=false", "-lineinfo", "-cudart", "shared", "-o", program, SOURCE / "test/app/kernels.cu")
    return program


def run_app(*command, **env):
    return run_command(list(map(str, command)), {**os.environ, "LD_LIBRARY_PATH": str(BUILD / "emu"), **env}, 60)


def test_what_kernels_may_do(kernels):
    for seed in range(1, 6):
        result = run_app(kernels, CUEMU_SEED=str(seed))
        assert result.status == 0 and "0 failures" in result.output, result.output
        assert "it has 32 threads, 12.50% z 123456789abc" in result.output, result.output
    result = run_app(kernels, CUEMU_CHECK_SHARED="1")
    assert result.status == 0 and "0 failures" in result.output, result.output
    assert run_app(kernels, "races").status == 0


@pytest.mark.parametrize("what,error,said", [
    ("out_of_bounds", "an illegal memory access", "out_of_bounds.*thread 17,.*kernels.cu:[0-9]+ .*in no global memory"),
    ("misaligned", "misaligned address", "misaligned.*thread 0,.*4 bytes at"),
    ("asserts", "device-side assert triggered", "asserts.*thread 9,.*assertion"),
    ("stops", "unspecified launch failure", "stops.*thread 1,.*trap"),
    ("frees_twice", "an illegal memory access", "frees_twice.*thread 0,.*which malloc has not given"),
    ("races", "unspecified launch failure", "races.*kernels.cu:[0-9]+ .*(a race in shared memory with thread|nobody has stored)"),
    ("reads_nothing", "unspecified launch failure", "reads_nothing.*thread 63,.*nobody has stored")])
def test_what_kernels_may_not_do(kernels, what, error, said):
    result = run_app(kernels, what, CUEMU_CHECK_SHARED="1")
    assert result.status == 1 and error in result.output and re.search(f"cuemu: kernel .*{said}", result.output), result.output
