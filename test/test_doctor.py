# SPDX-License-Identifier: BSD-3-Clause
"""gpucoll-info --doctor, and the first day on hardware."""
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

from conftest import BUILD, SOURCE, launcher, run_command
from helpers import each_mpi, emulated_only, run_tool


def doctor(env=(), before=()):
    """What --doctor says, by JSON: the exit status, its level and words by topic, and all of it."""
    env = {"LD_LIBRARY_PATH": f"{BUILD / 'emu'}:{os.environ.get('LD_LIBRARY_PATH', '')}", **dict(env)}
    result = run_command([*before, str(BUILD / "gpucoll-info"), "--doctor", "--json"], {**os.environ, **env}, 60)
    report = json.loads(result.output[result.output.index("{"):])
    return result.status, {line["topic"]: line for line in report["lines"]}, report


@emulated_only
def test_doctor_on_a_healthy_machine():
    status, lines, report = doctor({"CUEMU_DEVICES": "2"})
    assert status == 0 and report["bad"] == 0 and not [line for line in report["lines"] if line["level"] == "bad"], report
    assert lines["P2P"]["level"] == "ok" and lines["shared GPU"]["level"] == "ok", report
    assert "run together" in lines["shared GPU"]["found"] and lines["cudaMalloc"]["effect"].startswith("direct")
    assert lines["cudaMallocAsync"]["effect"].startswith("through windows") and lines["reset"]["level"] == "ok"
    assert {"driver", "device 0", "legacy stream", "costs", "copies", "shared memory", "open files", "UCX", "MPI"} <= set(lines), report


@emulated_only
@pytest.mark.parametrize("env,before,topic,level,words", [
    ({"CUEMU_DEVICES": "2", "CUEMU_P2P": "lies"}, [], "P2P", "warn", "bytes get lost: read by kernels wrong"),
    ({"CUEMU_DEVICES": "2", "CUEMU_P2P": "none"}, [], "P2P", "note", "do not reach"),
    ({"CUEMU_TIME_SLICED": "1", "CUEMU_SLICE_US": "500", "CUEMU_SLOWNESS": "16"}, [], "shared GPU", "warn", "take turns, in slices"),
    ({"CUEMU_TIME_SLICED": "1", "CUEMU_SLOWNESS": "2"}, [], "shared GPU", "warn", "take turns"),
    ({"CUEMU_FAULT": "cuModuleLoadData+=209"}, [], "device", "bad", "kernels do not load"),
    ({"CUEMU_DEVICES": "0"}, [], "device", "bad", "no device"),
    ({"CUEMU_FAULT": "cuInit+=802"}, [], "driver", "bad", "it does not start: an injected error (802)"),
    ({"CUEMU_MANAGED": "alone"}, [], "managed memory", "note", "none while a kernel runs"),
    ({"CUEMU_DISPLAY": "1"}, [], "display", "warn", "ends kernels that take long"),
    ({"CUEMU_EXCLUSIVE": "1", "CUDA_MPS_PIPE_DIRECTORY": "/nowhere"}, [], "shared GPU", "note", "EXCLUSIVE_PROCESS"),
    ({"CUEMU_LEGACY": "alone"}, [], "legacy stream", "note", "CUDA_SUCCESS beside a busy blocking stream"),
    ({"CUEMU_FAULT": "cuIpcGetMemHandle+=101"}, [], "IPC", "warn", "do not reach"),
    ({}, ["bash", "-c", 'ulimit -n 100; exec "$@"', "bash"], "open files", "warn", "at most 100"),
    ({}, ["bash", "-c", 'ulimit -f 1000000; exec "$@"', "bash"], "size of files", "warn", "at most"),
])
def test_doctor_finds(env, before, topic, level, words):
    status, lines, report = doctor(env, before)
    assert lines[topic]["level"] == level and words in lines[topic]["found"], report
    assert (status != 0) == (level == "bad") and report["bad"] == sum(line["level"] == "bad" for line in report["lines"]), report
    assert "remedy" in lines[topic] or level == "note", report


@emulated_only
@pytest.mark.parametrize("function", ["cuInit", "cuMemAlloc", "cuIpcOpenMemHandle", "cuCtxSynchronize:2", "cuDevicePrimaryCtxReset"])
def test_doctor_of_a_driver_that_hangs(function):
    """In whichever process: it says so, and ends, with all others; what was found before is told."""
    status, lines, report = doctor({"CUEMU_FAULT": f"{function}=hang", "CUEMU_DEVICES": "2", "GPUCOLL_TIMEOUT": "3"})
    assert status == 1 and "nothing has come of it for 3 s" in lines["driver"]["found"] and report["bad"] == 1, report
    assert ("device 0" in lines) == (function in ("cuCtxSynchronize:2", "cuDevicePrimaryCtxReset")), report


@emulated_only
def test_who_asks_the_driver_holds_no_output_open():
    """Who may stay in the driver for good: a reader of the report would wait for that."""
    environment = {**os.environ, "LD_LIBRARY_PATH": f"{BUILD / 'emu'}:{os.environ.get('LD_LIBRARY_PATH', '')}", "CUEMU_DEVICES": "2",
                   "CUEMU_FAULT": "cuIpcOpenMemHandle=hang", "GPUCOLL_TIMEOUT": "3"}
    process = subprocess.Popen([str(BUILD / "gpucoll-info"), "--doctor"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               start_new_session=True)
    output = os.readlink(f"/proc/{process.pid}/fd/1")
    time.sleep(2)  # now some are in the driver
    group = run_command(["pgrep", "-g", str(process.pid)], os.environ, 10).output.split()
    holders = [pid for pid in group for number in (1, 2) if os.readlink(f"/proc/{pid}/fd/{number}") == output]
    said = process.communicate(timeout=30)[0]
    assert len(group) > 2 and set(holders) == {str(process.pid)}, said
    assert process.returncode == 1, said


@emulated_only
@each_mpi
def test_doctor_under_a_launcher(mpi):
    """The ranks of a node try each other; the first one says what came of it."""
    env = {**os.environ, "LD_LIBRARY_PATH": f"{BUILD / 'emu'}:{os.environ.get('LD_LIBRARY_PATH', '')}", "CUEMU_DEVICES": "3", "CUEMU_P2P": "lies"}
    result = run_command([*launcher(mpi, 3), str(BUILD / "gpucoll-info"), "--doctor"], env, 60)
    assert result.status == 0 and "3 ranks of this node were tried" in result.output and result.output.count("verdict:") == 1, result.output
    assert result.output.count("bytes get lost") == 3, result.output
    assert not list(pathlib.Path("/dev/shm").glob("gpucoll-doctor-*")), result.output


def test_doctor_is_asked_rightly():
    result = run_tool(BUILD / "gpucoll-info", "--json")
    assert result.status == 2 and "--json goes with --doctor" in result.output, result.output


def first_day(output, *options):
    env = {**os.environ, "GPUTEST_GPU": "0", "GPUTEST_MAXBYTES": "64K", "PYTEST": f"{sys.executable} -m pytest"}
    result = run_command([sys.executable, str(SOURCE / "bench/gpu-day.py"), str(BUILD), str(SOURCE / "test"), str(output), *options], env, 240)
    report = json.loads((output / "gpu-day.json").read_text())
    assert result.status == 0 and result.output == (output / "gpu-day.txt").read_text(), result.output
    return report, {step["name"]: step["result"] for step in report["steps"]}


@emulated_only
def test_first_day_on_hardware(tmp_path):
    """As a rehearsal, the first steps: the doctor, first figures, first tests, as a page and as JSON."""
    _, steps = first_day(tmp_path, "--steps", "3")
    assert steps["doctor"]["bad"] == 0, steps
    first = steps["first call: allreduce, 2 ranks"]
    assert first["wrong"] == 0 and first["us"]["8"] > 0 and first["ways"], steps
    assert " passed" in steps["tests: results are right"]["said"] and " 0 failed" in steps["tests: results are right"]["said"], steps


@emulated_only
def test_first_day_with_little_time(tmp_path):
    """What does not fit is left out, and said to be, from some step on."""
    report, steps = first_day(tmp_path, "--seconds", "15")
    assert steps["doctor"]["bad"] == 0 and report["ended_after"] < 35, steps
    without = [name for name, result in steps.items() if result == "left out: no time"]
    assert len(without) > len(steps) / 2 and "accelerated: alltoall, 8 ranks" in without, steps
