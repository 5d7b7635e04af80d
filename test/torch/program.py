# SPDX-License-Identifier: BSD-3-Clause
"""Cases of the backend "gpucoll" of torch.distributed, to be run under the MPI's launcher: program.py CASE...

Each collective is made with gloo, too, on equal tensors, and the results compared bit by bit: operands are such that all
orders of an operation give one result. With STANDIN=1 gpucoll's tensors are of the (emulated) device.
"""
import atexit
import os
import sys
import threading
import time
import weakref
from datetime import timedelta

import torch
import torch.distributed as dist

at_end = []
atexit.register(lambda: [call() for call in at_end])  # the later registered run first: this after the backend's own

import gpucoll_torch  # noqa: E402, F401  (registers the backend)

ON_DEVICE = os.environ.get("STANDIN") == "1"
if ON_DEVICE:
    import standin

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
COMPLEX = [torch.complex64, torch.complex128]
OPS = {"sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.AVG, "product": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN,
       "max": dist.ReduceOp.MAX, "band": dist.ReduceOp.BAND, "bor": dist.ReduceOp.BOR, "bxor": dist.ReduceOp.BXOR}
COUNTS = [0, 1, 7, 1000]
checks = 0
gloo = None


def check(condition, *words):
    global checks
    checks += 1
    if not condition:
        print(f"rank {dist.get_rank()}: FAILED:", *words, flush=True)
        sys.stdout.flush()
        os._exit(1)


def same(ours, theirs):
    return ours.dtype == theirs.dtype and ours.shape == theirs.shape and \
        torch.equal(ours.contiguous().view(-1).view(torch.uint8), theirs.contiguous().view(-1).view(torch.uint8))


def numbers(count, dtype, seed):
    """Small ones, so that sums and products are exact."""
    generator = torch.Generator().manual_seed(1000 * seed + count)
    drawn = torch.randint(0, 2 if dtype == torch.bool else 3, (count,), generator=generator)
    return drawn.to(dtype)


def ours(tensor):
    """For gpucoll: as it is, or a copy in device memory."""
    return standin.to_device(tensor) if ON_DEVICE else tensor.clone()


def back(tensor):
    return standin.to_host(tensor) if ON_DEVICE else tensor


def poison(count, dtype):
    return torch.full((count,), 77).to(dtype)


def compare(name, tensors, call):
    """The call, which moves elements of tensors, by gpucoll and by gloo, which has few types: bytes."""
    mine, theirs = [ours(t) for t in tensors], [t.clone().view(torch.uint8) for t in tensors]
    call(mine, None)
    call(theirs, gloo)
    for i, (a, b) in enumerate(zip(mine, theirs)):
        check(torch.equal(back(a).view(torch.uint8), b), name, a.dtype, "tensor", i, back(a)[:8], "instead of", b[:8])


def allowed(op, dtype):
    if dtype.is_complex:
        return op in ("sum", "avg")
    if op == "avg":
        return dtype.is_floating_point
    return not (dtype.is_floating_point and op in ("band", "bor", "bxor"))


def expected_reduction(op, inputs):
    """gloo has no average, and not all types in all operations: arithmetic on the host."""
    stack = torch.stack(inputs)
    size = len(inputs)
    if stack.dtype == torch.bool:
        return {"sum": stack.any(0), "product": stack.all(0), "min": stack.all(0), "max": stack.any(0), "band": stack.all(0),
                "bor": stack.any(0), "bxor": stack.sum(0) % 2 == 1}[op]
    if op in ("sum", "avg"):
        total = stack.sum(0).to(stack.dtype)
        if op == "avg" and total.is_complex():  # a complex division rounds otherwise than one of its parts
            return torch.view_as_complex(torch.view_as_real(total) / size)
        return total / size if op == "avg" else total
    if op == "product":
        return stack.prod(0).to(stack.dtype)
    if op in ("min", "max"):
        return stack.amin(0) if op == "min" else stack.amax(0)
    result = inputs[0].clone()
    for other in inputs[1:]:
        result = {"band": torch.bitwise_and, "bor": torch.bitwise_or, "bxor": torch.bitwise_xor}[op](result, other)
    return result


def reductions():
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in FLOATS + INTEGERS + COMPLEX + [torch.bool]:
        for op, torch_op in OPS.items():
            if not (op != "avg" and dtype == torch.bool) and not allowed(op, dtype):
                continue
            for count in COUNTS:
                inputs = [numbers(count, dtype, r) for r in range(size)]
                want = expected_reduction(op, inputs)
                x = ours(inputs[rank])
                dist.all_reduce(x, torch_op)
                check(same(back(x), want), "all_reduce", op, dtype, count, back(x)[:4], want[:4])
                x = ours(inputs[rank])
                dist.reduce(x, size - 1, torch_op)
                check(rank != size - 1 or same(back(x), want), "reduce", op, dtype, count)
                whole = [numbers(count * size, dtype, r) for r in range(size)]
                want = expected_reduction(op, whole)[rank * count:(rank + 1) * count]
                x, y = ours(whole[rank]), ours(poison(count, dtype))
                dist.reduce_scatter_tensor(y, x, torch_op)
                check(same(back(y), want), "reduce_scatter_tensor", op, dtype, count)
    for factor in (2.0, torch.tensor(2.0)):
        if ON_DEVICE and not isinstance(factor, float):
            continue
        inputs = [numbers(9, torch.float32, r) for r in range(size)]
        x = ours(inputs[rank])
        dist.all_reduce(x, dist._make_nccl_premul_sum(factor))
        check(same(back(x), 2 * sum(inputs)), "premul_sum")
        whole = [numbers(9 * size, torch.float32, r) for r in range(size)]
        x, y = ours(whole[rank]), ours(poison(9, torch.float32))
        dist.reduce_scatter_tensor(y, x, dist._make_nccl_premul_sum(factor))
        check(same(back(y), 2 * sum(whole)[rank * 9:rank * 9 + 9]), "premul_sum of reduce_scatter")
        check(same(back(x), whole[rank]), "the input of premul_sum has changed")


def moves():
    rank, size = dist.get_rank(), dist.get_world_size()
    if ON_DEVICE:  # what the first collective would make
        dist.group.WORLD._get_backend(torch.device("cuda")).eager_connect_single_device(torch.device("cuda", 0))
    for dtype in FLOATS + INTEGERS + COMPLEX + [torch.bool]:
        for count in COUNTS:
            for root in range(size):
                compare("broadcast", [numbers(count, dtype, rank)], lambda t, g: dist.broadcast(t[0], root, group=g))

                def gather(t, g):
                    dist.gather(t[0], t[1:] if rank == root else None, root, group=g)
                compare("gather", [numbers(count, dtype, rank)] + [poison(count, dtype)] * size, gather)

                def scatter(t, g):
                    dist.scatter(t[0], t[1:] if rank == root else None, root, group=g)
                compare("scatter", [poison(count, dtype)] + [numbers(count, dtype, 9 * rank + r) for r in range(size)],
                        scatter)
            compare("all_gather", [numbers(count, dtype, rank)] + [poison(count, dtype)] * size,
                    lambda t, g: dist.all_gather(t[1:], t[0], group=g))
            compare("all_gather_into_tensor", [numbers(count, dtype, rank), poison(count * size, dtype)],
                    lambda t, g: dist.all_gather_into_tensor(t[1], t[0], group=g))
            compare("all_to_all_single", [numbers(count * size, dtype, rank), poison(count * size, dtype)],
                    lambda t, g: dist.all_to_all_single(t[1], t[0], group=g))
            lists = [numbers(count + r, dtype, rank) for r in range(size)]
            outputs = [ours(poison(count + rank, dtype)) for r in range(size)]
            dist.all_to_all(outputs, [ours(t) for t in lists])
            for r in range(size):
                check(same(back(outputs[r]), numbers(count + rank, dtype, r)), "all_to_all", dtype, count, r)
            inputs = [[numbers(count, dtype, 7 * r + to) for to in range(size)] for r in range(size)]
            if dtype != torch.bool:
                y = ours(poison(count, dtype))
                dist.reduce_scatter(y, [ours(t) for t in inputs[rank]])
                check(same(back(y), expected_reduction("sum", [i[rank] for i in inputs])), "reduce_scatter", dtype, count)
    # Rows for each rank: r + 1 of them go to rank r.
    rows = sum(range(1, size + 1))
    x, y = torch.arange(rows * 3.0).view(rows, 3) + 100 * rank, torch.zeros(size * (rank + 1), 3)
    got = ours(y)
    dist.all_to_all_single(got, ours(x), [rank + 1] * size, list(range(1, size + 1)))
    first = sum(range(1, rank + 1))
    want = torch.cat([torch.arange(rows * 3.0).view(rows, 3)[first:first + rank + 1] + 100 * r for r in range(size)])
    check(same(back(got), want), "all_to_all_single with splits")
    # Tensors of a list need not be of one size.
    outputs = [ours(poison(r + 1, torch.int32)) for r in range(size)]
    dist.all_gather(outputs, ours(numbers(rank + 1, torch.int32, rank)))
    for r in range(size):
        check(same(back(outputs[r]), numbers(r + 1, torch.int32, r)), "all_gather of uneven ones")
    fp8 = torch.arange(8, dtype=torch.uint8).view(torch.float8_e4m3fn) if rank == 0 else \
        torch.zeros(8, dtype=torch.uint8).view(torch.float8_e4m3fn)
    if not ON_DEVICE:
        dist.broadcast(fp8, 0)
        check(fp8.view(torch.uint8).tolist() == list(range(8)), "broadcast of 8-bit floating point")


def coalesced():
    rank, size = dist.get_rank(), dist.get_world_size()
    tensors = [ours(numbers(n, torch.float32, rank)) for n in (5, 1, 300)]
    dist.all_reduce_coalesced(tensors)
    for t, n in zip(tensors, (5, 1, 300)):
        check(same(back(t), sum(numbers(n, torch.float32, r) for r in range(size))), "all_reduce_coalesced")
    group = dist.group.WORLD
    inputs = [ours(numbers(n, torch.float32, rank)) for n in (5, 2)]
    outputs = [ours(poison(n * size, torch.float32)) for n in (5, 2)]
    group.allgather_into_tensor_coalesced(outputs, inputs).wait()
    for out, n in zip(outputs, (5, 2)):
        check(same(back(out), torch.cat([numbers(n, torch.float32, r) for r in range(size)])), "allgather_into_tensor_coalesced")
    inputs = [ours(numbers(n * size, torch.float32, rank)) for n in (5, 2)]
    outputs = [ours(poison(n, torch.float32)) for n in (5, 2)]
    group.reduce_scatter_tensor_coalesced(outputs, inputs).wait()
    for out, n in zip(outputs, (5, 2)):
        want = sum(numbers(n * size, torch.float32, r) for r in range(size))[rank * n:(rank + 1) * n]
        check(same(back(out), want), "reduce_scatter_tensor_coalesced")
    lists = [[ours(poison(n, torch.float32)) for _ in range(size)] for n in (5, 2)]
    # The function's lists are one for each rank; each has an element for each input.
    dist.all_gather_coalesced([[lists[i][r] for i in range(2)] for r in range(size)],
                              [ours(numbers(n, torch.float32, rank)) for n in (5, 2)])
    for i, n in enumerate((5, 2)):
        for r in range(size):
            check(same(back(lists[i][r]), numbers(n, torch.float32, r)), "all_gather_coalesced", i, r)
    with dist._coalescing_manager():
        dist.all_reduce(tensors[0])
        dist.all_reduce(tensors[1])
    check(same(back(tensors[0]), size * sum(numbers(5, torch.float32, r) for r in range(size))), "the coalescing manager")


def messages():
    rank, size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    for count in COUNTS + [300000]:
        x, y = ours(numbers(count, torch.float32, rank)), ours(poison(count, torch.float32))
        works = dist.batch_isend_irecv([dist.P2POp(dist.irecv, y, left), dist.P2POp(dist.isend, x, right)])
        for work in works:
            work.wait()
        check(same(back(y), numbers(count, torch.float32, left)), "batch_isend_irecv", count)
        # All receive first; and by tags, in another order.
        y2 = ours(poison(count, torch.float32))
        y = ours(poison(count, torch.float32))
        works = [dist.irecv(y, left, tag=1), dist.irecv(y2, left, tag=2), dist.isend(x, right, tag=2)]
        z = ours(numbers(count, torch.float32, rank + 50))
        works.append(dist.isend(z, right, tag=1))
        for work in works:
            work.wait()
        check(same(back(y), numbers(count, torch.float32, left + 50)), "irecv with a tag", count)
        check(same(back(y2), numbers(count, torch.float32, left)), "irecv with another tag", count)
    if rank == 0:
        seen = []
        for _ in range(size - 1):
            y = ours(poison(4, torch.int64))
            source = dist.recv(y)
            check(same(back(y), torch.full((4,), source)), "recv of any source", source)
            seen.append(source)
        check(sorted(seen) == list(range(1, size)), "the sources", seen)
    else:
        dist.send(ours(torch.full((4,), rank)), 0)


def works():
    """Futures, callbacks, and calls that overlap."""
    rank, size = dist.get_rank(), dist.get_world_size()
    tensors = [ours(torch.full((1000 * (i + 1),), float(rank + i))) for i in range(20)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    seen = []
    works[3].get_future().then(lambda future: seen.append(future.value()[0].numel())).wait()
    for work in reversed(works):
        work.wait()
    check(seen == [4000], "a future's callback", seen)
    for i, t in enumerate(tensors):
        check(bool((back(t) == sum(r + i for r in range(size))).all()), "asynchronous all_reduce", i)
    if ON_DEVICE:
        t = ours(torch.ones(5))
        dist.all_reduce(t, async_op=True).block_current_stream()
        check(bool((back(t) == size).all()), "block_current_stream")
    if not ON_DEVICE:
        check(all(w.is_completed() and w.is_success() for w in works), "is_completed")
        # Nobody waits: the thread brings it to its end.
        t = torch.ones(5)
        future = dist.all_reduce(t, async_op=True).get_future()
        while not future.done():
            pass
        check(bool((t == size).all()), "a call that nobody waits for")
    dist.barrier()
    dist.group.WORLD.monitored_barrier(timedelta(seconds=60), True)
    objects = [None] * size
    if not ON_DEVICE:
        dist.all_gather_object(objects, {"rank": rank})
        check(objects == [{"rank": r} for r in range(size)], "all_gather_object", objects)


def overlaps():
    """A slice of the whole for a part of it, as FSDP has it; and all_to_all in place."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for n in (1, 1000):
        whole = ours(poison(n * size, torch.float32))
        whole[rank * n:(rank + 1) * n].copy_(ours(numbers(n, torch.float32, rank)))
        dist.all_gather_into_tensor(whole, whole[rank * n:(rank + 1) * n])
        check(same(back(whole), torch.cat([numbers(n, torch.float32, r) for r in range(size)])), "all_gather of a slice")
        whole = ours(numbers(n * size, torch.float32, rank))
        dist.reduce_scatter_tensor(whole[rank * n:(rank + 1) * n], whole)
        want = sum(numbers(n * size, torch.float32, r) for r in range(size))[rank * n:(rank + 1) * n]
        check(same(back(whole[rank * n:(rank + 1) * n]), want), "reduce_scatter into a slice")
        whole = ours(numbers(n * size, torch.float32, rank))
        dist.all_to_all_single(whole, whole)
        want = torch.cat([numbers(n * size, torch.float32, r)[rank * n:(rank + 1) * n] for r in range(size)])
        check(same(back(whole), want), "all_to_all in place")


def layouts():
    """Tensors that are dense in another order, and lists of views."""
    rank, size = dist.get_rank(), dist.get_world_size()
    x = torch.arange(48.0).view(2, 3, 2, 4).contiguous(memory_format=torch.channels_last) + rank
    dist.all_reduce(x)
    check(torch.equal(x, torch.arange(48.0).view(2, 3, 2, 4) * size + size * (size - 1) / 2), "channels_last")
    outputs = [torch.zeros(4, 3).t() for _ in range(size)]
    dist.all_gather(outputs, torch.arange(12.0).view(4, 3).t() + rank)
    for r in range(size):
        check(torch.equal(outputs[r], torch.arange(12.0).view(4, 3).t() + r), "transposed ones", outputs[r])


def callbacks():
    """Callbacks that wait for calls of their own; works that end in a thread of the library's, and keep nothing."""
    rank, size = dist.get_rank(), dist.get_world_size()

    def again(future):
        return dist.all_reduce(future.value()[0], async_op=True).get_future().wait()[0]
    futures = [dist.all_reduce(torch.ones(3), async_op=True).get_future().then(again) for _ in range(1)]
    check(all(torch.equal(f.wait(), torch.full((3,), float(size * size))) for f in futures), "a callback's call")
    with torch.inference_mode():
        outputs = [torch.zeros(3) for _ in range(size)]
        work = dist.all_gather(outputs, torch.full((3,), float(rank)), async_op=True)
        time.sleep(0.1)
        work.wait()
        check(all(torch.equal(outputs[r], torch.full((3,), float(r))) for r in range(size)), "inference mode")
    work = dist.all_reduce(torch.ones(3), async_op=True)
    dist.barrier()
    check(work.is_completed(), "a barrier comes after what was called before it")
    x = torch.ones(5)
    seen = weakref.ref(x)
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    del work, x
    deadline = time.monotonic() + 10
    while seen() is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    check(seen() is None, "a work that has ended keeps its tensors")


def ends():
    """Many calls that end at once; a fork; calls that a program leaves to the end; and one that it makes at the end."""
    rank, size = dist.get_rank(), dist.get_world_size()
    received = [torch.zeros(3) for _ in range(600)]
    works = [dist.irecv(t, (rank - 1) % size) for t in received] + [dist.isend(torch.full((3,), float(i)), (rank + 1) % size) for i in range(600)]
    futures = [work.get_future().then(lambda f: threading.active_count()) for work in works]
    for work in works:
        work.wait()
    for future in futures:
        future.wait()
    check(all(float(t[0]) == i for i, t in enumerate(received)), "many messages")
    threads = len(os.listdir("/proc/self/task"))
    check(threads < 100, "threads", threads)
    child = os.fork()
    if not child:
        try:
            dist.all_reduce(torch.ones(1))
        except RuntimeError as error:
            os._exit(0 if "forked" in str(error) else 1)
        os._exit(2)
    check(os.waitpid(child, 0)[1] == 0, "a fork's call")
    at_end.append(dist.destroy_process_group)
    dist.all_reduce(torch.ones(1), async_op=True)
    say_passed("ends")
    sys.exit(0)


def mixed():
    """Messages of the host's memory do not overtake those of the device's that still wait for a stream."""
    rank, size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    for i in range(50):
        x, y = standin.to_device(torch.full((100000,), 1.0 + i)), torch.full((100000,), 2.0 + i)
        from_device, from_host = standin.to_device(torch.zeros(100000)), torch.zeros(100000)
        works = [dist.isend(x, right), dist.isend(y, right), dist.irecv(from_device, left), dist.irecv(from_host, left)]
        for work in works:
            work.wait()
        check(bool((standin.to_host(from_device) == 1 + i).all()) and bool((from_host == 2 + i).all()), "messages cross", i)


def late():
    """A rank does not come to a call on a stream: the process ends."""
    group = dist.new_group(timeout=timedelta(seconds=1))
    dist.all_reduce(ours(torch.ones(2)), group=group)
    if dist.get_rank() == 0:
        x = ours(torch.ones(2))
        dist.all_reduce(x, group=group)
        back(x)
    time.sleep(20)


def groups():
    rank, size = dist.get_rank(), dist.get_world_size()
    reverse = dist.new_group(list(reversed(range(size))), backend="gpucoll")
    evens = dist.new_group(list(range(0, size, 2)))
    odds = dist.new_group(list(range(1, size, 2))) if size > 1 else None
    mine = evens if rank % 2 == 0 else odds
    x = ours(torch.tensor([float(rank)]))
    dist.all_reduce(x, group=mine)
    check(back(x).item() == sum(range(rank % 2, size, 2)), "a group of some", back(x))
    # One call of each pending at once.
    x, y = ours(torch.ones(9)), ours(torch.ones(9))
    works = [dist.all_reduce(x, group=mine, async_op=True), dist.all_reduce(y, async_op=True)]
    for work in reversed(works):
        work.wait()
    check(bool((back(y) == size).all()) and bool((back(x) == (size + 1 - rank % 2) // 2).all()), "two groups at once")
    z = ours(torch.tensor([float(rank)]))
    dist.broadcast(z, size - 1, group=reverse)
    check(back(z).item() == size - 1, "a group in another order")
    dist.destroy_process_group(reverse)
    dist.barrier()


def errors():
    rank, size = dist.get_rank(), dist.get_world_size()

    def refused(word, kind, call):
        try:
            call()
        except kind as error:
            check(word in str(error), "the error", error)
        else:
            check(False, "no error of", word)
    refused("no reduction BAND of Float", TypeError, lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND))
    refused("gaps", ValueError, lambda: dist.all_reduce(torch.ones(4, 4).t()[1:]))
    refused("not contiguous", ValueError, lambda: dist.all_gather_into_tensor(torch.ones(2, size).t(), torch.ones(2)))
    refused("nvalid tag", RuntimeError, lambda: dist.isend(torch.ones(1), (rank + 1) % size, tag=-3))
    refused("elements", ValueError, lambda: dist.all_gather_into_tensor(torch.ones(2 * size + 1), torch.ones(2)))
    refused("Float and Double", TypeError, lambda: dist.all_gather_into_tensor(torch.ones(2 * size), torch.ones(2).double()))
    refused("splits of", ValueError, lambda: dist.all_to_all_single(torch.ones(size), torch.ones(size), [2] * size))
    x = torch.ones(3)
    dist.all_reduce(x)
    check(bool((x == size).all()), "after errors the group serves")
    if rank == 1:
        dist.send(torch.ones(5), 0)
    elif rank == 0:
        other = torch.ones(2)
        refused("runc", dist.DistBackendError, lambda: dist.recv(other, 1))
    # One rank does not come: the others are told within the group's time, and the group is of no use then.
    group = dist.new_group(timeout=timedelta(seconds=1))
    if rank != 0:
        work = dist.all_reduce(torch.ones(2), group=group, async_op=True)
        refused("did not end within 1000 ms", dist.DistBackendError, work.wait)
        refused("no more use", dist.DistBackendError, lambda: dist.all_reduce(torch.ones(2), group=group))
        refused("monitored barrier", RuntimeError, lambda: dist.group.WORLD.monitored_barrier(timedelta(seconds=1), True))
    store = dist.distributed_c10d._get_default_store()
    say_passed("errors")
    store.set(f"done/{rank}", "")
    store.wait([f"done/{r}" for r in range(size)])
    # MPI can't be ended with a call under way.
    os._exit(0)


def ddp():
    """A small model learns as with gloo."""
    rank, size = dist.get_rank(), dist.get_world_size()
    losses = {}
    for name, group in (("gpucoll", None), ("gloo", gloo)):
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
        model = torch.nn.parallel.DistributedDataParallel(model, process_group=group, bucket_cap_mb=0.001)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        generator = torch.Generator().manual_seed(rank)
        losses[name] = []
        for _ in range(30):
            x = torch.randn(16, 8, generator=generator)
            loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[name].append(loss.item())
    if size == 2:  # a sum of two has one order
        check(losses["gpucoll"] == losses["gloo"], "losses", losses)
    check(torch.allclose(torch.tensor(losses["gpucoll"]), torch.tensor(losses["gloo"]), rtol=1e-4), "losses", losses)
    check(losses["gpucoll"][-1] < 0.2 * losses["gpucoll"][0], "it learns", losses["gpucoll"])


def say_passed(case):
    print(f"{case}: {checks} checks passed, 0 failed\n", end="", flush=True)


def main():
    global checks, gloo
    dist.init_process_group("gpucoll", init_method="mpi://" if "MASTER_PORT" not in os.environ else "env://")
    gloo = dist.new_group(backend="gloo")
    for case in sys.argv[1:]:
        checks = 0
        globals()[case]()
        dist.barrier()
        say_passed(case)
    dist.destroy_process_group()


main()
