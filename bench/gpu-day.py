#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The first day on hardware, in some minutes: what a machine with a GPU is to answer first.

    gpu-day.py BUILD TESTS OUTPUT [--seconds N] [--steps N]

BUILD is the build tree, TESTS the folder with the tests, OUTPUT where gpu-day.json and gpu-day.txt go. Both are
written anew after each step, so that whatever ends the run early leaves what was found until then. Steps come in order of
what is at risk: is it right at all, is it right in every way, how fast is it. Each has a limit of its own, and one that
would not fit the time that is left is left out, and says so. Without a GPU it all runs on the emulated device, as a
rehearsal, whose figures mean nothing.
"""
import argparse
import contextlib
import ctypes
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Groups of tests, the riskiest on hardware first: the name, the expression of pytest, seconds that it may take.
TESTS = [("results are right", "test_collectives and accel and 2-", 60),
         ("kernels that wait", "test_algorithm and fused and 2", 70),
         ("kernels that do not", "test_algorithm and stepped and 2", 50),
         ("types and operations", "test_types_and_ops and 2", 60),
         ("memory of other kinds", "memory_without_handles or return_early", 40),
         ("contexts", "test_life and (reset or other_context)", 40),
         ("nonblocking and persistent", "test_async and not nodes", 60),
         ("messages", "test_messages or test_rma or test_io", 60),
         ("nodes of one machine", "test_nodes", 60),
         ("streams", "test_streams and not kernels or test_nccl and test_cases", 60)]
WORKERS = 8  # tests at a time: on a GPU they mostly wait
COLLECTIVES = ["allreduce", "bcast", "alltoall", "allgather"]
RANKS = [2, 4, 8]


def launcher(mpi, ranks):
    return ["mpiexec.mpich", "-n", ranks] if mpi == "mpich" else ["mpirun.openmpi", "--oversubscribe", "--allow-run-as-root", "-n", ranks]


def adopt_orphans():
    """Processes whose parents end become this one's children (Linux's PR_SET_CHILD_SUBREAPER)."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


def children():
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    return {int(pid) for pid in listed.read_text().split()} if listed.exists() else set()


def kill_descendants(kept):
    """What a step has left, as ranks whose launcher was ended: they would run beside all later steps. Who is in the driver for good
    can't be killed."""
    end = time.monotonic() + 5
    while (left := children() - kept) and time.monotonic() < end:
        for child in left:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)


class Day:
    def __init__(self, arguments):
        self.build, self.tests, self.output = (Path(a).resolve() for a in (arguments.build, arguments.tests, arguments.output))
        self.start, self.seconds = time.monotonic(), arguments.seconds
        self.on_gpu = os.environ.get("GPUTEST_GPU") == "1"
        self.most = os.environ.get("GPUTEST_MAXBYTES", "256M" if self.on_gpu else "1M")
        self.most_steps = arguments.steps
        self.report = {"on_gpu": self.on_gpu, "steps": []}
        self.kept = set()  # children that are to live on
        self.output.mkdir(parents=True, exist_ok=True)
        self.mpis = [mpi for mpi in ("mpich", "openmpi") if (self.build / "mpi" / mpi / "gpucoll-bench").exists()]

    def left(self):
        return self.seconds - (time.monotonic() - self.start)

    def step(self, name, limit, function, *arguments):
        """Run a step and note what came of it. What it returns is kept as it is; without the time for it it is left out."""
        entry = {"name": name, "at": round(time.monotonic() - self.start, 1)}
        if self.most_steps is not None and len(self.report["steps"]) >= self.most_steps:
            return
        if self.left() < min(limit, 10):
            entry["result"] = "left out: no time"
        else:
            try:
                entry["result"] = function(*arguments, timeout=min(limit, self.left()))
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                entry["result"] = f"failed: {error}"
        entry["seconds"] = round(time.monotonic() - self.start - entry["at"], 1)
        self.report["steps"].append(entry)
        self.write()

    def run(self, command, timeout, env=(), daemon=False):
        """The exit status, or None where it took too long, and the output. Launchers end their ranks when they are asked to."""
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            process = subprocess.Popen([str(word) for word in command], env={**os.environ, **dict(env)}, stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
            status = None
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = process.wait(timeout)
            # Asked to by SIGINT pytest tells what failed so far.
            for end in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
                if process.poll() is None:
                    os.killpg(process.pid, end)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(5)
            if not daemon:
                kill_descendants(self.kept)
            output.seek(0)
            return status, output.read()

    # ---- steps ----

    def doctor(self, timeout):
        emulated = {"GPUCOLL_TIMEOUT": "25"} if self.on_gpu else {"GPUCOLL_TIMEOUT": "25", "LD_LIBRARY_PATH": f"{self.build / 'emu'}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
        _, output = self.run([self.build / "gpucoll-info", "--doctor", "--json"], timeout, emulated)
        if "{\n" not in output:
            return {"status": 1, "tail": output[-2000:]}
        return json.loads(output[output.index("{\n"):])

    def group(self, expression, timeout):
        pytest = os.environ.get("PYTEST", "").split() or [sys.executable, "-m", "pytest"]
        several = ["-n", WORKERS, "--dist", "loadgroup"] if self.on_gpu and importlib.util.find_spec("xdist") else []
        status, output = self.run([*pytest, "-v", "-p", "no:cacheprovider", "--tb", "short", *several, self.tests, "-k", expression],
                                  timeout, {"GPUTEST_BUILD": str(self.build)})
        # A line for each, so that they are known also when it was ended.
        ends = re.findall(r"\b(PASSED|FAILED|ERROR) +(\S+::.*)$|(\S+::.*?) (PASSED|FAILED|ERROR)", output, re.M)
        results = {name or other: end or other_end for end, name, other, other_end in ends}
        if not results and status is not None:
            raise OSError(f"the tests do not start: {output[-300:]}")
        failures = sorted(name for name, end in results.items() if end != "PASSED")
        over = " when the time was over" if status is None else ""
        return {"said": f"{len(results) - len(failures)} passed, {len(failures)} failed{over}", "status": status, "failures": failures,
                "tail": output[-6000:] if failures else ""}

    def bench(self, mpi, ranks, collective, sizes, env, timeout):
        """us by bytes; and by which ways the calls went."""
        file = self.output / "bench.json"
        file.unlink(missing_ok=True)
        where = [] if self.on_gpu else ["--emulate"]
        status, output = self.run([self.build / "gpucoll-exec", *where, *launcher(mpi, ranks), self.build / "mpi" / mpi / "gpucoll-bench", collective,
                                   *sizes, "-n", "20" if self.on_gpu else "3", "-w", "5" if self.on_gpu else "1", "-J", file], timeout,
                                  {"GPUCOLL_STATS": "1", **env})
        if not file.exists():
            return {"status": status, "tail": output[-2000:]}
        results = json.loads(file.read_text())["results"]
        file.unlink()
        return {"us": {row["bytes"]: row["out_of_place"]["time_us"] for row in results},
                "wrong": sum(row[place]["wrong"] for row in results for place in ("out_of_place", "in_place")),
                "ways": sorted(set(re.findall(r" accel +\d+ +\d+ +[\d.]+ +(\S.*?) *$", output, re.M)))}

    def find_nccl(self):
        """NVIDIA's NCCL; without a GPU ours takes its place in the rehearsal."""
        if not self.on_gpu:
            return self.build / "mpi" / self.mpis[-1] / "nccl/libnccl.so.2"
        places = [os.environ.get("NCCL_LIBRARY"), "/usr/lib/x86_64-linux-gnu/libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2",
                  *(str(path) for path in Path(sys.prefix).glob("lib/python3*/*-packages/nvidia/nccl/lib/libnccl.so.2"))]
        return next((place for place in places if place and Path(place).exists()), None)

    def nccl(self, library, ranks, timeout):
        """us by bytes of NCCL's allreduce, enqueued; several ranks on a GPU it may refuse, and says so."""
        mpi = self.mpis[-1]
        where = [] if self.on_gpu else [self.build / "gpucoll-exec", "--emulate"]
        status, output = self.run([*where, *launcher(mpi, ranks), self.build / "mpi" / mpi / "nccl-bench", library, self.most], timeout)
        rows = re.findall(r"^(\d+) ([\d.]+) (\d+)$", output, re.M)
        refusal = re.search(r"^nccl: rank \d+: (.*)$", output, re.M)
        if not rows:
            return f"left out: {refusal[1]}" if refusal else {"status": status, "tail": output[-2000:]}
        return {"us": {size: float(us) for size, us, _ in rows}, "wrong": sum(int(wrong) for *_, wrong in rows), "ways": [str(library)]}

    def sanitize(self, tool, timeout):
        mpi = self.mpis[-1]
        status, output = self.run([*launcher(mpi, 2), "compute-sanitizer", "--tool", tool, "--target-processes", "all", "--error-exitcode", "9",
                                   self.build / "mpi" / mpi / "test_coll", "1"], timeout,
                                  {"LD_PRELOAD": str(self.build / "mpi" / mpi / "libgpucoll.so.0")})
        return {"status": status, "said": output[-1500:]}

    @contextlib.contextmanager
    def mps(self):
        """NVIDIA's MPS, while it is wanted; False where it does not start."""
        folder = self.output / "mps"
        folder.mkdir(exist_ok=True)
        env = {"CUDA_MPS_PIPE_DIRECTORY": str(folder), "CUDA_MPS_LOG_DIRECTORY": str(folder)}
        status, _ = self.run(["nvidia-cuda-mps-control", "-d"], 20, env, daemon=True)
        self.kept = children()
        os.environ.update(env)
        try:
            yield status == 0
        finally:
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, timeout=30, check=False)
            self.kept = set()
            for name in env:
                del os.environ[name]

    # ---- all ----

    def figures(self, title, ranks_list, collectives=COLLECTIVES, limit=25, **env):
        for ranks in ranks_list:
            for collective in collectives:
                least = "8" if collective in ("allreduce", "bcast") else "1K"  # others have a block for each rank
                self.step(f"{title}: {collective}, {ranks} ranks", limit, self.bench, self.mpis[-1], ranks, collective,
                          ["-b", least, "-e", self.most, "-f", "32"], env)

    def all(self):
        self.step("doctor", 60, self.doctor)
        self.step("first call: allreduce, 2 ranks", 40, self.bench, self.mpis[-1], 2, "allreduce", ["-b", "8", "-e", self.most, "-f", "128"], {})
        for name, expression, limit in TESTS[:2]:
            self.step(f"tests: {name}", limit, self.group, expression)
        self.figures("accelerated", [2, 4], ["allreduce"])
        self.figures("staged", [2, 4], ["allreduce"], GPUCOLL_ACCEL="0")
        if shutil.which("nvidia-cuda-mps-control"):
            with self.mps() as started:
                if started:
                    self.figures("accelerated, MPS", RANKS, COLLECTIVES)
        else:
            self.report["steps"].append({"name": "MPS", "result": "left out: nvidia-cuda-mps-control is not there"})
        nccl = self.find_nccl()
        for ranks in [2, 4] if nccl else []:
            self.step(f"NCCL: allreduce, {ranks} ranks", 25, self.nccl, nccl, ranks)
        if not nccl:
            self.report["steps"].append({"name": "NCCL", "result": "left out: no libnccl.so.2 (NCCL_LIBRARY names one)"})
        for name, expression, limit in TESTS[2:]:
            self.step(f"tests: {name}", limit, self.group, expression)
        for algo in ("twoshot", "ring", "tree", "doubling"):
            for proto in ("simple", "ll"):
                self.figures(f"{algo} {proto}", [2], ["allreduce"], GPUCOLL_ALGO=algo, GPUCOLL_PROTO=proto)
        if shutil.which("compute-sanitizer"):
            for tool in ("memcheck", "racecheck"):
                self.step(f"compute-sanitizer {tool}", 90, self.sanitize, tool)
        else:
            self.report["steps"].append({"name": "compute-sanitizer", "result": "left out: it is not there"})
        self.figures("accelerated", RANKS, COLLECTIVES[1:])
        self.figures("staged", [4], COLLECTIVES[1:], GPUCOLL_ACCEL="0")
        self.report["ended_after"] = round(time.monotonic() - self.start, 1)
        self.write()

    # ---- the page ----

    def page(self):
        yield f"# {'on a GPU' if self.on_gpu else 'rehearsal on the emulated device: figures mean nothing'}"
        for entry in self.report["steps"]:
            result, name = entry["result"], entry["name"]
            if isinstance(result, str):
                yield f"{name}: {result}"
            elif "verdict" in result:
                yield f"doctor: {result['verdict']}"
                yield from (f"  [{line['level']}] {line['topic']}: {line['found']}" for line in result["lines"])
            elif "us" in result:
                wrong = f", {result['wrong']} WRONG VALUES" if result["wrong"] else ""
                times = "  ".join(f"{size}: {us:.1f}" for size, us in result["us"].items())
                yield f"{name}, us: {times}{wrong}  ({'; '.join(result['ways'])})"
            else:
                yield f"{name}: {result.get('said') or result.get('tail', '')[-300:]}"
                yield from (f"  {failure}" for failure in result.get("failures", []))
        yield f"# {self.report.get('ended_after', round(time.monotonic() - self.start, 1))} s"

    def write(self):
        (self.output / "gpu-day.json").write_text(json.dumps(self.report, indent=1) + "\n")
        (self.output / "gpu-day.txt").write_text("\n".join(self.page()) + "\n")

    def failed(self):
        """Whether something was wrong, or did not come to its end; not what there was no time for."""
        def is_bad(result):
            if isinstance(result, str):
                return result.startswith("failed")
            if result.get("failures") or result.get("wrong") or result.get("bad"):
                return True
            if "us" in result or "verdict" in result:
                return False
            return result["status"] not in (0, None) or (result["status"] is None and " 0 failed" not in result.get("said", ""))
        return any(is_bad(entry["result"]) for entry in self.report["steps"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("tests")
    parser.add_argument("output")
    parser.add_argument("--seconds", type=int, default=530, help="after which no step begins any more (default 530)")
    parser.add_argument("--steps", type=int, help="only the first so many")
    adopt_orphans()
    day = Day(parser.parse_args())
    day.all()
    print((day.output / "gpu-day.txt").read_text(), end="")
    sys.exit(1 if day.failed() else 0)


if __name__ == "__main__":
    main()
