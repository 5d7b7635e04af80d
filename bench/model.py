#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How well the model of the machine chooses: model.py GPUCOLL-INFO TUNING-FILE [MACHINE-FILE]

For each collective and size that gpucoll-tune has measured on one node, what the model predicts to be the fastest of the
ways that were measured, how long that took, and how long the fastest took. The last line is the share of points at which
the first is no more than 10% above the second."""
import re
import subprocess
import sys
from collections import defaultdict


def measured(path):
    """us by way, by (collective, bytes, ranks)."""
    points = defaultdict(dict)
    with open(path) as lines:
        for line in lines:
            fields = line.split()
            if not fields or fields[0] != "time" or fields[3] != "nodes=1":
                continue
            ranks = int(fields[2].removeprefix("ranks="))
            coll, size, algo, proto, channels, time = fields[5:]
            points[coll, int(size), ranks][algo, proto, int(channels)] = float(time)
    return points


def predicted(info, coll, size, ranks, machine):
    """Ways with their times in us, the fastest first."""
    options = ["--machine", machine] if machine else []
    text = subprocess.run([info, "-p", coll, "-n", str(ranks), "-s", str(size), *options], check=True, capture_output=True, text=True).stdout
    rows = re.findall(r"^ ([a-z-]+)(?: (simple|ll|ll128) x(\d+))? +([\d.]+)$", text, re.M)
    return [((algo, proto or "simple", int(channels or 1)), float(time)) for algo, proto, channels, time in rows]


def main():
    info, tuning, machine = sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None
    points = measured(tuning)
    good = 0
    print(f"{'collective':14} {'bytes':>10}  {'predicted best':24} {'predicted':>10} {'measured':>10}  {'measured best':24} {'us':>10} {'ratio':>6}")
    for (coll, size, ranks), ways in points.items():
        way, expected = next((way, time) for way, time in predicted(info, coll, size, ranks, machine) if way in ways)
        best = min(ways, key=ways.get)
        ratio = ways[way] / ways[best]
        good += ratio <= 1.1
        print(f"{coll:14} {size:10}  {'{} {} x{}'.format(*way):24} {expected:10.1f} {ways[way]:10.1f}  {'{} {} x{}'.format(*best):24} "
              f"{ways[best]:10.1f} {ratio:6.2f}")
    print(f"# {good} of {len(points)} points, {100 * good / len(points):.0f}%: predicted best measured best, or within 10%")


if __name__ == "__main__":
    main()
