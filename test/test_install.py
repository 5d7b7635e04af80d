# SPDX-License-Identifier: BSD-3-Clause
"""Headers of other CUDA releases; an installed library."""
import concurrent.futures
import os
import re
import shutil
from pathlib import Path

import pytest

from conftest import BUILD, CUDA, MPIS, ON_GPU, SANITIZED, SOURCE, assert_passed, environment, launcher, run_command, run_work
from helpers import CUDART, compile_with, get_wheel, run_tool


@pytest.fixture(scope="session")
def older_cuda():
    """The headers of CUDA 12.2, of NVIDIA's wheel."""
    return get_wheel("cuda-12.2", "nvidia-cuda-runtime-cu12==12.2.140", "*/*/include/cuda.h").parent


def test_headers_of_cuda_12(older_cuda):
    """Everything that includes CUDA's headers, but the kernels and a stand-in for UCX, compiles with those of 12.2, too."""
    wrapper = f"mpicc.{MPIS[0]}"
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{older_cuda}", f"-I{SOURCE / 'src'}", f"-I{SOURCE / 'include'}",
             f"-I{BUILD}", f"-I{SOURCE / 'test/threads'}", '-DGPUCOLL_VERSION_STRING="0"']
    knows = re.compile(r'#include ["<](cuda|gpu/|emu|core/|test\.h|doctor)')
    files = [path for folder in ("src/gpu", "src/core", "tools", "test/emu", "test/mpi", "test/unit", "test/threads", "bench")
             for path in sorted((SOURCE / folder).rglob("*.c")) if path.name != "emu_ucp.c" and knows.search(path.read_text())]
    assert len(files) > 120
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda path: run_work([wrapper, *flags, str(path)], os.environ, 60), files))
    failed = [result.output for result in results if result.status != 0]
    assert not failed, "\n".join(failed)[:4000]


@pytest.mark.quick
@pytest.mark.parametrize("mpi", MPIS)
def test_what_the_library_shows(mpi):
    """MPI's names, and the functions of gpucoll.h and those for libnccl.so.2; all of these, and no others."""
    shown = run_command(["nm", "-D", "--defined-only", str(BUILD / "mpi" / mpi / "libgpucoll.so.0")], os.environ, 20).output
    names = {line.split()[-1] for line in shown.splitlines()}
    headers = [re.sub(r"/\*.*?\*/", "", (SOURCE / header).read_text(), flags=re.DOTALL) for header in ("include/gpucoll/gpucoll.h", "src/pmpi/pmpi_hooks.h")]
    declared = {name for text in headers for name in re.findall(r"\b(gpucoll_\w+)\(", text)}
    assert len(declared) > 35 and {name for name in names if not re.match("P?MPIX?_", name)} == declared
    assert "MPI_Allreduce" in names


def test_install_and_link(tmp_path):
    """What `make install` puts where: linking with -lgpucoll is enough, and gpucoll-exec finds the rest."""
    if not (BUILD / "Makefile").exists():
        pytest.skip("no build tree to install from")
    assert run_command(["make", "-s", "-C", str(BUILD), "install", f"DESTDIR={tmp_path}"], os.environ.copy(),
                       300).status == 0
    lib = next(tmp_path.glob("**/libgpucoll.so")).parent
    root = lib.parent
    program = tmp_path / "linked"
    compile_with("mpicc", f"-I{CUDA}/include", "-o", program, SOURCE / "test/mpi/test_life.c", f"-L{lib}",
                 "-Wl,--no-as-needed", "-lgpucoll", f"-L{BUILD}/emu", f"-l:{CUDART}", "-l:libcuda.so.1")
    default = os.readlink(lib / "libgpucoll.so.0").split("/")[1]
    env = environment(default, [])
    env["LD_LIBRARY_PATH"] = f"{lib}:{env.get('LD_LIBRARY_PATH', '')}"
    command = [*launcher(default, 2), "env", *[f"{k}={v}" for k, v in env.items()], str(program), "reallocation"]
    assert_passed(run_command(command, os.environ.copy(), 60))
    # A program of one's own, by the package's flags; and of another MPI than the library's.
    source, ours = tmp_path / "ours.c", tmp_path / "ours"
    source.write_text(r"""
#include <mpi.h>
#include <gpucoll/gpucoll.h>
#include <stdio.h>
int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	printf("version %s\n", gpucoll_version());
	return MPI_Finalize();
}
""")
    package = dict(os.environ, PKG_CONFIG_PATH=str(lib / "pkgconfig"), PKG_CONFIG_SYSROOT_DIR=str(tmp_path))
    flags = run_command(["pkg-config", "--cflags", "--libs", "gpucoll"], package, 10)
    assert flags.status == 0, flags.output
    for mpi in MPIS:
        compile_with(f"mpicc.{mpi}", "-o", ours, source, *flags.output.split())
        env["LD_LIBRARY_PATH"] = str(lib)
        result = run_command([*launcher(mpi, 1), "env", *[f"{k}={v}" for k, v in env.items() if k != "LD_PRELOAD"], str(ours)],
                             os.environ.copy(), 60)
        assert (result.status == 0 and "version " in result.output) == (mpi == default), result.output
        assert mpi == default or "but runs under the libgpucoll.so for" in result.output, result.output
    for mpi in MPIS:
        installed = lib / "gpucoll" / mpi / "gpucoll-bench"
        where = [] if ON_GPU else ["--emulate"]
        result = run_tool(root / "bin/gpucoll-exec", *where, *launcher(mpi, 2), installed, "bcast", "-b", 64, "-e", 64)
        assert result.status == 0 and "# 0 wrong values" in result.output, result.output
    for page in ("man1/gpucoll-exec.1", "man7/gpucoll-env.7"):
        assert (root / "share/man" / page).stat().st_size > 500
    assert "GPUCOLL_STAGING_POOL" in (root / "share/man/man7/gpucoll-env.7").read_text()


@pytest.mark.skipif(ON_GPU or not Path("/usr/lib/x86_64-linux-gnu/openmpi/lib/openmpi3").exists(), reason="the bundle is made of Debian's MPIs")
def test_bundle(tmp_path):
    """For a machine with a GPU and no MPI: what is unpacked elsewhere knows its MPIs, and its tests start."""
    bundle = tmp_path / "gpucoll-bundle.tar.xz"
    made = run_command(["env", "BUNDLE_XZ=-0", str(SOURCE / "tools/bundle/make-bundle.sh"), str(SOURCE), str(BUILD), str(bundle), f"{CUDA}/lib64/{CUDART}"],
                       os.environ, 600)
    assert made.status == 0, made.output
    assert run_command(["tar", "-C", str(tmp_path), "-xf", str(bundle)], os.environ, 60).status == 0
    env = {name: value for name, value in os.environ.items() if not name.startswith("GPUTEST_")}
    result = run_command([str(tmp_path / "gpucoll-bundle/run"), "check", "-k", "test_disabled"], {**env, "GPUTEST_GPU": "0"}, 100)
    assert result.status == 0 and f"{len(MPIS)} passed, 0 failed" in result.output, result.output


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A function: the package of a kind, from the build tree."""
    def make(kind, tool):
        if not (BUILD / "Makefile").exists():
            pytest.skip("no build tree to package")
        if SANITIZED or shutil.which(tool) is None:
            pytest.skip(f"no {tool}" if not SANITIZED else "packages are not of a build with sanitizers")
        made = run_command([str(SOURCE / "packaging/make-package.sh"), kind, str(BUILD), str(tmp_path_factory.mktemp(kind))],
                           {**os.environ, "DPKG_DEB_COMPRESSOR_LEVEL": "0"}, 300)
        assert made.status == 0, made.output[-2000:]
        return Path(made.output.split()[-1])
    return make


BENCH = ["gpucoll-exec", "--emulate", "mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2", "gpucoll-bench", "allreduce", "-b", "8",
         "-e", "64K", "-f", "64", "-n", "3"]


def test_deb_in_a_bare_root(package, tmp_path):
    """Installed by apt into nothing but Debian's base, it runs."""
    deb = package("deb", "dpkg-shlibdeps")
    about = run_command(["dpkg-deb", "-I", str(deb)], os.environ.copy(), 20).output
    needs = re.search("Depends: (.*)", about)[1]
    assert "libc6" in needs and "mpi" not in needs and "cuda" not in needs and re.search("Recommends: .*libopenmpi", about), about
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        pytest.skip("no debootstrap, or not root")
    root, mirror = tmp_path / "root", "http://deb.debian.org/debian"
    release = re.search("VERSION_CODENAME=(.*)", Path("/etc/os-release").read_text())[1]
    made = run_command(["debootstrap", "--variant=minbase", release, str(root), mirror], os.environ.copy(), 300)
    if made.status != 0:
        pytest.skip(f"debootstrap made no root of {release} from {mirror}: {made.output[-200:]}")
    shutil.copy(deb, root / "root")
    script = (f"mount -t proc proc {root}/proc && mount -t tmpfs tmpfs {root}/dev/shm && exec chroot {root} sh -c '"
              f"apt-get update -qq && apt-get install -y -qq --no-install-recommends /root/{deb.name} openmpi-bin libopenmpi3 && "
              f"{' '.join(BENCH)} && gpucoll-info -v'")
    result = run_command(["unshare", "-m", "sh", "-c", script], {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "OMPI_MCA_btl": "tcp,self"}, 300)
    if "Unable to fetch" in result.output or "Failed to fetch" in result.output:
        pytest.skip(f"apt got no packages: {result.output[-200:]}")
    assert result.status == 0 and "# 0 wrong values" in result.output and "libgpucoll 0." in result.output, result.output[-3000:]
    shutil.rmtree(root)


def test_rpm(package, tmp_path):
    """Installed into a folder."""
    rpm = package("rpm", "rpmbuild")
    needs = run_command(["rpm", "-qp", "--requires", str(rpm)], os.environ.copy(), 20).output
    assert "libjansson" in needs and "libmpi" not in needs and "libcuda" not in needs, needs
    if os.geteuid() != 0:
        pytest.skip("rpm installs elsewhere for root only")
    made = run_command(["rpm", "--root", str(tmp_path), "-i", "--nodeps", "--noscripts", str(rpm)], os.environ.copy(), 60)
    assert made.status == 0, made.output
    config = (tmp_path / "usr/lib64/pkgconfig/gpucoll.pc").read_text()
    assert "prefix=/usr\n" in config and "libdir=/usr/lib64\n" in config, config
    result = run_command([str(tmp_path / "usr/bin" / BENCH[0]), *BENCH[1:7], str(tmp_path / "usr/bin/gpucoll-bench"), *BENCH[8:]], os.environ.copy(), 100)
    assert result.status == 0 and "# 0 wrong values" in result.output, result.output[-3000:]
