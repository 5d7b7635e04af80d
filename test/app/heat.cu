/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An MPI program with kernels of its own, as people write them: heat on a plate, rows divided among
 * the ranks, with halos that are sent from device memory and a residual that is summed there. The
 * result is compared with the same steps on the host, bit by bit.
 */
#include <cuda_runtime.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 37, COLUMNS = 45, STEPS = 20, THREADS = 96 };

static void check(cudaError_t error, const char *what)
{
	if (error == cudaSuccess)
		return;
	fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
	MPI_Abort(MPI_COMM_WORLD, 1);
}

__host__ __device__ static float start_at(int row, int column)
{
	return (float)((row * 31 + column * 17) % 97) / 8;
}

/* Row 0 and the last are halos, or the plate's edges. */
__global__ void begin(float *plate, int first, int rows)
{
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < (rows + 2) * COLUMNS;
	     i += gridDim.x * blockDim.x)
		plate[i] = start_at(first + i / COLUMNS - 1, i % COLUMNS);
}

__global__ void step(const float *from, float *to, int rows, double *residual)
{
	extern __shared__ double sums[];
	double sum = 0;

	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < rows * COLUMNS;
	     i += gridDim.x * blockDim.x) {
		int at = i + COLUMNS, column = i % COLUMNS;

		to[at] = from[at];
		if (column && column < COLUMNS - 1)
			to[at] = .25f * (from[at - 1] + from[at + 1] + from[at - COLUMNS] +
					 from[at + COLUMNS]);
		sum += fabs((double)to[at] - (double)from[at]);
	}
	sums[threadIdx.x] = sum;
	__syncthreads();
	for (int width = blockDim.x; width > 1; width = (width + 1) / 2) {
		if (threadIdx.x < width / 2)
			sums[threadIdx.x] += sums[threadIdx.x + (width + 1) / 2];
		__syncthreads();
	}
	if (threadIdx.x == 0)
		atomicAdd(residual, sums[0]);
}

static double step_on_host(const float *from, float *to)
{
	double residual = 0;

	for (int i = 0; i < (ROWS + 2) * COLUMNS; i++) {
		int row = i / COLUMNS, column = i % COLUMNS;

		to[i] = from[i];
		if (row && row <= ROWS && column && column < COLUMNS - 1)
			to[i] = .25f *
				(from[i - 1] + from[i + 1] + from[i - COLUMNS] + from[i + COLUMNS]);
		residual += fabs((double)to[i] - (double)from[i]);
	}
	return residual;
}

static int compare(const float *mine, int first, int rows, double residual)
{
	static float plates[2][(ROWS + 2) * COLUMNS];
	double expected = 0;
	int wrong = 0;

	for (int i = 0; i < (ROWS + 2) * COLUMNS; i++)
		plates[0][i] = start_at(i / COLUMNS - 1, i % COLUMNS);
	for (int i = 0; i < STEPS; i++)
		expected = step_on_host(plates[i % 2], plates[(i + 1) % 2]);
	for (int i = COLUMNS; i < (rows + 1) * COLUMNS; i++)
		wrong += mine[i] != plates[STEPS % 2][first * COLUMNS + i];
	return wrong + (fabs(residual - expected) > 1e-9 * expected);
}

int main(int argc, char **argv)
{
	int rank, size, first, rows, up, down, wrong, all_wrong;
	float *plates[2], *host;
	double *residual, sum;
	size_t bytes;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	first = ROWS * rank / size;
	rows = ROWS * (rank + 1) / size - first;
	up = rank ? rank - 1 : MPI_PROC_NULL;
	down = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
	bytes = (size_t)(rows + 2) * COLUMNS * sizeof(float);
	host = (float *)malloc(bytes);
	check(cudaMalloc((void **)&residual, sizeof(*residual)), "cudaMalloc");
	for (int i = 0; i < 2; i++) {
		check(cudaMalloc((void **)&plates[i], bytes), "cudaMalloc");
		begin<<<3, THREADS>>>(plates[i], first, rows);
	}
	for (int i = 0; i < STEPS; i++) {
		float *from = plates[i % 2], *to = plates[(i + 1) % 2];

		check(cudaMemset(residual, 0, sizeof(*residual)), "cudaMemset");
		step<<<4, THREADS, THREADS * sizeof(double)>>>(from, to, rows, residual);
		check(cudaDeviceSynchronize(), "step");
		MPI_Sendrecv(to + COLUMNS, COLUMNS, MPI_FLOAT, up, 0, to + (rows + 1) * COLUMNS,
			     COLUMNS, MPI_FLOAT, down, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Sendrecv(to + rows * COLUMNS, COLUMNS, MPI_FLOAT, down, 1, to, COLUMNS,
			     MPI_FLOAT, up, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Allreduce(MPI_IN_PLACE, residual, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	}
	check(cudaMemcpy(host, plates[STEPS % 2], bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
	check(cudaMemcpy(&sum, residual, sizeof(sum), cudaMemcpyDeviceToHost), "cudaMemcpy");
	wrong = compare(host, first, rows, sum);
	MPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%d ranks, residual %g: %d wrong\n", size, sum, all_wrong);
	MPI_Finalize();
	return all_wrong != 0;
}
