# SPDX-License-Identifier: BSD-3-Clause
# mpirun -n 4 python allreduce.py
import torch, torch.distributed as dist, gpucoll_torch  # noqa: E401
dist.init_process_group("gpucoll", init_method="mpi://")
x = torch.ones(4, device="cuda" if torch.cuda.is_available() else "cpu") * dist.get_rank()
dist.all_reduce(x)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {x.tolist()}")
dist.destroy_process_group()
