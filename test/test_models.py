# SPDX-License-Identifier: BSD-3-Clause
"""The models, for Spin: each holds, and each of its breaks is found."""
import os
import shutil

import pytest

from conftest import SOURCE, run_work


def spin(tmp_path, name, *defines):
    """Check the model exhaustively. Returns what the checker printed. But for models that take minutes, and whose states are kept
    in less memory, a compiler that optimises takes longer than it saves, above all where an error is soon found."""
    model = SOURCE / "test/model" / f"{name}.pml"
    how = ["-O0"] if any("BREAK_" in d for d in defines) else ["-O1"]
    how = ["-O2", "-DCOLLAPSE"] if os.environ.get("GPUTEST_LONG") else how
    for command in (["spin", *[f"-D{d}" for d in defines], "-a", str(model)],
                    ["gcc", *how, "-DSAFETY", "-o", "pan", "pan.c"], ["./pan", "-m200000"]):
        result = run_work(["/bin/sh", "-c", f"cd {tmp_path} && {' '.join(command)}"], os.environ.copy(), 300)
        assert result.status == 0, result.output
    assert "errors:" in result.output, result.output
    return result.output


def assert_no_error(output):
    assert "errors: 0" in output and "max search depth too small" not in output, output


def need_spin():
    if shutil.which("spin") is None:
        pytest.skip("there is no spin on this machine to check the model with")


@pytest.mark.parametrize("bounds", [("RANKS=2", "CALLS=4", "SLOTS=2"), ("RANKS=3", "CALLS=1", "SLOTS=1"),
                                    ("RANKS=3", "CALLS=2", "SLOTS=1")], ids=lambda bounds: "-".join(bounds))
def test_agreement_model(tmp_path, bounds):
    need_spin()
    if bounds[:2] == ("RANKS=3", "CALLS=2") and not os.environ.get("GPUTEST_LONG"):
        pytest.skip("90 million states take minutes: GPUTEST_LONG=1 checks them")
    assert_no_error(spin(tmp_path, "agreement", *bounds))


@pytest.mark.parametrize("weakness", ["BREAK_REUSE", "BREAK_HOST", "BREAK_VOTE"])
def test_agreement_model_finds_errors(tmp_path, weakness):
    need_spin()
    assert "errors: 1" in spin(tmp_path, "agreement", "RANKS=3", "CALLS=2", "SLOTS=1", weakness)


@pytest.mark.parametrize("bounds", [("THREADS=2", "RECEIVES=3"), ("THREADS=3", "RECEIVES=1")], ids=lambda bounds: "-".join(bounds))
def test_requests_model(tmp_path, bounds):
    need_spin()
    assert_no_error(spin(tmp_path, "requests", *bounds))


@pytest.mark.parametrize("weakness", ["BREAK_BIRTH", "BREAK_LOCK", "BREAK_ONCE", "BREAK_TAKE"])
def test_requests_model_finds_errors(tmp_path, weakness):
    need_spin()
    assert "errors: 1" in spin(tmp_path, "requests", weakness)


@pytest.mark.parametrize("bounds", [("RANKS=2", "CALLS=3"), ("RANKS=2", "CALLS=3", "NO_THREAD"), ("RANKS=3", "CALLS=2"),
                                    ("RANKS=2", "CALLS=3", "SLOTS=1", "EARLY")],
                         ids=lambda bounds: "-".join(bounds))
def test_queue_model(tmp_path, bounds):
    need_spin()
    if bounds[0] == "RANKS=3" and not os.environ.get("GPUTEST_LONG"):
        pytest.skip("30 million states take minutes: GPUTEST_LONG=1 checks them")
    assert_no_error(spin(tmp_path, "queue", *bounds))


def test_standing_model(tmp_path):
    need_spin()
    assert_no_error(spin(tmp_path, "standing", "CALLS=4"))


@pytest.mark.parametrize("weakness", ["BREAK_NO_WAIT", "BREAK_WAIT_LATE", "BREAK_WRITE_BEFORE_WAIT", "BREAK_EACH_TELLS", "BREAK_ONE_HALF",
                                      "BREAK_READ_AFTER_END"])
def test_standing_model_finds_errors(tmp_path, weakness):
    need_spin()
    assert "errors: 1" in spin(tmp_path, "standing", "CALLS=4", weakness)


@pytest.mark.parametrize("bounds", [("RANKS=2",), ("RANKS=2", "GROUPS=3", "ABORTS"), ("RANKS=3",), ("RANKS=3", "GROUPS=1", "NOBODY_IS_ODD")],
                         ids=lambda bounds: "-".join(bounds))
def test_exchange_model(tmp_path, bounds):
    need_spin()
    assert_no_error(spin(tmp_path, "exchange", *bounds))


@pytest.mark.parametrize("weakness", ["TAIL_FIRST", "HEAD_FIRST", "ROOM", "FORGET", "IN_ORDER", "NO_ID", "NO_DEAD"])
def test_exchange_model_finds_errors(tmp_path, weakness):
    need_spin()
    bounds = ("ABORTS", "NOBODY_IS_ODD") if weakness == "NO_DEAD" else ()
    assert "errors: 1" in spin(tmp_path, "exchange", f"BREAK_{weakness}", *bounds)


@pytest.mark.parametrize("weakness", ["BREAK_BEHIND", "BREAK_OVERTAKE", "BREAK_RETRACT", "BREAK_SLOT", "BREAK_YIELD"])
def test_queue_model_finds_errors(tmp_path, weakness):
    need_spin()
    assert "errors: 1" in spin(tmp_path, "queue", "SLOTS=1", "EARLY", weakness)


@pytest.mark.parametrize("bounds", [("NODES=2", "CALLS=4"), ("NODES=2", "MEMBERS=2", "CALLS=1"), ("NODES=3", "CALLS=1"),
                                    ("NODES=3", "CALLS=3", "ONE_STAGES"), ("NODES=2", "CALLS=2", "MIXED"),
                                    ("NODES=2", "MEMBERS=2", "FIRST_MEMBERS=1", "CALLS=1", "MIXED"),
                                    ("NODES=2", "SLOTS=1", "CALLS=3", "MIXED")],
                         ids=lambda bounds: "-".join(bounds))
def test_nodes_model(tmp_path, bounds):
    need_spin()
    if bounds[1:] == ("SLOTS=1", "CALLS=3", "MIXED") and not os.environ.get("GPUTEST_LONG"):
        pytest.skip("45 million states take minutes: GPUTEST_LONG=1 checks them")
    assert_no_error(spin(tmp_path, "nodes", *bounds))


NODES_BREAKS = {
    "HISTORY": ("NODES=3", "CALLS=3", "ONE_STAGES"), "ASK": ("NODES=2", "CALLS=4", "SLOTS=1"), "RETRACT": ("NODES=2", "CALLS=4", "SLOTS=1"),
    "ROUNDS": ("NODES=3", "CALLS=1"), "COMMIT": ("NODES=2", "CALLS=1", "MIXED"), "WAIT": ("NODES=2", "CALLS=1", "MIXED"),
    "RECORD": ("NODES=2", "CALLS=2", "MIXED"),
    "LATE": ("NODES=2", "MEMBERS=2", "OTHER_MEMBERS=1", "SLOTS=1", "CALLS=2", "MIXED", "NONBLOCKING"),
    "EARLY": ("NODES=2", "MEMBERS=2", "OTHER_MEMBERS=1", "SLOTS=1", "CALLS=2", "MIXED", "NONBLOCKING")}


@pytest.mark.parametrize("weakness", NODES_BREAKS)
def test_nodes_model_finds_errors(tmp_path, weakness):
    need_spin()
    if weakness in ("LATE", "EARLY") and not os.environ.get("GPUTEST_LONG"):
        pytest.skip("it is found after 40 million states, which take minutes: GPUTEST_LONG=1 looks for it")
    assert "errors: 1" in spin(tmp_path, "nodes", *NODES_BREAKS[weakness], f"BREAK_{weakness}")


@pytest.mark.parametrize("bounds", [("CALLS=1",), ("MEMBERS=1", "CALLS=3"), ("NODES=1", "CALLS=3"), ("CALLS=2",)],
                         ids=lambda bounds: "-".join(bounds))
def test_lost_model(tmp_path, bounds):
    need_spin()
    if bounds == ("CALLS=2",) and not os.environ.get("GPUTEST_LONG"):
        pytest.skip("28 million states take minutes: GPUTEST_LONG=1 checks them")
    assert_no_error(spin(tmp_path, "lost", *bounds))


@pytest.mark.parametrize("weakness,nodes", [("REFUSE", 2), ("ANSWER", 2), ("TELL", 2), ("ORDER", 1)])
def test_lost_model_finds_errors(tmp_path, weakness, nodes):
    need_spin()
    assert "errors: 1" in spin(tmp_path, "lost", f"NODES={nodes}", f"BREAK_{weakness}")


# What fused kernels rest on: bounds to check within, and the weakened forms, each of which must be found wrong.
HANDSHAKES = {
    "fifo": ([[], ["SLOTS=1"], ["SLOTS=3", "MESSAGES=7"]],
             ["HEAD_ACQUIRE", "HEAD_RELEASE", "TAIL_ACQUIRE", "TAIL_RELEASE", "BARRIER_AFTER_HEAD", "BARRIER_BEFORE_TAIL"]),
    "ll": ([[], ["SLOTS=1"]], ["FLAG", "HEAD_WAIT", "HEAD_RELEASE", "TORN"]),
    "barrier": ([[], ["RANKS=3", "EPOCHS=1"]], ["EQUAL", "ACQUIRE", "RELEASE", "SECOND"]),
    "abort": ([[]], ["POLL", "FREE"]),
}


@pytest.mark.parametrize("name", HANDSHAKES)
def test_handshake_model(tmp_path, name):
    need_spin()
    for bounds in HANDSHAKES[name][0]:
        assert_no_error(spin(tmp_path, name, *bounds))


@pytest.mark.parametrize("name,weakness", [(name, weakness) for name in HANDSHAKES for weakness in HANDSHAKES[name][1]])
def test_handshake_model_finds_errors(tmp_path, name, weakness):
    need_spin()
    assert "errors: 1" in spin(tmp_path, name, f"BREAK_{weakness}")
