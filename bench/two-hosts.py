#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What two hosts do over one link: collectives on device buffers by the library, through pinned memory and where UCX is given
device memory (GPUDirect RDMA, emulated), beside the real MPI's on host buffers and the rate of the wire.

    bench/two-hosts.py [--rounds N] mpich|openmpi ...

The hosts are namespaces of this machine (test/cluster/cluster.py; needs root), one rank on each, on the emulated driver.
Waiting processes yield, MPICH's and ucx_perftest's by the tests' shim: the kernel moves packets of veth links in threads of
its own, which wait for 4 ms where every core spins. Kernels run in the thread that launches them, so they can't wait for messages.

In each round everything is measured once, the ways in turn. A row has the medians of all rounds, in us, the medians of the
rounds' ratios to the MPI, with the least and the greatest, and for long messages the wire's limit: what has to go in each
direction, by what ucx_perftest gets in that many directions at once, with messages of the length that goes best, and UCX set
up as the library does. That sends the same bytes over and over, which caches hold unless the message is as long as the
longest call.

Through pinned memory each byte is copied to a slot, sent, received and copied from a slot, on hardware by the GPU, but here by
the cores that the wire takes, too: beside the wire's limit stands what it is with what bench/copy-rate gets for those copies,
by two cores at a time, one after the other.
"""
import argparse
import contextlib
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
# For the bytes of a call with two ranks, what a host sends, in how many directions at once, and what it copies: a root only to
# slots, an alltoall also its own block, and of a reduction half goes to slots, half is combined (which is two copies' reading
# and writing at least), and half comes from slots.
ON_THE_WIRE = {"allreduce": (1, 2, 2), "bcast": (1, 1, 1), "alltoall": (0.5, 2, 1.5)}
# Messages of so many bytes, and how many; those that fit UCX's buffers (NET_SEGMENT) come with their headers.
STREAMED = {60 << 10: 6000, 124 << 10: 6000, 64 << 20: 12}
SEGMENT = 128 << 10
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
        test=ucx_perftest; export UCX_TCP_RX_SEG_SIZE=%d UCX_RNDV_THRESH=%s
        [ "$OMPI_COMM_WORLD_RANK" = 0 ] && other=10.77.0.2 || other=10.77.0.1
        $test -p $((9000 + OMPI_COMM_WORLD_RANK)) >/dev/null & server=$!
        sleep 1
        if [ "$OMPI_COMM_WORLD_RANK" = 1 ] || [ %d = 2 ]; then
            $test $other -p $((9001 - OMPI_COMM_WORLD_RANK)) -t ucp_am_bw -s %d -w 20 -n %d | grep Final
            sleep 1
        else
            sleep 4
        fi
        kill $server; true""" % (SEGMENT, "inf" if length < SEGMENT else "auto", directions, length, STREAMED[length])
    text = on_hosts(cluster, "openmpi", f"LD_PRELOAD={SHIM}", "sh", "-c", script)
    rates = [float(line.split()[5]) for line in text.splitlines() if line.startswith("Final")]
    return statistics.mean(rates) * 1.048576 if len(rates) == directions else None


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


def measure(cluster, mpis, rounds):
    """us by (mpi, collective, size), way and round; MB/s by the number of directions and the messages' length, and of copies."""
    times, rates, copies = defaultdict(lambda: defaultdict(dict)), defaultdict(list), []
    for turn in range(rounds):
        copies.append(copying())
        for directions in (1, 2):
            for length in STREAMED:
                rates[directions, length].append(wire(cluster, directions, length))
        for mpi in mpis:
            for collective in ON_THE_WIRE:
                for least, most, factor, repeats, before in SIZES.values():
                    for way in ("host", "pinned", "gdr"):
                        got = bench(cluster, mpi, way, collective, "-b", least, "-e", most, "-f", factor, "-n", repeats, "-w", before)
                        for size, time in got.items():
                            times[mpi, collective, size][way][turn] = time
    return times, rates, statistics.median(copies)


def ratios(times, to):
    """The median, and the least and greatest, of the ratios in each round."""
    each = [times[turn] / to[turn] for turn in times if turn in to]
    return f"{statistics.median(each):5.2f} ({min(each):4.2f} to {max(each):4.2f})" if each else "-"


def report(times, rates, copied):
    best = {1: 0, 2: 0}
    for (directions, length), found in rates.items():
        rate = statistics.median([rate for rate in found if rate] or [0])
        best[directions] = max(best[directions], rate)
        print(f"# ucx_perftest, active messages of {length >> 10} KiB, {directions} direction(s) at once: {rate:.0f} MB/s in each")
    print(f"# copy-rate, 2 cores, through slots of {SEGMENT >> 10} KiB: {copied:.0f} MB/s by each")
    print(f"{'MPI':8} {'':10} {'bytes':>9} {'limit':>9} {'w/ copies':>9} {'MPI, host':>10} {'pinned':>10} {'to the MPI':22} {'GPUDirect':>10} {'to the MPI':22}")
    for (mpi, collective, size), ways in times.items():
        part, directions, copies = ON_THE_WIRE[collective]
        limit = size * part / best[directions] if best[directions] and size >= 1 << 20 else None
        both = limit and limit + size * copies / copied
        middle = {way: statistics.median(ways[way].values()) if ways[way] else 0 for way in ("host", "pinned", "gdr")}
        print(f"{mpi:8} {collective:10} {size:9} {f'{limit:.0f}' if limit else '':>9} {f'{both:.0f}' if both else '':>9} {middle['host']:10.1f} {middle['pinned']:10.1f} "
              f"{ratios(ways['pinned'], ways['host']):22} {middle['gdr']:10.1f} {ratios(ways['gdr'], ways['host']):22}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("mpi", nargs="+", choices=["mpich", "openmpi"])
    arguments = parser.parse_args()
    if not shutil.which("ucx_perftest"):
        sys.exit("there is no ucx_perftest, which measures the wire: it comes with UCX (Debian: ucx-utils)")
    try:
        with Cluster(2) as cluster:
            report(*measure(cluster, arguments.mpi, arguments.rounds))
    except Refused as refused:
        sys.exit(f"no such hosts here: {refused}")


if __name__ == "__main__":
    main()
