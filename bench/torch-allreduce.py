# SPDX-License-Identifier: BSD-3-Clause
"""torch.distributed's all_reduce of CPU tensors, gpucoll beside gloo in one run, in turns.

    mpirun -n 2 python bench/torch-allreduce.py
"""
import time

import torch
import torch.distributed as dist

import gpucoll_torch  # noqa: F401  (registers the backend)

ROUNDS = 7


def measure(group, tensor, calls):
    dist.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(tensor, group=group)
    return (time.perf_counter() - start) / calls * 1e6


def main():
    dist.init_process_group("gpucoll", init_method="mpi://")
    groups = {"gpucoll": None, "gloo": dist.new_group(backend="gloo")}
    if dist.get_rank() == 0:
        print(f"# all_reduce of float32, {dist.get_world_size()} ranks, torch {torch.__version__}; microseconds a call, median of {ROUNDS} rounds")
        print(f"{'bytes':>10} {'gpucoll':>10} {'gloo':>10} {'ratio':>7}")
    for bytes_ in (8, 1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 26):
        tensor, calls = torch.ones(bytes_ // 4), max(3, min(200, (1 << 24) // bytes_))
        times = {name: [] for name in groups}
        for name, group in groups.items():
            measure(group, tensor, 3)
        for _ in range(ROUNDS):
            for name, group in groups.items():
                times[name].append(measure(group, tensor.fill_(1), calls))
        median = {name: sorted(values)[ROUNDS // 2] for name, values in times.items()}
        if dist.get_rank() == 0:
            print(f"{bytes_:>10} {median['gpucoll']:>10.1f} {median['gloo']:>10.1f} {median['gpucoll'] / median['gloo']:>7.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
