# SPDX-License-Identifier: BSD-3-Clause
"""What the tests share: the build tree, and running MPI programs in it.

Environment: GPUTEST_BUILD is the build tree and GPUTEST_CUDA the CUDA Toolkit (`make check` sets them); GPUTEST_GPU=1
uses the machine's GPU instead of the emulated CUDA driver.
"""
import atexit
import contextlib
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
import zlib
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SOURCE / "test/cluster"))
import cluster  # noqa: E402
CUDA = os.environ.get("GPUTEST_CUDA", "/usr/local/cuda")
BUILD = Path(os.environ.get("GPUTEST_BUILD", SOURCE / "build")).resolve()
ON_GPU = os.environ.get("GPUTEST_GPU") == "1"
# Those that configure found; test_mpis.py builds for others, which it gets into the build tree.
MPIS = sorted(p.parent.name for p in BUILD.glob("mpi/*/wrapper") if str(BUILD / "mpis") not in p.read_text())
# Those of today, if they were built for, share the tests with them.
NEWER = ["openmpi5", "mpich5"] if (BUILD / "mpis/shared").exists() and not ON_GPU else []
SANITIZED = b"__asan_init" in (BUILD / "emu/libcuda.so.1").read_bytes() if MPIS else False


# The MPIs leak; the arena is larger than AddressSanitizer likes to see protected; and gpucoll-exec puts its library
# before AddressSanitizer's, which that then needs.
ASAN_OPTIONS = "detect_leaks=0:protect_shadow_gap=0:use_sigaltstack=0:verify_asan_link_order=0"


# Of jobs that are made to fail or to wait.
(BUILD / "dumps").mkdir(exist_ok=True)


# The launchers' own files, a folder for each job. Open MPI 5 names them by its launcher's pid: what a killed one left behind
# makes a later one with that pid end with "The PMIx server's listener thread failed to start". Its shared memory has a name of 16
# bits of a hash of that pid: two jobs at a time that have the same ones write to each other's, and crash or hang.
SESSIONS = tempfile.mkdtemp(prefix="gputest-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
atexit.register(shutil.rmtree, SESSIONS, ignore_errors=True)


# Open MPI 5 looks for fabrics by libfabric, twice, and takes none of them here: 0.7 s of each job of four ranks, and 0.3 s of a core.
# What the machine's own variables say is left; test_by_the_mpis_own_choices has none of these.
WITHOUT_FABRICS = {"OMPI_MCA_btl": "^ofi", "OMPI_MCA_mtl": "^ofi"}
for name, value in WITHOUT_FABRICS.items():
    os.environ.setdefault(name, value)


class Result:
    def __init__(self, status, output):
        self.status, self.output = status, output


def asan_preload():
    if not SANITIZED:
        return []
    path = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    return [str(Path(path).resolve())]


def family(mpi):
    """The MPI without its version: openmpi, mpich. That of the standard ABI is MPICH's here."""
    return "mpich" if mpi == "mpi_abi" else mpi.rstrip("0123456789")


def tool(mpi, name):
    """The MPI's mpicc, mpirun ...: beside the compiler wrapper that the library was built with, or with its name behind it."""
    wrapper = (BUILD / "mpi" / mpi / "wrapper").read_text().strip()
    if name == "mpicc":
        return wrapper
    if "/" in wrapper:
        return str(Path(wrapper).parent / name)
    return f"{name}.{family(mpi)}" if shutil.which(f"{name}.{family(mpi)}") else name


@functools.lru_cache
def launches_by_prrte(mpi):
    """Whether the MPI is an Open MPI of version 5 or later, whose launcher is another program than that of version 4."""
    said = subprocess.run([tool(mpi, "mpirun"), "--version"], capture_output=True, text=True).stdout
    return "OpenRTE" not in said


def launcher(mpi, ranks):
    if family(mpi) == "mpich":
        return [tool(mpi, "mpiexec"), "-n", str(ranks)]
    # op/avx of Open MPI 4.1 saturates small integer sums, on host buffers too.
    command = [tool(mpi, "mpirun"), "--allow-run-as-root", "--oversubscribe", "--mca", "op", "^avx"]
    if not launches_by_prrte(mpi):
        # A rank tells its launcher that it has finalised, and ends after 2 s without an answer (PMIx 3, PMIx_Finalize): the
        # launcher of 66 ranks that had no turn for so long then calls that end improper.
        command += ["--mca", "orte_allowed_exit_without_sync", "1"]
    else:
        session = tempfile.mkdtemp(dir=SESSIONS)
        command += ["--prtemca", "prte_tmpdir_base", session]
        command += ["--mca", "btl_sm_backing_directory", session, "--mca", "osc_sm_backing_directory", session]
    return [*command, "-n", str(ranks)]


def run_command(command, env, timeout):
    """Run in a process group of its own, so that a time-out leaves no rank behind."""
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               errors="replace", start_new_session=True)
    try:
        output, _ = process.communicate(timeout=timeout)
        return Result(process.returncode, output)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        time.sleep(1)
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return Result("timeout", f"{output}\ntimed out after {timeout} s: {' '.join(map(str, command))}")


def run_work(command, env, seconds):
    """The same for what computes and waits for nobody: so many seconds on a core, which beside other work take longer by the clock."""
    return run_command(["prlimit", f"--cpu={seconds}", *command], env, 5 * seconds)


def run_over_tcp(command, env, timeout, when=None):
    """The same for a job whose MPI uses TCP, in which MPICH 4.0's MPI_Finalize does not return now and then (fixed upstream in 2023,
    pull request 6596): a program that has said its results has some seconds left to end. `when`: what the program says,
    and a function to be called once it has."""
    grace = 10
    # The reader has an open file of its own: to share one is to share its place, and to read would move what the job writes next.
    with tempfile.NamedTemporaryFile() as written, open(written.name, errors="replace") as output:
        process = subprocess.Popen(command, env=env, stdout=written, stderr=subprocess.STDOUT, start_new_session=True)
        end, done = time.monotonic() + timeout, False
        while process.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
            output.seek(0)
            text = output.read()
            if not done and re.search("checks passed, [0-9]+ failed|^# [0-9]+ wrong values$", text, re.MULTILINE):
                end, done = time.monotonic() + grace, True
            if when and when[0] in text:
                when[1]()
                when = None
        status = process.poll()
        if status is None:
            os.killpg(process.pid, signal.SIGTERM)
            time.sleep(1)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            status = "timeout"
        output.seek(0)
        text = output.read()
    if status == "timeout" and done and "mpiexec" in " ".join(command):
        warnings.warn("MPICH did not come back from MPI_Finalize over TCP, as it is known to")
        status = 0
    return Result(status, f"{text}\n{' '.join(command) if status == 'timeout' else ''}")


def environment(mpi, preload, extra=()):
    """The variables of a rank. `preload` lists libraries after the ones that the set-up itself needs."""
    env = {"GPUCOLL_DUMP": str(BUILD / "dumps/%h-%p.json"), **dict(extra)}
    env["LD_PRELOAD"] = ":".join([*asan_preload(), *preload, str(BUILD / "emu/yield_shim.so")])
    env["YIELD_SHIM_NAP"] = "1"
    if not ON_GPU:
        env["LD_LIBRARY_PATH"] = f"{BUILD / 'emu'}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    if SANITIZED:
        env["ASAN_OPTIONS"] = ASAN_OPTIONS
    return env


@pytest.fixture
def run_mpi():
    def run(mpi, ranks, program, *arguments, library=True, before=(), after=(), env=(), options=(), timeout=300, runner=run_command):
        """Run `program` (a path, or a name in mpi/<mpi>/) under the library; `before` and `after` are preloaded
        around it, `options` are the launcher's."""
        path = Path(program)
        if not path.is_absolute():
            path = BUILD / "mpi" / mpi / program
        ours = [str(BUILD / "mpi" / mpi / "libgpucoll.so.0")] if library else []
        rank_env = environment(mpi, [*before, *ours, *after], dict(env))
        command = [*launcher(mpi, ranks), *options, "env", *[f"{k}={v}" for k, v in rank_env.items()], str(path),
                   *map(str, arguments)]
        return runner(command, os.environ.copy(), timeout)
    return run


@pytest.fixture(scope="session")
def make_cluster():
    """Several hosts in namespaces of this machine, by their number and what tc is to do to what they send, kept for all tests."""
    with contextlib.ExitStack() as stack:
        clusters = {}

        def make(hosts, qdisc=None):
            if ON_GPU:
                pytest.skip("hosts in namespaces have no GPU")
            if (hosts, qdisc) not in clusters:
                try:
                    clusters[hosts, qdisc] = stack.enter_context(cluster.Cluster(hosts, qdisc))
                except cluster.Refused as refused:
                    pytest.skip(f"no such hosts here: {refused}")
            return clusters[hosts, qdisc]
        yield make


@pytest.fixture(scope="session")
def verbs_device():
    """A device for verbs: the machine's, or soft RoCE on the first link that takes it."""
    active = [path.parents[2].name for path in Path("/sys/class/infiniband").glob("*/ports/1/state") if "ACTIVE" in path.read_text()]
    if active:
        yield active[0]
        return
    if not shutil.which("rdma"):
        pytest.skip("no verbs: there is no device, and no rdma of iproute2 to make one")
    name, said = "gpucoll_rxe", ""
    for link in sorted(path.name for path in Path("/sys/class/net").iterdir() if path.name != "lo"):
        made = run_command(["rdma", "link", "add", name, "type", "rxe", "netdev", link], os.environ, 10)
        if made.status == 0:
            yield name
            run_command(["rdma", "link", "delete", name], os.environ, 10)
            return
        said = made.output.strip()
    pytest.skip(f"no verbs: there is no device, and no soft RoCE: {said}")


TROUBLE = re.compile(r" WARN | ERROR |[Ww]rong|[1-9][0-9]* failed|timed out|(?<!Assertion)Error:|Assertion .*failed")


def assert_passed(result):
    said = [line for line in result.output.splitlines() if TROUBLE.search(line)]
    text = "\n".join([f"exit status {result.status}", *said[:20], "...", result.output[-4000:]])
    assert result.status == 0, text
    assert "checks passed, 0 failed" in result.output, text


def pytest_addoption(parser):
    parser.addoption("--mpis", choices=["share", "found", "newer", "all"], default="share",
                     help="of the MPIs that configure found and those of today: each has a part of a test's cases (share), or one sort, or all, have all")
    parser.addoption("--quick", action="store_true", help="the tests for before each commit, some two minutes: those that are marked quick, of two ranks")


def pytest_configure(config):
    config.addinivalue_line("markers", "quick: also with --quick")
    config.addinivalue_line("markers", "xdist_group(name): of pytest-xdist, which may not be there")


def is_quick(item):
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    ranks = [value for key, value in parameters.items() if key in ("ranks", "shape")]
    slow = parameters.get("name") in ("test_choose", "test_execute", "test_sched", "test_threads", "test_execute_tsan", "test_exchange_tsan")
    return item.get_closest_marker("quick") is not None and not slow and all(value in (1, 2, "01", "2x1") for value in ranks)


# Those of a file have something in common on this machine or in the build tree, and so run one at a time.
ONE_AT_A_TIME = {"test_doctor", "test_hosts", "test_install", "test_mpis", "test_torch"}


def pick_mpis(items, which):
    """Of cases that differ in the MPI only, one for each family: the cases of a test take turns, and so do tests."""
    cases, seen, left = {}, {}, []
    for item in items:
        parameters = getattr(item, "callspec", None) and dict(item.callspec.params) or {}
        mpi = parameters.pop("mpi", None)
        if mpi not in MPIS + NEWER:
            continue
        case = (item.parent.nodeid, item.originalname, family(mpi), repr(sorted(parameters.items(), key=lambda p: p[0])))
        cases.setdefault(case, {})[mpi in NEWER] = item
    for case, both in cases.items():
        turn = seen.get(case[:3], zlib.crc32(f"{case[1]} {case[2]}".encode()) % 2)
        seen[case[:3]] = 1 - turn
        keep = {"share": bool(turn) if len(both) == 2 else True in both, "found": False, "newer": True}[which]
        left += [item for newer, item in both.items() if newer != keep]
    return left


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    if config.getoption("--mpis") != "all":
        left = set(map(id, pick_mpis(items, config.getoption("--mpis"))))
        config.hook.pytest_deselected(items=[item for item in items if id(item) in left])
        items[:] = [item for item in items if id(item) not in left]
    # The longest first, so that no worker has one left when the others are through.
    items.sort(key=lambda item: item.originalname != "test_unit" and item.module.__name__ != "test_torch")
    for item in items:
        if item.module.__name__ in ONE_AT_A_TIME:
            item.add_marker(pytest.mark.xdist_group(item.module.__name__))
    if config.getoption("--quick"):
        config.hook.pytest_deselected(items=[item for item in items if not is_quick(item)])
        items[:] = [item for item in items if is_quick(item)]


def reason(report):
    """The first line of what a failed test says that tells something."""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash else str(report.longrepr)).splitlines()
    return next((line for line in lines if TROUBLE.search(line)), lines[0] if lines else "")[:400]


def pytest_unconfigure(config):
    """The closing line that anybody, and any CI, can read."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return
    failures = [*reporter.stats.get("failed", []), *reporter.stats.get("error", [])]
    for report in failures:  # once more, as of a long text often only the end is kept
        print(f"FAILED {report.nodeid}: {reason(report)}")
    failed = len(failures)
    skipped = len(reporter.stats.get("skipped", []))
    tail = f", {skipped} skipped" if skipped else ""
    print(f"{len(reporter.stats.get('passed', []))} passed, {failed} failed{tail}", flush=True)
