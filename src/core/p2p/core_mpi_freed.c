/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests that were freed while they were under way: kept, and tested now and then, until they are
 * done.
 */
#include "core/mpi/core_mpi_raise.h"
#include "core/p2p/core_mpi_request.h"
#include "core/p2p/core_mpi_table.h"
#include "util/util_time.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct core_mpi_message *freed; /* under the lock */

static void finish_freed(struct core_mpi_message *message, const MPI_Status *status)
{
	if (core_mpi_message_unpack(message, status) != UTIL_OK)
		core_mpi_raise_on(core_mpi_world(), UTIL_ERR_CUDA);
	if (message->request != MPI_REQUEST_NULL)
		PMPI_Request_free(&message->request);
	core_mpi_table_forget(message);
}

void core_requests_look(void)
{
	struct core_mpi_message *all, *message, *rest = NULL;
	MPI_Status status;
	int done;

	if (!__atomic_load_n(&freed, __ATOMIC_RELAXED))
		return;
	pthread_mutex_lock(&lock);
	all = freed;
	freed = NULL;
	pthread_mutex_unlock(&lock);
	while ((message = all)) {
		all = message->next;
		done = 0;
		if (PMPI_Test(&message->request, &done, &status) == MPI_SUCCESS && done) {
			finish_freed(message, &status);
			continue;
		}
		message->next = rest;
		rest = message;
	}
	pthread_mutex_lock(&lock);
	while ((message = rest)) {
		rest = message->next;
		message->next = freed;
		freed = message;
	}
	pthread_mutex_unlock(&lock);
}

/*
 * Who frees a receive must see to it that something comes; what does not come is not waited for
 * without end.
 */
void core_requests_finish(void)
{
	static const uint64_t patience = UTIL_SECONDS(2); /* ns */
	uint64_t since = util_now();

	while (freed && util_now() - since < patience)
		core_requests_look();
}

int core_request_Request_free(int (*next)(MPI_Request *), MPI_Request *request)
{
	struct core_mpi_message *message = core_mpi_table_take(*request);
	int result;

	core_requests_look();
	if (!message)
		return next(request);
	if (message->persistent && !message->active) {
		result = next(request);
		core_mpi_table_forget(message);
		return result;
	}
	core_mpi_table_drop_taken(message);
	pthread_mutex_lock(&lock);
	message->next = freed;
	freed = message;
	pthread_mutex_unlock(&lock);
	*request = MPI_REQUEST_NULL;
	return MPI_SUCCESS;
}
