# SPDX-License-Identifier: BSD-3-Clause
"""mpi4py, whose MPI is loaded by dlopen: collectives and messages on an object with __cuda_array_interface__.

python_door.py LIBCUDART
"""
import ctypes
import sys

from mpi4py import MPI

N = 1000
cudart = ctypes.CDLL(sys.argv[1])


class DeviceArray:
    """N ints on the device, as much of an array as mpi4py asks for."""

    def __init__(self):
        address = ctypes.c_void_p()
        assert cudart.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(4 * N)) == 0
        self.address = address.value
        self.__cuda_array_interface__ = {"shape": (N,), "typestr": "<i4", "data": (self.address, False), "version": 2}

    def put(self, values):
        host = (ctypes.c_int * N)(*values)
        assert cudart.cudaMemcpy(ctypes.c_void_p(self.address), host, ctypes.c_size_t(4 * N), 4) == 0

    def get(self):
        host = (ctypes.c_int * N)()
        assert cudart.cudaMemcpy(host, ctypes.c_void_p(self.address), ctypes.c_size_t(4 * N), 4) == 0
        return list(host)


comm = MPI.COMM_WORLD
send, recv = DeviceArray(), DeviceArray()
send.put(i + comm.rank for i in range(N))
comm.Allreduce(send, recv, MPI.SUM)
ok = recv.get() == [i * comm.size + comm.size * (comm.size - 1) // 2 for i in range(N)]
comm.Bcast(send, root=comm.size - 1)
ok &= send.get() == [i + comm.size - 1 for i in range(N)]
left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
send.put(i * 3 + comm.rank for i in range(N))
requests = [comm.Irecv(recv, left), comm.Isend(send, right)]
MPI.Request.Waitall(requests)
ok &= recv.get() == [i * 3 + left for i in range(N)]
recv.put(0 for i in range(N))
comm.Sendrecv(send, right, recvbuf=recv, source=left)
ok &= recv.get() == [i * 3 + left for i in range(N)]
send.put(i + comm.rank for i in range(N))
requests = [comm.Iallreduce(send, recv, MPI.SUM), comm.Ibcast(send, root=0)]
MPI.Request.Waitall(requests)
ok &= recv.get() == [i * comm.size + comm.size * (comm.size - 1) // 2 for i in range(N)]
ok &= send.get() == list(range(N))
if hasattr(comm, "Allreduce_init"):
    request = comm.Allreduce_init(send, recv, MPI.SUM)
    for k in range(3):
        send.put(i + k * comm.rank for i in range(N))
        request.Start()
        request.Wait()
        ok &= recv.get() == [i * comm.size + k * comm.size * (comm.size - 1) // 2 for i in range(N)]
    request.Free()
    print("persistent")
failed = comm.allreduce(0 if ok else 1)
if comm.rank == 0:
    print(f"{comm.size - failed} checks passed, {failed} failed")
