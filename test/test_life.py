# SPDX-License-Identifier: BSD-3-Clause
"""Starting, ending, options, and what is seldom."""
import os
import re
import time

import pytest

from conftest import BUILD, MPIS, NEWER, ON_GPU, assert_passed, environment, launcher, run_command
from helpers import PATHS, compile_with, count_calls, each_mpi, emulated_only, on_nodes


@each_mpi
@pytest.mark.parametrize("case", ["late_work", "capture", "reallocation", "pool_memory", "other_context", "reset", "threads",
                                  "rendezvous", "communicators", "idup", "fork", "huge", "empty_types"])
def test_life(run_mpi, mpi, case):
    assert_passed(run_mpi(mpi, 2, "test_life", case))


SESSIONS = {"staged": ("alone", {}), "alone": ("alone", {"GPUCOLL_SESSIONS": "1"}), "overlap": ("overlap", {"GPUCOLL_SESSIONS": "1"}),
            "again": ("again", {"GPUCOLL_SESSIONS": "1"}), "threads": ("threads", {"GPUCOLL_SESSIONS": "1"}), "init_later": ("init_later", {}), "init_first": ("init_later", {"GPUCOLL_SESSIONS": "1"}),
            "finalize_last": ("init_later", {"GPUCOLL_SESSIONS": "1", "FINALIZE_LAST": "1"}),
            "in_threads": ("in_threads", {}), "outlive": ("outlive", {}), "outlive_init_first": ("outlive", {"GPUCOLL_SESSIONS": "1"}),
            "begin_while_ending": ("begin_while_ending", {})}


@pytest.mark.parametrize("which", ["mpich", "mpich5", "openmpi5"])
@pytest.mark.parametrize("name", SESSIONS)
def test_sessions(run_mpi, which, name):
    """Open MPI 4.1 has none."""
    if which not in MPIS + NEWER:
        pytest.skip(f"no library for {which}")
    if which == "mpich" and name in ("staged", "in_threads"):
        pytest.skip("MPICH 4.0 has no groups of sessions but the job's")
    if which == "mpich" and name == "begin_while_ending":
        pytest.skip("MPICH 4.0 crashes in MPI_Session_init during MPI_Finalize")
    if which != "mpich5" and name == "again":
        pytest.skip("MPICH 4.0 and Open MPI 5.0 crash in a session after the last one, with MPI_Init or without")
    case, env = SESSIONS[name]
    result = run_mpi(which, 4, "test_sessions", case, env={"CUEMU_DEVICES": "2", **env})
    assert_passed(result)
    assert ("a session after the last one was finalised" in result.output) == (name == "again"), result.output


@each_mpi
def test_late_at_the_end(run_mpi, mpi):
    assert_passed(run_mpi(mpi, 3, "test_life", "late_at_the_end", env={"GPUCOLL_ALGO": "ring"}, timeout=60))


@emulated_only
@each_mpi
@pytest.mark.parametrize("env", [{"CUEMU_P2P": "none"}, {"GPUCOLL_ALGO": "ring"}], ids=["shm", "p2p"])
def test_freed_communicators(run_mpi, mpi, env):
    """Also in MPI_Comm_free by who is ahead of others in the last call, the arena's memory is not lost."""
    result = run_mpi(mpi, 2, "test_life", "freed_communicators", env={"GPUCOLL_STATS": "1", "CUEMU_DEVICES": "2", **env})
    assert_passed(result)
    # What the program says, on another stream, may come in the middle of a row of so long a table.
    table = result.output.replace("2 checks passed, 0 failed\n", "")
    # Without P2P the first call of a communicator finds that it needs memory for messages, which its Bcast then has.
    assert count_calls(table, "accel", "MPI_Bcast") == 300, result.output


def test_large_element(run_mpi):
    """Half a minute's copies, which no MPI does otherwise."""
    assert_passed(run_mpi(MPIS[0], 2, "test_life", "large_element"))


@emulated_only
@pytest.mark.skipif(not os.path.exists("/sys/kernel/mm/transparent_hugepage"), reason="the kernel has no large pages")
def test_large_pages(run_mpi):
    """Memory of the host that two devices share asks for them."""
    assert_passed(run_mpi(MPIS[0], 2, "test_life", "large_pages", env={"CUEMU_DEVICES": "2", "CUEMU_P2P": "none"}))


@pytest.mark.quick
@each_mpi
@pytest.mark.parametrize("case", ["outside", "host_structure", "two_allocations", "default_stream", "insignificant",
                                  "no_neighbours", "new_type_in_threads", "finalize_callback", "permuted_type",
                                  "pair_in_disguise", "refused_call", "jumping_handler", "full_board", "late_member",
                                  "scattered_blocks", "no_data_and_a_busy_stream", "swap_too_long"])
def test_edges(run_mpi, mpi, case):
    result = run_mpi(mpi, 3 if case in ("late_member", "swap_too_long") else 2, "test_edges", case, env={"GPUCOLL_STATS": "1"})
    assert_passed(result)
    if case == "finalize_callback":
        assert "in MPI_Finalize: right" in result.output, result.output
    if case == "late_member" and mpi == "openmpi":  # MPICH's broadcast of one number waits for the root's neighbours
        assert "rank 2 was let go: yes" in result.output, result.output


@pytest.mark.parametrize("which", ["mpich5", "openmpi5"])
@pytest.mark.parametrize("case", ["outlive", "one_outlives"])
def test_sessions_over_nodes(run_mpi, which, case):
    """Ends that all ranks come to, and connections that break off then."""
    if which not in NEWER:
        pytest.skip(f"no library for {which}")
    result = on_nodes(run_mpi, which, "0011", "test_sessions", case, timeout=60)
    assert_passed(result)
    assert "WARN" not in result.output, result.output


CALLBACKS = ["handler", "handler_of_some", "handler_of_collective", "handler_jumps", "handler_in_handler", "handlers_in_handlers",
             "handler_of_refused", "handler_in_coroutine", "copy_function", "copy_again", "copy_by_other_name"]


@each_mpi
@pytest.mark.parametrize("case", CALLBACKS)
def test_callbacks(run_mpi, mpi, case):
    if mpi == "mpich5" and case not in ("copy_function", "copy_by_other_name"):
        pytest.skip("MPICH 5.0 gives no errors of what is truncated in collectives, not always of messages, and none of copies")
    result = run_mpi(mpi, 3, "test_callbacks", case)
    assert_passed(result)
    # What waits for the device is left by the jump, unless, as under Open MPI, the handler's own request has had its handle.
    if case != "handler_jumps" or mpi == "mpich":
        assert ("an error handler has left an MPI call" in result.output) == (case == "handler_jumps"), result.output


@pytest.mark.parametrize("mpi", ["mpich5", "openmpi5"])
def test_error_handler_before_main(run_mpi, mpi, tmp_path):
    """MPI 4 has them made before MPI is initialised, so a library of the program may, before our constructor."""
    if mpi not in NEWER:
        pytest.skip(f"no library for {mpi}")
    (tmp_path / "early.c").write_text("""#include <mpi.h>
#include <stdio.h>
static void handler(MPI_Session *session, int *error, ...) { (void)session; (void)error; }
__attribute__((constructor)) static void begin(void)
{
	MPI_Errhandler made;

	printf("%s early\\n", MPI_Session_create_errhandler(handler, &made) == MPI_SUCCESS ? "made" : "not made");
}
int early(void) { return 0; }
""")
    (tmp_path / "main.c").write_text("#include <mpi.h>\nint early(void);\nint main(void) { MPI_Init(0, 0); early(); return MPI_Finalize(); }\n")
    compiler = str(BUILD / f"mpis/{mpi}/bin/mpicc")
    compile_with(compiler, "-shared", "-fPIC", "-o", tmp_path / "libearly.so", tmp_path / "early.c")
    compile_with(compiler, "-o", tmp_path / "main", tmp_path / "main.c", f"-L{tmp_path}", "-learly", f"-Wl,-rpath,{tmp_path}",
                 f"-Wl,-rpath,{BUILD / 'mpis' / mpi / 'lib'}")
    result = run_mpi(mpi, 1, tmp_path / "main")
    assert result.status == 0 and "made early" in result.output, result.output


def test_many_error_handlers(run_mpi, tmp_path):
    """More than the library has functions for: each is called, with what it is to be called with."""
    rows = [f"static void handler_{i}(MPI_Comm *comm, int *error, ...) {{ right += *comm == MPI_COMM_SELF && *error == MPI_ERR_ARG && next == {i}; }}"
            for i in range(40)]
    (tmp_path / "many.c").write_text("#include <mpi.h>\n#include <stdio.h>\nstatic int right, next;\n" + "\n".join(rows) + """
int main(int argc, char **argv)
{
	static MPI_Comm_errhandler_function *const all[] = {""" + ", ".join(f"handler_{i}" for i in range(40)) + """};
	MPI_Errhandler handler, again;

	MPI_Init(&argc, &argv);
	for (next = 0; next < 40; next++) {
		MPI_Comm_create_errhandler(all[next], &handler);
		for (int i = 0; i < 10; i++) {
			MPI_Comm_create_errhandler(all[next], &again);
			MPI_Errhandler_free(&again);
		}
		MPI_Comm_set_errhandler(MPI_COMM_SELF, handler);
		MPI_Errhandler_free(&handler);
		MPI_Comm_call_errhandler(MPI_COMM_SELF, MPI_ERR_ARG);
	}
	printf("%d are right\\n", right);
	return MPI_Finalize();
}
""")
    compile_with(f"mpicc.{MPIS[0]}", "-o", tmp_path / "many", tmp_path / "many.c")
    result = run_mpi(MPIS[0], 1, tmp_path / "many")
    assert "40 are right" in result.output, result.output


@each_mpi
def test_init_in_a_constructor(run_mpi, mpi, tmp_path):
    """A library of the application calls MPI_Init before main, and before our own constructor."""
    source, program, library = tmp_path / "early.c", tmp_path / "early", tmp_path / "libearly.so"
    source.write_text("""#include <mpi.h>
#ifdef LIBRARY
__attribute__((constructor)) static void begin(void) { MPI_Init(0, 0); }
int early(void) { return 0; }
#else
#include <stdio.h>
int early(void);
int main(void) { early(); printf("began early\\n"); return MPI_Finalize(); }
#endif
""")
    compile_with(f"mpicc.{mpi}", "-shared", "-fPIC", "-DLIBRARY", "-o", library, source)
    compile_with(f"mpicc.{mpi}", "-o", program, source, f"-L{tmp_path}", "-learly", f"-Wl,-rpath,{tmp_path}")
    result = run_mpi(mpi, 1, program)
    assert result.status == 0 and "began early" in result.output, result.output


@pytest.mark.parametrize("mpi", ["mpich", "mpich5"])
@pytest.mark.parametrize("case", ["large_count", "large_types"])
def test_large_counts(run_mpi, case, mpi):
    if mpi not in MPIS + NEWER:
        pytest.skip(f"no library for {mpi}; only MPICH has the large-count calls of MPI 4")
    assert_passed(run_mpi(mpi, 2, "test_life", case))


@each_mpi
def test_a_killed_job_leaves_nothing(run_mpi, mpi):
    """A rank is killed while the others are in a collective: no file of ours or of the emulated driver is left."""
    def left():
        names = os.listdir("/dev/shm") + os.listdir("/tmp")
        return {name for name in names if re.search("gpucoll-[0-9]|cuemu", name)}

    before = left()
    result = run_mpi(mpi, 3, "test_life", "killed")
    assert "in the middle" in result.output and result.status not in (0, "timeout"), result.output
    new, end = left() - before, time.monotonic() + 20
    while new and time.monotonic() < end:  # other jobs of this machine have theirs for a moment
        time.sleep(0.1)
        new &= left()
    assert not new


@each_mpi
def test_bounded_staging_pool(run_mpi, mpi):
    """Buffers larger than the pool go through ordinary memory."""
    assert_passed(run_mpi(mpi, 2, "test_life", "late_work", env={"GPUCOLL_STAGING_POOL": "64K"}))


@emulated_only
@each_mpi
def test_room_grows(run_mpi, mpi):
    """Ranks 2 and 3 show which GPUs are theirs between the announcements of ranks 0 and 1."""
    result = run_mpi(mpi, 4, "test_edges", "room_grows",
                     env={"CUEMU_DEVICES": "4", "CUEMU_SMS": "8", "GPUCOLL_ALGO": "ring", "GPUCOLL_CHANNELS": "1", "GPUCOLL_STATS": "1"})
    assert_passed(result)
    assert "ring fused simple" in result.output and "ring fused ll" in result.output, result.output


@emulated_only
@each_mpi
def test_each_rank_has_a_gpu(run_mpi, mpi):
    """When it is known that no two ranks share a GPU, each may fill its own with blocks that wait."""
    result = run_mpi(mpi, 2, "gpucoll-bench", "allreduce", "-b", "64K", "-e", "64K", "-n", "10",
                     env={"CUEMU_DEVICES": "2", "CUEMU_SMS": "4", "GPUCOLL_ALGO": "ring", "GPUCOLL_CHANNELS": "4", "GPUCOLL_STATS": "1"})
    assert result.status == 0 and "0 wrong values" in result.output, result.output
    fused, stepped = (sum(int(n) for n in re.findall(rf"accel +(\d+) .*ring {how}", result.output)) for how in ("fused", "stepped"))
    assert fused > 10 * stepped, result.output


@each_mpi
def test_disabled(run_mpi, mpi):
    """GPUCOLL_DISABLE=1 hands device buffers to the real MPI, which dies of them."""
    assert run_mpi(mpi, 2, "test_life", "reallocation", env={"GPUCOLL_DISABLE": "1"}).status != 0


@each_mpi
def test_asleep_without_driver(mpi, tmp_path):
    """Where no process has a driver the library maps nothing, starts no thread and loads no libcuda."""
    source = tmp_path / "quiet.c"
    source.write_text(r"""
#include <mpi.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv)
{
	int one = 1, sum, rank, found = 0;
	char line[4096];
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	FILE *maps = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof(line), maps))
		found |= strstr(line, "libcuda") || strstr(line, "/gpucoll-");
	fclose(maps);
	if (rank == 0)
		printf("sum %d, traces %d\n", sum, found);
	MPI_Finalize();
	return 0;
}
""")
    program = tmp_path / "quiet"
    compile_with(f"mpicc.{mpi}", "-o", program, source)
    env = environment(mpi, [str(BUILD / "mpi" / mpi / "libgpucoll.so.0")], {"GPUCOLL_DEBUG": "info"})
    if not ON_GPU:
        env.pop("LD_LIBRARY_PATH")
    result = run_command([*launcher(mpi, 2), "env", *[f"{k}={v}" for k, v in env.items()], str(program)],
                         os.environ.copy(), 60)
    assert result.status == 0 and "sum 2, traces 0" in result.output, result.output
    assert ON_GPU or "asleep" in result.output, result.output


@pytest.mark.quick
@each_mpi
def test_statistics(run_mpi, mpi):
    result = run_mpi(mpi, 2, "test_life", "reallocation", env={"GPUCOLL_STATS": "1"})
    assert_passed(result)
    # Fifty calls of the case; each check makes one more, on host buffers.
    assert count_calls(result.output, "accel", "MPI_Allreduce") == 50, result.output
    assert count_calls(result.output, "pass", "MPI_Allreduce") == 50, result.output
    assert "twoshot" in result.output, result.output
    staged = run_mpi(mpi, 2, "test_life", "reallocation", env=PATHS["stage"])
    assert_passed(staged)
    assert count_calls(staged.output, "stage", "MPI_Allreduce") == 50, staged.output
    assert "GPUCOLL_ACCEL=0" in staged.output, staged.output


@each_mpi
def test_bad_options_are_named(run_mpi, mpi):
    result = run_mpi(mpi, 1, "test_life", "idup",
                     env={"GPUCOLL_DEBUGG": "1", "GPUCOLL_STAGING_POOL": "many", "GPUCOLL_DEBUG": "warn"})
    assert_passed(result)
    assert "GPUCOLL_DEBUGG is no option" in result.output
    assert "GPUCOLL_STAGING_POOL=many is not understood" in result.output


@each_mpi
@pytest.mark.parametrize("name,why", [("/dev/zero", "not supported"), ("/", "directory"), ("/nowhere", "No such file")],
                         ids=["device", "directory", "nothing"])
def test_what_is_no_tuning_file(run_mpi, mpi, name, why):
    result = run_mpi(mpi, 2, "test_life", "reallocation", env={"GPUCOLL_TUNING_FILE": name}, timeout=60)
    assert_passed(result)
    assert re.search(f"WARN .*GPUCOLL_TUNING_FILE: {name}: .*{why}", result.output), result.output


@each_mpi
def test_log_file(run_mpi, mpi, tmp_path):
    result = run_mpi(mpi, 1, "test_life", "idup",
                     env={"GPUCOLL_DEBUG": "trace", "GPUCOLL_DEBUG_FILE": f"{tmp_path}/%h.%p.log"})
    assert_passed(result)
    logs = list(tmp_path.glob("*.log"))
    assert len(logs) == 1 and re.search("MPI_Allreduce on .*: stage, one process", logs[0].read_text())


@emulated_only
@each_mpi
def test_a_rank_with_another_version(run_mpi, tmp_path, mpi):
    """What they would write on the board are other structures: everything is staged, which each rank says."""
    other = tmp_path / "libgpucoll.so.0"
    ours = (BUILD / "mpi" / mpi / "libgpucoll.so.0").read_bytes()
    version = re.search(rb"libgpucoll (\d+\.\d+\.\d+),", ours)[1]
    other.write_bytes(ours.replace(version + b"\0", version[:-1] + b"9\0"))
    script = tmp_path / "rank.sh"
    script.write_text('#!/bin/sh\n[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ] && '
                      f'export LD_PRELOAD=$(echo $LD_PRELOAD | sed "s|[^:]*libgpucoll[^:]*|{other}|")\nexec "$@"\n')
    script.chmod(0o755)
    result = run_mpi(mpi, 3, script, BUILD / "mpi" / mpi / "test_agree", "mixed", 60, env={"GPUCOLL_STATS": "1"})
    assert_passed(result)
    assert result.output.count("another version of the library") == 3 and count_calls(result.output, "accel") == 0, result.output


@emulated_only
@each_mpi
def test_more_communicators_than_the_board_has(run_mpi, mpi):
    result = run_mpi(mpi, 2, "test_life", "many_communicators", env=PATHS["accel"])
    assert_passed(result)
    assert result.output.count("has no room on a node's board") == 1 and count_calls(result.output, "stage") > 0, result.output


@emulated_only
@each_mpi
def test_stopped_rank_does_not_complain(run_mpi, mpi):
    """A rank that was stopped for longer than GPUCOLL_TIMEOUT, in a call, has not waited."""
    result = run_mpi(mpi, 2, "test_life", "stopped", env={"GPUCOLL_TIMEOUT": "4", **PATHS["accel"]})
    assert_passed(result)
    assert "gpucoll[0] WARN" not in result.output, result.output


@each_mpi
@pytest.mark.parametrize("partial", ["abort", "sleep"])
def test_a_rank_without_the_library(run_mpi, mpi, tmp_path, partial):
    """Rank 1 has no LD_PRELOAD, as where a launcher does not pass it on: the others say so, and end the job or let it be."""
    source, program = tmp_path / "hello.c", tmp_path / "hello"
    source.write_text(r"""
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
	int one = 1, sum, rank;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("sum %d\n", sum);
	MPI_Finalize();
	return 0;
}
""")
    compile_with(f"mpicc.{mpi}", "-o", program, source)
    script = 'r=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; test $r = 1 && LD_PRELOAD=$(echo $LD_PRELOAD | sed "s/[^:]*libgpucoll[^:]*//"); exec "$@"'
    result = run_mpi(mpi, 3, "/bin/sh", "-c", script, "sh", program, timeout=60,
                     env={"GPUCOLL_TIMEOUT": "2", "GPUCOLL_PARTIAL": partial})
    assert result.status != "timeout" and "MPI_Init has waited 2 s for " in result.output, result.output
    assert (result.status == 0 and "sum 3" in result.output) == (partial == "sleep"), result.output
    assert partial == "sleep" or "for rank 1 of 3" in result.output, result.output
