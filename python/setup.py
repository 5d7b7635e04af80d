# SPDX-License-Identifier: BSD-3-Clause
"""Builds the extension for the torch, the MPI and the libgpucoll that are there.

Environment: MPICC is the MPI's compiler wrapper (mpicc); GPUCOLL_LIBDIR the folder of that MPI's libgpucoll.so, where
`pkg-config gpucoll` does not tell, or tells another MPI's.
"""
import os
import shlex
import site
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).resolve().parent


def find_torch():
    """pip builds apart from the packages that are installed; but the extension is for the torch among them."""
    try:
        import torch
    except ImportError:
        for folder in (sysconfig.get_paths()["platlib"], sysconfig.get_paths()["purelib"], site.getusersitepackages()):
            site.addsitedir(folder)
        try:
            import torch
        except ImportError as error:
            sys.exit(f"gpucoll-torch: torch is to be installed first (or --no-build-isolation helps): {error}")
    return torch


def ask(*command):
    try:
        return shlex.split(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    except (OSError, subprocess.CalledProcessError):
        return []


def mpi_flags():
    """What the wrapper gives its compiler: Open MPI's words for it, then MPICH's."""
    mpicc = shlex.split(os.environ.get("MPICC", "mpicc"))
    flags = ask(*mpicc, "--showme:compile") + ask(*mpicc, "--showme:link") or ask(*mpicc, "-show")[1:]
    if not flags:
        sys.exit(f"gpucoll-torch: {shlex.join(mpicc)} is no MPI's compiler wrapper: set MPICC")
    return flags


def gpucoll_flags():
    """The headers lie beside this folder in the source tree, or where libgpucoll is installed."""
    include = HERE.parent / "include"
    flags = [f"-I{include}"] if include.is_dir() else ask("pkg-config", "--cflags", "gpucoll")
    folder = os.environ.get("GPUCOLL_LIBDIR") or next(iter(ask("pkg-config", "--variable=libdir", "gpucoll")), None)
    if not folder or not (Path(folder) / "libgpucoll.so").exists():
        sys.exit(f"gpucoll-torch: no libgpucoll.so in {folder}: set GPUCOLL_LIBDIR, or PKG_CONFIG_PATH for gpucoll.pc")
    return flags, [f"-L{folder}", "-Wl,--no-as-needed", "-lgpucoll", "-Wl,--as-needed", f"-Wl,-rpath,{folder}"]


find_torch()
from torch.utils.cpp_extension import BuildExtension, CppExtension  # noqa: E402

compile_flags, link_flags = gpucoll_flags()
mpi = mpi_flags()
setup(
    ext_modules=[CppExtension(
        "gpucoll_torch._C",
        ["csrc/all.cpp"],
        # torch's macros are for whoever is not Python's stable interface; MPI's old C++ bindings are not wanted.
        extra_compile_args=[*compile_flags, *(f for f in mpi if f.startswith(("-I", "-D"))), "-Wall",
                            "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX", "-fvisibility=hidden"],
        extra_link_args=[*link_flags, *(f for f in mpi if f.startswith(("-L", "-l", "-Wl"))),
                         # The MPI's libraries are found without LD_LIBRARY_PATH.
                         *(f"-Wl,-rpath,{f[2:]}" for f in mpi if f.startswith("-L"))],
    )],
    cmdclass={"build_ext": BuildExtension.with_options(use_ninja=False)},
    # What was built here before may have been for another MPI.
    options={"build_ext": {"force": True}},
)
