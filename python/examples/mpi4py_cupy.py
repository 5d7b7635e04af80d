# SPDX-License-Identifier: BSD-3-Clause
"""mpi4py on CuPy's arrays: their device pointers go to MPI, and the library takes them there.

    gpucoll-exec mpirun -n 4 python mpi4py_cupy.py
"""
import cupy
from mpi4py import MPI

comm = MPI.COMM_WORLD
send = cupy.arange(1000, dtype="float32") * (comm.rank + 1)
recv = cupy.empty_like(send)
# CuPy's kernels are on its current stream, of which MPI knows nothing.
cupy.cuda.get_current_stream().synchronize()
comm.Allreduce(send, recv)
print(f"rank {comm.rank} of {comm.size}: {float(recv[1])}, {float(recv[999])}\n", end="")
