/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_mpi_check_parts.h"
#include "core/mpi/core_mpi_name.h"
#include "util/util_log.h"

#include <stdio.h>

static void say(const struct core_checks *lane, const struct core_check *check, const char *text)
{
	char name[64];

	if (lane->comm == MPI_COMM_NULL)
		snprintf(name, sizeof(name), "%s", lane->name);
	else
		core_mpi_name((core_handle)lane->comm, name, sizeof(name));
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
		 "GPUCOLL_CHECK: %s (operation %llu of communicator %s)", text,
		 (unsigned long long)check->number, name);
	util_log_drain(); /* before somebody ends the job */
}

int core_check_find_args(const struct core_checks *lane, const struct core_check *check)
{
	char one[160], other[160], text[480];
	const char *what;
	int error;

	for (int i = 0; i < lane->size; i++) {
		if (!check->args[i].nowhere)
			continue;
		snprintf(
			text, sizeof(text),
			"rank %d gives %s the buffer %#llx, which is neither memory of the host nor "
			"of a device: has it been freed?",
			i, check->args[i].name, (unsigned long long)check->args[i].nowhere);
		if (lane->rank == i)
			say(lane, check, text);
		return MPI_ERR_BUFFER;
	}
	for (int i = 1; i < lane->size; i++) {
		error = core_mpi_args_compare(&check->args[0], &check->args[i], &what);
		if (error == MPI_SUCCESS)
			continue;
		core_mpi_args_describe(&check->args[0], one, sizeof(one));
		core_mpi_args_describe(&check->args[i], other, sizeof(other));
		snprintf(text, sizeof(text), "%s differs: rank 0 is at %s, rank %d at %s", what,
			 one, i, other);
		if (lane->rank == 0)
			say(lane, check, text);
		return error;
	}
	return MPI_SUCCESS;
}

int core_check_find_blocks(const struct core_checks *lane, const struct core_check *check)
{
	char text[200];

	for (int i = 0; i < lane->size; i++) {
		if (check->comes[i] == check->takes[i] || check->comes[i] < 0 ||
		    check->takes[i] < 0)
			continue;
		snprintf(text, sizeof(text),
			 "%s: rank %d sends rank %d %lld bytes, which takes %lld", check->mine.name,
			 i, lane->rank, (long long)check->comes[i], (long long)check->takes[i]);
		say(lane, check, text);
		return MPI_ERR_COUNT;
	}
	return MPI_SUCCESS;
}
