# SPDX-License-Identifier: BSD-3-Clause
"""The timeline: GPUCOLL_TRACE, gpucoll-trace, and NVTX."""
import json
import os
import re
import xml.etree.ElementTree
from collections import defaultdict

import pytest

from conftest import BUILD, CUDA, SANITIZED, SOURCE, assert_passed, run_command
from helpers import compile_with, each_mpi, emulated_only, on_nodes, run_tool


def trace(*arguments):
    result = run_tool("python3", SOURCE / "tools/gpucoll-trace", *arguments)
    return result.status, result.output


def look(events):
    """What holds of every timeline: stages are inside calls of their lane, which don't overlap. Returns the calls, by rank."""
    calls, lanes = defaultdict(list), defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            assert event["dur"] >= 0 and event["ts"] > 0
            lanes[event["pid"], event["tid"]].append(event)
    for events_of_lane in lanes.values():
        own = sorted((e for e in events_of_lane if e["cat"] == "call"), key=lambda e: e["ts"])
        for one, next_one in zip(own, own[1:]):
            assert one["ts"] + one["dur"] <= next_one["ts"] + 0.002, (one, next_one)
        for stage in (e for e in events_of_lane if e["cat"] == "stage"):
            assert any(c["ts"] - 0.002 <= stage["ts"] and stage["ts"] + stage["dur"] <= c["ts"] + c["dur"] + 0.002 for c in own), stage
        for call in own:
            calls[call["pid"]].append(call)
    return calls


def numbers(calls):
    """What identifies calls between ranks, of communicators of all of them."""
    return [{(c["name"], c["args"]["comm"], c["args"]["number"]) for c in own if c["args"]["ranks"] == len(calls)} for own in calls.values()]


@pytest.mark.quick
@each_mpi
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_timeline(run_mpi, mpi, tmp_path, ranks):
    file = tmp_path / "trace.json"
    file.write_text("what was there before")
    assert_passed(run_mpi(mpi, ranks, "test_desync", "late", env={"GPUCOLL_TRACE": str(file)}))
    events = json.loads(file.read_text())
    calls = look(events)
    assert sorted(calls) == list(range(ranks))
    assert all(one == numbers(calls)[0] for one in numbers(calls))
    for own in calls.values():
        sums = [c for c in own if c["name"] == "MPI_Allreduce" and c["args"].get("recvcount") == 1000]
        assert len(sums) == 5 and all(c["args"]["path"] == "accel" and c["args"]["bytes"] == 8000 and c["args"]["op"] == "MPI_SUM" for c in sums)
    assert {"classify", "agree", "launch", "kernel", "meet"} <= {e["name"] for e in events if e.get("cat") == "stage"}
    late = [next(c for c in own if c["args"].get("recvcount") == 1000 and c["args"]["number"] == sorted(
        c["args"]["number"] for c in own if c["args"].get("recvcount") == 1000)[3]) for _, own in sorted(calls.items())]
    assert late[1]["ts"] - late[0]["ts"] > 250000 and late[0]["dur"] > 250000, late
    # Who waited for whom.
    status, text = trace(file, "--svg", tmp_path / "picture.svg", "-o", tmp_path / "merged.json")
    assert status == 0
    assert re.search(r"rank 1 came (2[5-9]|[3-9]\d)\d{4}\.\d us after the first", text), text
    first_row = re.search(r"rank +came last .*\n +(\d+) ", text)
    assert first_row and first_row[1] == "1", text
    assert json.loads((tmp_path / "merged.json").read_text()) == events
    picture = xml.etree.ElementTree.parse(tmp_path / "picture.svg").getroot()
    texts = [node.text for node in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {f"rank {r}" for r in range(ranks)} <= set(texts) and "agree" in texts


RING = {"GPUCOLL_ALGO": "ring", "GPUCOLL_CHANNELS": "1", "GPUCOLL_EXEC": "fused", "CUEMU_SMS": "16"}


@emulated_only
@each_mpi
@pytest.mark.parametrize("proto,kernels", [("simple", "twins"), ("ll", "twins"), ("simple", "ptx")])
def test_steps_of_kernels(run_mpi, mpi, tmp_path, proto, kernels):
    """A ring's are those of NCCL's: to reduce and scatter, then to gather; and inside their calls."""
    file, ranks = tmp_path / "trace.json", 4
    result = run_mpi(mpi, ranks, "test_desync", "late", env={"GPUCOLL_TRACE": f"steps:{file}", "GPUCOLL_PROTO": proto, "CUEMU_KERNELS": kernels, **RING})
    assert_passed(result)
    events = json.loads(file.read_text())
    for rank, own in look(events).items():
        sums = [c for c in own if c["args"].get("recvcount") == 1000]
        assert len(sums) == 5
        for call in sums:
            steps = [e for e in events if e.get("cat") == "step" and e["pid"] == rank and call["ts"] <= e["ts"] and e["ts"] + e["dur"] <= call["ts"] + call["dur"]]
            names = [e["name"] for e in sorted(steps, key=lambda e: e["ts"]) if e["name"] != "wait"]
            assert names == ["send"] + 2 * ["recvReduceSend"] + ["recvReduceCopySend"] + 2 * ["recvCopySend"] + ["recv"], (rank, names)
            if kernels == "twins":  # the interpreter's clock is the block's own
                kernel = next(e for e in events if e.get("cat") == "stage" and e["name"] == "kernel" and e["pid"] == rank and call["ts"] <= e["ts"] <= call["ts"] + call["dur"])
                assert sum(e["dur"] for e in steps) <= kernel["dur"] + 1000
    status, text = trace(file, "--svg", tmp_path / "picture.svg")
    assert status == 0 and re.search(r"recvReduceSend +40 ", text), text
    assert "kernel lane 0" in (tmp_path / "picture.svg").read_text()


@emulated_only
@each_mpi
@pytest.mark.parametrize("env,memory,number", [({"GPUCOLL_EXEC": "stepped", "GPUCOLL_CHANNELS": "2"}, "device", 4), ({"GPUCOLL_CHANNELS": "4"}, "device", 8),
                                               ({"GPUCOLL_WINDOW": "64K"}, "managed", 1)])
def test_steps_of_many_launches(run_mpi, mpi, tmp_path, env, memory, number):
    """Of a call's last steps, all that fit a lane's ring."""
    file, bytes = tmp_path / "trace.json", "16M" if memory == "device" else "1M"
    result = run_mpi(mpi, 2, "gpucoll-bench", "allreduce", "-b", bytes, "-e", bytes, "-n", "2", "-m", memory, env={"GPUCOLL_TRACE": f"steps:{file}", **RING, **env})
    assert result.status == 0, result.output
    events, lanes = json.loads(file.read_text()), defaultdict(int)
    look([event for event in events if event.get("cat") != "step"])
    calls = sum(event.get("cat") == "call" and event["args"]["path"] == "accel" for event in events)
    for event in events:
        if event.get("cat") == "step" and event["name"] != "wait":
            lanes[event["pid"], event["tid"]] += 1
            assert event["dur"] >= 0, event
    assert len(lanes) == number, lanes
    assert 3 * calls / 2 < min(lanes.values()) <= max(lanes.values()) <= 63 * number * calls / 2, lanes


@each_mpi
def test_calls_that_overlap(run_mpi, mpi, tmp_path):
    file = tmp_path / "trace.json"
    assert_passed(run_mpi(mpi, 2, "test_desync", "overlap", env={"GPUCOLL_TRACE": str(file)}))
    calls = look(json.loads(file.read_text()))
    assert len({c["tid"] for c in calls[0] if c["name"] == "MPI_Iallreduce"}) == 4  # the others come later


@each_mpi
@pytest.mark.parametrize("form", [[], ["nonblocking"]])
def test_all_kinds(run_mpi, mpi, tmp_path, form):
    file = tmp_path / "%p.json"
    assert_passed(run_mpi(mpi, 2, "test_coll", 1, "all", *form, env={"GPUCOLL_TRACE": str(file)}))
    files = sorted(tmp_path.glob("*.json"))
    assert len(files) == 2
    calls = look([event for one in files for event in json.loads(one.read_text())])
    assert all(one == numbers(calls)[0] for one in numbers(calls))
    assert {c["args"]["path"] for c in calls[0]} == {"accel", "stage", "pass"}
    assert trace(*files)[0] == 0


@each_mpi
def test_over_nodes(run_mpi, mpi, tmp_path):
    file = tmp_path / "trace.json"
    assert_passed(on_nodes(run_mpi, mpi, "001", "test_desync", "late", env={"GPUCOLL_TRACE": str(file)}))
    events = json.loads(file.read_text())
    assert sorted(look(events)) == [0, 1, 2]
    assert any(e["name"] == "wire" for e in events)


def test_clocks_differ(run_mpi, tmp_path):
    """The second rank's clock is 1000 s ahead."""
    if run_command(["unshare", "--time", "--monotonic", "1000", "--fork", "true"], os.environ.copy(), 10).status != 0:
        pytest.skip("no namespaces of time")
    file = tmp_path / "trace.json"
    script = ('r=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; export GPUCOLL_HOSTID="node $r"; [ $r = 0 ] && exec "$@"; '
              'exec unshare --time --monotonic 1000 --fork "$@"')
    result = run_mpi("openmpi", 2, "/bin/sh", "-c", script, "sh", BUILD / "mpi/openmpi/test_desync", "late",
                     options=["--mca", "btl", "tcp,self"], env={"GPUCOLL_TRACE": str(file)})
    assert_passed(result)
    calls = look(json.loads(file.read_text()))
    ends = [{c["args"]["number"]: c["ts"] + c["dur"] for c in own if c["args"].get("recvcount") == 1000} for _, own in sorted(calls.items())]
    begins = [{c["args"]["number"]: c["ts"] for c in own if c["args"].get("recvcount") == 1000} for _, own in sorted(calls.items())]
    assert len(ends[0]) == 5
    for number in ends[0]:  # nobody has the sum before the other has come
        assert ends[0][number] > begins[1][number] and ends[1][number] > begins[0][number], (begins, ends)


def test_files_that_are_cut(run_mpi, tmp_path):
    file, cut = tmp_path / "trace.json", tmp_path / "cut.json"
    assert_passed(run_mpi("openmpi", 2, "test_desync", "late", env={"GPUCOLL_TRACE": str(file)}))
    text = file.read_text()
    cut.write_text(text[:text.rindex("MPI_Allreduce") + 8])
    status, output = trace(cut)
    assert status == 0 and "MPI_Allreduce" in output, output
    cut.write_text(text.replace("MPI_Allreduce", 'MPI_"Allreduce', 1))
    status, output = trace(cut)
    assert status != 0 and re.search(r"cut.json: line \d+ is no event", output), output
    status, output = trace(file, "--svg", tmp_path / "x.svg", "--window", "nonsense")
    assert status != 0 and "--window nonsense" in output, output


def test_a_file_that_can_not_be_made(run_mpi, tmp_path):
    result = run_mpi("openmpi", 2, "test_desync", "late", env={"GPUCOLL_TRACE": f"{tmp_path}/no/such/folder"})
    assert_passed(result)
    assert result.output.count(f"GPUCOLL_TRACE: {tmp_path}/no/such/folder: No such file") == 2, result.output


@pytest.mark.skipif(SANITIZED, reason="the profiler is not built for AddressSanitizer")
@each_mpi
def test_ranges_of_nvtx(run_mpi, mpi, tmp_path):
    tool = tmp_path / "nvtx.so"
    compile_with("gcc", "-shared", "-fPIC", f"-I{CUDA}/include", "-o", tool, SOURCE / "test/door/nvtx.c")
    result = run_mpi(mpi, 2, "test_desync", "late", env={"NVTX_INJECTION64_PATH": str(tool)})
    assert_passed(result)
    assert result.output.count("nvtx domain gpucoll") == 2
    assert result.output.count("nvtx begin MPI_Allreduce") >= 10 and result.output.count("nvtx begin agree") >= 10, result.output
    ends = re.findall(r"nvtx (\d+) begun, (\d+) ended", result.output)
    assert len(ends) == 2 and all(begun == ended for begun, ended in ends), ends
