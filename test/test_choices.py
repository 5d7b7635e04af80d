# SPDX-License-Identifier: BSD-3-Clause
"""Which algorithm is taken: measured times and wishes."""
import re

import pytest

from conftest import BUILD, MPIS, SOURCE, assert_passed
from helpers import LINKS, PATHS, compile_with, each_mpi, emulated_only, run_tool, times


@emulated_only
@each_mpi
def test_ways_after_a_call_without_data(run_mpi, mpi, tmp_path):
    """Where GPUs are is learned from calls in which all have data: then ranks go along the links."""
    machine = tmp_path / "a.machine"
    machine.write_text("gpucoll-machine 1\n" + LINKS + "".join(f"link gpu{a} gpu{b} rate=100\n" for a, b in ((0, 2), (2, 1), (1, 3), (3, 0))))
    env = {"CUEMU_DEVICES": "4", "GPUCOLL_TOPO_FILE": str(machine), "GPUCOLL_DEBUG": "info", "CUEMU_SMS": "32"}
    result = run_mpi(mpi, 4, "test_edges", "ways", env=env)
    assert_passed(result)
    assert "4 ranks on 1 nodes with 4 GPUs, ring 0 2 1 3" in result.output and " ranks=4 nodes=1 gpus=4 allreduce 262144 " in result.output, result.output


@emulated_only
def test_pictures_that_differ(run_mpi, tmp_path):
    """A process that has understood another picture than the others has all of them go without."""
    compile_with("cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", tmp_path / "liar.so", SOURCE / "test/emu/emu_liar.c")
    machine = tmp_path / "a.machine"
    machine.write_text("gpucoll-machine 1\n" + LINKS)
    env = {"CUEMU_DEVICES": "4", "GPUCOLL_TOPO_FILE": str(machine), "GPUCOLL_DEBUG": "info", "CUEMU_SMS": "32"}
    assert ", ring 0 1 2 3" in run_mpi(MPIS[0], 4, "test_edges", "ways", env=env).output
    result = run_mpi(MPIS[0], 4, "test_edges", "ways", env=env, before=[str(tmp_path / "liar.so")])
    assert_passed(result)
    assert "ring 0" not in result.output and "4 ranks on 1 nodes with 4 GPUs\n" in result.output, result.output


@emulated_only
@each_mpi
def test_tuning(run_mpi, mpi, tmp_path):
    """What gpucoll-tune measures is what the library goes by, and nothing else then."""
    tuned = tmp_path / "folder/tuning"
    result = run_mpi(mpi, 3, "gpucoll-tune", "-c", "allreduce,bcast", "-b", "64K", "-e", "256K", "-o", tuned, env={"CUEMU_SMS": "8"})
    assert result.status == 0 and f"# the times are in {tuned}" in result.output and "GPUCOLL_" not in result.output, result.output
    measured = times(tuned)
    names = {tuple(line.split()[5:8]) for line in measured}
    assert {("allreduce", "65536", "twoshot"), ("allreduce", "262144", "ring"), ("bcast", "65536", "direct")} <= names, names
    assert all(time > 0 for time in measured.values())
    machine = next(iter(measured)).split()[1]

    def taken(lines, head="gpucoll-tuning 1\n", **env):
        tuned.write_text(head + "".join(f"time {machine} ranks=3 nodes=1 gpus=1 {line}\n" for line in lines))
        result = run_mpi(mpi, 3, "gpucoll-bench", "allreduce", "-b", "4K", "-e", "1M", "-f", "16", "-n", 2, "-w", 4,
                         env={"CUEMU_SMS": "8", "GPUCOLL_STATS": "1", "GPUCOLL_TUNING_FILE": str(tuned), **env})
        assert result.status == 0 and "# 0 wrong values" in result.output, result.output
        rows = re.findall(r"(< \d+ [KM]iB) +accel +(\d+) +\d+ +[\d.]+  ([a-z-]+)", result.output)
        # The first call of a communicator may yet lack memory for messages.
        return result.output, {size: max((int(calls), name) for row, calls, name in rows if row == size)[1] for size, _, _ in rows}

    # Ring up to where the lines cross, below 64 KiB, and then two-shot. The table counts both buffers.
    lines = ["allreduce 4096 ring simple 2 10", "allreduce 1048576 ring simple 2 900", "allreduce 4096 twoshot simple 1 50",
             "allreduce 65536 twoshot simple 1 60", "allreduce 1048576 twoshot simple 1 500"]
    output, algorithms = taken(lines)
    assert algorithms == {"< 16 KiB": "ring", "< 256 KiB": "twoshot", "< 4 MiB": "twoshot"}, output
    # Another machine's times, or another number of ranks', are not taken.
    others = (f"time {machine} ranks=4 nodes=1 gpus=1", f"time {machine} ranks=3 nodes=1 gpus=2", "time 123 ranks=3 nodes=1 gpus=1")
    assert taken(lines, head="gpucoll-tuning 1\n" + "".join(f"{key} allreduce 4096 halving simple 1 1\n" for key in others))[1] == algorithms
    # What the user wants counts first.
    assert set(taken(lines, GPUCOLL_ALGO="allreduce:halving")[1].values()) == {"halving"}
    for bad, why in (["allreduce 4096 circle simple 2 10", "5: the collective has no such algorithm"],
                     ["allreduce 4096 ring simple 99 10", "5: there is no such number of channels"],
                     ["allreduce 4096 ring simple 2 ten", "5: it is no line of such a file"],
                     ["allreduce 4096 ring simple 2 -1", "5: there is no such time"],
                     ["allreduce 4096 ring simple 2 1 1", "5: it is no line of such a file"]):
        output, algorithms = taken(lines[:3] + [bad])
        assert f"times that were measured are ignored: {tuned}:{why}" in output, output
        assert algorithms["< 16 KiB"] == "twoshot", output
    assert f"{tuned}:1: it does not begin with gpucoll-tuning 1" in taken(lines, head="gpucoll-tuning 2\n")[0]
    assert run_mpi(mpi, 2, "gpucoll-tune", "-c", "bcast", "-e", "8", "-o", tuned).status != 0 and "gpucoll-tuning 2" in tuned.read_text()
    # Comments before the head, and other ends of lines.
    assert taken(lines, head="# mine\r\n\n gpucoll-tuning 1\r\n".replace(" gpu", "gpu"))[1] == {"< 16 KiB": "ring", "< 256 KiB": "twoshot", "< 4 MiB": "twoshot"}
    # What is far larger than all that was measured is chosen by the model, as is what nothing was measured of.
    assert taken(["allreduce 64 ring simple 1 1"])[1]["< 4 MiB"] != "ring"
    assert set(taken(lines, GPUCOLL_ALGO="tree")[1].values()) == {"tree"}
    # A second run takes the place of what it measures again, and keeps the rest.
    tuned.write_text("gpucoll-tuning 1\n# a note\ntime 0 ranks=3 nodes=1 gpus=1 allreduce 65536 ring simple 1 7\n"
                     f"time {machine} ranks=3 nodes=1 gpus=1 allreduce 65536 ring simple 1 7\n"
                     f"time {machine} ranks=3 nodes=1 gpus=1 allreduce 32 ring simple 1 7\n"
                     f"time {machine} ranks=3 nodes=1 gpus=1 bcast 65536 ring simple 1 7")  # without an end
    result = run_mpi(mpi, 3, "gpucoll-tune", "-c", "allreduce", "-b", "64K", "-e", "64K", "-o", tuned, env={"CUEMU_SMS": "8"})
    text = tuned.read_text()
    assert "# a note" in text and "time 0 ranks" in text and "bcast 65536 ring simple 1 7\n" in text
    assert "allreduce 32 ring simple 1 7\n" in text and "allreduce 65536 twoshot" in text and text.count("gpucoll-tuning") == 1
    assert f"{machine} ranks=3 nodes=1 gpus=1 allreduce 65536 ring simple 1 7\n" not in text


def test_tune_refuses(run_mpi):
    for arguments, message in ((["-c", "nonsense"], "there is no collective 'nonsense'"), (["x"], "unexpected argument 'x'"),
                               (["-b", "1x"], "'1x' is no size"), (["-t", "-1"], "'-1' is no number of seconds")):
        result = run_mpi(MPIS[0], 1, "gpucoll-tune", *arguments)
        assert result.status != 0 and message in result.output, result.output


@emulated_only
@each_mpi
def test_wishes_for_some_collectives(run_mpi, mpi):
    env = {"GPUCOLL_ALGO": "^twoshot;broadcast:ring", "GPUCOLL_PROTO": "simple", "GPUCOLL_CHANNELS": "1;bcast:2", "CUEMU_SMS": "8",
           "GPUCOLL_STATS": "1"}
    for collective, allowed in (("bcast", {"ring"}), ("allreduce", {"oneshot", "ring", "tree", "doubling", "halving"})):
        result = run_mpi(mpi, 3, "gpucoll-bench", collective, "-b", "64", "-e", "1M", "-f", "128", "-n", 2, "-w", 2, env=env)
        assert result.status == 0 and "# 0 wrong values" in result.output, result.output
        rows = re.findall(r" accel +\d+ +\d+ +[\d.]+  ([a-z-]+)( \w+ \w+)?", result.output)
        assert rows and {name for name, _ in rows} <= allowed, result.output
        assert not [way for _, way in rows if way.endswith("ll")], result.output
    for option, value, why in (("ALGO", "ring,rung", "there is no algorithm 'rung'"), ("ALGO", "allreduces:ring", "there is no collective 'allreduces'; valid: allreduce, "),
                               ("PROTO", "ll;bcast:ll129", "there is no protocol 'll129'; valid: simple, ll, ll128"),
                               ("CHANNELS", "17", "there is no number of channels '17'; valid: 1 to 16"), ("CHANNELS", "^4", "'^4'"),
                               ("CHANNELS", "1,2", "one number of channels for a collective")):
        result = run_mpi(mpi, 2, "test_agree", "mixed", 4, env={f"GPUCOLL_{option}": value, **PATHS["accel"]})
        assert_passed(result)
        assert f"GPUCOLL_{option}={value} is not understood and ignored: " in result.output and why in result.output, result.output


documents = pytest.mark.skipif(not (SOURCE / "docs").exists(), reason="a bundle has no documents")
PICTURES = {"allreduce-ring": ["-n", "4", "--algo", "ring"], "allreduce-tree": ["-n", "4", "--algo", "tree"],
            "allreduce-twoshot": ["-n", "4", "--algo", "twoshot"], "allreduce-rail-ring": ["--nodes", "2,2", "--algo", "rail-ring"]}


@documents
@pytest.mark.parametrize("name", PICTURES)
def test_pictures_of_the_documents(name):
    result = run_tool(BUILD / "gpucoll-info", "-p", "allreduce", *PICTURES[name], "--svg")
    assert result.status == 0 and result.output == (SOURCE / f"docs/pictures/{name}.svg").read_text()


@documents
@pytest.mark.parametrize("machine,ordered", [("dgx-h100", False), ("pcie-8gpu", False), ("pcie-8gpu", True)])
def test_the_page_of_protocols(machine, ordered):
    """Its tables say what the tool does: for each algorithm and protocol the time of the best number of channels."""
    page = (SOURCE / "docs/protocols.md").read_text()
    begin = "## Sums in the order of ranks" if ordered else f"{machine}.machine`"
    table = page.split(begin, 1)[1].split("| algorithm, protocol |", 1)[1].split("\n\n", 1)[0].splitlines()
    sizes = [text.strip().replace(" B", "").replace(" KiB", "K").replace(" MiB", "M") for text in table[0].split("|")[:-1]]
    rows = {cells[1].strip(): [float(cell) for cell in cells[2:-1]] for cells in (line.split("|") for line in table[2:])}
    assert len(sizes) == 6 and len(rows) >= (6 if ordered else 11)
    for column, size in enumerate(sizes):
        result = run_tool(BUILD / "gpucoll-info", "-p", "allreduce", "-n", "8", "-s", size, "--machine", SOURCE / f"test/topo/{machine}.machine",
                          *(["--ordered"] if ordered else []))
        best = {}
        for name, proto, time in re.findall(r"^ (\S+)(?: (ll128|ll|simple) x\d+)? +([\d.]+)$", result.output, re.MULTILINE):
            name = f"{name} {proto}".strip()
            best[name] = min(best.get(name, float(time)), float(time))
        assert {name: times[column] for name, times in rows.items()} == {name: best[name] for name in rows}, size
