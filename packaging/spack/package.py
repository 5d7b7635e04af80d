# SPDX-License-Identifier: BSD-3-Clause
"""Spack's recipe: put this folder into a repository as packages/libgpucoll."""
from spack.package import *


class Libgpucoll(AutotoolsPackage, CudaPackage):
    """MPI collectives and messages on CUDA device memory, for MPI programs as they are."""

    license("BSD-3-Clause")

    version("main", branch="main")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("autoconf", type="build")
    depends_on("automake", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("python@3.8:", type=("build", "run"))
    depends_on("cuda@12:")
    depends_on("mpi")
    depends_on("ucx")
    depends_on("hwloc@2:")
    depends_on("jansson")

    def autoreconf(self, spec, prefix):
        which("sh")("./autogen.sh")

    def configure_args(self):
        spec = self.spec
        return [f"--with-mpi={spec['mpi'].prefix}", f"--with-cuda={spec['cuda'].prefix}", f"--with-ucx={spec['ucx'].prefix}",
                f"--with-hwloc={spec['hwloc'].prefix}"]
