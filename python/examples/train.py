# SPDX-License-Identifier: BSD-3-Clause
"""Data-parallel training of a small model: each rank has a part of the data, and gradients are averaged while they are made.

    mpirun -n 2 python train.py            with gpucoll
    mpirun -n 2 python train.py gloo       the same with gloo: the losses are equal
"""
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gpucoll_torch  # noqa: F401  (registers the backend)


def main():
    dist.init_process_group("gpucoll", init_method="mpi://")
    group = dist.new_group(backend=sys.argv[1]) if len(sys.argv) > 1 else None
    rank, size = dist.get_rank(), dist.get_world_size()
    device = "cuda" if torch.cuda.is_available() and group is None else "cpu"

    torch.manual_seed(1)
    x = torch.rand(4096, 2) * 6 - 3
    y = (x[:, :1] * x[:, 1:]).sin()
    mine = slice(rank * len(x) // size, (rank + 1) * len(x) // size)
    x, y = x[mine].to(device), y[mine].to(device)

    model = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(),
                                torch.nn.Linear(64, 1)).to(device)
    model = DistributedDataParallel(model, process_group=group)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(20):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, group=group)
        if rank == 0 and epoch % 5 == 4:
            print(f"epoch {epoch + 1}: loss {mean.item() / size:.9f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
