/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The core under ThreadSanitizer: ranks as threads (threads.h), which make random calls on some
 * communicators, with buffers in device memory, in host memory, or some in each; results against
 * arithmetic. Each configuration is a process of its own, as options are read once.
 *
 * CALLS, SEED and ONLY in the environment: how many calls, which, and in which configuration, then
 * in this process.
 */
#include "../draw.h"
#include "threads.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { NUM_GROUPS = 4, GUARD = 16 };

/*
 * In place, one lane of a tree reads what another overwrites once the sum has come down, and with
 * flags nothing orders that but the data, of which ThreadSanitizer does not know (see
 * docs/memory-model.md).
 */
#define NO_TREE "GPUCOLL_ALGO", "^tree"
#define NOT_DIRECT "^direct,oneshot,twoshot"

static const struct configuration {
	const char *what;
	int ranks, nodes, devices;
	bool apart, hidden;
	int most;               /* ints of a block */
	int way;                /* in which some kernels are launched; -1: none are */
	const char *options[8]; /* NAME, VALUE, ... */
} configurations[] = {
	{"one device", 4, 1, 1, false, false, 3000, THREADS_DIRECT, {NO_TREE}},
	{"a device each", 4, 1, 4, false, false, 3000, THREADS_DIRECT, {NO_TREE}},
	{"mapped buffers",
	 4,
	 1,
	 2,
	 false,
	 false,
	 3000,
	 THREADS_DIRECT,
	 {"GPUCOLL_ALGO", "direct,oneshot,twoshot"}},
	{"windows",
	 3,
	 1,
	 1,
	 false,
	 true,
	 30000,
	 THREADS_DIRECT,
	 {"GPUCOLL_WINDOW", "4K", "GPUCOLL_ALGO", "direct,twoshot"}},
	{"kernels that wait",
	 3,
	 1,
	 1,
	 false,
	 false,
	 3000,
	 THREADS_FUSED + GPU_PROTOCOL_SIMPLE,
	 {"GPUCOLL_EXEC", "fused", "GPUCOLL_ALGO", NOT_DIRECT, "GPUCOLL_PROTO", "simple"}},
	{"packets",
	 3,
	 1,
	 1,
	 false,
	 false,
	 3000,
	 THREADS_FUSED + GPU_PROTOCOL_LL,
	 {"GPUCOLL_EXEC", "fused", "GPUCOLL_ALGO", NOT_DIRECT ",tree", "GPUCOLL_PROTO", "ll"}},
	{"lines",
	 3,
	 1,
	 1,
	 false,
	 false,
	 3000,
	 THREADS_FUSED + GPU_PROTOCOL_LL128,
	 {"GPUCOLL_EXEC", "fused", "GPUCOLL_ALGO", "ring", "GPUCOLL_PROTO", "ll128"}},
	{"hosts that wait",
	 3,
	 1,
	 1,
	 false,
	 false,
	 3000,
	 THREADS_STEPPED,
	 {"GPUCOLL_EXEC", "stepped", "GPUCOLL_ALGO", NOT_DIRECT}},
	{"messages in host memory",
	 4,
	 1,
	 2,
	 true,
	 false,
	 3000,
	 THREADS_FUSED + GPU_PROTOCOL_SIMPLE,
	 {"GPUCOLL_PROTO", "simple", "GPUCOLL_SCRATCH", "1M"}},
	{"two nodes",
	 4,
	 2,
	 2,
	 false,
	 false,
	 3000,
	 THREADS_STEPPED,
	 {"GPUCOLL_EXEC", "stepped", "GPUCOLL_EAGER_MAX", "1K"}},
	{"two nodes, kernels that wait",
	 3,
	 2,
	 1,
	 false,
	 false,
	 3000,
	 THREADS_FUSED + GPU_PROTOCOL_SIMPLE,
	 {"GPUCOLL_EXEC", "fused", "GPUCOLL_EAGER_MAX", "0"}},
	{"two nodes, mapped buffers",
	 4,
	 2,
	 2,
	 false,
	 false,
	 3000,
	 THREADS_FUSED + GPU_PROTOCOL_SIMPLE,
	 {"GPUCOLL_EXEC", "fused", "GPUCOLL_ALGO",
	  "rail-ring,rail-tree,rail-halving,rail-pairwise,rail-linear,rail-chain,rail-doubling"}},
	{"eight ranks",
	 8,
	 1,
	 4,
	 false,
	 false,
	 3000,
	 THREADS_DIRECT,
	 {"GPUCOLL_CHECK", "1", NO_TREE}},
	{"all are staged", 3, 1, 1, false, false, 3000, -1, {"GPUCOLL_ACCEL", "0"}},
};

enum { NUM_CONFIGURATIONS = sizeof(configurations) / sizeof(configurations[0]) };

static char library[1024];
static int num_calls = 25, most_count;
static uint64_t seed = 1;

/* ---- ranks ---- */

/* The functions of a copy of the library. */
struct rank {
	int rank;
	pthread_t thread;
	typeof(rank_start) *start;
	typeof(rank_stop) *stop;
	typeof(rank_comm) *comm;
	typeof(rank_comm_free) *comm_free;
	typeof(rank_call) *call;
	typeof(rank_call_pending) *call_pending;
	typeof(rank_path) *path;
	typeof(rank_launches) *launches;
	typeof(rank_allocate) *allocate;
	typeof(rank_free) *free;
	long accelerated, wrong;
};

static void die(const char *what, const char *why)
{
	fprintf(stderr, "test_threads: %s: %s\n", what, why);
	exit(1);
}

static int new_file(char *name, size_t bytes)
{
	const char *folder = getenv("TMPDIR");

	snprintf(name, bytes, "%s/test-threads-XXXXXX", folder ? folder : "/tmp");
	return mkstemp(name);
}

/* A file of its own: the same one would be loaded once. */
static void *load_copy(void)
{
	char name[sizeof(library)], command[2 * sizeof(library) + 16];
	int file = new_file(name, sizeof(name));
	void *handle;

	if (file < 0)
		die(name, "can't be made");
	close(file);
	snprintf(command, sizeof(command), "cp '%s' '%s'", library, name);
	if (system(command))
		die(command, "failed");
	handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		die(name, dlerror());
	unlink(name);
	return handle;
}

static void load_rank(struct rank *r, int rank)
{
	void *handle = load_copy();

	*r = (struct rank){.rank = rank,
			   .start = dlsym(handle, "rank_start"),
			   .stop = dlsym(handle, "rank_stop"),
			   .comm = dlsym(handle, "rank_comm"),
			   .comm_free = dlsym(handle, "rank_comm_free"),
			   .call = dlsym(handle, "rank_call"),
			   .call_pending = dlsym(handle, "rank_call_pending"),
			   .path = dlsym(handle, "rank_path"),
			   .launches = dlsym(handle, "rank_launches"),
			   .allocate = dlsym(handle, "rank_allocate"),
			   .free = dlsym(handle, "rank_free")};
}

/* ---- calls, the same on all ranks ---- */

struct plan {
	int number;
	enum core_coll coll;
	int root, count;
	bool in_place;
	int host; /* the index of who has host memory; -1: nobody, -2: all */
	int late; /* the index of who comes late */
	bool pending;
};

static struct plan draw_plan(uint64_t *state, int number, int size)
{
	static const enum core_coll colls[] = {CORE_BCAST,     CORE_REDUCE,
					       CORE_ALLREDUCE, CORE_ALLGATHER,
					       CORE_ALLTOALL,  CORE_REDUCE_SCATTER_BLOCK,
					       CORE_GATHER,    CORE_SCATTER};
	const int counts[] = {0, 1, 2, 33, 500, most_count};
	struct plan plan = {.number = number,
			    .coll = colls[draw(state) % (sizeof(colls) / sizeof(colls[0]))],
			    .root = (int)(draw(state) % (uint64_t)size),
			    .count = counts[draw(state) % 6],
			    .in_place = draw(state) % 3 == 0,
			    .host = -1,
			    .late = (int)(draw(state) % (uint64_t)size),
			    .pending = draw(state) % 3 == 0};
	uint64_t kind = draw(state) % 8;

	if (kind < 2)
		plan.host = kind ? -2 : (int)(draw(state) % (uint64_t)size);
	if (plan.coll == CORE_BCAST || plan.coll == CORE_SCATTER)
		plan.in_place = false;
	return plan;
}

/* What the member gives for the other, as far as there is such a thing. */
static int value(const struct plan *plan, int from, int to, int k)
{
	return plan->number * 1000 + from * 100 + to * 10 + k;
}

/* Blocks that the member reads, and writes. */
static int num_in(const struct plan *plan, int index, int size)
{
	switch (plan->coll) {
	case CORE_BCAST:
		return index == plan->root;
	case CORE_SCATTER:
		return index == plan->root ? size : 0;
	case CORE_ALLTOALL:
	case CORE_REDUCE_SCATTER_BLOCK:
		return size;
	default:
		return 1;
	}
}

static int num_out(const struct plan *plan, int index, int size)
{
	switch (plan->coll) {
	case CORE_REDUCE:
		return index == plan->root;
	case CORE_GATHER:
		return index == plan->root ? size : 0;
	case CORE_ALLGATHER:
	case CORE_ALLTOALL:
		return size;
	default:
		return 1;
	}
}

/* The k-th int of the b-th block of the member's result. */
static int expected(const struct plan *plan, int index, int size, int b, int k)
{
	int sum = 0;

	switch (plan->coll) {
	case CORE_BCAST:
		return value(plan, plan->root, 0, k);
	case CORE_SCATTER:
		return value(plan, plan->root, index, k);
	case CORE_ALLTOALL:
		return value(plan, b, index, k);
	case CORE_GATHER:
	case CORE_ALLGATHER:
		return value(plan, b, 0, k);
	default:
		for (int i = 0; i < size; i++)
			sum += value(plan, i, plan->coll == CORE_REDUCE_SCATTER_BLOCK ? index : 0,
				     k);
		return sum;
	}
}

/* ---- a rank's part of a call ---- */

struct buffer {
	int *memory;
	bool device;
};

static struct buffer buffer_new(const struct rank *r, bool device, int ints)
{
	size_t bytes = 4 * (size_t)(ints + 2 * GUARD);
	struct buffer b = {device ? r->allocate(bytes) : malloc(bytes), device};

	if (!b.memory)
		die("memory", "there is none");
	memset(b.memory, 0xa5, bytes);
	return b;
}

static void buffer_free(const struct rank *r, struct buffer *b)
{
	if (b->device)
		r->free(b->memory);
	else
		free(b->memory);
}

/* Where the member's input is in what it works on in place. */
static int *input_in_place(const struct plan *plan, int *out, int index)
{
	bool gathers = plan->coll == CORE_GATHER || plan->coll == CORE_ALLGATHER;

	return gathers ? out + index * plan->count : out;
}

static void fill(const struct plan *plan, int *in, int index, int size)
{
	for (int b = 0; b < num_in(plan, index, size); b++) {
		for (int k = 0; k < plan->count; k++)
			in[b * plan->count + k] = value(plan, index, b, k);
	}
}

static bool check(const struct plan *plan, const int *memory, int ints, int index, int size)
{
	const int *out = memory + GUARD, *behind = out + ints;
	bool well = true;

	for (int i = 0; i < GUARD; i++)
		well &= memory[i] == (int)0xa5a5a5a5 && behind[i] == (int)0xa5a5a5a5;
	for (int b = 0; b < num_out(plan, index, size); b++) {
		for (int k = 0; k < plan->count; k++)
			well &= out[b * plan->count + k] == expected(plan, index, size, b, k);
	}
	return well;
}

/* Whether this member works in place. */
static bool works_in_place(const struct plan *plan, int index)
{
	bool rooted = plan->coll == CORE_REDUCE || plan->coll == CORE_GATHER;

	return plan->in_place && (!rooted || index == plan->root);
}

static void make_call(struct rank *r, struct threads_group *group, const struct plan *plan)
{
	int size = group->size, index = threads_index(group, r->rank);
	int in_ints = num_in(plan, index, size) * plan->count;
	int out_ints = num_out(plan, index, size) * plan->count;
	bool device = plan->host != -2 && plan->host != index;
	bool in_place = works_in_place(plan, index);
	int most = in_ints > out_ints ? in_ints : out_ints;
	struct buffer in = buffer_new(r, device, in_ints), out = buffer_new(r, device, most);
	int *input = in.memory + GUARD, *output = out.memory + GUARD;
	bool one = plan->coll == CORE_BCAST;
	struct core_call call = {.coll = plan->coll,
				 .sendbuf = in_place ? THREADS_IN_PLACE : input,
				 .recvbuf = one && index == plan->root ? input : output,
				 .sendcount = plan->count,
				 .recvcount = plan->count,
				 .root = plan->root,
				 .comm = (core_handle)group};

	fill(plan, in_place ? input_in_place(plan, output, index) : input, index, size);
	if (plan->late == index)
		usleep(500);
	if ((plan->pending ? r->call_pending(&call, index * 200) : r->call(&call)) ||
	    !check(plan, one && index == plan->root ? in.memory : out.memory,
		   one && index == plan->root ? in_ints : most, index, size)) {
		fprintf(stderr, "test_threads: rank %d: wrong: call %d, collective %d, count %d\n",
			r->rank, plan->number, (int)plan->coll, plan->count);
		r->wrong++;
	}
	r->accelerated += r->path() == CORE_PATH_ACCEL;
	buffer_free(r, &in);
	buffer_free(r, &out);
}

/* ---- a job ---- */

static struct threads_group groups[NUM_GROUPS];

/* All ranks, two of them, all in another order, the upper ones. */
static void set_groups(int ranks)
{
	groups[0] = threads_job.all;
	groups[1] = (struct threads_group){.size = 2, .ranks = {ranks - 1, 0}};
	groups[2] = threads_job.all;
	for (int i = 0; i < ranks; i++)
		groups[2].ranks[i] = ranks - 1 - i;
	groups[3].size = ranks - 1;
	for (int i = 0; i < ranks - 1; i++)
		groups[3].ranks[i] = i + 1;
}

static bool is_member(const struct threads_group *group, int rank)
{
	for (int i = 0; i < group->size; i++) {
		if (group->ranks[i] == rank)
			return true;
	}
	return false;
}

static void *run_rank(void *argument)
{
	struct rank *r = argument;
	uint64_t state = seed;

	r->start(r->rank);
	for (int g = 0; g < NUM_GROUPS; g++) {
		if (is_member(&groups[g], r->rank))
			r->comm(&groups[g]);
	}
	for (int i = 0; i < num_calls; i++) {
		struct threads_group *group = &groups[draw(&state) % NUM_GROUPS];
		struct plan plan = draw_plan(&state, i, group->size);

		if (is_member(group, r->rank))
			make_call(r, group, &plan);
	}
	if (is_member(&groups[1], r->rank))
		r->comm_free(&groups[1]);
	r->stop();
	return NULL;
}

/*
 * The machine of every node: GPUs with NVLinks, at the addresses that threads_driver.c gives them.
 */
static void invent_machine(int devices)
{
	char name[1024];
	FILE *file = fdopen(new_file(name, sizeof(name)), "w");

	if (!file)
		die(name, "can't be made");
	fputs("gpucoll-machine 1\nnuma numa0\n", file);
	for (int i = 0; i < devices; i++)
		fprintf(file, "  gpu gpu%d bus=0000:%02x:00.0 rate=16 cc=9.0\n", i, i + 1);
	for (int i = 1; i < devices; i++)
		fprintf(file, "link gpu%d gpu%d rate=50\n", i - 1, i);
	fclose(file);
	setenv("GPUCOLL_TOPO_FILE", name, 1);
	setenv("GPUCOLL_P2P_LEVEL", "SYS", 1); /* not only along the links */
}

static void set_up(const struct configuration *c)
{
	struct threads_job *job = &threads_job;

	most_count = c->most;
	invent_machine(c->devices);
	job->num_devices = c->devices;
	job->apart = c->apart;
	job->hidden = c->hidden;
	job->num_nodes = c->nodes;
	for (int i = 0; i < c->ranks; i++) {
		struct threads_group *node = &job->nodes[i % c->nodes];

		job->node_of[i] = i % c->nodes;
		job->all.ranks[job->all.size++] = node->ranks[node->size++] = i;
	}
	set_groups(c->ranks);
	setenv("UCX_TLS", "tcp,self", 1);
	/*
	 * UCX would put itself before calls that threads make when ThreadSanitizer has given them
	 * up.
	 */
	setenv("UCX_MEM_MMAP_HOOK_MODE", "none", 1);
	for (int i = 0; c->options[i]; i += 2)
		setenv(c->options[i], c->options[i + 1], 1);
}

/* Returns the exit status. */
static int run(const struct configuration *c)
{
	struct rank ranks[THREADS_MOST];
	long accelerated = 0, wrong = 0, launches = 0;

	set_up(c);
	for (int i = 0; i < c->ranks; i++)
		load_rank(&ranks[i], i);
	for (int i = 0; i < c->ranks; i++)
		pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]);
	for (int i = 0; i < c->ranks; i++) {
		pthread_join(ranks[i].thread, NULL);
		accelerated += ranks[i].accelerated;
		wrong += ranks[i].wrong;
		launches += c->way < 0 ? 0 : ranks[i].launches()[c->way];
	}
	unlink(getenv("GPUCOLL_TOPO_FILE"));
	printf("%s: %ld calls accelerated, %ld wrong, %ld kernels launched as they are to be\n",
	       c->what, accelerated, wrong, launches);
	if (c->way < 0)
		return wrong || accelerated;
	return wrong || !accelerated || launches < num_calls / 2;
}

static void configuration_is_right(void **state)
{
	const struct configuration *c = *state;
	pid_t child;
	int status;

	fflush(stdout);
	child = fork();
	if (!child)
		exit(run(c));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

int main(int argc, char **argv)
{
	const char *calls = getenv("CALLS"), *which = getenv("SEED"), *only = getenv("ONLY");
	const char *slash = strrchr(argv[0], '/');
	struct CMUnitTest tests[NUM_CONFIGURATIONS];

	/*
	 * Where a user has not set it, a process sets it while it loads UCX (net_ucx.c); the ranks
	 * here have one environment together.
	 */
	setenv("UCX_ERROR_SIGNALS", "", 0);
	(void)argc;
	snprintf(library, sizeof(library), "%.*s/threads-rank.so",
		 slash ? (int)(slash - argv[0]) : 1, slash ? argv[0] : ".");
	num_calls = calls ? atoi(calls) : num_calls;
	seed = which ? strtoull(which, NULL, 10) : seed;
	if (only)
		return run(&configurations[atoi(only) % NUM_CONFIGURATIONS]);
	for (int i = 0; i < NUM_CONFIGURATIONS; i++)
		tests[i] = (struct CMUnitTest){.name = configurations[i].what,
					       .test_func = configuration_is_right,
					       .initial_state = (void *)&configurations[i]};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
