# SPDX-License-Identifier: BSD-3-Clause
"""Tests without MPI: units, layering, form, documents."""
import os
import re
import shutil
import sys

import pytest

from conftest import ASAN_OPTIONS, BUILD, MPIS, SOURCE, run_command, run_work
from helpers import MACHINES

UNIT_TESTS = [p.name for p in sorted(BUILD.glob("test_*")) if os.access(p, os.X_OK) and p.is_file()]


def test_there_is_something_to_test():
    assert MPIS, f"no library was built in {BUILD}"
    assert UNIT_TESTS, f"no unit tests were built in {BUILD}"


def run_unit_test(name):
    libraries = f"{BUILD / 'emu'}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    env = dict(os.environ, LD_LIBRARY_PATH=libraries, CUEMU_DEVICES="2",
               ASAN_OPTIONS=ASAN_OPTIONS)
    arguments = sorted(map(str, MACHINES.glob("*.machine"))) if name == "test_choose" else []
    return run_work([str(BUILD / name), *arguments], env, 240)


@pytest.mark.quick
@pytest.mark.parametrize("name", UNIT_TESTS)
def test_unit(name):
    result = run_unit_test(name)
    assert result.status == 0, f"{result.output}\nended with {result.status}"


@pytest.mark.quick
def test_layering():
    result = run_work([sys.executable, str(SOURCE / "test/check-layering.py"), str(SOURCE)], os.environ, 60)
    assert result.status == 0, result.output


@pytest.mark.quick
def test_layering_is_checked(tmp_path):
    """The check fails on a tree that breaks the rules."""
    bad = {"algos/algo_bad.c": '#include <mpi.h>\n#include "gpu/gpu_driver.h"\n',
           "core/call/core_low.h": '#include "core/agree/core_high.h"\n',
           "core/agree/core_a.c": '#include "core/agree/core_b.h"\n', "core/agree/core_b.c": '#include "core/agree/core_a.h"\n'}
    for name, text in bad.items():
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    result = run_work([sys.executable, str(SOURCE / "test/check-layering.py"), str(tmp_path)], os.environ, 60)
    for found in ("src/algos may not include mpi.h", "src/algos may not include gpu/gpu_driver.h",
                  "src/core/call may not include core/agree/core_high.h", "in a circle: core_a -> core_b -> core_a"):
        assert found in result.output, result.output
    assert result.status != 0


@pytest.mark.quick
def test_docs_name_what_is_there(tmp_path):
    check = [sys.executable, str(SOURCE / "test/check-docs.py")]
    result = run_work([*check, str(SOURCE)], os.environ, 60)
    assert result.status == 0, result.output
    (tmp_path / "README.md").write_text("See `core_gone()` in `src/gone.c`, and `README.md`.\n")
    (tmp_path / "src/core/call").mkdir(parents=True)
    (tmp_path / "man").mkdir()
    (tmp_path / "man/gpucoll.7").write_text("")
    (tmp_path / "src/core/call/core_reason.c").write_text('	[CORE_REASON_X] = "for what "\n			"nobody knows",\n')
    result = run_work([*check, str(tmp_path)], os.environ, 60)
    assert result.status != 0 and re.findall(r"there is no (\S+)", result.output) == ["core_gone", "src/gone.c"], result.output
    assert "a call is staged for: for what nobody knows\n" in result.output, result.output


@pytest.mark.quick
def test_format():
    """As .clang-format has it: other versions break lines elsewhere."""
    tool = shutil.which("clang-format-14")
    if tool is None or not (SOURCE / ".clang-format").exists():
        pytest.skip("clang-format-14, or what it is to go by, is not there")
    sources = [str(path) for folder in ("src", "include", "test", "tools", "bench", "python") for suffix in ("c", "h", "cu", "cpp")
               for path in (SOURCE / folder).rglob(f"*.{suffix}")]
    result = run_work([tool, "--dry-run", "-Werror", f"--style=file:{SOURCE}/.clang-format", *sources], os.environ, 120)
    assert result.status == 0, result.output[:4000]


@pytest.mark.quick
def test_dist_has_all(tmp_path):
    """A release has every file of the tree, but for measured figures and what is the repository's own."""
    if not (SOURCE / ".git").exists() or shutil.which("git") is None:
        pytest.skip("this is no clone")
    listed = run_command(["git", "-C", str(SOURCE), "ls-files"], os.environ, 60)
    if listed.status != 0:
        pytest.skip(f"git does not say what the tree has: {listed.output}")
    (tmp_path / "print.mk").write_text("print-dist: ; @echo $(DISTFILES)\n")
    result = run_work(["make", "-s", "-C", str(BUILD), "-f", "Makefile", "-f", str(tmp_path / "print.mk"), "print-dist"], os.environ, 60)
    released = {str((BUILD / name).resolve().relative_to(SOURCE)) for name in result.output.split() if (BUILD / name).exists()}
    released |= set(result.output.split())
    missing = [name for name in listed.output.split("\n") if name and name not in released and not name.startswith((".ci/", ".github/", ".gitignore", "bench/results/"))]
    assert result.status == 0 and not missing, missing or result.output
