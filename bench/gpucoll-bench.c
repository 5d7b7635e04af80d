/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpucoll-bench COLLECTIVE: times and checks an MPI collective on device, managed or host memory.
 *
 * An ordinary MPI+CUDA program that knows nothing of the library, so it measures any MPI the same
 * way. Flags and columns are those of nccl-tests; what "size" means for each collective too: the
 * larger of the two buffers.
 */
#include <cuda_runtime_api.h>
#include <getopt.h>
#include <jansson.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum coll {
	ALLREDUCE,
	BCAST,
	REDUCE,
	ALLGATHER,
	REDUCE_SCATTER,
	ALLTOALL,
	GATHER,
	SCATTER,
	NUM_COLLS
};
enum memory { DEVICE, MANAGED, HOST, NUM_MEMORIES };
enum op { SUM, PROD, MIN, MAX, NUM_OPS };
enum type { INT8, UINT8, INT32, UINT32, INT64, UINT64, FLOAT, DOUBLE, NUM_TYPES };

static const char *const coll_names[] = {"allreduce",      "bcast",    "reduce", "allgather",
					 "reduce_scatter", "alltoall", "gather", "scatter"};
static const char *const memory_names[] = {"device", "managed", "host"};
static const char *const op_names[] = {"sum", "prod", "min", "max"};
static const char *const type_names[] = {"int8",  "uint8",  "int32", "uint32",
					 "int64", "uint64", "float", "double"};
static const size_t type_sizes[] = {1, 1, 4, 4, 8, 8, 4, 8};

static struct {
	enum coll coll;
	enum memory memory;
	enum op op;
	enum type type;
	size_t min_bytes, max_bytes, step_bytes, factor;
	int iterations, warmup, check, root;
	const char *json;
} options = {.min_bytes = 32 << 20,
	     .max_bytes = 32 << 20,
	     .step_bytes = 1 << 20,
	     .iterations = 20,
	     .warmup = 5,
	     .check = 1,
	     .type = FLOAT};

static int rank, size;
static MPI_Datatype mpi_type;
static MPI_Op mpi_op;
static char *send_buffer, *recv_buffer;

static void usage(FILE *out)
{
	fputs("usage: gpucoll-bench COLLECTIVE [OPTION...]   (under mpirun)\n"
	      "  COLLECTIVE             allreduce bcast reduce allgather reduce_scatter alltoall "
	      "gather scatter\n"
	      "  -b, --minbytes=SIZE    smallest size, such as 8 or 32M (default 32M)\n"
	      "  -e, --maxbytes=SIZE    largest size (default 32M)\n"
	      "  -i, --stepbytes=SIZE   increment between sizes (default 1M)\n"
	      "  -f, --stepfactor=N     factor between sizes, instead of an increment\n"
	      "  -n, --iters=N          timed calls for each size (default 20)\n"
	      "  -w, --warmup_iters=N   calls before, not timed (default 5)\n"
	      "  -c, --check=N          check results: 0 or 1 (default 1)\n"
	      "  -d, --datatype=TYPE    int8 uint8 int32 uint32 int64 uint64 float double (default "
	      "float)\n"
	      "  -o, --op=OP            sum prod min max (default sum)\n"
	      "  -r, --root=RANK        root of rooted collectives (default 0)\n"
	      "  -m, --memory=WHERE     device, managed or host (default device)\n"
	      "  -J, --json=FILE        also write the results there\n"
	      "  -h, --help             this text\n",
	      out);
}

static void fail(const char *format, const char *value)
{
	if (rank == 0) {
		fputs("gpucoll-bench: ", stderr);
		fprintf(stderr, format, value);
		fputc('\n', stderr);
	}
	MPI_Finalize();
	exit(2);
}

static void cuda_check(cudaError_t error, const char *what)
{
	if (error == cudaSuccess)
		return;
	fprintf(stderr, "gpucoll-bench: rank %d: %s: %s\n", rank, what, cudaGetErrorString(error));
	MPI_Abort(MPI_COMM_WORLD, 3);
}

/* ---- options ---- */

static size_t parse_size(const char *text)
{
	static const char units[] = "KMG";
	const char *unit;
	char *end;
	unsigned long long value = strtoull(text, &end, 10);

	if (*end && (unit = strchr(units, *end & ~0x20))) {
		value <<= 10 * (unit - units + 1);
		end++;
	}
	if (end == text || *end || *text == '-')
		fail("'%s' is no size; say, for example, 1024, 64K or 32M", text);
	return value;
}

static int parse_count(const char *text, int least)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (end == text || *end || value < least || value > 1000000000)
		fail("'%s' is no number that fits here", text);
	return (int)value;
}

static int parse_word(const char *const *words, int num, const char *text, const char *message)
{
	for (int i = 0; i < num; i++) {
		if (!strcmp(words[i], text))
			return i;
	}
	fail(message, text);
	return -1;
}

static void parse_option(int option, const char *text)
{
	switch (option) {
	case 'b':
		options.min_bytes = parse_size(text);
		break;
	case 'e':
		options.max_bytes = parse_size(text);
		break;
	case 'i':
		options.step_bytes = parse_size(text);
		break;
	case 'f':
		options.factor = (size_t)parse_count(text, 2);
		break;
	case 'n':
		options.iterations = parse_count(text, 1);
		break;
	case 'w':
		options.warmup = parse_count(text, 0);
		break;
	case 'c':
		options.check = parse_count(text, 0);
		break;
	case 'd':
		options.type =
			(enum type)parse_word(type_names, NUM_TYPES, text, "unknown datatype '%s'");
		break;
	case 'o':
		options.op = (enum op)parse_word(op_names, NUM_OPS, text, "unknown op '%s'");
		break;
	case 'r':
		options.root = parse_count(text, 0);
		if (options.root >= size)
			fail("root %s is no rank of this job", text);
		break;
	case 'm':
		options.memory = (enum memory)parse_word(memory_names, NUM_MEMORIES, text,
							 "unknown memory '%s'");
		break;
	case 'J':
		options.json = text;
		break;
	case 'h':
		if (rank == 0)
			usage(stdout);
		MPI_Finalize();
		exit(0);
	default:
		fail("%s", "try gpucoll-bench --help");
	}
}

static void parse_options(int argc, char **argv)
{
	static const struct option long_options[] = {{"minbytes", required_argument, NULL, 'b'},
						     {"maxbytes", required_argument, NULL, 'e'},
						     {"stepbytes", required_argument, NULL, 'i'},
						     {"stepfactor", required_argument, NULL, 'f'},
						     {"iters", required_argument, NULL, 'n'},
						     {"warmup_iters", required_argument, NULL, 'w'},
						     {"check", required_argument, NULL, 'c'},
						     {"datatype", required_argument, NULL, 'd'},
						     {"op", required_argument, NULL, 'o'},
						     {"root", required_argument, NULL, 'r'},
						     {"memory", required_argument, NULL, 'm'},
						     {"json", required_argument, NULL, 'J'},
						     {"help", no_argument, NULL, 'h'},
						     {NULL, 0, NULL, 0}};
	int option;

	opterr = rank == 0;
	while ((option = getopt_long(argc, argv, "b:e:i:f:n:w:c:d:o:r:m:J:h", long_options,
				     NULL)) != -1)
		parse_option(option, optarg);
	if (optind + 1 != argc)
		fail("%s", "name one collective; try gpucoll-bench --help");
	options.coll = (enum coll)parse_word(coll_names, NUM_COLLS, argv[optind],
					     "unknown collective '%s'");
	if (options.max_bytes < options.min_bytes)
		options.max_bytes = options.min_bytes;
	if (!options.factor && !options.step_bytes)
		fail("%s", "--stepbytes=0 would never reach --maxbytes");
}

/* ---- the call ---- */

static bool is_rooted(void)
{
	return options.coll == BCAST || options.coll == REDUCE || options.coll == GATHER ||
	       options.coll == SCATTER;
}

static bool is_reduction(void)
{
	return options.coll == ALLREDUCE || options.coll == REDUCE ||
	       options.coll == REDUCE_SCATTER;
}

/* Whether the size is that of one block for each rank; `count` is then a block's. */
static bool is_blocked(void)
{
	return options.coll == ALLGATHER || options.coll == REDUCE_SCATTER ||
	       options.coll == ALLTOALL || options.coll == GATHER || options.coll == SCATTER;
}

static int call(size_t wide_count, bool in_place)
{
	bool at_root = rank == options.root;
	void *send = in_place ? MPI_IN_PLACE : send_buffer, *recv = recv_buffer;
	void *root_send = in_place && at_root ? MPI_IN_PLACE : send_buffer;
	int count = (int)wide_count, root = options.root;
	MPI_Comm comm = MPI_COMM_WORLD;

	switch (options.coll) {
	case ALLREDUCE:
		return MPI_Allreduce(send, recv, count, mpi_type, mpi_op, comm);
	case BCAST:
		return MPI_Bcast(recv, count, mpi_type, root, comm);
	case REDUCE:
		return MPI_Reduce(root_send, recv, count, mpi_type, mpi_op, root, comm);
	case ALLGATHER:
		return MPI_Allgather(send, count, mpi_type, recv, count, mpi_type, comm);
	case REDUCE_SCATTER:
		return MPI_Reduce_scatter_block(send, recv, count, mpi_type, mpi_op, comm);
	case ALLTOALL:
		return MPI_Alltoall(send, count, mpi_type, recv, count, mpi_type, comm);
	case GATHER:
		return MPI_Gather(root_send, count, mpi_type, recv, count, mpi_type, root, comm);
	case SCATTER:
		return MPI_Scatter(send_buffer, count, mpi_type,
				   in_place && at_root ? MPI_IN_PLACE : recv, count, mpi_type, root,
				   comm);
	default:
		return MPI_ERR_INTERN;
	}
}

/*
 * ---- data: what a rank contributes, and what must come out, as numbers that every type holds
 * exactly ----
 */

static double contribution(int from, size_t index)
{
	if (options.op == PROD)
		return 1 + ((index + (size_t)from) % 7 == 0);
	return 1 + (double)((index + 3 * (size_t)from) % 3);
}

static double reduced(size_t index)
{
	double result = contribution(0, index);

	for (int from = 1; from < size; from++) {
		double value = contribution(from, index);

		result = options.op == SUM    ? result + value
			 : options.op == PROD ? result * value
			 : options.op == MIN  ? (value < result ? value : result)
					      : (value > result ? value : result);
	}
	return result;
}

/*
 * What element `index` of this rank's receive buffer is after the call, `count` being a block's or
 * all.
 */
static double expected(size_t index, size_t count)
{
	int block = (int)(index / count);

	switch (options.coll) {
	case ALLREDUCE:
	case REDUCE:
		return reduced(index);
	case REDUCE_SCATTER:
		return reduced((size_t)rank * count + index);
	case BCAST:
		return contribution(options.root, index);
	case ALLGATHER:
	case GATHER:
		return contribution(block, index % count);
	case ALLTOALL:
		return contribution(block, (size_t)rank * count + index % count);
	default:
		return contribution(options.root, (size_t)rank * count + index);
	}
}

static void put(char *array, size_t index, double value)
{
	switch (options.type) {
	case INT8:
		((int8_t *)array)[index] = (int8_t)value;
		break;
	case UINT8:
		((uint8_t *)array)[index] = (uint8_t)value;
		break;
	case INT32:
		((int32_t *)array)[index] = (int32_t)value;
		break;
	case UINT32:
		((uint32_t *)array)[index] = (uint32_t)value;
		break;
	case INT64:
		((int64_t *)array)[index] = (int64_t)value;
		break;
	case UINT64:
		((uint64_t *)array)[index] = (uint64_t)value;
		break;
	case FLOAT:
		((float *)array)[index] = (float)value;
		break;
	default:
		((double *)array)[index] = value;
	}
}

static void copy(void *to, const void *from, size_t bytes)
{
	if (options.memory == HOST)
		memcpy(to, from, bytes);
	else
		cuda_check(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "cudaMemcpy");
}

/* Fill the buffers for one checked call. In place, the input goes where the call expects it. */
static void fill(size_t count, size_t total, bool in_place)
{
	size_t width = type_sizes[options.type], bytes = total * width;
	bool gathers = options.coll == ALLGATHER || options.coll == GATHER;
	size_t mine = gathers ? count : total;
	char *data = malloc(bytes + 1), *poison = malloc(bytes + 1);

	for (size_t i = 0; i < mine; i++)
		put(data, i, contribution(rank, i));
	memset(poison, 0x55, bytes);
	copy(recv_buffer, poison, bytes);
	copy(send_buffer, poison, bytes);
	if (options.coll == BCAST) {
		if (rank == options.root)
			copy(recv_buffer, data, bytes);
	} else if (!in_place || options.coll == SCATTER || (is_rooted() && rank != options.root)) {
		copy(send_buffer, data, mine * width);
	} else {
		copy(recv_buffer + (gathers ? (size_t)rank * count * width : 0), data,
		     mine * width);
	}
	free(data);
	free(poison);
}

static long count_wrong(size_t count, size_t total, bool in_place)
{
	size_t width = type_sizes[options.type];
	bool receives = !is_rooted() || rank == options.root || options.coll == BCAST ||
			options.coll == SCATTER;
	bool one_block = options.coll == REDUCE_SCATTER || options.coll == SCATTER;
	size_t received = one_block ? count : total;
	char *got, want[8];
	long wrong = 0;

	if (options.coll == SCATTER && in_place && rank == options.root)
		receives = false; /* its block stays in the send buffer */
	if (!receives)
		return 0;
	got = malloc(received * width + 1);
	copy(got, recv_buffer, received * width);
	for (size_t i = 0; i < received; i++) {
		put(want, 0, expected(i, count));
		wrong += memcmp(got + i * width, want, width) != 0;
	}
	free(got);
	return wrong;
}

/* ---- measuring ---- */

struct figure {
	double seconds, algbw, busbw; /* s, GB/s, GB/s */
	long wrong;
};

/* The bytes that a link must carry for each byte of size, as nccl-tests defines it. */
static double bus_factor(void)
{
	if (options.coll == ALLREDUCE)
		return 2.0 * (size - 1) / size;
	return is_blocked() ? (double)(size - 1) / size : 1;
}

static struct figure measure(size_t count, size_t total, bool in_place)
{
	struct figure figure = {0};
	double mine, bytes = (double)(total * type_sizes[options.type]);
	long wrong = 0;

	if (options.check) {
		fill(count, total, in_place);
		call(count, in_place);
		wrong = count_wrong(count, total, in_place);
		MPI_Allreduce(&wrong, &figure.wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	}
	for (int i = 0; i < options.warmup; i++)
		call(count, in_place);
	MPI_Barrier(MPI_COMM_WORLD);
	mine = MPI_Wtime();
	for (int i = 0; i < options.iterations; i++)
		call(count, in_place);
	mine = (MPI_Wtime() - mine) / options.iterations;
	/* The slowest rank's time is the collective's. */
	MPI_Allreduce(&mine, &figure.seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	figure.algbw = figure.seconds > 0 ? 1e-9 * bytes / figure.seconds : 0;
	figure.busbw = figure.algbw * bus_factor();
	return figure;
}

static void print_head(void)
{
	char host[256] = "?";

	gethostname(host, sizeof(host) - 1);
	printf("# gpucoll-bench %s, %d ranks, %s memory, rank 0 on %s\n", coll_names[options.coll],
	       size, memory_names[options.memory], host);
	printf("#\n# %12s %12s %8s %6s %6s |%34s |%34s\n", "", "", "", "", "", "out of place",
	       "in place");
	printf("# %12s %12s %8s %6s %6s |%10s %8s %8s %6s |%10s %8s %8s %6s\n", "size", "count",
	       "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw",
	       "busbw", "#wrong");
	printf("# %12s %12s %8s %6s %6s |%10s %8s %8s %6s |%10s %8s %8s %6s\n", "(B)", "(elements)",
	       "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
}

static void print_figure(const struct figure *figure)
{
	char wrong[24] = "N/A";

	if (options.check)
		snprintf(wrong, sizeof(wrong), "%ld", figure->wrong);
	printf(" |%10.1f %8.2f %8.2f %6s", 1e6 * figure->seconds, figure->algbw, figure->busbw,
	       wrong);
}

static json_t *to_json(const struct figure *figure)
{
	return json_pack("{s:f, s:f, s:f, s:o}", "time_us", 1e6 * figure->seconds, "algbw_GBps",
			 figure->algbw, "busbw_GBps", figure->busbw, "wrong",
			 options.check ? json_integer(figure->wrong) : json_null());
}

/* Measure one size and print its row. Returns the number of wrong elements. */
static long run_size(size_t bytes, json_t *rows)
{
	size_t count = bytes / type_sizes[options.type];
	bool blocked = is_blocked();
	struct figure out, in;

	if (blocked)
		count /= (size_t)size;
	size_t total = blocked ? count * (size_t)size : count;
	char root[16] = "-1";
	if (is_rooted())
		snprintf(root, sizeof(root), "%d", options.root);
	out = measure(count, total, false);
	in = options.coll == BCAST
		     ? out
		     : measure(count, total, true); /* a broadcast is always in place */
	if (rank)
		return out.wrong + in.wrong;
	printf("  %12zu %12zu %8s %6s %6s", total * type_sizes[options.type], total,
	       type_names[options.type], is_reduction() ? op_names[options.op] : "none", root);
	print_figure(&out);
	print_figure(&in);
	putchar('\n');
	fflush(stdout);
	json_array_append_new(rows, json_pack("{s:I, s:I, s:o, s:o}", "bytes",
					      (json_int_t)(total * type_sizes[options.type]),
					      "count", (json_int_t)total, "out_of_place",
					      to_json(&out), "in_place", to_json(&in)));
	return out.wrong + in.wrong;
}

static void allocate(size_t bytes, char **buffer)
{
	if (options.memory == DEVICE)
		cuda_check(cudaMalloc((void **)buffer, bytes), "cudaMalloc");
	else if (options.memory == MANAGED)
		cuda_check(cudaMallocManaged((void **)buffer, bytes, cudaMemAttachGlobal),
			   "cudaMallocManaged");
	else
		*buffer = malloc(bytes);
}

static void prepare(void)
{
	const MPI_Datatype types[] = {MPI_INT8_T,  MPI_UINT8_T,  MPI_INT32_T, MPI_UINT32_T,
				      MPI_INT64_T, MPI_UINT64_T, MPI_FLOAT,   MPI_DOUBLE};
	const MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX};
	int devices;

	mpi_type = types[options.type];
	mpi_op = ops[options.op];
	if (options.memory != HOST) {
		cuda_check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
		cuda_check(cudaSetDevice(rank % devices), "cudaSetDevice");
	}
	allocate(options.max_bytes + 16, &send_buffer);
	allocate(options.max_bytes + 16, &recv_buffer);
}

/* On a terminal, say what is being measured; the row takes its place. */
static void show_progress(size_t bytes)
{
	if (rank == 0 && isatty(STDERR_FILENO)) {
		fprintf(stderr, "measuring %zu bytes ...\r", bytes);
		fflush(stderr);
	}
}

static void write_json(json_t *rows)
{
	json_t *root =
		json_pack("{s:s, s:i, s:s, s:s, s:s, s:i, s:O}", "collective",
			  coll_names[options.coll], "ranks", size, "memory",
			  memory_names[options.memory], "type", type_names[options.type], "op",
			  op_names[options.op], "iterations", options.iterations, "results", rows);

	if (json_dump_file(root, options.json, JSON_INDENT(1) | JSON_REAL_PRECISION(6)))
		fprintf(stderr, "gpucoll-bench: can't write %s\n", options.json);
	json_decref(root);
}

int main(int argc, char **argv)
{
	json_t *rows = json_array();
	long wrong = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	parse_options(argc, argv);
	prepare();
	if (rank == 0)
		print_head();
	for (size_t bytes = options.min_bytes; bytes <= options.max_bytes;) {
		show_progress(bytes);
		wrong += run_size(bytes, rows);
		bytes = options.factor && bytes ? bytes * options.factor
						: bytes + options.step_bytes;
	}
	if (rank == 0)
		printf("# %ld wrong values\n", wrong);
	if (rank == 0 && options.json)
		write_json(rows);
	json_decref(rows);
	if (options.memory != HOST) {
		cuda_check(cudaFree(send_buffer), "cudaFree");
		cuda_check(cudaFree(recv_buffer), "cudaFree");
	}
	MPI_Finalize();
	return wrong ? 1 : 0;
}
