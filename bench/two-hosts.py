#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What two hosts do over one link: collectives on device buffers by the library, through pinned memory and where UCX is given
device memory (GPUDirect RDMA, emulated), beside the real MPI's on host buffers and the rate of the wire.

    bench/two-hosts.py [--rounds N] mpich|openmpi ...

The hosts are namespaces of this machine (test/cluster/cluster.py; needs root), one rank on each, on the emulated driver.
Waiting processes yield, MPICH's and ucx_perftest's by the tests' shim: the kernel moves packets of veth links in threads of
its own, which wait for 4 ms where every core spins. Kernels run in the thread that launches them, so they can't wait for messages.

In each round everything is measured once, the ways in turn, and next to long calls the wire, as the machine's speed changes
from minute to minute. A row has the medians of all rounds, in us, and the medians of the rounds' ratios, with the least and the
greatest, of the time to the real MPI's, and of the limit to the time. The limit is what has to go in each direction, by what
ucx_perftest gets in that many directions at once, with messages of the length that goes best, and UCX set up as the library
does. That sends the same bytes over and over, from and to caches.

Through pinned memory each byte is copied to a slot, sent, received and copied from a slot, on hardware by the GPU, but here by
the cores that the wire takes, too: "with copies" is the wire's limit and, after that, what bench/copy-rate takes for those
copies, on two cores at a time.
"""
import argparse
import contextlib
import itertools
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("BUILD", REPOSITORY / "build"))
sys.path.insert(0, str(REPOSITORY / "test/cluster"))
from cluster import Cluster, Refused  # noqa: E402

# Least, most, factor, times, and times before, in which connections are made.
SIZES = {"short": ("8", "4K", "8", "2000", "50"), "long": ("64K", "64M", "32", "10", "2")}
LONG = 1 << 20  # there is a limit from here on
WAYS = ("host", "pinned", "gdr")
# For the bytes of a call with two ranks, what a host sends, in how many directions at once, and what it copies: a root only to
# slots, an alltoall also its own block, and of a reduction half goes to slots, half is combined (which is two copies' reading
# and writing at least), and half comes from slots.
ON_THE_WIRE = {"allreduce": (1, 2, 2), "bcast": (1, 1, 1), "alltoall": (0.5, 2, 1.5)}
STREAMED = {60 << 10: 6000, 124 << 10: 6000}  # messages of so many bytes, and how many: they come with their headers, in
SEGMENT = 128 << 10                           # UCX's buffers (NET_SEGMENT)
SHIM = BUILD / "emu/yield_shim.so"


def on_hosts(cluster, mpi, *command):
    """What is printed by a command that each of two ranks runs on a host of its own. MPICH 4.0 may not come back from
    MPI_Finalize over TCP, also without the library; then what it has printed counts."""
    common = ["env", "UCX_NET_DEVICES=eth0", "UCX_WARN_UNUSED_ENV_VARS=n"]
    process = subprocess.Popen([*cluster.command(mpi, [1, 1]), *common, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, start_new_session=True)
    try:
        output, errors = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        time.sleep(1)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
    if process.returncode:
        print(f"# {mpi}, {' '.join(map(str, command))}: ended with {process.returncode}\n{errors}", file=sys.stderr)
    return output


def wire(cluster, directions, length):
    """Bytes per us that ucx_perftest sends in each direction, in such messages; host 0 sends in the second."""
    script = """
        test=ucx_perftest; export UCX_TCP_RX_SEG_SIZE=%d UCX_RNDV_THRESH=inf
        [ "$OMPI_COMM_WORLD_RANK" = 0 ] && other=10.77.0.2 || other=10.77.0.1
        $test -p $((9000 + OMPI_COMM_WORLD_RANK)) >/dev/null & server=$!
        sleep 1
        if [ "$OMPI_COMM_WORLD_RANK" = 1 ] || [ %d = 2 ]; then
            $test $other -p $((9001 - OMPI_COMM_WORLD_RANK)) -t ucp_am_bw -s %d -w 20 -n %d | grep Final
            sleep 1
        else
            sleep 4
        fi
        kill $server; true""" % (SEGMENT, directions, length, STREAMED[length])
    text = on_hosts(cluster, "openmpi", f"LD_PRELOAD={SHIM}", "sh", "-c", script)
    rates = [float(line.split()[5]) for line in text.splitlines() if line.startswith("Final")]
    return statistics.mean(rates) * 1.048576 if len(rates) == directions else 0


def copying():
    """Bytes per us that each of two cores copies to or from slots."""
    text = subprocess.run([BUILD / "copy-rate", "2", str(SEGMENT >> 10)], stdout=subprocess.PIPE, text=True, check=True).stdout
    return float(re.search(r"([\d.]+) GB/s", text)[1]) * 1000 / 4


def bench(cluster, mpi, way, *arguments):
    """us by size."""
    tool = BUILD / "mpi" / mpi
    libraries = {"host": [], "pinned": [tool / "libgpucoll.so.0"], "gdr": [tool / "libgpucoll.so.0", BUILD / "emu/emu_ucp.so"]}[way]
    if mpi == "mpich":
        libraries = [*libraries, SHIM]
    emulated = [f"LD_LIBRARY_PATH={BUILD}/emu", "CUEMU_THREADS=1", "CUEMU_DELAY_US=0", "CUEMU_SMS=1", "CUEMU_IN_CALLER=1"]
    text = on_hosts(cluster, mpi, f"LD_PRELOAD={':'.join(map(str, libraries))}", *emulated, "GPUCOLL_EXEC=stepped",
                    f"GPUCOLL_NET_GDR={'on' if way == 'gdr' else 'off'}", tool / "gpucoll-bench", *arguments,
                    "-m", "host" if way == "host" else "device")
    rows = re.findall(r"^ +(\d+) .*?\| +([\d.]+) +[\d.]+ +[\d.]+ +(\S+)", text, re.M)
    for size, _, wrong in rows:
        if wrong not in ("0", "N/A"):
            print(f"# {mpi} {' '.join(arguments)}, {way}: {wrong} wrong values of {size} bytes")
    return {int(size): float(time) for size, time, _ in rows}


def limits(cluster, collective):
    """us that a byte of the call takes on the wire, and with copies; nothing if that could not be measured."""
    part, directions, copies = ON_THE_WIRE[collective]
    rate = max(wire(cluster, directions, length) for length in STREAMED)
    if not rate:
        print(f"# {collective}: ucx_perftest told no rate", file=sys.stderr)
        return {}
    return {"limit": part / rate, "with copies": part / rate + copies / copying()}


def measure(cluster, mpis, rounds):
    """us by (mpi, collective, size), way, also limits, and round."""
    times = defaultdict(lambda: defaultdict(dict))
    for turn, mpi, collective, (least, most, factor, repeats, before) in itertools.product(range(rounds), mpis, ON_THE_WIRE, SIZES.values()):
        for way in WAYS:
            got = bench(cluster, mpi, way, collective, "-b", least, "-e", most, "-f", factor, "-n", repeats, "-w", before)
            for size, time in got.items():
                times[mpi, collective, size][way][turn] = time
        sizes = [size for size in got if size >= LONG]
        for limit, each in (limits(cluster, collective) if sizes else {}).items():
            for size in sizes:
                times[mpi, collective, size][limit][turn] = each * size
    return times


def middle(times):
    return f"{statistics.median(times.values()):.1f}" if times else ""


def ratio(times, to):
    """The median, and the least and greatest, of the ratios in each round."""
    each = [times[turn] / to[turn] for turn in times if turn in to]
    return f"{statistics.median(each):.2f} ({min(each):.2f}-{max(each):.2f})" if each else ""


def report(times):
    def row(*fields):
        print(("{:8} {:10} {:>9}" + " {:>9}" * 5 + " {:>17}" * 5).format(*fields).rstrip())

    row("MPI", "", "bytes", *WAYS, "limit", "w/ copies", "pinned: MPI", "GPUDirect: MPI", "limit: pinned", "limit: GPUDirect",
        "w/copies: pinned")
    for (mpi, collective, size), t in times.items():
        row(mpi, collective, size, *(middle(t[way]) for way in (*WAYS, "limit", "with copies")), ratio(t["pinned"], t["host"]),
            ratio(t["gdr"], t["host"]), ratio(t["limit"], t["pinned"]), ratio(t["limit"], t["gdr"]), ratio(t["with copies"], t["pinned"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("mpi", nargs="+", choices=["mpich", "openmpi"])
    arguments = parser.parse_args()
    if not shutil.which("ucx_perftest"):
        sys.exit("there is no ucx_perftest, which measures the wire: it comes with UCX (Debian: ucx-utils)")
    try:
        with Cluster(2) as cluster:
            report(measure(cluster, arguments.mpi, arguments.rounds))
    except Refused as refused:
        sys.exit(f"no such hosts here: {refused}")


if __name__ == "__main__":
    main()
