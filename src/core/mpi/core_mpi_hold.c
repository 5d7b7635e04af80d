/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/mpi/core_mpi_hold.h"
#include "core/call/core_mpi_handle.h"

#include <pthread.h>
#include <stdlib.h>

/* What the program has freed while it was held. */
struct put_off {
	struct put_off *next;
	core_handle handle;
	bool op; /* else a datatype */
};

bool core_mpi_holds;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct core_mpi_hold *holds; /* under the lock, as what follows */
static struct put_off *put_offs;

void core_mpi_hold_keep(struct core_mpi_hold *hold, core_handle type, core_handle op)
{
	pthread_mutex_lock(&lock);
	hold->type = type;
	hold->op = op;
	hold->next = holds;
	holds = hold;
	__atomic_store_n(&core_mpi_holds, true, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&lock);
}

/* Under the lock. */
static bool is_held(core_handle handle, bool op)
{
	const struct core_mpi_hold *hold = holds;

	while (hold && (op ? hold->op : hold->type) != handle)
		hold = hold->next;
	return hold;
}

/* Under the lock: one that was put off and that nobody holds any more. NULL: there is none. */
static struct put_off *take_free(void)
{
	struct put_off **link = &put_offs, *found;

	while ((found = *link) && is_held(found->handle, found->op))
		link = &found->next;
	if (found)
		*link = found->next;
	return found;
}

static void free_put_off(struct put_off *found)
{
	MPI_Datatype type = core_mpi_as_type(found->handle);
	MPI_Op op = (MPI_Op)found->handle;

	if (found->op)
		PMPI_Op_free(&op);
	else
		PMPI_Type_free(&type);
	free(found);
}

void core_mpi_hold_release(struct core_mpi_hold *hold)
{
	struct core_mpi_hold **link = &holds;
	struct put_off *found;

	if (!hold->type)
		return;
	pthread_mutex_lock(&lock);
	while (*link != hold)
		link = &(*link)->next;
	*link = hold->next;
	hold->type = 0;
	while ((found = take_free())) {
		pthread_mutex_unlock(&lock);
		free_put_off(found);
		pthread_mutex_lock(&lock);
	}
	__atomic_store_n(&core_mpi_holds, holds != NULL, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&lock);
}

static bool put_off(core_handle handle, bool op)
{
	struct put_off *one = malloc(sizeof(*one));
	bool held;

	pthread_mutex_lock(&lock);
	held = one && is_held(handle, op);
	if (held) {
		*one = (struct put_off){put_offs, handle, op};
		put_offs = one;
	}
	pthread_mutex_unlock(&lock);
	if (!held)
		free(one);
	return held;
}

bool core_mpi_hold_put_off_op(core_handle op)
{
	return put_off(op, true);
}

bool core_mpi_hold_put_off_type(core_handle type)
{
	return put_off(type, false);
}
