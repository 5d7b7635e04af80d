# SPDX-License-Identifier: BSD-3-Clause
"""As much of CuPy as python/examples/mpi4py_cupy.py takes, on the emulated device: CUDART names its runtime."""
import ctypes
import os

cudart = ctypes.CDLL(os.environ["CUDART"])


class ndarray:
    """Floats in device memory; arithmetic goes by way of the host."""

    def __init__(self, count):
        address = ctypes.c_void_p()
        assert cudart.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(4 * count)) == 0
        self.count, self.address = count, address.value
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "<f4", "data": (self.address, False), "version": 3}

    def put(self, values):
        host = (ctypes.c_float * self.count)(*values)
        assert cudart.cudaMemcpy(ctypes.c_void_p(self.address), host, ctypes.c_size_t(4 * self.count), 4) == 0
        return self

    def get(self):
        host = (ctypes.c_float * self.count)()
        assert cudart.cudaMemcpy(host, ctypes.c_void_p(self.address), ctypes.c_size_t(4 * self.count), 4) == 0
        return list(host)

    def __mul__(self, factor):
        return ndarray(self.count).put(value * factor for value in self.get())

    def __getitem__(self, index):
        return self.get()[index]


def arange(count, dtype):
    assert dtype == "float32"
    return ndarray(count).put(range(count))


def empty_like(array):
    return ndarray(array.count).put([-1] * array.count)


class cuda:
    class Stream:
        @staticmethod
        def synchronize():
            assert cudart.cudaDeviceSynchronize() == 0

    @staticmethod
    def get_current_stream():
        return cuda.Stream
