# SPDX-License-Identifier: BSD-3-Clause
"""Allreduce as a ring of messages, to see what the library's kernels do; and that both give the same.

    mpirun -n 4 python ring.py

Each rank's tensor is parted in as many chunks as there are ranks. In n - 1 steps each chunk goes once around, and each rank
adds its own to what comes (reduce-scatter: NCCL's recvReduceSend); in n - 1 more the sums go around (allgather:
recvCopySend). So a rank sends 2 (n - 1) / n of its data, however many ranks there are.
"""
import torch
import torch.distributed as dist

import gpucoll_torch  # noqa: F401  (registers the backend)


def exchange(to_send, received, rank, size):
    """To the right and from the left at once."""
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, to_send, (rank + 1) % size),
                                        dist.P2POp(dist.irecv, received, (rank - 1) % size)]):
        work.wait()


def ring_all_reduce(tensor):
    rank, size = dist.get_rank(), dist.get_world_size()
    chunks = list(tensor.view(size, -1))
    came = torch.empty_like(chunks[0])
    for step in range(size - 1):
        exchange(chunks[(rank - step) % size], came, rank, size)
        chunks[(rank - step - 1) % size] += came
    for step in range(size - 1):
        exchange(chunks[(rank + 1 - step) % size], came, rank, size)
        chunks[(rank - step) % size].copy_(came)


def main():
    dist.init_process_group("gpucoll", init_method="mpi://")
    rank, size = dist.get_rank(), dist.get_world_size()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    by_ring = torch.arange(size * 1000.0, device=device) + rank
    by_library = by_ring.clone()
    ring_all_reduce(by_ring)
    dist.all_reduce(by_library)
    print(f"rank {rank}: {'equal' if torch.equal(by_ring, by_library) else 'NOT EQUAL'}, {by_ring[:3].tolist()} ...\n", end="")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
