/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/job/core_machines.h"
#include "core/job/core_mpi_job.h"
#include "gpu/gpu_context.h"
#include "topo/topo_hwloc.h"
#include "topo/topo_nvml.h"
#include "topo/topo_path.h"
#include "util/util_config.h"
#include "util/util_hash.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct topo_machine **machines; /* by node of the job */
static int reach;                      /* see core_machines_reach */

/* ---- this node ---- */

/* What others' probing took, ms. */
struct spent {
	double hwloc, nvml;
};

static double ms_since(uint64_t start)
{
	return 1e-6 * (double)(util_now() - start);
}

static struct topo_machine *look_at_machine(struct spent *spent)
{
	enum { MOST_GPUS = 64 };
	struct topo_gpu gpus[MOST_GPUS];
	uint64_t start = util_now();
	/* It starts GPUs that are not kept started, which may take seconds. */
	bool nvml = core_mpi_node_may_use(core_mpi_job.node) && topo_nvml_open();
	int num = nvml ? topo_nvml_list(gpus, MOST_GPUS) : -1;
	struct topo_machine *machine;

	spent->nvml = ms_since(start);
	start = util_now();
	machine = topo_hwloc_find(gpus, num);
	spent->hwloc = ms_since(start);
	start = util_now();
	if (nvml && machine)
		topo_nvml_add_links(machine);
	if (nvml)
		topo_nvml_close();
	spent->nvml += ms_since(start);
	return machine;
}

/* NULL: it can't be had, which has been logged. */
static struct topo_machine *read_machine_file(const char *name)
{
	struct topo_machine *machine = NULL;
	FILE *file = fopen(name, "r");
	char error[256];

	if (file) {
		machine = topo_machine_read(file, name, error, sizeof(error));
		fclose(file);
	} else {
		snprintf(error, sizeof(error), "%s: %s", name, strerror(errno));
	}
	if (!machine)
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_INIT, "GPUCOLL_TOPO_FILE is ignored: %s",
			 error);
	else if (!machine->source)
		machine->source = strdup("GPUCOLL_TOPO_FILE");
	return machine;
}

/*
 * The text of the machine that this process is on; NULL: there is none, or nobody would ask. The
 * caller frees it.
 */
static char *describe_machine(struct spent *spent)
{
	struct topo_machine *machine;
	char *text = NULL;
	size_t bytes;
	FILE *out;

	if (!util_config.accel || core_mpi_job.size == 1)
		return NULL;
	machine = util_config.topo_file ? read_machine_file(util_config.topo_file) : NULL;
	if (!machine)
		machine = look_at_machine(spent);
	out = machine ? open_memstream(&text, &bytes) : NULL;
	if (out) {
		topo_machine_write(machine, out);
		fclose(out);
	}
	topo_machine_free(machine);
	return text;
}

/* ---- all nodes ---- */

static struct topo_machine *parse(const char *text, int bytes)
{
	FILE *in = bytes ? fmemopen((void *)(uintptr_t)text, (size_t)bytes, "r") : NULL;
	struct topo_machine *machine = NULL;
	char error[256];

	if (!in)
		return NULL;
	machine = topo_machine_read(in, "a node's machine", error, sizeof(error));
	fclose(in);
	if (!machine)
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_INIT, "%s", error);
	return machine;
}

/* The first node that has the same text as the node. */
static int first_like(const uint64_t *hashes, int node)
{
	int first = 0;

	while (hashes[first] != hashes[node])
		first++;
	return first;
}

/*
 * Texts come in order of processes. Nodes of one text, such as those of a cluster mostly are, share
 * a machine.
 */
static void parse_all(const uint64_t *hashes, const char *texts, const int *sizes)
{
	int at = 0;

	for (int node = 0; node < core_mpi_job.num_nodes; node++) {
		int leader = core_mpi_node_leader(node), first = first_like(hashes, node);

		for (; at < leader; at++)
			texts += sizes[at];
		machines[node] = first < node ? machines[first] : parse(texts, sizes[leader]);
	}
}

/* Of one text only the first node's goes round: `mine` is NULL but in its leader. */
static void exchange_machines(const uint64_t *hashes, const char *mine)
{
	int *sizes = NULL;
	void *texts = NULL;

	if (mine && first_like(hashes, core_mpi_job.node) != core_mpi_job.node)
		mine = NULL;
	if (core_mpi_job_gather(mine, mine ? (int)strlen(mine) : 0, &texts, &sizes) == UTIL_OK &&
	    machines)
		parse_all(hashes, texts, sizes);
	free(texts);
	free(sizes);
}

/* Whether a node before it has the same machine. */
static bool is_shared(int node)
{
	for (int i = 0; machines[node] && i < node; i++) {
		if (machines[i] == machines[node])
			return true;
	}
	return false;
}

/* Of what this process has understood; 0: it had no memory. */
static uint64_t hash_machines(void)
{
	uint64_t hash = UTIL_HASH_START;
	size_t bytes;
	char *text;
	FILE *out;

	for (int node = 0; machines && node < core_mpi_job.num_nodes; node++) {
		if (is_shared(node))
			continue;
		text = NULL;
		out = machines[node] ? open_memstream(&text, &bytes) : NULL;
		if (out) {
			topo_machine_write(machines[node], out);
			fclose(out);
		}
		hash = util_hash_text(hash, text ? text : ".");
		free(text);
	}
	return machines ? hash : 0;
}

enum { ASKED = 16 }; /* beside a class */

static void find_reach(void)
{
	const struct topo_machine *machine = core_machines_of(core_mpi_job.node);

	reach = machine ? (int)topo_path_usual_reach(machine) : TOPO_SYS;
	if (util_config.p2p_level != UTIL_P2P_AUTO)
		reach = ASKED | (TOPO_LOC + (util_config.p2p_level - UTIL_P2P_LOC));
}

void core_machines_start(void)
{
	uint64_t start = util_now(), hash;
	struct spent spent = {0};
	bool leads = core_mpi_job.local_rank == 0;
	char *mine = leads ? describe_machine(&spent) : NULL;
	void *hashes = NULL;
	int *sizes = NULL;

	machines = calloc((size_t)core_mpi_job.num_nodes, sizeof(struct topo_machine *));
	hash = util_hash_text(UTIL_HASH_START, mine ? mine : "");
	/* Leaders come in the order of their nodes. */
	if (core_mpi_job_gather(&hash, leads ? (int)sizeof(hash) : 0, &hashes, &sizes) == UTIL_OK)
		exchange_machines(hashes, mine);
	/* Who sees another picture would choose otherwise, and the others wait for it. */
	if (!core_mpi_job_same(hash_machines()))
		core_machines_stop();
	find_reach();
	free(mine);
	free(hashes);
	free(sizes);
	if (core_mpi_job.rank == 0)
		util_log(UTIL_LOG_INFO, UTIL_SUBSYS_INIT,
			 "the picture of %d nodes: %.1f ms, besides %.1f ms of hwloc and %.1f ms "
			 "of NVML",
			 core_mpi_job.num_nodes, ms_since(start) - spent.hwloc - spent.nvml,
			 spent.hwloc, spent.nvml);
}

void core_machines_stop(void)
{
	for (int i = core_mpi_job.num_nodes - 1; machines && i >= 0; i--) {
		if (!is_shared(i))
			topo_machine_free(machines[i]);
	}
	free(machines);
	machines = NULL;
}

const struct topo_machine *core_machines_of(int node)
{
	return machines ? machines[node] : NULL;
}

int core_machines_gpu(const struct topo_machine *machine, uint64_t identity)
{
	for (int i = 0, gpu; (gpu = topo_machine_nth(machine, TOPO_GPU, i)) >= 0; i++) {
		if (gpu_identity_of(machine->objects[gpu].bus) == identity)
			return gpu;
	}
	return -1;
}

int core_machines_reach(void)
{
	return reach;
}

int core_machines_least_reach(int a, int b)
{
	int asked = (a | b) & ASKED;

	a &= ~ASKED;
	b &= ~ASKED;
	return asked | (a < b ? a : b);
}

bool core_machines_may_reach(uint64_t a, uint64_t b, int limit)
{
	const struct topo_machine *machine = core_machines_of(core_mpi_job.node);
	int gpu_a = machine ? core_machines_gpu(machine, a) : -1;
	int gpu_b = machine ? core_machines_gpu(machine, b) : -1;

	bool asked = limit & ASKED;
	enum topo_class most = (enum topo_class)(limit & ~ASKED);

	if (gpu_a < 0 || gpu_b < 0 || gpu_a == gpu_b)
		return !asked || most >= TOPO_SYS;
	return topo_path_may_reach(machine, gpu_a, gpu_b, most, asked);
}
