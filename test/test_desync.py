# SPDX-License-Identifier: BSD-3-Clause
"""Programs that are wrong: who is where (GPUCOLL_DUMP, gpucoll-info --desync), and GPUCOLL_CHECK=args."""
import contextlib
import json
import os
import re
import signal
import subprocess
import time

import pytest

from conftest import BUILD, assert_passed, environment, family, launcher
from helpers import HOSTID, PERSISTENT, RECOVERY, SURVIVING, each_mpi, emulated_only, run_tool


def desync(*files):
    result = run_tool(BUILD / "gpucoll-info", "--desync", *files)
    return result.status, result.output


class Hanging:
    """A job of test_desync that does not end, and the files that its nodes write."""

    def __init__(self, mpi, shape, case, folder, *arguments, env=(), survives=False):
        self.folder = folder
        variables = {**environment(mpi, [str(BUILD / "mpi" / mpi / "libgpucoll.so.0")]), "GPUCOLL_TIMEOUT": "3",
                     "GPUCOLL_DUMP": f"{folder}/%h-%p.json", **dict(env)}
        script = SURVIVING.format(environment=HOSTID.format(shape=shape)) if survives else f'{HOSTID.format(shape=shape)} exec "$@"'
        options = RECOVERY[family(mpi)] if survives else []
        program = BUILD / "mpi" / mpi / "test_desync"
        self.job = subprocess.Popen([*launcher(mpi, len(shape)), *options, "env", *[f"{k}={v}" for k, v in variables.items()], "/bin/sh", "-c",
                                     script, "sh", str(program), case, *arguments], stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True, start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.killpg(self.job.pid, signal.SIGTERM)
        try:
            self.job.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(self.job.pid, signal.SIGKILL)
            self.job.communicate()

    def files(self, number, holds=""):
        """As soon as so many are there, whole."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            whole = [path for path in sorted(self.folder.glob("*.json")) if path.read_text().endswith("]}\n") and holds in path.read_text()]
            if len(whole) >= number:
                return whole
            time.sleep(0.1)
        raise AssertionError(f"{number} files did not come: {list(self.folder.glob('*'))}")


CHECKS = [
    ("order", "other", r"the collective differs: rank 0 is at MPI_Allreduce, 4000 bytes of MPI_INT, MPI_SUM, rank 1 at MPI_Bcast, "
     r"4000 bytes of MPI_INT, root 0 \(operation 0 of communicator MPI_COMM_WORLD\)"),
    ("root", "root", r"the root differs: rank 0 is at MPI_Bcast, 4000 bytes of MPI_INT, root 0, rank 1 at MPI_Bcast, .*, root 1"),
    ("op", "op", r"the operation differs: rank 0 is at MPI_Reduce, 4000 bytes of MPI_INT, MPI_SUM, root 0, rank 1 at .*, MPI_MAX, root 0"),
    ("type", "type", r"the type differs: rank 0 .* 4000 bytes of MPI_INT, MPI_SUM, rank 1 .* 4000 bytes of MPI_FLOAT, MPI_SUM"),
    ("count", "count", r"the number of bytes differs: rank 0 is at MPI_Scan, 4000 bytes .*, rank 1 at MPI_Scan, 4004 bytes"),
    ("block", "count", r"MPI_Gather: rank 1 sends rank 0 44 bytes, which takes 40 \(operation 0 of communicator MPI_COMM_WORLD\)"),
    ("exchanged_type", "type", r"the type differs: rank 0 is at MPI_Allgather, MPI_INT, rank 1 at MPI_Allgather, MPI_FLOAT"),
    ("exchange", "count", r"MPI_Alltoallv: rank 1 sends rank 0 44 bytes, which takes 40"),
    ("neighbor", "count", r"MPI_Neighbor_alltoallv: rank 1 sends rank 0 84 bytes, which takes 80"),
    ("barrier", "other", r"the collective differs: rank 0 is at MPI_Barrier, rank 1 at MPI_Allreduce"),
    ("constructor", "other", r"the collective differs: rank 0 is at MPI_Comm_dup, rank 1 at MPI_Bcast"),
    ("nonblocking", "other", r"the collective differs: rank 0 is at MPI_Iallreduce, .*, rank 1 at MPI_Ibcast"),
]


@pytest.mark.quick
@each_mpi
@pytest.mark.parametrize("case, error, text, place", [(*check, ("device", "host")[i % 2]) for i, check in enumerate(CHECKS)],
                         ids=[case for case, *_ in CHECKS])
def test_arguments_are_compared(run_mpi, mpi, place, case, error, text):
    result = run_mpi(mpi, 2, "test_desync", case, place, env={"GPUCOLL_CHECK": "args"})
    assert re.search(f"GPUCOLL_CHECK: {text}", result.output), result.output
    assert result.output.count(f"error class {error}") == 2, result.output
    if case != "nonblocking":
        assert result.status == 0 and result.output.count("GPUCOLL_CHECK") == 1, result.output


@emulated_only
@each_mpi
@pytest.mark.parametrize("way", ["fused", "staged"])
@pytest.mark.parametrize("case, error, text", [("enqueued", "op", "the operation differs: rank 0 is at gpucoll_allreduce_enqueue, .*, MPI_SUM, rank 1 at .*, MPI_MAX "
                                                r"\(operation 2 of"),
                                               ("enqueued_other", "other", "the collective differs: rank 0 is at gpucoll_allreduce_enqueue, .*, "
                                                "rank 1 at gpucoll_allgather_enqueue")])
def test_enqueued_calls_are_compared(run_mpi, mpi, way, case, error, text):
    if (way, case) == ("staged", "enqueued_other"):
        pytest.skip("what the real MPI waits for it goes on waiting for")
    result = run_mpi(mpi, 2, "test_desync", case, timeout=60, env={
        "GPUCOLL_CHECK": "args", "GPUCOLL_THREADS": "multiple", "GPUCOLL_STREAM_EXEC": way, "CUEMU_DEVICES": "2", "CUEMU_SMS": "16"})
    assert re.search(f"GPUCOLL_CHECK: {text}", result.output), result.output
    assert result.output.count(f"error class {error}") == (4 if case == "enqueued" else 2) and result.status == 0, result.output


@pytest.mark.quick
@each_mpi
@pytest.mark.parametrize("form", ["blocking", "nonblocking", "persistent"])
def test_what_agrees_is_let_pass(run_mpi, mpi, form):
    """Every collective, on all kinds of memory, of derived types, in place."""
    arguments = [form] if form != "blocking" else []
    colls = PERSISTENT.get(mpi, "all") if form == "persistent" else "all"
    result = run_mpi(mpi, 2, "test_coll", 1, colls, *arguments, env={"GPUCOLL_CHECK": "args"})
    assert_passed(result)
    assert "GPUCOLL_CHECK" not in result.output


@emulated_only
@each_mpi
@pytest.mark.parametrize("check", ["0", "args"])
@pytest.mark.parametrize("place", ["device", "host"])
def test_a_rank_that_does_not_come(mpi, tmp_path, check, place):
    if (check, place) == ("0", "host"):
        pytest.skip("nobody waits in the library then")
    with Hanging(mpi, "000", "missing", tmp_path, place, env={"GPUCOLL_CHECK": check}) as job:
        status, text = desync(*job.files(1))
    assert status == 1
    assert re.search(r"^rank 1 did not come to MPI_Allreduce \(1000 MPI_INT, MPI_SUM\), operation 1 of MPI_COMM_WORLD, awaited there by "
                     r"ranks 0 2 for \d+ s: no collective since MPI_Barrier, which began \d+ s ago$", text, re.MULTILINE), text


@emulated_only
@each_mpi
def test_two_communicators(mpi, tmp_path):
    with Hanging(mpi, "00", "comms", tmp_path) as job:
        status, text = desync(*job.files(1))
    assert status == 1
    one, other = (re.search(rf"^rank {a} did not come to MPI_Allreduce \(1000 MPI_INT, MPI_{op}\), operation 0 of (communicator \w+ of "
                            rf"ranks 0-1), awaited there by rank {b} for \d+ s: it is in MPI_Allreduce .*, on (communicator .*)$", text,
                            re.MULTILINE) for a, b, op in ((1, 0, "SUM"), (0, 1, "SUM")))
    assert one and other and (one[1], one[2]) == (other[2], other[1]), text
    assert "ranks 0 and 1 wait for each other" in text


def ranks_that_listen(folder):
    """The processes of the job that dumps into the folder, by rank: those that have a handler for SIGUSR2."""
    ranks = {}
    for pid in subprocess.run(["pgrep", "-x", "test_desync"], capture_output=True, text=True).stdout.split():
        with contextlib.suppress(OSError):  # of another job, which has ended
            env = dict(entry.split("=", 1) for entry in open(f"/proc/{pid}/environ").read().split("\0") if "=" in entry)
            caught = int(re.search(r"SigCgt:\s*(\w+)", open(f"/proc/{pid}/status").read())[1], 16)
            if env.get("GPUCOLL_DUMP") == f"{folder}/%h-%p.json" and caught >> (signal.SIGUSR2 - 1) & 1:
                ranks[int(env.get("OMPI_COMM_WORLD_RANK", env.get("PMI_RANK")))] = int(pid)
    return ranks


@emulated_only
@each_mpi
def test_a_signal_over_nodes(mpi, tmp_path):
    """Ranks that wait in the real MPI write nothing of their own accord. What a node's file does not know is said."""
    with Hanging(mpi, "0011", "in_barrier", tmp_path) as job:
        end, text = time.monotonic() + 90, ""
        while len(ranks_that_listen(tmp_path)) < 4:
            assert time.monotonic() < end
            time.sleep(0.2)
        ranks = ranks_that_listen(tmp_path)
        while "ranks 0 2-3" not in text:  # they may not have come there yet
            assert time.monotonic() < end, text
            for rank in (0, 3):
                os.kill(ranks[rank], signal.SIGUSR2)
            time.sleep(2.1)  # the least between two files of a node
            status, text = desync(*job.files(2))
        _, less = desync(next(path for path in job.files(2) if str(ranks[3]) in path.name))
    assert status == 1 and "no file tells" not in text
    assert re.search(r"^rank 1 is in MPI_Bcast \(1000 MPI_INT, root 0\), but ranks 0 2-3 in MPI_Barrier: the collective differs "
                     r"\(operation 0 of MPI_COMM_WORLD\)$", text, re.MULTILINE), text
    assert "no file tells of ranks 0-1: send SIGUSR2" in less, less


@emulated_only
@each_mpi
def test_a_rank_that_dies(mpi, tmp_path):
    with Hanging(mpi, "000", "dies", tmp_path, survives=True) as job:
        status, text = desync(*job.files(1, '"alive": false'))
    assert status == 1
    assert re.search(r"^the process of rank 1 has ended; its last collective was MPI_Allreduce", text, re.MULTILINE), text
    assert re.search(r"^rank 1 did not come to MPI_Allreduce \(1000 MPI_INT, MPI_SUM\), operation 1 of MPI_COMM_WORLD, awaited there by .*: the process "
                     r"has ended$|^MPI_Allreduce \(1000 MPI_INT, MPI_SUM\), operation 1 of MPI_COMM_WORLD, has failed on ", text, re.MULTILINE), text


@each_mpi
def test_who_is_where_when_all_is_well(run_mpi, mpi, tmp_path):
    result = run_mpi(mpi, 2, "test_desync", "many", env={"GPUCOLL_DUMP": f"{tmp_path}/%p.json"})
    assert_passed(result)
    found = json.loads(next(tmp_path.glob("*.json")).read_text())
    calls = [call for rank in found["ranks"] for call in rank["calls"]]
    assert found["reason"] == "SIGUSR2" and found["size"] == 2
    assert {len(rank["calls"]) <= 64 for rank in found["ranks"]} == {True}
    assert any(call["call"] == "MPI_Allreduce" and call["recvcount"] == 99 and call["path"] == "accel" for call in calls), calls[-3:]
    assert any(call["call"] == "MPI_Reduce" and call["op"] == "MPI_MIN" and call["root"] == 0 for call in calls)


@pytest.mark.quick
@each_mpi
@pytest.mark.parametrize("ranks", [2, 3])
def test_legal_orders_are_let_pass(run_mpi, mpi, ranks):
    result = run_mpi(mpi, ranks, "test_desync", "legal", env={"GPUCOLL_CHECK": "args"})
    assert_passed(result)
    assert "GPUCOLL_CHECK" not in result.output, result.output


@each_mpi
def test_the_default_stream_is_waited_for(run_mpi, mpi):
    result = run_mpi(mpi, 2, "test_desync", "default_stream", env={"GPUCOLL_CHECK": "streams"})
    assert_passed(result)
    assert "GPUCOLL_CHECK" not in result.output, result.output


@each_mpi
def test_a_handler_that_frees(run_mpi, mpi):
    result = run_mpi(mpi, 2, "test_desync", "frees", env={"GPUCOLL_CHECK": "args"})
    assert_passed(result)
    assert result.output.count("error class root") == 2, result.output


def test_options_that_differ(run_mpi, tmp_path):
    script = '[ "$OMPI_COMM_WORLD_RANK" = 1 ] && export GPUCOLL_CHECK=args; exec "$@"'
    result = run_mpi("openmpi", 2, "/bin/sh", "-c", script, "sh", BUILD / "mpi/openmpi/test_desync", "late",
                     env={"GPUCOLL_TRACE": f"{tmp_path}/trace.json"})
    assert_passed(result)
    assert "GPUCOLL_CHECK and GPUCOLL_TRACE differ between processes" in result.output and not list(tmp_path.iterdir()), result.output


@emulated_only
@each_mpi
def test_a_rank_that_ends_early(mpi, tmp_path):
    with Hanging(mpi, "000", "finalize", tmp_path) as job:
        status, text = desync(*job.files(1))
    assert status == 1
    assert re.search(r"^rank 1 is in MPI_Finalize, but ranks 0 2 in MPI_Allreduce .*: the collective differs \(operation 0 of MPI_COMM_WORLD\)$",
                     text, re.MULTILINE), text


@emulated_only
@each_mpi
def test_what_was_begun_and_not_by_all(mpi, tmp_path):
    with Hanging(mpi, "000", "begun", tmp_path) as job:
        end, text = time.monotonic() + 90, ""
        while "did not come" not in text:
            assert time.monotonic() < end, text
            time.sleep(2.1)  # the least between two files of a node
            ranks = ranks_that_listen(tmp_path)
            if 0 in ranks:
                os.kill(ranks[0], signal.SIGUSR2)
                status, text = desync(*job.files(1))
    assert status == 1
    assert re.search(r"^rank 1 did not come to MPI_Ibarrier, operation 0 of MPI_COMM_WORLD, awaited there by ranks 0 2 ", text, re.MULTILINE), text


def written(tmp_path, ranks):
    """A file of one node, of ranks' calls as they are given, and of one communicator, to whose operations they have come so often."""
    comm = {"comm": "0x0000000000000001", "size": len(ranks)}
    defaults = {"ended": False, "text": "waits", "began": 5.0}
    path = tmp_path / "made.json"
    path.write_text(json.dumps({"gpucoll": "0", "job": "0x1", "size": len(ranks), "node": 0, "nodes": 1, "time": 1.0, "ranks": [
        {"rank": i, "pid": 1, "alive": True, "serials": 1, "comms": [{**comm, "rank": i, "made": made, "world": True}],
         "calls": [{"serial": n, **defaults, **({**comm, "rank": i} if "number" in call else {}), **call} for n, call in enumerate(calls)]}
        for i, (made, calls) in enumerate(ranks)]}))
    return path


@pytest.mark.parametrize("name,field,type_field", [("MPI_Allgatherv", "sendcount", "sendtype"), ("MPI_Scatterv", "recvcount", "recvtype"),
                                                   ("MPI_Neighbor_allgather", "sendcount", "sendtype")])
def test_counts_that_may_differ(tmp_path, name, field, type_field):
    calls = [(1, [{"call": name, "number": 0, field: i, type_field: "MPI_INT"}]) for i in range(2)]
    status, text = desync(written(tmp_path, [*calls, (0, [])]))
    assert status == 1 and "differs" not in text and "rank 2 did not come" in text, text


def test_who_is_long_past_it(tmp_path):
    """Whose entry of the operation has been written over."""
    other = {"call": "MPI_Barrier", "ended": True}
    status, text = desync(written(tmp_path, [(9, [other]), (4, [{"call": "MPI_Bcast", "number": 3, "root": 0}]), (2, [other])]))
    assert status == 1 and "rank 2 did not come to MPI_Bcast (root 0), operation 3" in text and "rank 0 did" not in text, text


def test_a_call_on_an_unknown_communicator(tmp_path):
    status, text = desync(written(tmp_path, [(0, [{"call": "MPI_Allreduce"}]), (0, [])]))
    assert status == 1 and "rank 0 is in MPI_Allreduce, for 5 s, on a communicator whose ranks are not known" in text, text


def test_files_that_are_none(tmp_path):
    bad = tmp_path / "bad.json"
    for text in ("", "[]", "{}", '{"ranks": [], "size": 0}', '{"ranks": [], "size": 1e12}'):
        bad.write_text(text)
        status, output = desync(bad)
        assert status == 2 and str(bad) in output, output
    assert desync()[0] == 2


def test_a_link_in_the_file_s_place(run_mpi, tmp_path):
    """In a folder that is open to others."""
    mine = tmp_path / "mine"
    mine.write_text("untouched")
    (tmp_path / "dump.json").symlink_to(mine)
    result = run_mpi("openmpi", 2, "test_desync", "many", env={"GPUCOLL_DUMP": f"{tmp_path}/dump.json"})
    assert_passed(result)
    assert "can't be written to" in result.output and mine.read_text() == "untouched", result.output
