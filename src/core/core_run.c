/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_run.h"
#include "core/core_comm.h"
#include "core/core_op.h"
#include "gpu/gpu_module.h"
#include "util/util_log.h"

#include <time.h>

_Thread_local enum core_path core_last_path;

static bool awake;

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

bool core_is_awake(void)
{
	return awake;
}

/* Warnings are on by default, and a program that is well should print nothing more than without us.
 */
static void log_version(void)
{
	if (util_config.debug == UTIL_LOG_WARN)
		return;
	util_log(UTIL_LOG_VERSION, UTIL_SUBSYS_INIT,
		 "libgpucoll " GPUCOLL_VERSION_STRING ", %d ranks, %s", core_mpi_job.size,
		 core_mpi_job.any_driver ? "CUDA driver found" : "no CUDA driver: asleep");
}

void core_start(void (*stop)(void))
{
	enum util_status status;

	util_config_load();
	core_mpi_at_finalize(stop);
	status = core_mpi_start(util_config.hostid, gpu_driver_installed() && !util_config.disable);
	util_log_set_rank(core_mpi_job.rank);
	if (core_mpi_job.rank == 0) {
		util_config_warn();
		log_version();
	}
	if (status != UTIL_OK || !core_mpi_job.any_driver)
		return;
	core_board_start();
	awake = true;
	core_mpi_comm_identify(core_mpi_world());
}

void core_stop(void)
{
	if (util_config.stats && core_mpi_job.rank == 0)
		core_stats_print();
	if (gpu_driver_present()) {
		gpu_module_finalize();
		gpu_staging_finalize();
		gpu_context_finalize();
	}
	if (!awake)
		return;
	awake = false;
	core_mpi_stop();
	core_board_stop();
}

/* Tell the node that this process is past the call: it is not waited for by anybody. */
static void publish(const struct core_call *call)
{
	struct core_comm *comm;

	if (!core_board_is_up() || call->coll == CORE_REDUCE_LOCAL)
		return;
	comm = core_mpi_comm_find(call->comm);
	if (comm)
		core_comm_pass(comm);
}

int core_run_host(const struct core_call *call)
{
	double start;
	int result;

	core_last_path = CORE_PATH_PASS;
	publish(call);
	if (!util_config.stats)
		return call->real(call);
	start = now();
	result = call->real(call);
	core_stats_add(call->coll, CORE_PATH_PASS, core_mpi_call_bytes(call), now() - start);
	return result;
}

static void report_wait(const struct core_op *op, double since)
{
	static const char *const states[] = {
		[CORE_OP_READY] = "earlier work on the buffers to finish",
		[CORE_OP_COPY_IN] = "the copy from the device",
		[CORE_OP_CALL] = "the real MPI",
		[CORE_OP_COPY_OUT] = "the copy to the device",
		[CORE_OP_DONE] = "nothing",
	};

	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE, "%s has waited %.0f s for %s and goes on waiting",
		 core_coll_name(op->call.coll), now() - since, states[op->state]);
}

/* Progress to the end, driving the real MPI in between: others may need our sends to arrive. */
static enum util_status wait_for(struct core_op *op)
{
	double start = now();
	bool reported = util_config.timeout == 0;
	enum util_status status;

	while ((status = core_op_progress(op)) == UTIL_IN_PROGRESS) {
		core_mpi_drive();
		if (!reported && now() - start > (double)util_config.timeout) {
			report_wait(op, start);
			reported = true;
		}
	}
	return status;
}

static size_t op_bytes(const struct core_op *op)
{
	size_t bytes = 0;

	for (size_t i = 0; i < op->num_operands; i++)
		bytes += op->stage_of[i] ? core_operand_bytes(&op->operands[i]) : 0;
	return bytes;
}

/* A staged call, or one that turned out to move no device data. Returns MPI's error code. */
static int run_started(struct core_op *op, const struct core_call *call)
{
	double start = now();
	enum util_status status;

	if (!core_op_is_staged(op))
		return core_run_host(call);
	core_last_path = CORE_PATH_STAGE;
	publish(call);
	status = wait_for(op);
	core_stats_add(call->coll, CORE_PATH_STAGE, op_bytes(op), now() - start);
	util_log(UTIL_LOG_TRACE, UTIL_SUBSYS_CORE, "%s staged, %zu bytes, %.1f us",
		 core_coll_name(call->coll), op_bytes(op), 1e6 * (now() - start));
	if (status == UTIL_OK || status == UTIL_ERR_MPI)
		return op->mpi_result;
	return core_mpi_raise(call, status);
}

int core_run(const struct core_call *call)
{
	struct core_op op;
	enum util_status status;
	int result;

	if (!gpu_driver_present())
		return core_run_host(call);
	util_config_load(); /* a process with MPI sessions only has not been through core_start */
	status = core_op_start(&op, call);
	if (status == UTIL_ERR_MPI) /* a datatype that MPI refuses: it knows the right error */
		result = core_run_host(call);
	else
		result = status == UTIL_OK ? run_started(&op, call) : core_mpi_raise(call, status);
	core_op_finish(&op);
	return result;
}
