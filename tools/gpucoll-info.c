/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpucoll-info: the library's version, its options, the devices that it would see, the machine, its
 * schedules.
 */
#include "doctor.h"
#include "info-choice.h"
#include "info-desync.h"
#include "info-machine.h"
#include "info-schedule.h"
#include "gpu/gpu_driver.h"
#include "util/util_config.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void usage(FILE *out)
{
	fputs("usage: gpucoll-info [-v] [-c] [-d] [-t] [--doctor [--json]] [--machine FILE] [-p "
	      "COLLECTIVE [schedule options]]\n"
	      "  -v, --version   version and build (default)\n"
	      "  -c, --config    every option with its value, where that comes from, and what it "
	      "does\n"
	      "  -d, --devices   the CUDA devices as the library sees them\n"
	      "  --doctor        what this machine does, what the library will do because of it, "
	      "and remedies:\n"
	      "                  for a new machine, and for reports of errors; under a launcher "
	      "the ranks of\n"
	      "                  a node try each other; --json: for programs\n"
	      "  --desync FILES  which rank a job waits for, from the files that it has written "
	      "(GPUCOLL_DUMP)\n"
	      "  -t, --topology  the machine as the library sees it: PCI, GPUs, NICs, and paths "
	      "between them\n"
	      "  --machine FILE  the same, or -p, of a machine that was recorded: -t writes such "
	      "files\n"
	      "  -p, --plan COLLECTIVE   what the library chooses for each size, and how long it "
	      "thinks that\n"
	      "                          takes; with -s all algorithms and their costs, with "
	      "--algo the schedule\n"
	      "                          of one\n"
	      "      -n, --ranks N       of so many ranks (default 4)\n"
	      "      --nodes N,N...      of so many ranks on each of several nodes, instead\n"
	      "      -s, --size BYTES    a buffer, or a block for each rank, of that size; K, M, G "
	      "may follow (with --algo 1M)\n"
	      "      --algo NAME, --proto simple|ll|ll128, --channels N, --root RANK, --in-place\n"
	      "      --ordered           sums in the order of ranks, as with GPUCOLL_REPRODUCIBLE\n"
	      "      --exec fused|stepped|gdr   kernels wait for messages; hosts do; hosts do, and "
	      "the\n"
	      "                          network reaches device memory\n"
	      "      --sockets           nodes are connected by TCP alone\n"
	      "      --dot, --svg        with --algo: a graph for Graphviz, a picture; --svg "
	      "without -p: the machine\n"
	      "  -h, --help      this text\n",
	      out);
}

static void print_version(void)
{
	printf("libgpucoll %s\nbuilt with CUDA %d.%d headers, %s\n", GPUCOLL_VERSION_STRING,
	       CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10, __VERSION__);
}

static int check(CUresult result, const char *call)
{
	if (result != CUDA_SUCCESS)
		gpu_driver_error(result, call);
	return result == CUDA_SUCCESS;
}

static void print_device(int ordinal)
{
	char name[256] = "?", bus[32] = "?";
	int major = 0, minor = 0, sms = 0, copies = 0;
	size_t bytes = 0;
	CUdevice device;

	if (!check(gpu_driver.cuDeviceGet(&device, ordinal), "cuDeviceGet"))
		return;
	gpu_driver.cuDeviceGetName(name, sizeof(name), device);
	gpu_driver.cuDeviceGetPCIBusId(bus, sizeof(bus), device);
	gpu_driver.cuDeviceTotalMem(&bytes, device);
	gpu_driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
					device);
	gpu_driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
					device);
	gpu_driver.cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
	gpu_driver.cuDeviceGetAttribute(&copies, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, device);
	printf("device %d: %s, PCI %s, compute capability %d.%d, %d multiprocessors, %d copy "
	       "engines, %.1f GiB\n",
	       ordinal, name, bus, major, minor, sms, copies, (double)bytes / (1 << 30));
}

static int print_devices(void)
{
	int version = 0, count = 0;

	if (!gpu_driver_load()) {
		printf("no CUDA driver: libcuda.so.1 is not on the loader's path\n");
		return 1;
	}
	gpu_driver.cuDriverGetVersion(&version);
	printf("CUDA driver for CUDA %d.%d\n", version / 1000, version % 1000 / 10);
	if (!check(gpu_driver.cuInit(0), "cuInit") ||
	    !check(gpu_driver.cuDeviceGetCount(&count), "cuDeviceGetCount"))
		return 1;
	for (int i = 0; i < count; i++)
		print_device(i);
	return 0;
}

/* ---- options ---- */

struct plan {
	struct info_call call;
	const char *algo;
	enum info_form form;
	bool given, has_coll, has_size;
};

/*
 * A whole number from `least` to `most`, with a unit where there may be one. Ends the program where
 * it is none.
 */
static uint64_t number(const char *option, const char *text, uint64_t least, uint64_t most,
		       bool unit)
{
	static const char units[] = "KMG";
	const char *found;
	char *end;
	uint64_t value;
	unsigned shift = 0;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (unit && *end && (found = strchr(units, *end))) {
		shift = 10 * (unsigned)(found - units + 1);
		end++;
	}
	if (text[0] < '0' || text[0] > '9' || *end || errno || value > most >> shift ||
	    value << shift < least) {
		fprintf(stderr, "gpucoll-info: %s %s: a number from %llu to %llu is needed\n",
			option, text, (unsigned long long)least, (unsigned long long)most);
		exit(2);
	}
	return value << shift;
}

static void set_coll(struct plan *plan, const char *name)
{
	int coll = sched_coll_of(name);

	plan->has_coll = true;
	plan->call.request.coll = (enum sched_coll)coll;
	if (coll >= 0)
		return;
	fprintf(stderr, "gpucoll-info: there is no collective '%s'; there are:", name);
	for (int i = 0; i < SCHED_NUM_COLLS; i++)
		fprintf(stderr, " %s", sched_coll_name((enum sched_coll)i));
	fputs("\n", stderr);
	exit(2);
}

static void set_proto(struct plan *plan, const char *name)
{
	int proto = sched_proto_of(name);

	if (proto < 0) {
		fprintf(stderr, "gpucoll-info: --proto %s: simple, ll or ll128\n", name);
		exit(2);
	}
	plan->call.proto = (enum sched_proto)proto;
}

static void set_exec(struct plan *plan, const char *name)
{
	static const char *const names[INFO_NUM_EXECS] = {"fused", "stepped", "gdr"};
	int exec = 0;

	while (exec < INFO_NUM_EXECS && strcmp(name, names[exec]))
		exec++;
	if (exec == INFO_NUM_EXECS) {
		fprintf(stderr, "gpucoll-info: --exec %s: fused, stepped or gdr\n", name);
		exit(2);
	}
	plan->call.exec = (enum info_exec)exec;
}

/* "2,2": ranks 0 and 1 on one node, 2 and 3 on another. */
static void set_nodes(struct plan *plan, const char *text)
{
	enum { MOST = 1024 };
	static int nodes[MOST];
	struct sched_request *request = &plan->call.request;
	char *copy = strdup(text), *rest = copy, *size;

	request->ranks = request->num_nodes = 0;
	request->nodes = nodes;
	while (copy && (size = strsep(&rest, ","))) {
		uint64_t most = (uint64_t)(MOST - request->ranks);

		for (uint64_t left = number("--nodes", size, 1, most, false); left; left--)
			nodes[request->ranks++] = request->num_nodes;
		request->num_nodes++;
	}
	free(copy);
}

enum {
	OPTION_ALGO = 256,
	OPTION_NODES,
	OPTION_PROTO,
	OPTION_CHANNELS,
	OPTION_EXEC,
	OPTION_ROOT,
	OPTION_IN_PLACE,
	OPTION_ORDERED,
	OPTION_SOCKETS,
	OPTION_DOT,
	OPTION_SVG,
	OPTION_MACHINE,
	OPTION_DOCTOR,
	OPTION_JSON,
	OPTION_DESYNC
};

/* Whether it is an option of a plan, which is noted. */
static bool plan_option(struct plan *plan, int option, const char *text)
{
	switch (option) {
	case 'p':
		set_coll(plan, text);
		return true;
	case 'n':
		plan->call.request.ranks = (int)number("-n", text, 1, 1024, false);
		plan->call.request.num_nodes = 0;
		return true;
	case 's':
		plan->call.bytes = number("-s", text, 0, (uint64_t)1 << 40, true);
		plan->has_size = true;
		return true;
	case OPTION_NODES:
		set_nodes(plan, text);
		return true;
	case OPTION_ALGO:
		plan->algo = text;
		return true;
	case OPTION_PROTO:
		set_proto(plan, text);
		return true;
	case OPTION_EXEC:
		set_exec(plan, text);
		return true;
	case OPTION_CHANNELS:
		plan->call.request.channels = (int)number("--channels", text, 1, 32, false);
		return true;
	case OPTION_ROOT:
		plan->call.request.root = (int)number("--root", text, 0, 1023, false);
		return true;
	case OPTION_IN_PLACE:
		plan->call.request.in_place = true;
		return true;
	case OPTION_ORDERED:
		plan->call.request.ordered = true;
		return true;
	case OPTION_SOCKETS:
		plan->call.sockets = true;
		return true;
	case OPTION_DOT:
	case OPTION_SVG:
		plan->form = option == OPTION_DOT ? INFO_DOT : INFO_SVG;
		return true;
	default:
		return false;
	}
}

/* The machine that was asked for. NULL: it was said why not. */
static struct topo_machine *get_machine(const char *file)
{
	return file ? info_read_machine(file) : info_find_machine();
}

static int print_choices(const struct plan *plan, const char *file)
{
	struct topo_machine *machine = get_machine(file);
	int result = 0;

	if (!machine)
		return 1;
	if (plan->has_size)
		result = info_print_algorithms(stdout, &plan->call);
	if (!result)
		result = info_print_choices(stdout, &plan->call, machine, plan->has_size);
	topo_machine_free(machine);
	return result;
}

static int print_machine(const char *file, bool picture)
{
	struct topo_machine *machine = get_machine(file);
	bool well = true;

	if (!machine)
		return 1;
	if (picture)
		well = info_draw_machine(stdout, machine);
	else
		info_print_machine(stdout, machine);
	topo_machine_free(machine);
	return well ? 0 : 1;
}

static int print_plan(const struct plan *plan, const char *file)
{
	if (!plan->has_coll) {
		fputs("gpucoll-info: options of a plan need -p COLLECTIVE\n", stderr);
		return 2;
	}
	if (plan->call.request.root && !sched_coll_has_root(plan->call.request.coll)) {
		fprintf(stderr, "gpucoll-info: %s has no root\n",
			sched_coll_name(plan->call.request.coll));
		return 2;
	}
	if (plan->call.request.in_place && plan->call.request.coll == SCHED_BCAST) {
		fputs("gpucoll-info: bcast has one buffer, so there is no in place\n", stderr);
		return 2;
	}
	if (plan->call.request.ordered && !sched_coll_reduces(plan->call.request.coll)) {
		fprintf(stderr, "gpucoll-info: %s adds nothing, so there is no order\n",
			sched_coll_name(plan->call.request.coll));
		return 2;
	}
	if (plan->call.request.root >= plan->call.request.ranks) {
		fprintf(stderr, "gpucoll-info: there is no rank %d among %d to be root\n",
			plan->call.request.root, plan->call.request.ranks);
		return 2;
	}
	if (plan->algo)
		return info_print_schedule(stdout, &plan->call, plan->algo, plan->form);
	if (plan->form == INFO_TEXT)
		return print_choices(plan, file);
	fputs("gpucoll-info: --dot and --svg need --algo\n", stderr);
	return 2;
}

int main(int argc, char **argv)
{
	static const struct option long_options[] = {
		{"version", no_argument, NULL, 'v'},
		{"config", no_argument, NULL, 'c'},
		{"devices", no_argument, NULL, 'd'},
		{"topology", no_argument, NULL, 't'},
		{"machine", required_argument, NULL, OPTION_MACHINE},
		{"doctor", no_argument, NULL, OPTION_DOCTOR},
		{"json", no_argument, NULL, OPTION_JSON},
		{"desync", no_argument, NULL, OPTION_DESYNC},
		{"plan", required_argument, NULL, 'p'},
		{"ranks", required_argument, NULL, 'n'},
		{"size", required_argument, NULL, 's'},
		{"nodes", required_argument, NULL, OPTION_NODES},
		{"algo", required_argument, NULL, OPTION_ALGO},
		{"proto", required_argument, NULL, OPTION_PROTO},
		{"exec", required_argument, NULL, OPTION_EXEC},
		{"channels", required_argument, NULL, OPTION_CHANNELS},
		{"root", required_argument, NULL, OPTION_ROOT},
		{"in-place", no_argument, NULL, OPTION_IN_PLACE},
		{"ordered", no_argument, NULL, OPTION_ORDERED},
		{"sockets", no_argument, NULL, OPTION_SOCKETS},
		{"dot", no_argument, NULL, OPTION_DOT},
		{"svg", no_argument, NULL, OPTION_SVG},
		{"help", no_argument, NULL, 'h'},
		{"man-options", no_argument, NULL,
		 'm'}, /* for the build: the table as man page text */
		{NULL, 0, NULL, 0},
	};
	struct plan plan = {.call = {.request = {.ranks = 4, .channels = 1}, .bytes = 1 << 20}};
	const char *file = NULL;
	int option, result = 0, done = 0;
	bool topology = false, doctor = false, json = false, desync = false;

	util_config_load();
	while ((option = getopt_long(argc, argv, "vcdthp:n:s:", long_options, NULL)) != -1) {
		if (plan_option(&plan, option, optarg)) {
			plan.given = true;
			continue;
		}
		if (option == OPTION_MACHINE) {
			file = optarg;
			continue;
		}
		done = 1;
		switch (option) {
		case 'v':
			print_version();
			break;
		case 'c':
			util_config_print(stdout);
			break;
		case 'd':
			result |= print_devices();
			break;
		case 't':
			topology = true;
			break;
		case OPTION_DOCTOR:
			doctor = true;
			break;
		case OPTION_JSON:
			json = true;
			break;
		case OPTION_DESYNC:
			desync = true;
			break;
		case 'm':
			util_config_print_man(stdout);
			break;
		case 'h':
			usage(stdout);
			break;
		default:
			usage(stderr);
			return 2;
		}
	}
	if (desync)
		return info_desync(argc - optind, argv + optind);
	if (optind < argc) {
		fprintf(stderr, "gpucoll-info: unexpected argument '%s'\n", argv[optind]);
		usage(stderr);
		return 2;
	}
	if (json && !doctor) {
		fputs("gpucoll-info: --json goes with --doctor\n", stderr);
		return 2;
	}
	if (doctor)
		return doctor_run(stdout, json);
	/* A picture is of the machine if nothing says of what call. */
	if (plan.form == INFO_SVG && !plan.has_coll && (topology || file))
		return print_machine(file, true);
	if (topology || (file && !plan.given))
		result |= print_machine(file, false);
	if (plan.given)
		result |= print_plan(&plan, file);
	if (!done && !plan.given && !file)
		print_version();
	return result;
}
