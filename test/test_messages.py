# SPDX-License-Identifier: BSD-3-Clause
"""Point-to-point messages."""
import random
import re

import pytest

from conftest import BUILD, CUDA, ON_GPU, assert_passed
from helpers import CUDART, build_shim, compile_with, each_mpi, emulated_only, on_nodes

# What a message's data go by: kernels, the driver's copies where these don't load or the memory is not pinned, or several devices.
MESSAGE_WAYS = {"usual": {}, "unpinned": {"GPUCOLL_STAGING_POOL": "0"}, "no kernels": {"CUEMU_FAULT": "cuModuleLoadData+=209"},
                "devices": {"CUEMU_DEVICES": "3"}, "no peers": {"CUEMU_DEVICES": "2", "CUEMU_P2P": "none"}}


@pytest.mark.quick
@each_mpi
@pytest.mark.parametrize("ranks,rounds,way", [(2, 400, "usual"), (3, 300, "devices"), (4, 200, "usual"), (5, 200, "no peers"), (3, 200, "unpinned"),
                                              (2, 200, "no kernels")])
def test_messages(run_mpi, mpi, ranks, rounds, way):
    """Random messages among all, in all forms; some five in a round."""
    if "CUEMU_FAULT" in MESSAGE_WAYS[way] and ON_GPU:
        pytest.skip("a GPU's faults are not for the asking")
    seed = random.randrange(1, 1 << 30)
    result = run_mpi(mpi, ranks, "test_message", "stress", rounds, seed, env=MESSAGE_WAYS[way])
    assert result.status == 0 and "1 checks passed, 0 failed" in result.output, f"seed {seed}: {result.output[-4000:]}"


@pytest.mark.quick
@each_mpi
@pytest.mark.parametrize("case", [("edges",), ("threads", 150), ("watchers", 60)], ids=lambda case: case[0])
def test_messages_seldom(run_mpi, mpi, case):
    """Pairs, MPI_BOTTOM, what is too long, nobody, freed and persistent requests, packing; several threads;
    threads that ask about one request."""
    assert_passed(run_mpi(mpi, 3, "test_message", *case))


@pytest.mark.quick
@emulated_only
@each_mpi
def test_message_beside_a_default_stream(run_mpi, mpi):
    """It may wait for what comes after the message, as in PyTorch, which begins messages when their tensors are ready."""
    assert_passed(run_mpi(mpi, 2, "test_message", "beside_default_stream", timeout=30))


@each_mpi
def test_messages_are_counted(run_mpi, mpi):
    result = run_mpi(mpi, 3, "test_message", "edges", env={"GPUCOLL_STATS": "1", "GPUCOLL_DEBUG": "trace"})
    assert_passed(result)
    assert "MPI_Isend on MPI_COMM_WORLD, < 128 KiB: stage, point to point" in result.output, result.output
    assert "MPI_Isend: point to point, 100008 bytes, " in result.output, result.output
    assert re.search(r"MPI_Isend +MPI_COMM_WORLD +\S+ \d+ \S+ +stage +1 +100008 .*point to point", result.output), result.output
    assert "can't be mapped" not in result.output, result.output


CLAIMS = "int MPIX_Query_cuda_support(void) { return 1; }"


@emulated_only
@each_mpi
def test_an_mpi_that_says_it_is_cuda_aware(run_mpi, mpi, tmp_path):
    """A message to oneself shows that it is not: all are staged."""
    result = run_mpi(mpi, 2, "test_message", "stress", 20, 1, after=[build_shim(tmp_path, "claims", CLAIMS)])
    assert_passed(result)
    assert result.output.count("says that it is CUDA-aware, but a message to oneself from device memory fails") == 2, result.output


@pytest.mark.quick
@emulated_only
@each_mpi
@pytest.mark.parametrize("env,first,answer", [({}, "", 1), ({"GPUCOLL_QUERY": "mpi"}, "", 0), ({"GPUCOLL_P2P": "mpi"}, "", 0),
                                              ({}, "test $r = 1 && export GPUCOLL_DISABLE=1;", 0)], ids=["usual", "query", "p2p", "one is off"])
def test_query(run_mpi, mpi, env, first, answer):
    """All ranks say the same."""
    assert_passed(on_nodes(run_mpi, mpi, "00", "test_message", "query", answer, env=env, first=first))


COUNT_UNPACKING = """#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
static int calls;
int PMPI_Unpack(const void *a, int b, int *c, void *d, int e, void *f, void *g)
{
	int (*next)(const void *, int, int *, void *, int, void *, void *) = dlsym(RTLD_NEXT, "PMPI_Unpack");

	calls++;
	return next(a, b, c, d, e, f, g);
}
__attribute__((destructor)) static void tell(void) { fprintf(stderr, "%d unpacked\\n", calls); }
"""
FROM_BOTTOM = """#include <mpi.h>
#include <cuda_runtime_api.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
	enum { PARTS = 1000, BYTES = 4096 };
	static int lengths[PARTS];
	static MPI_Aint places[PARTS];
	char *memory = malloc(2 * PARTS * BYTES);
	void *device;
	MPI_Datatype type;
	MPI_Init(&argc, &argv);
	cudaMalloc(&device, 64);
	for (int falls = 0; falls < 2; falls++) {
		for (int i = 0; i < PARTS; i++) {
			lengths[i] = BYTES;
			MPI_Get_address(memory + 2 * (falls ? PARTS - 1 - i : i) * BYTES, &places[i]);
		}
		MPI_Type_create_hindexed(PARTS, lengths, places, MPI_BYTE, &type);
		MPI_Type_commit(&type);
		MPI_Sendrecv(MPI_BOTTOM, 1, type, 0, 0, MPI_BOTTOM, 1, type, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
		MPI_Type_free(&type);
	}
	MPI_Finalize();
}
"""


@emulated_only
@each_mpi
def test_messages_of_scattered_host_memory(run_mpi, mpi, tmp_path):
    """MPI_BOTTOM may lead to device memory; to find that it does not costs nothing for each byte, as ROMIO's exchanges are such messages."""
    shim, program = build_shim(tmp_path, "count", COUNT_UNPACKING), tmp_path / "from_bottom"
    program.with_suffix(".c").write_text(FROM_BOTTOM)
    compile_with(f"mpicc.{mpi}", f"-I{CUDA}/include", "-o", program, program.with_suffix(".c"), f"-L{BUILD / 'emu'}", f"-l:{CUDART}", "-l:libcuda.so.1")
    result = run_mpi(mpi, 1, program, before=[shim])
    assert result.status == 0 and "\n0 unpacked" in "\n" + result.output, result.output
