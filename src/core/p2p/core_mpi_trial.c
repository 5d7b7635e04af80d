/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether messages on device memory are left to the real MPI. One that says that it is CUDA-aware
 * is believed after a message to oneself: what it was built with, and what it finds on this
 * machine, are two things.
 */
#include "core/p2p/core_mpi_trial.h"
#include "core/p2p/core_message.h"
#include "gpu/gpu_scratch.h"
#include "util/util_config.h"
#include "util/util_log.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>

bool core_mpi_claims_cuda;
_Thread_local bool core_message_passes;

/* An MPI that is not may touch the memory from the processor. */
static sigjmp_buf before_the_message;
static pthread_t tries;
static struct sigaction usual;

static void on_fault(int number)
{
	if (pthread_equal(pthread_self(), tries))
		siglongjmp(before_the_message, 1);
	sigaction(number, &usual, NULL); /* somebody else's, once more */
}

/* Send the first word to where the second one is. */
static bool try_message(uint64_t *words)
{
	struct sigaction ours = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};
	volatile int result = MPI_ERR_OTHER;

	tries = pthread_self();
	sigaction(SIGSEGV, &ours, &usual);
	core_message_passes = true; /* this one is not to be staged */
	if (!sigsetjmp(before_the_message, 1))
		result = PMPI_Sendrecv(words, 1, MPI_UINT64_T, 0, 0, words + 1, 1, MPI_UINT64_T, 0,
				       0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
	core_message_passes = false;
	sigaction(SIGSEGV, &usual, NULL);
	return result == MPI_SUCCESS;
}

static enum util_status copy_on(struct gpu_stream *stream, void *to, const void *from, size_t bytes)
{
	enum util_status status = gpu_stream_copy(stream, to, from, bytes);

	if (status != UTIL_OK)
		return status;
	while ((status = gpu_stream_poll(stream)) == UTIL_IN_PROGRESS)
		;
	return status;
}

static bool try_on_device(const struct gpu_pointer *where)
{
	uint64_t words[] = {UINT64_C(0x6770756c6c6f6321), 0};
	struct gpu_scratch *scratch;
	struct gpu_stream *stream;
	void *device;
	bool well;

	if (gpu_stream_get(where, &stream) != UTIL_OK)
		return false;
	well = gpu_scratch_get(sizeof(words), stream, &scratch) == UTIL_OK;
	if (well) {
		device = (void *)scratch->address;
		well = copy_on(stream, device, words, sizeof(words)) == UTIL_OK &&
		       try_message(device) &&
		       copy_on(stream, words, device, sizeof(words)) == UTIL_OK &&
		       words[0] == words[1];
		gpu_scratch_put(scratch);
	}
	gpu_stream_put(stream);
	return well;
}

/* Of other kinds of memory (managed, host VMM) nothing is believed. */
static bool believe(const struct gpu_pointer *where, bool claims)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static enum { UNKNOWN, YES, NO } known;
	bool well;

	if (!claims || where->memory != GPU_MEMORY_DEVICE)
		return false;
	pthread_mutex_lock(&lock);
	if (known == UNKNOWN) {
		known = try_on_device(where) ? YES : NO;
		if (known == NO)
			util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
				 "this MPI says that it is CUDA-aware, but a message to oneself "
				 "from device memory fails: messages are staged");
	}
	well = known == YES;
	pthread_mutex_unlock(&lock);
	return well;
}

bool core_mpi_leaves_messages(const struct gpu_pointer *where)
{
	switch (util_config.p2p) {
	case UTIL_MESSAGES_STAGE:
		return false;
	case UTIL_MESSAGES_MPI:
		return true;
	default:
		return believe(where, core_mpi_claims_cuda);
	}
}
