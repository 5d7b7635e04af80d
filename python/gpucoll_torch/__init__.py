# SPDX-License-Identifier: BSD-3-Clause
"""torch.distributed's backend "gpucoll": collectives over MPI.

    import torch.distributed as dist
    import gpucoll_torch
    dist.init_process_group("gpucoll", init_method="mpi://")

under the MPI's launcher. See README.md beside the source.
"""
import atexit
import datetime
import socket

import torch  # noqa: F401  (its libraries are the extension's)
import torch.distributed as dist

from . import _C

__all__ = ["__version__"]
__version__ = "0.1.0"


def _create(store, rank, size, timeout):
    return _C.create(store, rank, size, timeout)


def _rendezvous(url, timeout=datetime.timedelta(minutes=30), **_):
    """init_method="mpi://": ranks are MPI's, and process 0 has the store."""
    _C.start()
    rank, size = _C.rank(), _C.size()
    host = "127.0.0.1" if _C.is_on_one_node() else socket.gethostname()
    store = None
    if rank == 0:
        store = dist.TCPStore(host, 0, size, is_master=True, timeout=timeout, wait_for_workers=False)
    host, port = _C.share(f"{host} {store.port}" if store else "").split()
    if store is None:
        store = dist.TCPStore(host, int(port), size, is_master=False, timeout=timeout)
    yield store, rank, size


dist.Backend.register_backend("gpucoll", _create, devices=["cpu", "cuda"])
dist.register_rendezvous_handler("mpi", _rendezvous)
# Its thread may call back into Python, which is about to end.
atexit.register(_C.stop)
