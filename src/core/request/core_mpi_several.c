/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/request/core_mpi_several.h"
#include "core/mpi/core_mpi_raise.h"
#include "core/request/core_mpi_table.h"
#include "core/request/core_requests.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_COPIES = 8 };

void core_mpi_several_close(struct core_mpi_several *all)
{
	if (all->ours != all->few)
		free(all->ours);
	if (all->statuses != all->few_statuses)
		free(all->statuses);
}

static bool add_ours(struct core_mpi_several *all, int index, struct core_mpi_pending *pending)
{
	struct core_mpi_ours *larger;

	if (all->num == CORE_MPI_FEW) {
		larger = malloc((size_t)all->count * sizeof(*larger));
		if (!larger)
			return false;
		memcpy(larger, all->few, sizeof(all->few));
		all->ours = larger;
	}
	all->ours[all->num++] = (struct core_mpi_ours){index, pending, false, UTIL_OK};
	return true;
}

void core_mpi_several_look(struct core_mpi_several *all)
{
	if (all->taken_over == core_mpi_table_taken_over)
		return;
	for (int k = 0; k < all->num; k++) {
		if (all->ours[k].pending && !core_mpi_table_has_taken(all->ours[k].pending))
			all->ours[k] = all->ours[--all->num], k--;
	}
	all->taken_over = core_mpi_table_taken_over;
}

void core_mpi_several_put_back(struct core_mpi_several *all)
{
	core_mpi_several_look(all);
	for (int k = all->num - 1; k >= 0; k--) { /* the last one taken first */
		if (all->ours[k].pending)
			core_mpi_table_put_back(all->ours[k].pending);
	}
	core_mpi_several_close(all);
}

bool core_mpi_several_take(struct core_mpi_several *all, int count, const MPI_Request requests[],
			   MPI_Status **statuses)
{
	bool inside = core_mpi_table_is_inside(), well = true;
	struct core_mpi_pending *pending = NULL;

	core_requests_look();
	all->count = count;
	all->num = 0;
	all->ours = all->few;
	all->statuses = all->few_statuses;
	for (int i = 0; well && (pending = core_mpi_table_take_next(requests, count, &i, inside));
	     i++)
		well = add_ours(all, i, pending);
	if (!well)
		core_mpi_table_put_back(pending);
	all->taken_over = core_mpi_table_taken_over;
	if (well && all->num && statuses && *statuses == MPI_STATUSES_IGNORE) {
		if (count > CORE_MPI_FEW)
			all->statuses = malloc((size_t)count * sizeof(MPI_Status));
		*statuses = all->statuses;
		well = all->statuses != NULL;
	}
	if (!well)
		core_mpi_several_put_back(all);
	return well;
}

/* Have what has come copied, some at a time. */
static void settle_several(struct core_mpi_several *all)
{
	for (int first = 0, last; first < all->num; first = last) {
		last = first + MOST_COPIES < all->num ? first + MOST_COPIES : all->num;
		for (int k = first; k < last; k++) {
			if (all->ours[k].settles)
				core_mpi_pending_progress(all->ours[k].pending);
		}
		for (int k = first; k < last; k++) {
			if (all->ours[k].settles)
				all->ours[k].copied =
					core_mpi_pending_settle_end(all->ours[k].pending);
		}
	}
}

/*
 * Which of the `num` requests that are complete have failed, in their statuses, as MPI has it of
 * calls on several. `quiet`: none of them wants a handler to be called. Returns MPI's result.
 */
static int tell_failures(const struct core_mpi_several *all, MPI_Status *statuses, int num,
			 const int *status_of, int result)
{
	bool failed = false, quiet = true;

	for (int k = 0; k < all->num; k++) {
		int at = status_of ? status_of[k] : all->ours[k].index;

		if (!all->ours[k].settles || all->ours[k].copied == UTIL_OK)
			continue;
		for (int i = 0; !failed && result == MPI_SUCCESS && i < num; i++)
			statuses[i].MPI_ERROR = MPI_SUCCESS;
		statuses[at].MPI_ERROR = core_mpi_error_of(all->ours[k].copied);
		failed = true;
		quiet &= all->ours[k].pending->quiet;
	}
	if (!failed || result != MPI_SUCCESS)
		return result;
	return quiet ? MPI_ERR_IN_STATUS
		     : core_mpi_raise_error(core_mpi_world(), MPI_ERR_IN_STATUS);
}

/* Whether a request is complete after a call on several, and well. */
static bool has_ended(int result, const MPI_Status *status, bool *well)
{
	int error = result == MPI_ERR_IN_STATUS ? status->MPI_ERROR : result;

	*well = error == MPI_SUCCESS;
	return *well || (result == MPI_ERR_IN_STATUS && !core_mpi_leaves_pending(error));
}

int core_mpi_several_complete(struct core_mpi_several *all, MPI_Request requests[],
			      MPI_Status *statuses, int num, const int *status_of, int result)
{
	int told;
	bool well;

	core_mpi_several_look(all);
	for (int k = 0; k < all->num; k++) {
		int at = status_of ? status_of[k] : all->ours[k].index;

		all->ours[k].settles = at >= 0 && has_ended(result, &statuses[at], &well) && well;
		if (all->ours[k].settles)
			core_mpi_pending_settle_begin(all->ours[k].pending, &statuses[at]);
	}
	settle_several(all);
	told = tell_failures(all, statuses, num, status_of, result);
	for (int k = all->num - 1; k >= 0; k--) {
		int at = status_of ? status_of[k] : all->ours[k].index;

		if (at < 0 || !has_ended(result, &statuses[at], &well))
			continue;
		core_mpi_table_end(all->ours[k].pending, &requests[all->ours[k].index]);
		all->ours[k].pending = NULL;
	}
	core_mpi_several_put_back(all);
	return told;
}

/* The others go back before the one is settled, which takes time. */
int core_mpi_several_complete_any(struct core_mpi_several *all, MPI_Request requests[], int index,
				  int result, const MPI_Status *status)
{
	struct core_mpi_pending *pending = NULL;

	core_mpi_several_look(all);
	for (int k = 0; k < all->num && !pending; k++) {
		if (all->ours[k].index != index)
			continue;
		pending = all->ours[k].pending;
		all->ours[k].pending = NULL;
	}
	core_mpi_several_put_back(all);
	return pending ? core_mpi_table_complete(pending, &requests[index], result, status)
		       : result;
}

int core_mpi_several_complete_some(struct core_mpi_several *all, MPI_Request requests[],
				   int outcount, const int indices[], MPI_Status *statuses,
				   int result)
{
	int few[CORE_MPI_FEW],
		*status_of = all->num > CORE_MPI_FEW ? malloc((size_t)all->num * sizeof(int)) : few;
	bool well = status_of != NULL;

	core_mpi_several_look(all);
	if (outcount == MPI_UNDEFINED || (result != MPI_SUCCESS && result != MPI_ERR_IN_STATUS))
		outcount = 0;
	/* Both go up in most MPIs, so that one walk is enough. */
	for (int k = 0, n = 0; well && k < all->num; k++) {
		status_of[k] = -1;
		for (int tried = 0; tried < outcount && status_of[k] < 0; tried++) {
			n = n + 1 < outcount ? n + 1 : 0;
			if (indices[n] == all->ours[k].index)
				status_of[k] = n;
		}
	}
	if (well)
		result = core_mpi_several_complete(all, requests, statuses, outcount, status_of,
						   result);
	else
		result = core_mpi_raise_on(core_mpi_world(), UTIL_ERR_NO_MEMORY);
	if (status_of != few)
		free(status_of);
	return result;
}
