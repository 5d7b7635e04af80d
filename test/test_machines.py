# SPDX-License-Identifier: BSD-3-Clause
"""Machines: recorded, emulated, and what is made of them."""
import itertools
import re
from xml.etree import ElementTree

import pytest

from conftest import BUILD, CUDA, MPIS, SOURCE, assert_passed, run_command
from helpers import LINKS, MACHINES, PATHS, compile_with, each_mpi, emulated_only, run_tool


@emulated_only
def test_info_devices():
    devices = run_tool(BUILD / "gpucoll-info", "-d", env={"LD_LIBRARY_PATH": str(BUILD / "emu"), "CUEMU_DEVICES": "3"})
    assert devices.status == 0 and devices.output.count("Emulated CUDA device") == 3 and devices.output.count("2 copy engines") == 3
    machine = run_tool(BUILD / "gpucoll-info", "-t", env={"LD_LIBRARY_PATH": str(BUILD / "emu"), "CUEMU_DEVICES": "3"})
    assert machine.output.count(" copies=2\n") == 3, machine.output
    none = run_tool(BUILD / "gpucoll-info", "-d")
    assert none.status == 1 and "no CUDA driver" in none.output


# Rows of what nvidia-smi shows of each machine, from the sources that the files name, of GPUs and then NICs.
PUBLISHED = {
    "dgx-1-v100": ["gpu0 X NV1 NV1 NV2 NV2 SYS SYS SYS PIX", "gpu1 NV1 X NV2 NV1 SYS NV2 SYS SYS PIX"],
    "dgx-2": ["gpu0 X" + " NV6" * 15 + " PIX PXB NODE NODE SYS SYS SYS SYS", "gpu1 NV6 X" + " NV6" * 14 + " PIX PXB NODE NODE SYS SYS SYS SYS",
              "gpu2 NV6 NV6 X" + " NV6" * 13 + " PXB PIX NODE NODE SYS SYS SYS SYS", "gpu4" + " NV6" * 4 + " X" + " NV6" * 11 + " NODE NODE PIX PXB SYS"],
    "dgx-a100": ["gpu0 X" + " NV12" * 7 + " PXB PXB" + " SYS" * 10, "gpu1 NV12 X" + " NV12" * 6 + " PXB PXB" + " SYS" * 10,
                 "gpu2 NV12 NV12 X" + " NV12" * 5 + " SYS SYS PXB PXB" + " SYS" * 8,
                 "gpu4" + " NV12" * 4 + " X NV12 NV12 NV12" + " SYS" * 6 + " PXB PXB" + " SYS" * 4],
    "dgx-h100": ["gpu0 X" + " NV18" * 7 + " PXB NODE NODE NODE NODE NODE" + " SYS" * 6,
                 "gpu1 NV18 X" + " NV18" * 6 + " NODE NODE NODE PXB NODE NODE" + " SYS" * 6,
                 "gpu7" + " NV18" * 7 + " X" + " SYS" * 6 + " NODE NODE NODE NODE NODE PXB"],
    "pcie-8gpu": ["gpu0 X PIX PHB PHB SYS SYS SYS SYS PHB", "gpu2 PHB PHB X PIX SYS SYS SYS SYS PHB", "gpu4 SYS SYS SYS SYS X PIX PHB PHB SYS"],
    "cloud-g5": ["gpu0 X PHB PHB PHB", "gpu3 PHB PHB PHB X"],
    "workstation-3090": ["gpu0 X NODE NODE NODE", "gpu3 NODE NODE NODE X"],  # by lspci's tree
    "two-5090": ["gpu0 X PHB", "gpu1 PHB X"], "two-sockets-l4": ["gpu0 X SYS", "gpu1 SYS X"],
}


def rows_of(output, start):
    """The rows of a matrix that gpucoll-info prints, by name."""
    lines = output.split(start)[1].split("#\n")[0].splitlines()[2:]
    return {line.split()[1]: line.split()[2:] for line in lines}


@pytest.mark.parametrize("name", PUBLISHED)
def test_recorded_machine(name):
    result = run_tool(BUILD / "gpucoll-info", "--machine", MACHINES / f"{name}.machine")
    assert result.status == 0, result.output
    classes, rates = rows_of(result.output, "# Paths"), rows_of(result.output, "# GB/s")
    for row in PUBLISHED[name]:
        gpu, *published = row.split()
        expected = [re.sub(r"NV\d+", "NVL", cell).replace("NODE", "PHB") for cell in published]
        assert classes[gpu][:len(expected)] == expected
        # Of each NVLink 25 GB/s in these machines.
        for cell, rate in zip(published, rates[gpu]):
            if cell.startswith("NV"):
                assert float(rate) == 25 * int(cell[2:])


# The NIC of each GPU: of those that are as near GPUs take one each, and with fewer they share it.
NICS = {"dgx-a100": [0, 1, 2, 3, 6, 7, 8, 9], "dgx-1-v100": [0, 0, 1, 1, 2, 2, 3, 3]}


@pytest.mark.parametrize("name", NICS)
def test_nics_of_gpus(name):
    output = run_tool(BUILD / "gpucoll-info", "--machine", MACHINES / f"{name}.machine").output
    assert [int(nic) for nic in re.findall(r"^# gpu\d+ mlx5_(\d+)$", output, re.M)] == NICS[name], output


# How many, and their rate: with NVSwitches all that a GPU has; in the hybrid cube mesh all six links in both directions, as NCCL finds.
RINGS = {"dgx-1-v100": (6, 25), "dgx-2": (1, 150), "dgx-a100": (1, 300), "dgx-h100": (1, 450), "pcie-8gpu": (1, 12), "cloud-g5": (1, 12),
         "workstation-3090": (1, 12), "two-5090": (1, 12), "two-sockets-l4": (1, 12)}


@pytest.mark.parametrize("name", RINGS)
def test_rings(name):
    """Of each machine, and that no link carries more than it can."""
    text = run_tool(BUILD / "gpucoll-info", "--machine", MACHINES / f"{name}.machine").output
    rate, lines = re.search(r"# Rings of ([\d.]+) GB/s each.*\n((?:#.*\n)+)", text).groups()
    rings = [line[2:].split() for line in lines.splitlines()]
    assert (len(rings), float(rate)) == RINGS[name]
    gpus = re.findall(r"^ *gpu (\S+)", text, re.M)
    assert all(sorted(ring) == sorted(gpus) for ring in rings)
    left = {ends: float(capacity) for a, b, capacity in re.findall(r"^link (\S+) (\S+) rate=(\S+)", text, re.M)
            for ends in ((a, b), (b, a)) if "nvswitch" not in b}
    for ring in rings:
        for hop in zip(ring, ring[1:] + ring[:1]):
            if name == "dgx-1-v100":
                left[hop] -= float(rate)
    assert all(rest >= 0 for rest in left.values())


def test_rings_of_bridged_pairs(tmp_path):
    """NVLinks join pairs only: rings go over PCI between the pairs, where these are on one switch."""
    gpus = [f"      gpu gpu{i} rate=16\n" for i in range(4)]
    (tmp_path / "a.machine").write_text(
        "gpucoll-machine 1\nnuma numa0 rate=64\n  bridge b rate=64\n    switch s0 rate=16\n" + gpus[0] + gpus[2] + "    switch s1 rate=16\n" +
        gpus[1] + gpus[3] + "link gpu0 gpu1 rate=50\nlink gpu2 gpu3 rate=50\n")
    text = run_tool(BUILD / "gpucoll-info", "--machine", tmp_path / "a.machine").output
    assert "# Rings of 16 GB/s each" in text
    rings = text.split("listed:\n")[1].splitlines()
    assert rings == ["# gpu0 gpu2 gpu3 gpu1", "# gpu0 gpu1 gpu3 gpu2"], text


@pytest.mark.parametrize("weak,pci,least", [(5, 16, 32), (16, 0.5, 32), (50, 50, 100)])
def test_rings_with_weak_links(tmp_path, weak, pci, least):
    """Four GPUs in a square of NVLinks, of which two are weak, on one switch: rings over PCI, too, where that brings more."""
    (tmp_path / "a.machine").write_text(
        "gpucoll-machine 1\nnuma numa0\n  bridge b\n    switch s\n" + "".join(f"      gpu gpu{i} rate={pci}\n" for i in range(4)) +
        f"link gpu0 gpu1 rate=50\nlink gpu1 gpu2 rate={weak}\nlink gpu2 gpu3 rate=50\nlink gpu3 gpu0 rate={weak}\n")
    text = run_tool(BUILD / "gpucoll-info", "--machine", tmp_path / "a.machine").output
    rate = float(re.search(r"# Rings of ([\d.]+) GB/s", text).group(1))
    rings = [line[2:].split() for line in text.split("listed:\n")[1].splitlines()]
    left = {(a, b): capacity for i, capacity in enumerate((50, weak, 50, weak))
            for a, b in ((f"gpu{i}", f"gpu{(i + 1) % 4}"), (f"gpu{(i + 1) % 4}", f"gpu{i}"))}
    left |= {(f"gpu{i}", way): pci for i in range(4) for way in ("up", "down")}
    for ring in rings:
        assert sorted(ring) == ["gpu0", "gpu1", "gpu2", "gpu3"]
        for a, b in zip(ring, ring[1:] + ring[:1]):
            for way in [(a, b)] if (a, b) in left else [(a, "up"), (b, "down")]:
                left[way] -= rate
    assert all(rest >= -1e-9 for rest in left.values()) and len(rings) * rate >= least, text


def test_machine_picture(tmp_path):
    """Boxes for all that PCI has; an arc for each hop of a ring, each link between GPUs, and each GPU's NIC."""
    for path in MACHINES.glob("*.machine"):
        drawn = run_tool(BUILD / "gpucoll-info", "--machine", path, "--svg").output
        picture, text = ElementTree.fromstring(drawn), path.read_text()
        tags = [element.tag.split("}")[1] for element in picture.iter()]
        rings, gpus = RINGS[path.stem][0], len(re.findall(r"^ *gpu ", text, re.M))
        direct = len(re.findall(r"^link gpu\d+ gpu\d+ ", text, re.M))
        nics = gpus if re.search(r"^ *nic ", text, re.M) else 0
        assert tags.count("path") == rings * gpus + direct + nics, path
        assert tags.count("g") == len(re.findall(r"^ *(?:numa|bridge|switch|gpu|nic) ", text, re.M)), path
    (tmp_path / "a.machine").write_text("gpucoll-machine 1\nname A & B <x>\nnuma numa0\n")
    drawn = run_tool(BUILD / "gpucoll-info", "--machine", tmp_path / "a.machine", "--svg").output
    assert "A & B <x>" in "".join(ElementTree.fromstring(drawn).itertext())


def test_recorded_machines_are_all_tested():
    assert {path.stem for path in MACHINES.glob("*.machine")} == set(PUBLISHED)


def test_machine_text_reads_as_itself(tmp_path):
    for path in MACHINES.glob("*.machine"):
        first = run_tool(BUILD / "gpucoll-info", "--machine", path).output
        (tmp_path / path.name).write_text(first)
        assert run_tool(BUILD / "gpucoll-info", "--machine", tmp_path / path.name).output == first


@pytest.mark.parametrize("text,said", [
    ("", "it is empty"),
    ("gpucoll-machine 2\n", "2: the first line must be 'gpucoll-machine 1', not 'gpucoll-machine 2'"),
    ("gpucoll-machine 1\ngpu gpu0 rate=fast\n", "2: a rate in GB/s is needed, not 'fast'"),
    ("gpucoll-machine 1\ngpu gpu0 rate=nan\n", "a rate in GB/s is needed, not 'nan'"),
    ("gpucoll-machine 1\ngpu gpu0 rate=-1\n", "a rate in GB/s is needed, not '-1'"),
    ("gpucoll-machine 1\ngpu gpu0 cc=eight\n", "a compute capability such as 8.0 is needed, not 'eight'"),
    ("gpucoll-machine 1\ngpu gpu0 copies=some\n", "a number of copy engines is needed, not 'some'"),
    ("gpucoll-machine 1\ngpu gpu0 color=red\n", "an unknown or too long field 'color'"),
    ("gpucoll-machine 1\ngpu gpu0\ngpu gpu0\n", "3: a new, short name is needed, not 'gpu0'"),
    ("gpucoll-machine 1\ngpu gpu0\n  nic nic0\n", "3: it can't be below what it is below: 'nic0'"),
    ("gpucoll-machine 1\nnuma numa0\n    gpu gpu0\n", "3: indentation is two spaces for each level: 'gpu'"),
    ("gpucoll-machine 1\nnuma numa0\nlink numa0 numa1 rate=1\n", "3: there is no object 'numa1'"),
    ("gpucoll-machine 1\nnuma numa0\nlink numa0 numa0 rate=1\n", "3: two ends are needed, not twice 'numa0'"),
    ("gpucoll-machine 1\ngpu gpu0\nnic nic0\napart gpu0 nic0\n", "4: GPUs are apart, and not 'nic0'"),
    ("gpucoll-machine 1\ngpu gpu0\ngpu gpu1\napart gpu0 gpu1 gpu0\n", "4: two GPUs are apart, and no 'gpu0'"),
    ("gpucoll-machine 1\ngpu gpu0\napart gpu0\n", "3: there is no object ''"),
    ("gpucoll-machine 1\ntpu tpu0\n", "2: unknown: 'tpu'"),
    ("gpucoll-machine 1\ngpu " + "x" * 600 + "\n", "a line that is too long"),
])
def test_machine_text_refuses(tmp_path, text, said):
    (tmp_path / "a.machine").write_text(text)
    result = run_tool(BUILD / "gpucoll-info", "--machine", tmp_path / "a.machine")
    assert result.status == 1 and said.removeprefix("2: the") in result.output, result.output


def test_machine_with_few_links(tmp_path):
    """Through an NVSwitch goes what the narrower end takes; who has no link to it goes over PCI."""
    (tmp_path / "a.machine").write_text(
        "gpucoll-machine 1\nnuma numa0\n" + "".join(f"  gpu gpu{i} rate=10\n" for i in range(3)) + "nvswitch s\n"
        "link gpu0 s rate=50\nlink gpu1 s rate=20\nlink gpu1 gpu0 rate=5\n")
    result = run_tool(BUILD / "gpucoll-info", "--machine", tmp_path / "a.machine")
    assert rows_of(result.output, "# Paths") == {"gpu0": ["X", "NVL", "PHB"], "gpu1": ["NVL", "X", "PHB"], "gpu2": ["PHB", "PHB", "X"]}
    assert rows_of(result.output, "# GB/s") == {"gpu0": ["X", "25", "10"], "gpu1": ["25", "X", "10"], "gpu2": ["10", "10", "X"]}


def hwloc_machine():
    """Two NUMA nodes; below the first, a switch with GPUs 01:00.0 and 02:00.0 and a NIC; below the second, GPU 03:00.0 at a port."""
    number = itertools.count(1)

    def obj(kind, attributes, *children):
        return f'<object type="{kind}" gp_index="{next(number)}" {attributes}>{"".join(children)}</object>'

    def sets(mask):
        node = mask
        return " ".join(f'{prefix}{kind}set="{value:#x}"' for kind, value in (("cpu", mask), ("node", node))
                        for prefix in ("", "complete_"))

    def bridge(depth, address, first, last, speed, *children):
        return obj("Bridge", f'bridge_type="1-1" depth="{depth}" bridge_pci="0000:[{first:02x}-{last:02x}]" pci_busid="0000:{address}" '
                             f'pci_type="0604 [8086:0001] [0000:0000] 00" pci_link_speed="{speed}"', *children)

    def device(address, kind, speed, *children):
        return obj("PCIDev", f'pci_busid="0000:{address}" pci_type="{kind} [0000:0000] 00" pci_link_speed="{speed}"', *children)

    def package(i, *devices):
        core = obj("Core", f'os_index="{i}" {sets(1 << i)}', obj("PU", f'os_index="{i}" {sets(1 << i)}'))
        memory = obj("NUMANode", f'os_index="{i}" {sets(1 << i)} local_memory="1048576"')
        host = obj("Bridge", f'bridge_type="0-1" depth="0" bridge_pci="0000:[{16 * i:02x}-{16 * i + 15:02x}]"', *devices)
        return obj("Package", f'os_index="{i}" {sets(1 << i)}', memory, core, host)

    gpus = [bridge(3, f"0b:0{i}.0", i, i, 15.75, device(f"0{i}:00.0", "0302 [10de:20b0]", 15.75)) for i in (1, 2)]
    nic = bridge(3, "0b:03.0", 12, 12, 7.88, device("0c:00.0", "0207 [15b3:101b]", 7.88, obj("OSDev", 'name="ib0" osdev_type="2"'),
                                                     obj("OSDev", 'name="mlx5_0" osdev_type="3"')))
    switch = bridge(1, "00:01.0", 1, 12, 15.75, bridge(2, "0a:00.0", 1, 12, 15.75, *gpus, nic))
    port = bridge(1, "10:01.0", 3, 3, 31.5, device("03:00.0", "0302 [10de:20b0]", 31.5))
    machine = obj("Machine", f'os_index="0" {sets(3)} allowed_cpuset="0x3" allowed_nodeset="0x3"', package(0, switch), package(1, port))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n<topology version="2.0">{machine}</topology>\n'


@emulated_only
def test_machine_that_hwloc_finds(tmp_path):
    """A machine from HWLOC_XMLFILE, of whose five GPUs PCI shows three."""
    (tmp_path / "machine.xml").write_text(hwloc_machine())
    env = {"HWLOC_XMLFILE": str(tmp_path / "machine.xml"), "LD_LIBRARY_PATH": str(BUILD / "emu"), "CUEMU_DEVICES": "5"}
    result = run_tool(BUILD / "gpucoll-info", "-t", env=env)
    assert result.status == 0, result.output
    classes, rates = rows_of(result.output, "# Paths"), rows_of(result.output, "# GB/s")
    assert classes["gpu0"] == ["X", "PIX", "SYS", "SYS", "SYS", "PIX"], result.output
    assert classes["gpu2"] == ["SYS", "SYS", "X", "SYS", "SYS", "SYS"]
    assert rates["gpu0"] == ["X", "15.75", "15.75", "15.75", "15.75", "7.88"] and rates["gpu4"][3] == "?"
    assert "# gpu0 mlx5_0\n" in result.output, result.output


@emulated_only
@pytest.mark.parametrize("links,expected", [
    # Directly; also a link that is down, and one to a GPU that is not to be seen.
    ("11x;002;15", {"gpu0": ["X", "50", "?"], "gpu1": ["50", "X", "25"], "gpu2": ["?", "25", "X"]}),
    ("sss;sss;", {"gpu0": ["X", "75", "?"], "gpu1": ["75", "X", "?"], "gpu2": ["?", "?", "X"]}),
    ("hh;hh;hh", {"gpu0": ["X", "50", "50"], "gpu1": ["50", "X", "50"], "gpu2": ["50", "50", "X"]}),
])
def test_nvlinks(tmp_path, links, expected):
    compile_with("cc", "-shared", "-fPIC", "-o", tmp_path / "libnvidia-ml.so.1", SOURCE / "test/emu/emu_nvml.c")
    env = {"LD_LIBRARY_PATH": f"{tmp_path}:{BUILD / 'emu'}", "CUEMU_DEVICES": "3", "EMU_NVML": links, "HWLOC_COMPONENTS": "-pci"}
    result = run_tool(BUILD / "gpucoll-info", "-t", env=env)
    rates, classes = rows_of(result.output, "# GB/s"), rows_of(result.output, "# Paths")
    gpus = list(expected)
    assert {gpu: rates[gpu][:3] for gpu in gpus} == expected, result.output
    assert all((classes[gpu][i] == "NVL") == (rate not in "X?") for gpu in gpus for i, rate in enumerate(expected[gpu]))


@emulated_only
def test_gpus_without_peer_access():
    env = {"LD_LIBRARY_PATH": str(BUILD / "emu"), "CUEMU_DEVICES": "3", "CUEMU_P2P": "010,100,000"}
    text = run_tool(BUILD / "gpucoll-info", "-t", env=env).output
    assert re.findall(r"^apart (.*)", text, re.M) == ["gpu0 gpu2", "gpu1 gpu2"], text


@emulated_only
def test_peer_access_by_nvml(tmp_path):
    """What NVML says of it, which also knows of what a driver was told to leave alone; once, whoever says it."""
    compile_with("cc", "-shared", "-fPIC", "-o", tmp_path / "libnvidia-ml.so.1", SOURCE / "test/emu/emu_nvml.c")
    env = {"LD_LIBRARY_PATH": f"{tmp_path}:{BUILD / 'emu'}", "CUEMU_DEVICES": "3", "EMU_NVML": ";;", "EMU_NVML_APART": "02,21",
           "HWLOC_COMPONENTS": "-pci"}
    for p2p in ("all", "010,100,000"):
        text = run_tool(BUILD / "gpucoll-info", "-t", env={**env, "CUEMU_P2P": p2p}).output
        assert re.findall(r"^apart (.*)", text, re.M) == ["gpu0 gpu2", "gpu1 gpu2"], text


NVML_CALLS = ["nvmlShutdown", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetPciInfo_v3",
              "nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetNvLinkState",
              "nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetNvLinkRemoteDeviceType"]

# What a program has beside MPI, and whether it may come to use GPUs.
USES = {"nothing": ("", [], False), "a_library": ("", ["-lgfortran"], False), "dlopen": ("if (argc > 1) dlopen(argv[1], RTLD_NOW);", [], True),
        "a_library_that_loads": ("", ["-lgomp"], True), "cuda": ("", [f"-L{BUILD / 'emu'}", "-l:libcuda.so.1"], True)}


@emulated_only
@pytest.mark.parametrize("case,mpi", list(zip(USES, itertools.cycle(MPIS))))
def test_who_asks_nvml(run_mpi, tmp_path, monkeypatch, mpi, case):
    """It may start all GPUs of the machine, for seconds: not for programs that can't come to use one."""
    code, libraries, asks = USES[case]
    (tmp_path / "nvml.c").write_text("#include <stdio.h>\nint nvmlInit_v2(void); int nvmlInit_v2(void) { puts(\"NVML begins\"); return 0; }\n"
                                     + "\n".join(f"int {name}(void); int {name}(void) {{ return 1; }}" for name in NVML_CALLS))
    (tmp_path / "program.c").write_text("#include <dlfcn.h>\n#include <mpi.h>\nint main(int argc, char **argv)\n{\n\tMPI_Init(&argc, &argv);\n"
                                        f"\t{code}\n\treturn MPI_Finalize();\n}}\n")
    compile_with("cc", "-shared", "-fPIC", "-o", tmp_path / "libnvidia-ml.so.1", tmp_path / "nvml.c")
    compile_with(f"mpicc.{mpi}", "-o", tmp_path / "program", tmp_path / "program.c", "-Wl,--no-as-needed", *libraries)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    result = run_mpi(mpi, 2, tmp_path / "program", env={"GPUCOLL_DEBUG": "info"})
    assert result.status == 0 and "CUDA driver found" in result.output, result.output
    assert result.output.count("NVML begins") == asks, result.output


@pytest.mark.parametrize("brings,comes", [(True, "1"), (False, "0")])
def test_runtime_that_the_mpi_brings(tmp_path, brings, comes):
    """The MPI may need CUDA's runtime library, and the program use that one, with nothing of its own that loads the driver."""
    sources = {"cudart": "#include <dlfcn.h>\nint cudaMalloc(void **p, unsigned long n) { (void)p; (void)n; return !dlopen(\"libcuda.so.1\", RTLD_NOW); }",
               "mpi": "int cudaMalloc(void **p, unsigned long n);\nint mpi(void) { return " + ("cudaMalloc(0, 0)" if brings else "0") + "; }",
               "own": "#include <link.h>\n#include <stdbool.h>\nint mpi(void);\nbool gpu_driver_bound;\nstruct link_map *gpu_driver_last_object;\n"
                      "bool gpu_driver_look(void) { mpi(); return false; }",
               "main": "#include <stdio.h>\n#include \"gpu/gpu_use.h\"\nint main(void) { gpu_use_look(); printf(\"%d\\n\", gpu_use_may_come()); return 0; }"}
    for name, text in sources.items():
        (tmp_path / f"{name}.c").write_text(text)
    def library(name, *more):
        compile_with("cc", "-w", "-shared", "-fPIC", "-o", tmp_path / f"lib{name}.so", tmp_path / f"{name}.c", f"-L{tmp_path}", "-Wl,--no-as-needed", *more)
    library("cudart")
    library("mpi", *(["-lcudart"] if brings else []))
    library("own", SOURCE / "src/gpu/gpu_use.c", "-D_GNU_SOURCE", f"-I{SOURCE / 'src'}", f"-I{CUDA}/include", "-lmpi")
    compile_with("cc", "-o", tmp_path / "main", tmp_path / "main.c", f"-I{SOURCE / 'src'}", f"-L{tmp_path}", "-lown", f"-Wl,-rpath-link,{tmp_path}")
    result = run_command([tmp_path / "main"], {"LD_LIBRARY_PATH": str(tmp_path)}, 60)
    assert result.status == 0 and result.output.strip() == comes, result.output


# What the machine says of two GPUs, what the user says, of rank 1 something else; and whether one uses the other's memory.
REACHES = {"no_limit_is_known": ("", {}, {}, True), "host_bridges": ("numa", {}, {}, False), "two_on_amd": ("amd numa", {}, {}, True),
           "many_on_amd": ("amd numa more", {}, {}, False), "asked_for": ("numa", {"GPUCOLL_P2P_LEVEL": "phb"}, {}, True),
           "not_by_all": ("numa", {"GPUCOLL_P2P_LEVEL": "SYS"}, {"GPUCOLL_P2P_LEVEL": "PIX"}, False),
           "asked_for_and_not_known": ("", {"GPUCOLL_P2P_LEVEL": "PHB"}, {}, False),
           "nvlinks": ("numa link", {"GPUCOLL_P2P_LEVEL": "NVL"}, {}, True), "not_at_all": ("numa link", {"GPUCOLL_P2P_LEVEL": "LOC"}, {}, False),
           "apart": ("numa link apart", {}, {}, False)}


@emulated_only
@pytest.mark.parametrize("case,mpi", list(zip(REACHES, itertools.cycle(MPIS))))
def test_how_far_gpus_reach(run_mpi, tmp_path, mpi, case):
    machine, env, other, reaches = REACHES[case]
    text = "gpucoll-machine 1\n" + ("cpu AuthenticAMD\n" if "amd" in machine else "cpu GenuineIntel\n") + ("numa numa0\n" if "numa" in machine else "")
    text += "".join(f"{'  ' * ('numa' in machine)}gpu gpu{i} bus=0000:0{i + 1}:00.0\n" for i in range(4 if "more" in machine else 2))
    text += "link gpu0 gpu1 rate=50\n" * ("link" in machine) + "apart gpu0 gpu1\n" * ("apart" in machine)
    (tmp_path / "a.machine").write_text(text)
    script = tmp_path / "rank.sh"
    mine = "".join(f"export {name}={value}; " for name, value in other.items())
    script.write_text(f'#!/bin/sh\nif [ "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" = 1 ]; then {mine} :; fi\nexec "$@"\n')
    script.chmod(0o755)
    result = run_mpi(mpi, 2, script, BUILD / "mpi" / mpi / "gpucoll-bench", "allreduce", "-b", "1K", "-e", "1M", "-f", "32", "-n", "5",
                     env={"CUEMU_DEVICES": "2", "GPUCOLL_TOPO_FILE": str(tmp_path / "a.machine"), "GPUCOLL_DEBUG": "info", **env, **PATHS["accel"]})
    assert result.status == 0 and "# 0 wrong values" in result.output and "WARN" not in result.output, result.output
    assert (" twoshot" in result.output) == reaches and ("farther apart than GPUCOLL_P2P_LEVEL" in result.output) != reaches, result.output


def test_machine_without_gpus():
    result = run_tool(BUILD / "gpucoll-info", "-t", env={"LD_LIBRARY_PATH": "", "HWLOC_COMPONENTS": "-pci"})
    assert result.status == 0 and ("# no GPUs" in result.output or "gpu0" in result.output), result.output


@emulated_only
@each_mpi
def test_instances_of_a_gpu(run_mpi, mpi):
    """MIG: one PCI address, and kernels that do not take each other's place, so that they may wait for each other."""
    env = {"CUEMU_DEVICES": "3", "CUEMU_MIG": "1", "CUEMU_P2P": "none", "CUEMU_SMS": "16", **PATHS["accel"]}
    result = run_mpi(mpi, 3, "gpucoll-bench", "allreduce", "-b", "1K", "-e", "64K", "-f", "8", "-n", "5", env=env)
    assert result.status == 0 and "# 0 wrong values" in result.output, result.output
    assert re.search(r" accel +\d+ .* fused ", result.output) and " stepped" not in result.output, result.output


@emulated_only
def test_lines_need_nvlinks(run_mpi, tmp_path):
    """LL128 along the machine's ring of NVLinks, not where messages go another way."""
    machine = tmp_path / "a.machine"
    env = {"CUEMU_DEVICES": "4", "GPUCOLL_TOPO_FILE": str(machine), "GPUCOLL_PROTO": "ll128", "GPUCOLL_EXEC": "fused", "CUEMU_SMS": "32",
           **PATHS["accel"]}
    links = "".join(f"link gpu{a} gpu{b} rate=50\n" for a, b in ((0, 2), (2, 1), (1, 3), (3, 0)))
    why = "GPUCOLL_PROTO=ll128 is not possible for MPI_Allreduce: between some ranks lines of 128 bytes may be cut"
    for algo, there, works in (("ring", links, True), ("doubling", links, False), ("ring", "", False)):
        machine.write_text("gpucoll-machine 1\n" + LINKS + there)
        result = run_mpi(MPIS[-1], 4, "gpucoll-bench", "allreduce", "-b", "1K", "-e", "256K", "-f", "16", "-n", "3", env={**env, "GPUCOLL_ALGO": algo})
        assert result.status == 0, result.output
        assert (f"{algo} fused ll128" in result.output) == works and (why in result.output) == (not works), result.output
    # Neither inside a GPU nor where only a file tells of NVLinks without being asked for alone.
    machine.write_text("gpucoll-machine 1\n" + LINKS + links)
    for where in ({"CUEMU_DEVICES": "1", "GPUCOLL_TOPO_FILE": ""}, {}):
        result = run_mpi(MPIS[-1], 4, "gpucoll-bench", "allreduce", "-b", "1K", "-e", "256K", "-f", "16", "-n", "3",
                         env={**env, "GPUCOLL_PROTO": "ll,ll128", "GPUCOLL_ALGO": "ring", **where})
        assert result.status == 0 and "ring fused ll " in result.output and "fused ll128" not in result.output, result.output


@emulated_only
@each_mpi
def test_rings_of_the_machine(run_mpi, mpi, tmp_path):
    """Ranks follow each other along the NVLinks that GPUCOLL_TOPO_FILE shows; a file that is none is reported."""
    machine = tmp_path / "a.machine"
    machine.write_text("gpucoll-machine 1\n" + LINKS + "".join(f"link gpu{a} gpu{b} rate=50\n" for a, b in ((0, 2), (2, 1), (1, 3), (3, 0))))
    env = {"CUEMU_DEVICES": "4", "GPUCOLL_TOPO_FILE": str(machine), "GPUCOLL_DEBUG": "info", "GPUCOLL_ALGO": "ring,tree",
           "GPUCOLL_CHECK": "1", "CUEMU_SMS": "32", **PATHS["accel"]}
    result = run_mpi(mpi, 4, "test_coll", env=env)
    assert_passed(result)
    assert "4 ranks on 1 nodes with 4 GPUs, ring 0 2 1 3, ring 0 3 1 2\n" in result.output, result.output
    assert re.search(r"accel, ring (fused|stepped)", result.output) and re.search(r"accel, tree (fused|stepped)", result.output)
    machine.write_text("gpucoll-machine 1\nnuma numa0\n  gpu gpu0 rate=fast\n")
    result = run_mpi(mpi, 2, "test_agree", "mixed", 10, env=env)
    assert_passed(result)
    assert f"GPUCOLL_TOPO_FILE is ignored: {machine}:3: " in result.output, result.output
