/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_mpi_late.h"
#include "core/call/core_mpi_handle.h"
#include "core/core_mpi_comm.h"
#include "core/job/core_drive.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static core_handle *expected; /* under the lock */
static int room_expected;
static _Atomic int num_expected; /* written under the lock */

/* Without memory it stays without an identity, and others would wait for this process. */
static bool make_room_for_late(void)
{
	int room = room_expected ? 2 * room_expected : 16;
	core_handle *more = realloc(expected, (size_t)room * sizeof(*expected));

	if (!more)
		return false;
	expected = more;
	room_expected = room;
	return true;
}

void core_mpi_late_expect(core_handle comm)
{
	bool well;

	if (core_mpi_as_comm(comm) == MPI_COMM_NULL)
		return;
	pthread_mutex_lock(&lock);
	well = num_expected < room_expected || make_room_for_late();
	if (well)
		expected[num_expected++] = comm;
	pthread_mutex_unlock(&lock);
	if (!well)
		PMPI_Abort(MPI_COMM_WORLD, 1);
}

/* Whether it was. */
static bool remove_expected(core_handle comm)
{
	int i = 0;

	if (!atomic_load_explicit(&num_expected, memory_order_relaxed))
		return false;
	pthread_mutex_lock(&lock);
	while (i < num_expected && expected[i] != comm)
		i++;
	if (i == num_expected)
		i = -1;
	else
		expected[i] = expected[--num_expected];
	pthread_mutex_unlock(&lock);
	return i >= 0;
}

void core_mpi_late_look(core_handle comm)
{
	if (!remove_expected(comm))
		return;
	core_drive_yield();
	core_mpi_comm_identify(comm);
}

void core_mpi_late_forget(core_handle comm)
{
	remove_expected(comm);
}

void core_mpi_late_stop(void)
{
	free(expected);
	expected = NULL;
	num_expected = room_expected = 0;
}
