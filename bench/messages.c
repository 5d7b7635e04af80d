/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * messages: what point-to-point messages cost under the library, on two ranks.
 *
 *   - On host buffers, of the MPI's own functions and through whatever is preloaded, turn by turn:
 * a receive and a send to oneself, nonblocking and blocking; and MPI_Waitall over 1,000 such
 *     requests, with one of device memory among them.
 *   - From device to device memory, half a round trip, against that on host memory and the two
 *     copies which a program without the library makes.
 *   - A strided face of doubles, of 256 x 256 out of 256 x 256 x 256, against MPI_Pack on host
 * memory, the message, MPI_Unpack and the two copies of the packed face.
 *
 * Times are medians. Run it under gpucoll-exec.
 */
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 400, MANY = 1000, SIDE = 256 };

typedef int isend_function(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
typedef int irecv_function(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
typedef int waitall_function(int, MPI_Request[], MPI_Status[]);

/* The MPI's own, or those that the program calls. */
struct calls {
	isend_function *isend;
	irecv_function *irecv;
	waitall_function *waitall;
};

static int rank;

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values, int num)
{
	qsort(values, (size_t)num, sizeof(*values), compare);
	return values[num / 2];
}

static void must(cudaError_t error)
{
	if (error == cudaSuccess)
		return;
	fprintf(stderr, "messages: %s\n", cudaGetErrorString(error));
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static struct calls own_calls(void)
{
	static const char *const names[] = {"libmpi.so.40", "libmpich.so.12", "libmpi.so.12"};
	void *handle = NULL;
	struct calls calls;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !handle; i++)
		handle = dlopen(names[i], RTLD_LAZY | RTLD_NOLOAD);
	if (!handle) {
		fprintf(stderr, "messages: the MPI's library is not one that is known here\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	*(void **)&calls.isend = dlsym(handle, "MPI_Isend");
	*(void **)&calls.irecv = dlsym(handle, "MPI_Irecv");
	*(void **)&calls.waitall = dlsym(handle, "MPI_Waitall");
	return calls;
}

static MPI_Status statuses[2 * MANY];

/* ns of a receive, a send and the wait, on host memory. */
static double time_pair(const struct calls *calls)
{
	enum { TIMES = 20000 };
	double start = MPI_Wtime();
	MPI_Request requests[2];
	int in = 0, out = 1;

	for (int i = 0; i < TIMES; i++) {
		calls->irecv(&in, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &requests[0]);
		calls->isend(&out, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &requests[1]);
		calls->waitall(2, requests, statuses);
	}
	return 1e9 * (MPI_Wtime() - start) / TIMES;
}

/* us of MPI_Waitall over many host requests, the first of which is another one. */
static double time_waitall(const struct calls *calls, int *first)
{
	static MPI_Request requests[MANY];
	static int values[MANY];
	double start;

	for (int i = 0; i < MANY / 2; i++)
		calls->irecv(i ? &values[i] : first, 1, MPI_INT, 0, i, MPI_COMM_SELF, &requests[i]);
	for (int i = 0; i < MANY / 2; i++)
		calls->isend(&values[MANY / 2 + i], 1, MPI_INT, 0, i, MPI_COMM_SELF,
			     &requests[MANY / 2 + i]);
	start = MPI_Wtime();
	calls->waitall(MANY, requests, statuses);
	return 1e6 * (MPI_Wtime() - start);
}

static void measure_calls(int *device)
{
	enum { ROUNDS = 31 };
	struct calls own = own_calls(), through = {MPI_Isend, MPI_Irecv, MPI_Waitall};
	double pairs[2][ROUNDS], waits[2][ROUNDS], a, b;
	int host;

	for (int i = 0; i < ROUNDS; i++) {
		pairs[0][i] = time_pair(&own);
		pairs[1][i] = time_pair(&through);
		waits[0][i] = time_waitall(&own, &host);
		waits[1][i] = time_waitall(&through, device);
	}
	a = median(pairs[0], ROUNDS);
	b = median(pairs[1], ROUNDS);
	printf("host Irecv+Isend+Waitall: own %.1f ns, through the library %.1f ns, added %.1f\n",
	       a, b, b - a);
	a = median(waits[0], ROUNDS);
	b = median(waits[1], ROUNDS);
	printf("MPI_Waitall of %d: own, all host, %.1f us; with one of device memory %.1f us, "
	       "ratio %.2f\n",
	       MANY, a, b, b / a);
}

/* us, half a round trip. */
static double time_trip(void *buffer, int count, MPI_Datatype type, int times)
{
	static double values[MOST];

	for (int i = 0; i < times; i++) {
		double start = MPI_Wtime();

		if (rank == 0) {
			MPI_Send(buffer, count, type, 1, 0, MPI_COMM_WORLD);
			MPI_Recv(buffer, count, type, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		} else {
			MPI_Recv(buffer, count, type, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			MPI_Send(buffer, count, type, 0, 0, MPI_COMM_WORLD);
		}
		values[i] = 0.5e6 * (MPI_Wtime() - start);
	}
	return median(values, times);
}

/* us of a copy in, and one out, one after the other. */
static double time_copies(void *device, void *host, size_t bytes, int times)
{
	static double values[MOST];

	for (int i = 0; i < times; i++) {
		double start = MPI_Wtime();

		must(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost));
		must(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
		values[i] = 1e6 * (MPI_Wtime() - start);
	}
	return median(values, times);
}

static void measure_sizes(void)
{
	enum { LARGEST = 64 << 20, WARM = 4 };
	char *device, *host;

	must(cudaMalloc((void **)&device, LARGEST));
	must(cudaMallocHost((void **)&host, LARGEST));
	if (rank == 0)
		printf("%10s %12s %12s %12s %8s\n", "bytes", "device us", "host us", "copies us",
		       "ratio");
	for (size_t bytes = 8, next; bytes <= LARGEST; bytes = next) {
		int times = bytes > 1 << 20 ? 20 : MOST;
		double on_device, on_host, copies;

		time_trip(device, (int)bytes, MPI_BYTE, WARM);
		on_device = time_trip(device, (int)bytes, MPI_BYTE, times);
		time_trip(host, (int)bytes, MPI_BYTE, WARM);
		on_host = time_trip(host, (int)bytes, MPI_BYTE, times);
		copies = time_copies(device, host, bytes, times);
		next = bytes < LARGEST && bytes * 8 > LARGEST ? LARGEST : bytes * 8;
		if (rank == 0)
			printf("%10zu %12.2f %12.2f %12.2f %8.2f\n", bytes, on_device, on_host,
			       copies, on_device / (on_host + copies));
	}
	must(cudaFree(device));
	must(cudaFreeHost(host));
}

/* us: half a round trip of a face that the program packs on the host. */
static double time_packed(double *cube, MPI_Datatype face, char *packed, int bytes, int times)
{
	static double values[MOST];

	for (int i = 0; i < times; i++) {
		double start = MPI_Wtime();

		for (int turn = 0; turn < 2; turn++) {
			int position = 0;

			if (turn == rank) {
				MPI_Pack(cube, 1, face, packed, bytes, &position, MPI_COMM_WORLD);
				MPI_Send(packed, position, MPI_PACKED, 1 - rank, 0, MPI_COMM_WORLD);
			} else {
				MPI_Recv(packed, bytes, MPI_PACKED, 1 - rank, 0, MPI_COMM_WORLD,
					 MPI_STATUS_IGNORE);
				MPI_Unpack(packed, bytes, &position, cube, 1, face, MPI_COMM_WORLD);
			}
		}
		values[i] = 0.5e6 * (MPI_Wtime() - start);
	}
	return median(values, times);
}

static void measure_face(void)
{
	enum { TIMES = 20, BYTES = SIDE * SIDE * (int)sizeof(double) };
	size_t all = (size_t)SIDE * BYTES;
	double *device, *host = calloc(1, all), on_device, on_host, copies;
	char *packed;
	MPI_Datatype face;

	must(cudaMalloc((void **)&device, all));
	must(cudaMallocHost((void **)&packed, BYTES));
	MPI_Type_vector(SIDE * SIDE, 1, SIDE, MPI_DOUBLE, &face);
	MPI_Type_commit(&face);
	time_trip(device, 1, face, 2);
	on_device = time_trip(device, 1, face, TIMES);
	on_host = time_packed(host, face, packed, BYTES, TIMES);
	copies = time_copies(device, packed, BYTES, TIMES);
	if (rank == 0)
		printf("face of %d x %d doubles, strided: device %.1f us; packed on the host %.1f "
		       "us and copies %.1f us; ratio %.2f\n",
		       SIDE, SIDE, on_device, on_host, copies, on_device / (on_host + copies));
	MPI_Type_free(&face);
	must(cudaFree(device));
	must(cudaFreeHost(packed));
	free(host);
}

int main(int argc, char **argv)
{
	int size, *device;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (size != 2) {
		fprintf(stderr, "messages: two ranks are needed, and there are %d\n", size);
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	must(cudaMalloc((void **)&device, sizeof(*device)));
	if (rank == 0)
		measure_calls(device);
	measure_sizes();
	measure_face();
	must(cudaFree(device));
	MPI_Finalize();
	return 0;
}
