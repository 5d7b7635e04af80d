/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/core_run.h"
#include "core/accel/core_proof.h"
#include "core/accel/core_say.h"
#include "core/agree/core_meet.h"
#include "core/choose/core_choice.h"
#include "core/choose/core_tuning.h"
#include "core/choose/core_wish.h"
#include "core/comm/core_board.h"
#include "core/core_mpi_check.h"
#include "core/core_mpi_comm.h"
#include "core/core_mpi_late.h"
#include "core/core_network.h"
#include "core/core_number.h"
#include "core/core_op.h"
#include "core/core_queue.h"
#include "core/core_real.h"
#include "core/job/core_drive.h"
#include "core/job/core_machines.h"
#include "core/job/core_mpi_drive.h"
#include "core/job/core_mpi_job.h"
#include "core/mpi/core_mpi.h"
#include "core/mpi/core_mpi_name.h"
#include "core/mpi/core_mpi_raise.h"
#include "core/report/core_dump.h"
#include "core/report/core_journal.h"
#include "core/report/core_stats.h"
#include "core/report/core_trace.h"
#include "core/request/core_requests.h"
#include "gpu/gpu_module.h"
#include "gpu/gpu_use.h"
#include "util/util_fdpass.h"
#include "util/util_hash.h"
#include "util/util_log.h"
#include "util/util_time.h"

/* The name of a communicator on which a call failed, whose error handler may have freed it. */
static const char *const unknown = "unknown";

static double now(void)
{
	return 1e-9 * (double)util_now();
}

void core_forget(void)
{
	core_drive_forget();
	core_awake = core_attentive = false;
}

static void warn_of_options(void)
{
	const char *text;

	for (int i = 0; (text = util_config_complaint(i)); i++)
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_INIT, "%s", text);
}

/*
 * Warnings are on by default, and a program that is well should print nothing more than without us.
 */
static void log_version(void)
{
	if (util_config.debug == UTIL_LOG_WARN)
		return;
	util_log(UTIL_LOG_VERSION, UTIL_SUBSYS_INIT,
		 "libgpucoll " GPUCOLL_VERSION_STRING ", %d ranks, %s", core_mpi_job.size,
		 core_mpi_job.any_driver ? "CUDA driver found" : "no CUDA driver: asleep");
}

/* The node's leader draws the number by which the node's processes find each other. */
static void start_fdpass(void)
{
	uint64_t job = 0;

	if (core_mpi_job.local_rank == 0)
		job = core_mpi_draw_id();
	if (core_mpi_node_bcast(&job, sizeof(job)) == UTIL_OK)
		util_fdpass_start(job, core_mpi_job.local_rank);
}

/*
 * What processes write on the board, and tell each other, are structures of one version: this
 * stands for them.
 */
static uint64_t hash_structures(void)
{
	const size_t sizes[] = {CORE_OFFER_MEANINGS,
				sizeof(struct core_offer),
				sizeof(struct core_summary),
				sizeof(struct core_block),
				sizeof(struct core_journal),
				core_area_bytes(CORE_MAX_NEAR, CORE_MAX_NEAR, CORE_MAX_NEAR, true)};
	uint64_t hash = util_hash_text(UTIL_HASH_START, GPUCOLL_VERSION_STRING);

	return util_hash(hash, sizes, sizeof(sizes));
}

/* All come to the same answer. Then each stages by itself. */
static bool is_one_version(void)
{
	if (core_mpi_job_same(hash_structures()))
		return true;
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_INIT,
		 "another process of the job has another version of the library than %s here, or "
		 "another build: all calls are staged. LD_PRELOAD, or the library's folder, "
		 "differs between hosts",
		 GPUCOLL_VERSION_STRING);
	core_mpi_stop();
	return false;
}

/* What is collective in them. */
static void agree_on_options(void)
{
	bool traces = util_config.trace != NULL;
	uint64_t mine = (uint64_t)(util_config.check & UTIL_CHECK_ARGS) << 1 | traces;

	/* Mostly one look at all processes is enough. */
	if (core_mpi_job_same(mine << 1 | util_config.reproducible))
		return;
	if (!core_mpi_job_same(util_config.reproducible))
		util_config.reproducible = true;
	if (core_mpi_job_same(mine))
		return;
	if (mine)
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_INIT,
			 "GPUCOLL_CHECK and GPUCOLL_TRACE differ between processes: none compares "
			 "arguments, nor writes a timeline");
	util_config.check &= ~(unsigned)UTIL_CHECK_ARGS;
	util_config.trace = NULL;
}

void core_start(void (*stop)(void))
{
	enum util_status status;

	util_config_load();
	core_mpi_at_finalize(stop);
	status = core_mpi_start(util_config.hostid, gpu_driver_installed() && !util_config.disable,
				gpu_use_may_come());
	util_log_set_rank(core_mpi_job.rank);
	if (core_mpi_job.rank == 0) {
		warn_of_options();
		log_version();
	}
	core_wish_read(core_mpi_job.rank == 0);
	core_dump_catch();
	if (status != UTIL_OK || !core_mpi_job.any_driver || !is_one_version())
		return;
	agree_on_options();
	core_board_start(core_area_bytes(core_mpi_job.local_size,
					 core_mpi_job.local_size < CORE_MAX_NEAR
						 ? core_mpi_job.local_size
						 : CORE_MAX_NEAR,
					 core_mpi_job.size < CORE_MAX_RANKS ? core_mpi_job.size
									    : CORE_MAX_RANKS,
					 core_mpi_job.num_nodes > 1),
			 sizeof(struct core_journal));
	core_journal_start();
	core_dump_start();
	core_trace_start();
	start_fdpass();
	core_machines_start();
	core_tuning_start();
	core_network_start();
	core_mpi_comm_start();
	core_queue_start();
	core_awake = core_attentive = true;
	core_mpi_comm_identify(core_mpi_world());
}

static void stop_gpu(void)
{
	gpu_module_finalize();
	gpu_ipc_finalize();
	gpu_scratch_finalize();
	gpu_staging_finalize();
	gpu_stream_finalize();
	gpu_context_finalize();
}

void core_stop(bool goes_on)
{
	if (core_awake)
		core_journal_finalize(core_mpi_comm_find(core_mpi_world()));
	core_dump_stop();
	core_check_finish();
	core_requests_finish();
	if (util_config.stats && core_mpi_job.rank == 0)
		core_stats_print();
	if (core_awake)
		core_trace_stop();
	if (goes_on) {
		core_network_stop(true);
		core_awake = false;
		return;
	}
	if (core_awake)
		core_queue_stop();
	if (gpu_driver_present())
		stop_gpu();
	core_mpi_free_halves();
	core_attentive = false;
	if (!core_awake)
		return;
	core_awake = false;
	core_network_stop(false);
	core_mpi_comm_stop();
	core_mpi_late_stop();
	core_mpi_forget_types();
	core_mpi_stop();
	core_proof_stop();
	core_machines_stop();
	core_tuning_stop();
	core_journal_stop();
	core_board_stop();
	util_fdpass_stop();
}

/* All ranks alike don't make the call (core_mpi_check.h). An error handler may free `comm`. */
static int refuse_call(const struct core_call *call, const struct core_note *note,
		       struct core_comm *comm, uint64_t number, int error)
{
	static const struct core_journal_end end = {.where = CORE_WHERE_FAILED,
						    .why = "GPUCOLL_CHECK"};

	core_meet_pass(comm, number);
	core_journal_end(note, &end);
	return core_check_raise(call->comm, error);
}

static int call_noted(const struct core_call *call, struct core_comm *comm, uint64_t number)
{
	struct core_note note = core_journal_begin(call, comm, number);
	struct core_journal_end end = {.path = CORE_PATH_PASS};
	int result = core_check_call(call, comm, &note);

	if (result)
		return refuse_call(call, &note, comm, number, result);
	core_note_where(&note, CORE_WHERE_REAL);
	result = core_real_call(call, comm);
	end.where = result ? CORE_WHERE_FAILED : CORE_WHERE_ENDED;
	core_journal_end(&note, &end);
	return result;
}

int core_run_host(const struct core_call *call)
{
	struct core_stats_call stats = {.coll = call->coll,
					.path = CORE_PATH_PASS,
					.why = "host buffers",
					.comm = call->comm};
	struct core_comm *comm;
	uint64_t number = 0;
	double start;
	int result;

	core_last_path = CORE_PATH_PASS;
	core_choice_forget();
	if (call->coll != CORE_REDUCE_LOCAL) {
		core_drive_yield();
		core_mpi_late_look(call->comm);
	}
	comm = core_number(call, &number);
	if (comm)
		core_meet_pass(comm, number);
	if (!util_config.stats)
		return call_noted(call, comm, number);
	stats.bytes = core_mpi_call_bytes(call);
	start = now();
	result = call_noted(call, comm, number);
	stats.comm_name = result ? unknown : NULL;
	stats.seconds = now() - start;
	core_stats_add(&stats);
	return result;
}

static void report_wait(const struct core_op *op, double since)
{
	char text[160], messages[160];

	if (op->comm && core_queue_holds(op->comm))
		core_queue_describe_first(op->comm, text, sizeof(text));
	else
		core_op_describe(op, text, sizeof(text));
	core_requests_describe(messages, sizeof(messages));
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
		 "%s has waited %.0f s for %s and goes on waiting%s", core_coll_name(op->call.coll),
		 now() - since, text, messages);
	core_journal_say(&op->note, text);
	core_dump("a call has waited long");
}

/* Calls on a communicator go one after the other. */
static enum util_status progress_op(struct core_op *op)
{
	return op->comm && core_queue_holds(op->comm) ? UTIL_IN_PROGRESS
						      : core_op_progress(op, CORE_OP_ALL);
}

/* Seconds without a look: a debugger, SIGSTOP, a laptop's lid. */
static const double STOPPED_S = 2;

/* Progress to the end, driving the real MPI in between: others may need our sends to arrive. */
static enum util_status wait_for_op(struct core_op *op, double start)
{
	bool reported = util_config.timeout == 0;
	struct core_wait wait = {0};
	double last = start, this;
	uint64_t moves = 0;
	enum util_status status;

	while ((status = progress_op(op)) == UTIL_IN_PROGRESS) {
		if (core_op_moves(op) != moves) {
			moves = core_op_moves(op);
			wait.start = 0;
		}
		core_mpi_drive(&wait);
		this = now();
		/* It was stopped, which is nobody else's delay. */
		if (this - last > STOPPED_S)
			start += this - last;
		last = this;
		if (!reported && this - start > (double)util_config.timeout) {
			report_wait(op, start);
			reported = true;
		}
	}
	return status;
}

static void count_op(const struct core_op *op, double seconds)
{
	struct core_stats_call stats = {.coll = op->call.coll,
					.path = op->path,
					.why = op->why,
					.comm = op->call.comm,
					.comm_name = op->mpi_result ? unknown : NULL,
					.bytes = op->bytes,
					.seconds = seconds};

	core_last_path = op->path;
	if (op->path == CORE_PATH_ACCEL && util_config.stats)
		core_stats_add_stages(op->accel.spent);
	if (op->path == CORE_PATH_PASS && !util_config.stats)
		return;
	if (op->path == CORE_PATH_PASS && !op->mpi_result)
		stats.bytes = core_mpi_call_bytes(&op->call);
	core_stats_add(&stats);
	util_log(UTIL_LOG_TRACE, UTIL_SUBSYS_CORE, "%s: %s, %llu bytes, %.1f us",
		 core_coll_name(op->call.coll), op->why, (unsigned long long)op->bytes,
		 1e6 * seconds);
}

/*
 * MPI's own words for it name neither the call nor the reason, but where the arguments are wrong.
 * Of calls that fail since somebody is lost the first one is enough.
 */
static void log_failure(const struct core_op *op, enum util_status status)
{
	struct core_comm *comm = op->comm;
	bool quiet =
		(comm && comm->warned) || status == UTIL_ERR_TRUNCATE || status == UTIL_ERR_REVOKED;
	char name[64];

	core_mpi_name(op->call.comm, name, sizeof(name));
	if (comm)
		util_log(quiet ? UTIL_LOG_INFO : UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
			 "%s failed, call %llu on communicator %s (%#llx) of %d ranks: %s",
			 core_coll_name(op->call.coll), (unsigned long long)op->number, name,
			 (unsigned long long)comm->id, comm->size, util_status_text(status));
	else
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE, "%s failed, on communicator %s: %s",
			 core_coll_name(op->call.coll), name, util_status_text(status));
	if (!quiet)
		core_dump("a call has failed");
	if (comm)
		comm->warned |= comm->lost;
}

int core_run(const struct core_call *call)
{
	enum util_status status;
	struct core_comm *comm;
	struct core_note note;
	struct core_op op;
	uint64_t number = 0;
	double start = now();
	int result;

	util_config_load(); /* a process with MPI sessions only has not been through core_start */
	if (call->coll != CORE_REDUCE_LOCAL)
		core_mpi_late_look(call->comm);
	comm = core_number(call, &number);
	note = core_journal_begin(call, comm, number);
	result = core_check_call(call, comm, &note);
	if (result)
		return refuse_call(call, &note, comm, number, result);
	core_op_start(&op, call, comm, number);
	core_op_note(&op, &note);
	core_op_look_still(&op);
	status = wait_for_op(&op, start);
	if (status == UTIL_OK && op.path == CORE_PATH_ACCEL)
		core_say_note_choice(&op.accel);
	else
		core_choice_forget();
	core_op_finish(&op);
	core_op_note_end(&op, status);
	count_op(&op, now() - start);
	if (status == UTIL_OK || status == UTIL_ERR_MPI)
		return op.mpi_result;
	log_failure(&op, status);
	if (comm && op.path != CORE_PATH_ACCEL) /* the others are in the real MPI */
		core_meet_retire(comm);
	return core_mpi_raise(call, status);
}
