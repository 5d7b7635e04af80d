/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs ask whether the MPI takes device memory, and stage it themselves or refuse to run
 * otherwise. Where the library is at work the answer is yes, alike on all ranks: their halos and
 * collectives need not go the same way on two of them.
 */
#include "core/call/core_flags.h"
#include "core/job/core_mpi_job.h"
#include "pmpi/pmpi_call.h"
#include "util/util_config.h"

#include <dlfcn.h>
#include <pthread.h>

static int (*next_query)(void);
static int (*next_gpu_query)(int, int *);

static void find_next(void)
{
	*(void **)&next_query = dlsym(RTLD_NEXT, "MPIX_Query_cuda_support");
	*(void **)&next_gpu_query = dlsym(RTLD_NEXT, "MPIX_GPU_query_support");
}

static void find_next_once(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, find_next);
}

/* MPICH's one function asks the other, which is ours: under the guard that is handed on. */
bool pmpi_mpi_is_cuda_aware(void)
{
	bool aware;

	find_next_once();
	pmpi_enter(PMPI_DOOR_MPI);
	aware = next_query && next_query();
	pmpi_leave();
	return aware;
}

/* Before MPI_Init, as far as this process can tell. */
static bool is_at_work(void)
{
	int initialized = 0;

	if (__atomic_load_n(&pmpi_off, __ATOMIC_RELAXED) || util_config.p2p == UTIL_MESSAGES_MPI ||
	    util_config.query == UTIL_QUERY_MPI)
		return false;
	PMPI_Initialized(&initialized);
	if (initialized)
		return core_awake && core_mpi_job.all_drivers;
	return gpu_driver_installed() && !util_config.disable;
}

int MPIX_Query_cuda_support(void)
{
	util_config_load();
	return (!pmpi_is_inside() && is_at_work()) || pmpi_mpi_is_cuda_aware();
}

int PMPIX_Query_cuda_support(void)
{
	return MPIX_Query_cuda_support();
}

#ifdef MPIX_GPU_SUPPORT_CUDA
int MPIX_GPU_query_support(int gpu_type, int *is_supported)
{
	int result = MPI_SUCCESS;

	util_config_load();
	find_next_once();
	*is_supported = gpu_type == MPIX_GPU_SUPPORT_CUDA && !pmpi_is_inside() && is_at_work();
	if (!*is_supported && next_gpu_query) {
		pmpi_enter(PMPI_DOOR_MPI);
		result = next_gpu_query(gpu_type, is_supported);
		pmpi_leave();
	}
	return result;
}

int PMPIX_GPU_query_support(int gpu_type, int *is_supported)
{
	return MPIX_GPU_query_support(gpu_type, is_supported);
}
#endif
