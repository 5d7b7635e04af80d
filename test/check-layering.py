#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Fail when an include breaks the rules of the house: check-layering.py SOURCE_DIR

Dependencies point one way: pmpi -> core -> algos, gpu, net, topo -> util. mpi.h is included in src/pmpi and in
src/core/core_mpi_handle.h only, which only core_mpi_* include; src/algos includes neither CUDA, UCX nor MPI; gpu, net
and topo do not know each other.
"""
import re
import sys
from pathlib import Path

MAY_INCLUDE = {
    "pmpi": {"pmpi", "core", "algos", "gpu", "net", "topo", "util", "gpucoll"},
    "core": {"core", "algos", "gpu", "net", "topo", "util", "gpucoll"},
    "algos": {"algos", "util"},
    "gpu": {"gpu", "util", "gpucoll"},
    "net": {"net", "util"},
    "topo": {"topo", "util"},
    "util": {"util"},
}
# Who may include which outside header; headers that are not listed are free to all.
OUTSIDE = {r"mpi\.h": {"pmpi"}, r"cuda.*\.h": {"gpu", "pmpi"}, r"uc[pst]/.*": {"net"}, r"hwloc.*": {"topo"}}
KNOWS_MPI = "core/core_mpi_handle.h"
EXCEPTIONS = {(KNOWS_MPI, "mpi.h")}


def violations(root):
    for path in sorted(root.glob("src/*/*.[ch]*")):
        room = path.parent.name
        name = f"{room}/{path.name}"
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = re.match(r'\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', line)
            if not match:
                continue
            ours, other = match.groups()
            if ours:
                target = ours.split("/")[0]
                knows_mpi = room == "pmpi" or path.name.startswith("core_mpi_")
                if target not in MAY_INCLUDE.get(room, set()) or (ours == KNOWS_MPI and not knows_mpi):
                    yield f"{path}:{number}: src/{room} may not include {ours}"
            elif (name, other) not in EXCEPTIONS:
                for pattern, rooms in OUTSIDE.items():
                    if re.fullmatch(pattern, other) and room not in rooms:
                        yield f"{path}:{number}: src/{room} may not include {other}"


def main():
    found = list(violations(Path(sys.argv[1])))
    print("\n".join(found) if found else "includes follow the rules")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
