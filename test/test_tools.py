# SPDX-License-Identifier: BSD-3-Clause
"""The programs beside the library."""
import csv
import io
import os
import re
import shutil
from xml.etree import ElementTree

import pytest

from conftest import BUILD, CUDA, MPIS, NEWER, ON_GPU, SOURCE, assert_passed, environment, launcher, run_command, run_work
from helpers import (CUDART, MACHINES, choices, compile_with, count_calls, each_mpi, emulated_only, need_mpi4py,
                     run_tool)

EXEC = BUILD / "gpucoll-exec"


@pytest.mark.parametrize("options", [["--mca", "btl_base_verbose", "0"], ["-x", "yes"], ["--unknown", "yes", "--"], ["-genv", "ANSWER", "yes"]])
def test_exec_finds_the_program(tmp_path, options):
    """Behind values of a launcher's options that are names of programs, too (yes); -- says it where they are not known."""
    said = tmp_path / "mpirun"
    said.write_text('#!/bin/sh\necho "launched: $*"\n')
    said.chmod(0o755)
    result = run_tool(EXEC, str(said), "-n", "2", *options, "python3", "x.py")
    kept = [option for option in options if option != "--"]
    assert result.status == 0 and f"launched: -n 2 {' '.join(kept)} {EXEC} python3 x.py" in result.output, result.output


SPAWNING = r"""
#include <mpi.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv)
{
	char *args[] = {"a child", NULL}, *commands[2], **argvs[] = {args, args};
	int most[] = {1, 1}, *buffer;
	MPI_Info infos[] = {MPI_INFO_NULL, MPI_INFO_NULL};
	MPI_Comm parent, inter;
	MPI_Init(&argc, &argv);
	MPI_Comm_get_parent(&parent);
	commands[0] = commands[1] = argv[0];
	if (parent == MPI_COMM_NULL && !strcmp(argv[1], "many"))
		MPI_Comm_spawn_multiple(2, commands, argvs, most, infos, 1, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE);
	else if (parent == MPI_COMM_NULL)
		MPI_Comm_spawn(argv[0], args, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE);
	cudaMalloc((void **)&buffer, 8);
	MPI_Allreduce(buffer, buffer + 1, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (parent != MPI_COMM_NULL)
		printf("%s has made its call\n", argv[1]);
	fflush(stdout);
	MPI_Barrier(parent == MPI_COMM_NULL ? inter : parent);
	MPI_Comm_disconnect(parent == MPI_COMM_NULL ? &inter : &parent);
	MPI_Finalize();
	return 0;
}
"""


@emulated_only
@pytest.mark.parametrize("parent", ["openmpi", "openmpi5", "mpich5"])
@pytest.mark.parametrize("way", ["one", "many"])
def test_exec_reaches_spawned_processes(tmp_path, parent, way):
    """Their calls on device memory, with which the MPI alone would crash. Debian's MPICH can't spawn, also without the library."""
    if parent not in MPIS + NEWER:
        pytest.skip(f"no library for {parent}")
    (tmp_path / "spawning.c").write_text(SPAWNING)
    compile_with(f"mpicc.{parent}", f"-I{CUDA}/include", "-o", tmp_path / "spawning", tmp_path / "spawning.c", f"-L{BUILD}/emu", f"-l:{CUDART}",
                 "-l:libcuda.so.1")
    result = run_tool(EXEC, "--emulate=2", *launcher(parent, 2), str(tmp_path / "spawning"), way)
    assert result.status == 0 and result.output.count("a child has made its call") == 2, result.output


@emulated_only
@each_mpi
def test_tools_above(tmp_path, mpi):
    """A preloaded tool sees all of the program's calls, and the library accelerates them."""
    tool = tmp_path / "tool.so"
    compile_with(f"mpicc.{mpi}", "-shared", "-fPIC", "-o", tool, SOURCE / "test/door/tool.c")
    env = {**environment(mpi, []), "GPUCOLL_STATS": "1"}
    env["LD_PRELOAD"] = f"{env['LD_PRELOAD']}:{tool}".strip(":")
    command = [*launcher(mpi, 2), "env", *[f"{k}={v}" for k, v in env.items()], str(EXEC), str(BUILD / "mpi" / mpi / "gpucoll-bench"),
               "allreduce", "-b", "1K", "-e", "1K", "-n", "50"]
    result = run_command(command, os.environ.copy(), 60)
    seen = re.search(r"tool saw (\d+) calls", result.output)
    assert result.status == 0 and seen and int(seen[1]) > 100 and count_calls(result.output, "accel") > 90, result.output


@pytest.mark.quick
@each_mpi
@pytest.mark.parametrize("place", ["before the launcher", "after the launcher"])
def test_exec(mpi, place):
    program = [BUILD / "mpi" / mpi / "test_life", "reallocation"]
    wrapped = [EXEC, "--emulate=2", "--no-accel"] if not ON_GPU else [EXEC]
    command = [*launcher(mpi, 2), *program]
    command = [*wrapped, *command] if place.startswith("before") else [*launcher(mpi, 2), *wrapped, *program]
    assert_passed(run_tool(*command))


@pytest.mark.parametrize("pal,found", [("40", "openmpi"), ("80", "openmpi5")])
def test_exec_finds_the_release(tmp_path, pal, found):
    """Open MPI 4 and 5 have one soname. What is found is what is preloaded, here nothing that could be."""
    def make(output, source, *options):
        (tmp_path / "source.c").write_text(source)
        result = run_work(["gcc", "-o", str(tmp_path / output), str(tmp_path / "source.c"), "-Wl,--no-as-needed", f"-L{tmp_path}",
                           f"-Wl,-rpath,{tmp_path}", *options], os.environ.copy(), 60)
        assert result.status == 0, result.output

    for release in ("openmpi", "openmpi5"):
        (tmp_path / "mpi" / release).mkdir(parents=True)
        (tmp_path / "mpi" / release / "libgpucoll.so.0").touch()
    shutil.copy(EXEC, tmp_path)
    make(f"libopen-pal.so.{pal}", "int pal;", "-shared", f"-Wl,-soname,libopen-pal.so.{pal}")
    make("libmpi.so.40", "int mpi;", "-shared", "-Wl,-soname,libmpi.so.40", f"-l:libopen-pal.so.{pal}")
    make("program", '#include <stdio.h>\n#include <stdlib.h>\nint main(void) { return puts(getenv("LD_PRELOAD")) < 0; }', "-l:libmpi.so.40")
    result = run_tool(tmp_path / "gpucoll-exec", tmp_path / "program")
    assert result.status == 0 and f"/mpi/{found}/libgpucoll.so.0" in result.output.splitlines()[-1], result.output


def test_exec_several_programs():
    """mpirun -n 1 ./a : -n 1 ./b: each program gets the library, or they would wait for each other for ever."""
    mpi = MPIS[-1]
    bench = [str(BUILD / "mpi" / mpi / "gpucoll-bench"), "bcast", "-b", "64", "-e", "64", "-n", "2", "-w", "1"]
    where = [] if ON_GPU else ["--emulate"]
    result = run_tool(BUILD / "gpucoll-exec", *where, *launcher(mpi, 1), *bench, ":", "-n", "1", *bench)
    assert result.status == 0 and "# 0 wrong values" in result.output, result.output


def test_exec_python():
    need_mpi4py()
    assert_passed(run_tool(EXEC, "--emulate", *launcher("openmpi", 2), "/usr/bin/python3",
                           SOURCE / "test/door/python_door.py", CUDART))


def test_exec_refuses(tmp_path):
    def refused(*command, because):
        result = run_tool(EXEC, *command)
        assert result.status == 2 and because in result.output, result.output

    refused(because="no command given")
    refused("--emulat", "x", because="unknown option '--emulat'")
    refused("--emulate=0", "x", because="--emulate=0: a number of devices")
    refused("/no/such/program", because="/no/such/program: no such program")
    refused("/bin/true", because="is linked with no MPI")
    refused("--mpi=nonsense", "/bin/true", because="needs the library for the MPI 'nonsense'")
    suid = tmp_path / "suid"
    suid.write_bytes(open("/bin/true", "rb").read())
    suid.chmod(0o4755)
    refused(suid, because="set-user-id")
    static = tmp_path / "static"
    source = tmp_path / "static.c"
    source.write_text("int MPI_Init(void *a, void *b) { return a == b; }\nint main(void) { return MPI_Init(0, 0); }\n")
    compile_with("gcc", "-o", static, source)
    refused(static, because="linked in statically")


@pytest.mark.quick
def test_info():
    info = run_tool(BUILD / "gpucoll-info")
    assert info.status == 0 and info.output.startswith("libgpucoll ")
    config = run_tool(BUILD / "gpucoll-info", "-c", env={"GPUCOLL_STATS": "1"})
    assert "GPUCOLL_STATS=1" in config.output and "Source: environment" in config.output
    assert run_tool(BUILD / "gpucoll-info", "--nonsense").status == 2
    assert run_tool(BUILD / "gpucoll-info", "extra").status == 2


def test_info_plan():
    info = BUILD / "gpucoll-info"
    table = run_tool(info, "-p", "allreduce", "-n", "6", "-s", "4M")
    assert table.status == 0 and re.search(r"^ring +10 +0 +6995968 ", table.output, re.M), table.output
    double = run_tool(info, "-p", "allreduce", "-n", "6", "-s", "4M", "--proto", "ll")
    assert re.search(r"^ring +10 +0 +13991936 ", double.output, re.M) and re.search(r"^twoshot +0 +1 +0 ", double.output, re.M)
    # The ring in text: a rank of three sends its piece, passes one on, makes one whole, and so on.
    text = run_tool(info, "-p", "allreduce", "-n", "3", "--algo", "ring").output
    assert text.count("recvReduceCopySend") == 3 and "2  recvReduceCopySend   piece 1    from 2 + IN -> OUT, to 1" in text
    # Two nodes of two ranks: the carrier adds what its node's other gives it, and gives it the result.
    text = run_tool(info, "-p", "allreduce", "--nodes", "2,2", "--algo", "hier-ring").output
    assert "IN + from 1 -> to 2" in text and "from 2 + IN + from 1 -> OUT, to 1, to 2" in text, text
    # It reads the other's input, and writes its output.
    text = run_tool(info, "-p", "allreduce", "--nodes", "2,2", "--algo", "rail-ring").output
    assert "IN + IN@1 -> to 2" in text and "from 2 -> OUT, OUT@1" in text, text
    picture = ElementTree.fromstring(run_tool(info, "-p", "bcast", "-n", "7", "--root", "3", "--algo", "tree", "--svg").output)
    assert len([line for line in picture.iter() if line.tag.endswith("}line")]) == 2 * 6  # each rank hears from two trees
    graph = run_tool(info, "-p", "alltoall", "-n", "4", "--in-place", "--algo", "direct", "--dot").output
    assert graph.startswith("digraph") and graph.count("{") == graph.count("}") and graph.count("swap") == 4 * 3


def test_info_choices():
    """What the machines are known for: their links carry what they can, by the algorithm that is made for them."""
    def machine(name):
        return ["--machine", MACHINES / f"{name}.machine"]

    def share(time, bytes, rate):
        return bytes / (time * 1e3) / (0.8 * rate)  # of what a link of so many GB/s carries

    switched = choices("allreduce", *machine("dgx-h100"), "-n", "8")
    assert switched[8][0] in ("oneshot", "twoshot") and switched[1 << 30][0] == "twoshot"
    assert 0.9 < share(switched[1 << 30][1], 2 * 7 / 8 * (1 << 30), 450) <= 1
    # Six NVLinks of 25 GB/s at each GPU of the hybrid cube mesh, of which no algorithm but rings along them uses all.
    mesh = choices("allreduce", *machine("dgx-1-v100"), "-n", "8")
    assert mesh[1 << 30][0].startswith("ring simple") and 0.7 < share(mesh[1 << 30][1], 2 * 7 / 8 * (1 << 30), 150) <= 1
    tree = choices("bcast", *machine("pcie-8gpu"), "-n", "8")
    assert tree[1 << 30][0].startswith("ring simple") and 0.9 < share(tree[1 << 30][1], 1 << 30, 12) <= 1
    nodes = choices("allreduce", *machine("dgx-a100"), "--nodes", "8,8")
    assert nodes[8][0].startswith("node-aware") and nodes[1 << 20][0].startswith("rail-") and nodes[8][1] > switched[8][1]
    # The wire would take 6.7 ms, as each of the eight GPUs has a NIC of 25 GB/s to itself, though two are as near to two of them;
    # NVLinks of 300 GB/s take longer: what others read of a GPU's input goes out of it, and what it writes to their outputs.
    assert 0.97 < share(nodes[1 << 30][1], 2 * 7 / 8 * (1 << 30), 300) <= 1, nodes[1 << 30]
    said = "no rank's input has more than 4096 bytes"
    for options, says in ((["--nodes", "8,8"], True), (["-n", "16"], False)):
        assert (said in run_tool(BUILD / "gpucoll-info", "-p", "bcast", *machine("dgx-a100"), *options).output) == says
    # Sockets take processors' time for each message, so there are fewer of them, and for each byte.
    by_sockets = choices("bcast", *machine("two-5090"), "--nodes", "1,1", "--sockets")
    by_hardware = choices("bcast", *machine("two-5090"), "--nodes", "1,1")
    channels = [int(way[1 << 15][0].split(" x")[1]) for way in (by_sockets, by_hardware)]
    assert channels[0] < channels[1] and 0.5 < (1 << 30) / (by_sockets[1 << 30][1] * 1e3) / 3 <= 1, (channels, by_sockets)
    apart = choices("allreduce", *machine("two-5090"), "-n", "2")  # without mapped memory
    assert all(" x" in way for way, _ in apart.values()), apart
    # Ranks that share a GPU: nothing is faster than its memory.
    shared = choices("allgather", *machine("cloud-g5"), "-n", "8")
    assert all(shared[size][1] <= shared[4 * size][1] for size in (8 << i for i in range(0, 26, 2)))
    listed = run_tool(BUILD / "gpucoll-info", "-p", "alltoall", "-s", "1M", *machine("dgx-2"), "-n", "16").output
    times = [float(time) for time in re.findall(r"^ [a-z].* ([\d.]+)$", listed, re.M)]
    assert len(times) > 5 and times == sorted(times), listed


@pytest.mark.parametrize("options,said", [
    (["-p", "alltoal"], "there is no collective 'alltoal'; there are: allreduce"),
    (["-p", "bcast", "--algo", "oneshot"], "there is no algorithm 'oneshot' for bcast; there are: hier-ring hier-tree rail-ring rail-tree ring tree"),
    (["-p", "allgather", "-n", "5", "--algo", "neighbor"], "it needs an even number of ranks"),
    (["-p", "bcast", "--nodes", "2,0"], "--nodes 0: a number from 1"), (["-p", "bcast", "--algo", "hier-ring"], "several nodes"),
    (["-p", "bcast", "-n", "0"], "-n 0: a number from 1 to 1024"), (["-p", "bcast", "-s", "1T"], "-s 1T: a number"),
    (["-p", "bcast", "--root", "4"], "there is no rank 4 among 4"), (["-p", "scan", "--root", "1"], "scan has no root"),
    (["-p", "bcast", "--in-place"], "bcast has one buffer"), (["--algo", "ring"], "need -p"), (["-p", "bcast", "--proto", "tcp"], "--proto tcp: simple, ll or ll128"),
    (["-p", "bcast", "--exec", "gpu"], "--exec gpu: fused, stepped or gdr"), (["-p", "scan", "--svg"], "need --algo")])
def test_info_plan_refuses(options, said):
    result = run_tool(BUILD / "gpucoll-info", *options)
    assert result.status == 2 and said in result.output, result.output


def simulated(*options):
    """Rows of gpucoll-sim, as dictionaries."""
    result = run_tool(BUILD / "gpucoll-sim", *options)
    assert result.status == 0 and result.output.startswith("collective,"), result.output
    return [{name: value if name in ("collective", "network", "algorithm", "protocol", "how") else float(value) for name, value in row.items()}
            for row in csv.DictReader(io.StringIO(result.output))]


with_simgrid = pytest.mark.skipif(not (BUILD / "gpucoll-sim").exists(), reason="SimGrid was not there when this was built")


@with_simgrid
@pytest.mark.parametrize("shape", ["rails", "fat-tree", "dragonfly"])
def test_simulation(shape):
    """Nothing is faster than the bound, and what knows of nodes is faster than what does not."""
    rows = simulated("--machine", MACHINES / "dgx-a100.machine", "-s", shape, "-c", "allreduce,alltoall", "-b", "8,1M", "-n", "8,40,64")
    assert len(rows) >= 12 and all(row["ratio"] >= 1 and row["network"] == shape for row in rows), rows
    best = {}
    for row in rows:
        best.setdefault((row["collective"], row["bytes"], row["ranks"]), row)
        assert best[row["collective"], row["bytes"], row["ranks"]]["us"] <= row["us"], rows
    assert len(best) == 12 and best["allreduce", 1 << 20, 64]["algorithm"].startswith("rail-"), rows
    assert shape == "dragonfly" or best["alltoall", 1 << 20, 64]["ratio"] < 1.3, rows


@with_simgrid
def test_simulation_of_short_calls():
    """Near the bound, which has a step of a kernel for each message, and not under it where ranks have several messages under way."""
    rows = simulated("--machine", MACHINES / "dgx-a100.machine", "-b", "8", "-n", "16,128,512")
    ratios = [row["ratio"] for row in rows if row["algorithm"] == "node-aware"]
    assert len(ratios) == 3 and all(1 <= ratio <= 1.4 for ratio in ratios), rows


@with_simgrid
@pytest.mark.skipif(not shutil.which("gnuplot"), reason="there is no gnuplot")
def test_simulation_is_extrapolated(tmp_path):
    """A ring of more ranks than can be simulated takes as much longer as it is longer, and is no simulation."""
    few, more, most = rows = simulated("--machine", MACHINES / "dgx-a100.machine", "--best", "-a", "ring", "-C", "1", "-b", "64K", "-n", "64,256,8192")
    assert [row["how"] for row in rows] == ["simulated", "simulated", "extrapolated"], rows
    expected = more["us"] + (8192 - 256) * (more["us"] - few["us"]) / (256 - 64)
    assert abs(most["us"] / expected - 1) < 0.15 and most["ratio"] == pytest.approx(most["us"] / most["bound_us"], abs=0.01), rows
    table = tmp_path / "rows.csv"
    table.write_text(",".join(few) + "\n" + "".join(",".join(map(str, row.values())) + "\n" for row in rows))
    svg = run_tool("gnuplot", "-c", SOURCE / "tools/gpucoll-sim.gp", table)
    assert svg.status == 0 and "extrapolated" in svg.output, svg.output


@with_simgrid
@pytest.mark.skipif(not shutil.which("gnuplot"), reason="there is no gnuplot")
def test_simulation_is_drawn(tmp_path):
    """What is wished for, in a picture with a curve for each algorithm and for the bound."""
    rows = tmp_path / "rows.csv"
    result = run_tool(BUILD / "gpucoll-sim", "--machine", MACHINES / "dgx-a100.machine", "-b", "8,1K", "-n", "16,64", "-a", "^node-aware", "-o", rows)
    assert result.status == 0 and "tree" in rows.read_text() and "node-aware" not in rows.read_text(), rows.read_text()
    svg = run_tool("gnuplot", "-c", SOURCE / "tools/gpucoll-sim.gp", rows)
    assert svg.status == 0 and "</svg>" in svg.output and "extrapolated" not in svg.output, svg.output
    for title, times in (("tree", 2), ("ring", 2), ("bound", 2), ("allreduce/8 bytes", 1), ("allreduce/1024 bytes", 1)):
        assert len(re.findall(rf"<text>(?:<tspan[^>]*>)?{title}<", svg.output)) == times, (title, svg.output)


@with_simgrid
@pytest.mark.parametrize("options,said", [
    ([], "--machine FILE is needed"), (["--machine", "/nowhere"], "--machine /nowhere: No such file"),
    (["--machine", "dgx-a100", "-s", "dragonfly", "-n", "64,16384"], "-n 16384: a dragonfly of these nodes has 8192 GPUs at most"),
    (["--machine", "dgx-a100", "-s", "torus"], "-s torus: rails, fat-tree or dragonfly"), (["--machine", "dgx-a100", "-c", "sum"], "-c sum: there is no"),
    (["--machine", "dgx-a100", "-n", "65537"], "-n 65537: not a number"), (["--machine", "dgx-a100", "-n", "8,12"], "-n 12: not a multiple"), (["--machine", "dgx-a100", "-b", "8,x"], "-b x: not a number")])
def test_simulation_refuses(options, said):
    result = run_tool(BUILD / "gpucoll-sim", *[MACHINES / f"{word}.machine" if word.startswith("dgx") else word for word in options])
    assert result.status == 2 and said in result.output, result.output


BENCHED = ["allreduce", "bcast", "reduce", "allgather", "reduce_scatter", "alltoall", "gather", "scatter"]


@each_mpi
@pytest.mark.parametrize("collective", BENCHED)
def test_bench(run_mpi, mpi, collective, tmp_path):
    import json
    out = tmp_path / "bench.json"
    for memory in ("device", "managed", "host"):
        result = run_mpi(mpi, 3, "gpucoll-bench", collective, "-b", 12, "-e", "16K", "-f", 8, "-n", 2, "-w", 1,
                         "-m", memory, "-J", out, "-d", "int32", "-r", 1 if collective != "reduce" else 0)
        assert result.status == 0 and "# 0 wrong values" in result.output, result.output
        assert [row["bytes"] for row in json.loads(out.read_text())["results"]][0] == 12


def test_bench_refuses(run_mpi):
    mpi = MPIS[0]
    for arguments, message in ((["nonsense"], "unknown collective 'nonsense'"), ([], "name one collective"),
                               (["allreduce", "-d", "float128"], "unknown datatype 'float128'"),
                               (["allreduce", "-b", "x"], "'x' is no size"),
                               (["bcast", "-r", "7"], "root 7 is no rank")):
        result = run_mpi(mpi, 1, "gpucoll-bench", *arguments)
        assert result.status != 0 and message in result.output, result.output
