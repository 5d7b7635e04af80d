#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Fail when an include breaks the rules of the house: check-layering.py SOURCE_DIR

Dependencies point one way: pmpi -> core -> algos, gpu, net, topo -> util, and inside core from each room to those below
it; no file includes another that leads back to it. mpi.h is included in src/pmpi and in core_mpi_handle.h only, which
only core_mpi_* include; src/algos includes neither CUDA, UCX nor MPI; gpu, net and topo do not know each other. A file
of src/core has 500 lines at most.
"""
import re
import sys
from pathlib import Path

MAY_INCLUDE = {
    "nccl": {"nccl", "pmpi", "gpu", "util", "gpucoll"},
    "pmpi": {"pmpi", "core", "algos", "gpu", "net", "topo", "util", "gpucoll"},
    "core": {"core", "algos", "gpu", "net", "topo", "util", "gpucoll"},
    "algos": {"algos", "util"},
    "gpu": {"gpu", "util", "gpucoll"},
    "net": {"net", "util"},
    "topo": {"topo", "util"},
    "util": {"util"},
}
# The rooms of src/core, the lowest first, and last what is in src/core itself.
CORE_ROOMS = ["call", "job", "comm", "mpi", "report", "stage", "stream", "request", "wire", "agree", "exec", "choose", "accel", "p2p", "io", "rma", ""]
# Who may include which outside header; headers that are not listed are free to all.
OUTSIDE = {r"mpi\.h": {"nccl", "pmpi"}, r"cuda.*\.h": {"gpu", "nccl", "pmpi"}, r"uc[pst]/.*": {"net"}, r"hwloc.*": {"topo"}}
KNOWS_MPI = "core/call/core_mpi_handle.h"
EXCEPTIONS = {(KNOWS_MPI, "mpi.h")}
MOST_LINES = 500


def includes(path):
    """Line number, our header or None, another header or None."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r'\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', line)
        if match:
            yield number, *match.groups()


def core_floor(name):
    """The number of the room of core/ROOM/FILE, or of core/FILE."""
    parts = name.split("/")
    room = parts[1] if len(parts) > 2 else ""
    return CORE_ROOMS.index(room) if room in CORE_ROOMS else None


def violations(root):
    for path in sorted((root / "src").glob("**/*.[ch]*")):
        name = str(path.relative_to(root / "src"))
        house = name.split("/")[0]
        if house == "core" and core_floor(name) is None:
            yield f"{path}: check-layering.py does not know on which floor this room is"
            continue
        for number, ours, other in includes(path):
            if ours:
                target = ours.split("/")[0]
                knows_mpi = house == "pmpi" or path.name.startswith("core_mpi_")
                climbs = house == target == "core" and (core_floor(ours) is None or core_floor(ours) > core_floor(name))
                if target not in MAY_INCLUDE.get(house, set()) or (ours == KNOWS_MPI and not knows_mpi) or climbs:
                    yield f"{path}:{number}: src/{Path(name).parent} may not include {ours}"
            elif (name, other) not in EXCEPTIONS:
                for pattern, houses in OUTSIDE.items():
                    if re.fullmatch(pattern, other) and house not in houses:
                        yield f"{path}:{number}: src/{Path(name).parent} may not include {other}"


def circles(root):
    """Files that lead back to themselves. A source and its header count as one."""
    arrows = {}
    for path in sorted((root / "src").glob("**/*.[ch]*")):
        stem = path.stem
        arrows.setdefault(stem, set()).update(Path(ours).stem for _, ours, _ in includes(path) if ours)
        arrows[stem].discard(stem)
    done, way = set(), []

    def walk(stem):
        if stem in way:
            yield " -> ".join([*way[way.index(stem):], stem])
            return
        if stem in done:
            return
        way.append(stem)
        for target in sorted(arrows.get(stem, ())):
            yield from walk(target)
        way.pop()
        done.add(stem)

    for stem in sorted(arrows):
        for circle in walk(stem):
            yield f"in a circle: {circle}"


def long_files(root):
    for path in sorted((root / "src/core").glob("**/*.[ch]")):
        lines = path.read_text().count("\n")
        if lines > MOST_LINES:
            yield f"{path}: {lines} lines, more than {MOST_LINES}"


def main():
    root = Path(sys.argv[1])
    found = [*violations(root), *circles(root), *long_files(root)]
    print("\n".join(found) if found else "includes follow the rules")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
