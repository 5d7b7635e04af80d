/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/util_config.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

extern char **environ;

#define PREFIX "GPUCOLL_"
/* Names that begin with the prefix but belong to gpucoll-exec, which starts the program. */
static const char *const foreign_names[] = {"GPUCOLL_MPI", "GPUCOLL_EMULATE", "GPUCOLL_SPAWN"};

enum type { TYPE_BOOL, TYPE_SIZE, TYPE_SECONDS, TYPE_STRING, TYPE_ENUM, TYPE_FLAGS };

struct option {
	const char *name;
	enum type type;
	size_t offset;
	const char *fallback;
	const char *const
		*words; /* of TYPE_ENUM and TYPE_FLAGS, ended by NULL; the value is the index */
	const char *doc;
};

struct util_config util_config;

static const char *const level_words[] = {"none", "version", "warn", "info", "trace", NULL};
static const char *const exec_words[] = {"auto", "fused", "stepped", NULL};
static const char *const check_words[] = {"schedules", "args", "streams", NULL};
static const char *const net_words[] = {"ucx", "off", NULL};
static const char *const partial_words[] = {"abort", "sleep", NULL};
static const char *const stream_exec_words[] = {"auto", "fused", "staged", NULL};
static const char *const stream_wait_words[] = {"auto", "word", "kernel", NULL};
static const char *const threads_words[] = {"mpi", "multiple", NULL};
static const char *const p2p_words[] = {"auto", "LOC", "NVL", "PIX", "PXB", "PHB", "SYS", NULL};
static const char *const message_words[] = {"auto", "stage", "mpi", NULL};
static const char *const query_words[] = {"yes", "mpi", NULL};
static const char *const gdr_words[] = {"auto", "on", "off", NULL};
static const char *const subsys_words[] = {"init", "pmpi", "core", "gpu", "net", NULL};

#define FIELD(name) offsetof(struct util_config, name)

static const struct option options[] = {
	{"GPUCOLL_DEBUG", TYPE_ENUM, FIELD(debug), "warn", level_words,
	 "How much is logged. version: one line at start. warn: what is wrong or slower than it "
	 "should be, once each. info: decisions, once for each kind of call. trace: every call."},
	{"GPUCOLL_DEBUG_SUBSYS", TYPE_FLAGS, FIELD(debug_subsys), "all", subsys_words,
	 "The parts that log at info and trace: a comma-separated list, or all. A leading ^ takes "
	 "the listed ones away."},
	{"GPUCOLL_DEBUG_FILE", TYPE_STRING, FIELD(debug_file), "", NULL,
	 "Where the log goes: a file name in which %h stands for the host's name and %p for the "
	 "process id. Empty: standard error."},
	{"GPUCOLL_DISABLE", TYPE_BOOL, FIELD(disable), "0", NULL,
	 "Hand every call to the real MPI untouched, as if the library were not loaded."},
	{"GPUCOLL_ACCEL", TYPE_BOOL, FIELD(accel), "1", NULL,
	 "Allow the accelerated path. With 0 every call on device buffers is staged through host "
	 "memory. A process may decide this for itself: the others then stage too."},
	{"GPUCOLL_STATS", TYPE_BOOL, FIELD(stats), "0", NULL,
	 "Print a table at MPI_Finalize: calls, bytes and time by collective, path and algorithm, "
	 "with the reason whenever a call on device buffers was staged. Rank 0 of MPI_COMM_WORLD "
	 "prints its own."},
	{"GPUCOLL_DUMP", TYPE_STRING, FIELD(dump), "/tmp/gpucoll-%h-%p.json", NULL,
	 "The file that says where all ranks of a node are, for gpucoll-info --desync: the last 64 "
	 "collective operations of each. %h stands for the host's name, and %p for the process id. "
	 "It is written when a call has waited for GPUCOLL_TIMEOUT seconds or has failed, and when a "
	 "process gets the signal SIGUSR2, of which the program makes no use of its own. Empty: "
	 "none."},
	{"GPUCOLL_TRACE", TYPE_STRING, FIELD(trace), "", NULL,
	 "A file for a timeline of all collective calls and their stages, which Perfetto and Chrome "
	 "show and gpucoll-trace(1) reads: of all ranks; or several files, if the name has %h, which "
	 "stands for the host's name, or %p, the process id. What was there goes, if it is the user's. "
	 "Hosts that share a folder over a network need %h in the name. steps:FILE: with what "
	 "kernels did when, step by step, the last 63 of each lane of a call; each call then takes "
	 "some tens of microseconds longer, with many lanes milliseconds. steps: the same, "
	 "in gpucoll-trace.json. Empty: none."},
	{"GPUCOLL_HOSTID", TYPE_STRING, FIELD(hostid), "", NULL,
	 "The identity of this node, any string. Processes with equal identities share memory. "
	 "Empty: made from the boot id and the IPC namespace. Used to test several \"nodes\" on "
	 "one machine."},
	{"GPUCOLL_STAGING_POOL", TYPE_SIZE, FIELD(staging_pool), "256M", NULL,
	 "Most pinned host memory kept for staging, in bytes (K, M and G are powers of 1024). A "
	 "buffer that would exceed it is staged through ordinary memory, which is slower, and is "
	 "given back."},
	{"GPUCOLL_IPC_CACHE", TYPE_SIZE, FIELD(ipc_cache), "0", NULL,
	 "Most device memory of other processes kept mapped, in bytes (K, M and G are powers of "
	 "1024); 0: no limit. A mapping takes no memory, so a limit spares addresses only, and "
	 "mapping again what was dropped costs some 100 us. What its process has freed is dropped "
	 "in any case, and everything that is not in use where the driver is short of memory."},
	{"GPUCOLL_WINDOW", TYPE_SIZE, FIELD(window), "32M", NULL,
	 "Bytes of device memory through which a buffer goes, slice by slice, that other processes "
	 "can't map: of pools, of the virtual memory API, managed. Ranks that share a GPU have "
	 "their parts of it, short calls and a GPU without memory smaller ones. At least 64K."},
	{"GPUCOLL_ALGO", TYPE_STRING, FIELD(algo), "", NULL,
	 "The algorithms to choose among, by the names that gpucoll-info -p shows: a list with "
	 "commas, all but those of a list that begins with ^; after a semicolon, lists for some "
	 "collectives, as in tree;bcast:ring,direct;alltoall:^bruck. Empty: all. The value of the "
	 "communicator's first rank counts; a call that none of them is possible for is reported "
	 "once, and is done as if it were empty."},
	{"GPUCOLL_PROTO", TYPE_STRING, FIELD(proto), "", NULL,
	 "The protocols to choose among for messages between ranks, in algorithms that have them; "
	 "lists as for GPUCOLL_ALGO. simple: data, then a counter. ll: data and flag in one word, "
	 "which is faster for small ones and halves the bandwidth. ll128: a flag in each line of "
	 "128 bytes, over NVLinks; where it is not known whether such lines arrive whole (within a "
	 "GPU), only if it alone is asked for. Those with flags only in fused execution, and not "
	 "for gathers, scatters and calls whose sizes may differ; over several nodes only ll, for "
	 "messages within them. Empty, or auto: all. The value of the communicator's first rank "
	 "counts."},
	{"GPUCOLL_TUNING_FILE", TYPE_STRING, FIELD(tuning_file), "", NULL,
	 "The file in which gpucoll-tune keeps the times that it measured, by which the library "
	 "chooses then. Rank 0 of MPI_COMM_WORLD reads it for all. Empty: gpucoll/tuning in "
	 "$XDG_CONFIG_HOME or ~/.config, if it is there."},
	{"GPUCOLL_EXEC", TYPE_ENUM, FIELD(exec), "auto", exec_words,
	 "Who waits for messages between ranks. fused: the kernels, which takes one launch for a "
	 "whole collective, and needs all ranks' kernels to run at the same time. stepped: the "
	 "processes, which take a launch for each step. auto: fused where it is possible; ranks "
	 "that share a GPU try that out first. One rank's stepped counts for all; fused where it "
	 "is not possible is reported once."},
	{"GPUCOLL_EAGER_MAX", TYPE_SIZE, FIELD(eager_max), "64K", NULL,
	 "A call over several nodes in which no rank's input has more than this many bytes, "
	 "divided by the number of ranks, takes one exchange between nodes: the inputs go to all "
	 "of them along with the agreement on the call's path. There is room for 64K, with a few "
	 "bytes for each block. MPI_Bcast, MPI_Reduce, MPI_Gather, MPI_Scatter and MPI_Alltoall so "
	 "short are staged, as the real MPI need not have all ranks wait for all. 0: never."},
	{"GPUCOLL_NET", TYPE_ENUM, FIELD(net), "ucx", net_words,
	 "How messages between nodes travel. ucx: by UCX, which chooses among verbs, RoCE, TCP and "
	 "so on; its own variables (UCX_TLS, UCX_NET_DEVICES) work as ever. Where UCX_NET_DEVICES "
	 "says nothing and the node has several NICs, a process uses that of its GPU alone, if all "
	 "processes' are in one InfiniBand subnet or IPv4 network. off: not at all; calls on "
	 "communicators of several nodes are staged. One process's off counts for all."},
	{"GPUCOLL_NET_GDR", TYPE_ENUM, FIELD(net_gdr), "auto", gdr_words,
	 "Whether UCX is given device memory for messages between nodes, the application's buffers "
	 "as well, which it moves by GPUDirect RDMA or as it knows best. auto: where it was built "
	 "with CUDA, in calls that are expected to be faster so, unless GPUCOLL_EXEC is fused. on: "
	 "in all calls, if one process says so; and a warning where it was not. off: this "
	 "process's messages go through pinned host memory."},
	{"GPUCOLL_P2P", TYPE_ENUM, FIELD(p2p), "auto", message_words,
	 "What becomes of point-to-point messages, and of MPI_Pack, on device memory. stage: they "
	 "go through pinned host memory and the real MPI. mpi: the real MPI gets them as they are. "
	 "auto: those on memory of cudaMalloc do so if the MPI says that it is CUDA-aware, and a "
	 "message from and to device memory that a process sends to itself at first arrives; "
	 "others are staged."},
	{"GPUCOLL_QUERY", TYPE_ENUM, FIELD(query), "yes", query_words,
	 "The answer to MPIX_Query_cuda_support, and to MPIX_GPU_query_support. yes: yes where the "
	 "library is at work on all ranks. mpi: the real MPI's."},
	{"GPUCOLL_P2P_LEVEL", TYPE_ENUM, FIELD(p2p_level), "auto", p2p_words,
	 "How far apart two GPUs of a node may be for one to use the other's memory, in the words "
	 "of nvidia-smi topo -m and NCCL_P2P_LEVEL; others' messages go through pinned memory of "
	 "the host. LOC: not at all. NVL: joined by NVLink. PIX: one PCI switch between them. PXB: "
	 "several. PHB: host bridges of one NUMA node. SYS: however far. auto: as NCCL, PXB, or "
	 "SYS where AMD's processors have two GPUs at most. Of two processes' the nearer counts. "
	 "What is within reach is tried out before it is used, see gpucoll(7)."},
	{"GPUCOLL_CHANNELS", TYPE_STRING, FIELD(channels), "", NULL,
	 "How many times an algorithm with messages uses each connection side by side, 1 to 16; "
	 "also for some collectives, as in 4;bcast:8. Empty, or 0 alone: the library chooses. The "
	 "value of the communicator's first rank counts."},
	{"GPUCOLL_TOPO_FILE", TYPE_STRING, FIELD(topo_file), "", NULL,
	 "A file that says what machine a node is, as gpucoll-info -t writes it, instead of what "
	 "hwloc and NVML find. GPUs are known by their bus=. Empty: the machine is looked at."},
	{"GPUCOLL_SCRATCH", TYPE_SIZE, FIELD(scratch), "32M", NULL,
	 "Bytes of a GPU's memory for messages between ranks, of all processes on it together, for "
	 "each communicator that uses algorithms with messages. Where messages take pinned memory "
	 "of the host as well, a node's processes have twice that together. A process has 512K at "
	 "least."},
	{"GPUCOLL_CHECK", TYPE_FLAGS, FIELD(check), "0", check_words,
	 "What is checked, as a comma-separated list; 0: nothing. args: before each collective "
	 "operation the ranks of its communicator tell each other which one they have come to, and "
	 "with which root, operation, counts and types; what does not agree is said, and is an error "
	 "of MPI. Costs some collectives of the real MPI each time, on host buffers, too. streams: "
	 "whether the input on a device is still being written when a blocking or nonblocking call "
	 "is made, with a warning; each call waits for all streams of its context, and so can't be "
	 "made beside what is enqueued for other ranks (gpucoll-streams(7)). schedules: "
	 "each schedule (see gpucoll-info -p) is proved when it is first used, for milliseconds; 1 "
	 "says the same."},
	{"GPUCOLL_REPRODUCIBLE", TYPE_BOOL, FIELD(reproducible), "0", NULL,
	 "Reductions of floating-point numbers, and by operations of the program's own, add one "
	 "contribution after the other in the order of ranks, in all ways in which a call may be "
	 "done, on host buffers, too: results depend on the inputs and the number of ranks only "
	 "(see gpucoll(7)). One process's 1 counts for all."},
	{"GPUCOLL_PARTIAL", TYPE_ENUM, FIELD(partial), "abort", partial_words,
	 "What becomes of a job of which some processes do not run under the library, which the "
	 "others find when they have waited for them for GPUCOLL_TIMEOUT seconds in MPI_Init. "
	 "abort: it is ended. sleep: it goes on without the library's help, which is well only if "
	 "there are no nonblocking collectives on MPI_COMM_WORLD: the library has begun one."},
	{"GPUCOLL_WAIT_DEFAULT_STREAM", TYPE_BOOL, FIELD(wait_default), "1", NULL,
	 "Whether a call waits for what the program has put on the legacy default stream, and, "
	 "where the driver counts that in, on streams that it orders with that one. 0: the program "
	 "has its buffers ready by itself, and its kernels elsewhere are not to hold up its calls; "
	 "copies and fills by calls that are synchronous are done in any case, but the first "
	 "ones."},
	{"GPUCOLL_SESSIONS", TYPE_BOOL, FIELD(sessions), "0", NULL,
	 "Whether a program that has MPI sessions only, and does not call MPI_Init, may have MPI "
	 "initialised with its first session, and finalised with its last: its communicators are "
	 "accelerated then. All processes of the job have to make one, alike; so this holds with "
	 "GPUCOLL_DISABLE, too."},
	{"GPUCOLL_STREAM_EXEC", TYPE_ENUM, FIELD(stream_exec), "auto", stream_exec_words,
	 "How what is enqueued is done (see gpucoll-streams(7)). fused: by kernels of a node's ranks "
	 "that wait for each other, where that can be, else with a warning as staged. staged: by "
	 "the real MPI on memory of the host. auto: as fused, without the warning."},
	{"GPUCOLL_STREAM_WAIT", TYPE_ENUM, FIELD(stream_wait), "auto", stream_wait_words,
	 "How a stream waits for what is enqueued on it (see gpucoll-streams(7)). word: by the "
	 "driver's own means, which take nothing, and milliseconds where processes share a GPU. "
	 "kernel: by a kernel of one thread. auto: a trial when the communicator is made tells."},
	{"GPUCOLL_THREADS", TYPE_ENUM, FIELD(threads), "mpi", threads_words,
	 "The thread level that the MPI is asked for by MPI_Init and MPI_Init_thread. mpi: the "
	 "program's. multiple: MPI_THREAD_MULTIPLE, with which a thread of the library may call MPI, "
	 "as enqueued calls need (see gpucoll-streams(7)); MPI_Query_thread still tells the program "
	 "the level that it asked for. Open MPI 4.1 refuses some one-sided windows then."},
	{"GPUCOLL_TIMEOUT", TYPE_SECONDS, FIELD(timeout), "60", NULL,
	 "Seconds after which a wait of the library for the device is reported, once, and goes on. "
	 "0: never."},
};
enum { NUM_OPTIONS = sizeof(options) / sizeof(options[0]) };

static const char *values[NUM_OPTIONS]; /* the text in force: the environment's or the fallback */
static bool from_env[NUM_OPTIONS];
static char messages[32][320];
static int num_messages;

static void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void complain(const char *format, ...)
{
	enum { MAX = sizeof(messages) / sizeof(messages[0]) };
	va_list args;

	if (num_messages == MAX)
		return;
	va_start(args, format);
	vsnprintf(messages[num_messages++], sizeof(messages[0]), format, args);
	va_end(args);
}

static bool parse_bool(const char *text, bool *out)
{
	static const char *const yes[] = {"1", "y", "yes", "on", "true"};
	static const char *const no[] = {"0", "n", "no", "off", "false"};

	for (size_t i = 0; i < 5; i++) {
		if (!strcasecmp(text, yes[i]) || !strcasecmp(text, no[i])) {
			*out = !strcasecmp(text, yes[i]);
			return true;
		}
	}
	return false;
}

static bool parse_size(const char *text, bool with_unit, size_t *out)
{
	static const char units[] = "KMGT";
	const char *unit;
	char *end;
	unsigned shift = 0;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	uintmax_t value = strtoumax(text, &end, 10);
	if (errno || end == text)
		return false;
	if (with_unit && *end && (unit = strchr(units, toupper((unsigned char)*end)))) {
		shift = 10 * (unsigned)(unit - units + 1);
		end++;
		if (*end == 'B' || *end == 'b')
			end++;
	}
	if (*end || value > (SIZE_MAX >> shift))
		return false;
	*out = (size_t)value << shift;
	return true;
}

static int find_word(const char *const *words, const char *text, size_t length)
{
	for (int i = 0; words[i]; i++) {
		if (strlen(words[i]) == length && !strncasecmp(words[i], text, length))
			return i;
	}
	return -1;
}

static bool parse_flags(const char *const *words, const char *text, unsigned *out)
{
	bool invert = *text == '^';
	unsigned all = 0, mask = 0;

	for (int i = 0; words[i]; i++)
		all |= 1u << i;
	for (text += invert; *text;) {
		size_t length = strcspn(text, ",");
		int word = find_word(words, text, length);

		if (word >= 0)
			mask |= 1u << word;
		else if (length == 3 && !strncasecmp(text, "all", 3))
			mask = all;
		else if (length == 1 && (*text == '0' || *text == '1'))
			mask |= (unsigned)(*text - '0'); /* none of them, or the first */
		else
			return false;
		text += length + (text[length] == ',');
	}
	*out = invert ? all & ~mask : mask;
	return true;
}

static bool parse(const struct option *option, const char *text)
{
	char *field = (char *)&util_config + option->offset;
	int word;

	switch (option->type) {
	case TYPE_BOOL:
		return parse_bool(text, (bool *)field);
	case TYPE_SIZE:
		return parse_size(text, true, (size_t *)field);
	case TYPE_SECONDS:
		return parse_size(text, false, (size_t *)field);
	case TYPE_STRING:
		*(const char **)field = *text ? text : NULL;
		return true;
	case TYPE_ENUM:
		word = find_word(option->words, text, strlen(text));
		if (word >= 0)
			*(int *)field = word;
		return word >= 0;
	case TYPE_FLAGS:
		return parse_flags(option->words, text, (unsigned *)field);
	}
	return false;
}

static void valid_values(const struct option *option, char *out, size_t size)
{
	size_t used = 0;

	switch (option->type) {
	case TYPE_BOOL:
		snprintf(out, size, "0 or 1");
		return;
	case TYPE_SIZE:
		snprintf(out, size, "a number of bytes, such as 65536 or 64M");
		return;
	case TYPE_SECONDS:
		snprintf(out, size, "a whole number of seconds");
		return;
	case TYPE_STRING:
		snprintf(out, size, "any text");
		return;
	case TYPE_ENUM:
	case TYPE_FLAGS:
		for (int i = 0; option->words[i] && used < size; i++)
			used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "",
						 option->words[i]);
		return;
	}
}

static void load_option(int index)
{
	const struct option *option = &options[index];
	const char *text = getenv(option->name);
	char valid[160];

	values[index] = option->fallback;
	parse(option, option->fallback);
	if (!text)
		return;
	if (!parse(option, text)) {
		valid_values(option, valid, sizeof(valid));
		complain("%s=%.60s is not understood and ignored; valid: %s (default %s)",
			 option->name, text, valid, option->fallback);
		return;
	}
	values[index] = text;
	from_env[index] = true;
}

static bool known_name(const char *name, size_t length)
{
	for (int i = 0; i < NUM_OPTIONS; i++) {
		if (strlen(options[i].name) == length && !strncmp(options[i].name, name, length))
			return true;
	}
	for (size_t i = 0; i < sizeof(foreign_names) / sizeof(foreign_names[0]); i++) {
		if (strlen(foreign_names[i]) == length && !strncmp(foreign_names[i], name, length))
			return true;
	}
	return false;
}

static void load_all(void)
{
	for (int i = 0; i < NUM_OPTIONS; i++)
		load_option(i);
	for (char **entry = environ; entry && *entry; entry++) {
		size_t length = strcspn(*entry, "=");

		if (strncmp(*entry, PREFIX, strlen(PREFIX)) || known_name(*entry, length))
			continue;
		complain("%.*s is no option of this version and ignored; `gpucoll-info -c` lists "
			 "the valid ones",
			 (int)(length < 80 ? length : 80), *entry);
	}
}

void util_config_load(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load_all);
}

void util_config_tuning_path(char *path, size_t bytes)
{
	const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");

	if (util_config.tuning_file)
		snprintf(path, bytes, "%s", util_config.tuning_file);
	else if (xdg && *xdg)
		snprintf(path, bytes, "%s/gpucoll/tuning", xdg);
	else if (home && *home)
		snprintf(path, bytes, "%s/.config/gpucoll/tuning", home);
	else
		*path = '\0';
}

const char *util_config_complaint(int index)
{
	return index < num_messages ? messages[index] : NULL;
}

void util_config_print(FILE *out)
{
	char valid[160];

	for (int i = 0; i < NUM_OPTIONS; i++) {
		valid_values(&options[i], valid, sizeof(valid));
		fprintf(out, "# %s\n# Valid: %s. Default: %s. Source: %s.\n%s=%s\n\n",
			options[i].doc, valid, *options[i].fallback ? options[i].fallback : "empty",
			from_env[i] ? "environment" : "default", options[i].name, values[i]);
	}
	for (int i = 0; i < num_messages; i++)
		fprintf(out, "# WARNING: %s\n", messages[i]);
}

/* troff takes a leading dot or quote for a request and a bare backslash for an escape. */
static void print_troff(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '\\')
			fputs("\\e", out);
		else if (*text == '-')
			fputs("\\-", out);
		else
			fputc(*text, out);
	}
}

void util_config_print_man(FILE *out)
{
	char valid[160];

	for (int i = 0; i < NUM_OPTIONS; i++) {
		valid_values(&options[i], valid, sizeof(valid));
		fprintf(out, ".TP\n.B %s\n", options[i].name);
		print_troff(out, options[i].doc);
		fprintf(out, "\nValid values: %s. Default: %s.\n", valid,
			*options[i].fallback ? options[i].fallback : "empty");
	}
}
