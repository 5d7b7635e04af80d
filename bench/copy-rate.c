/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * copy-rate [THREADS]: how fast this machine's cores copy memory together, bytes read plus bytes
 * written. On the emulated device, where kernels run on the cores, it is the rate that limits them.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BYTES = 64 << 20, ROUNDS = 12, MAX_THREADS = 256 };

struct part {
	char *to, *from;
	size_t bytes;
	pthread_barrier_t *barrier;
	double best;
};

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void *copy(void *argument)
{
	struct part *part = argument;

	part->best = 1e9;
	for (int i = 0; i < ROUNDS; i++) {
		double start;

		pthread_barrier_wait(part->barrier);
		start = now();
		memcpy(part->to, part->from, part->bytes);
		pthread_barrier_wait(part->barrier);
		start = now() - start;
		part->best = start < part->best ? start : part->best;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 2;
	struct part parts[MAX_THREADS];
	pthread_t ids[MAX_THREADS];
	pthread_barrier_t barrier;
	char *from = malloc(BYTES), *to = malloc(BYTES);

	if (threads < 1 || threads > MAX_THREADS || !from || !to) {
		fprintf(stderr, "copy-rate: '%s' is no number of threads from 1 to %d\n",
			argc > 1 ? argv[1] : "", MAX_THREADS);
		return 2;
	}
	memset(from, 1, BYTES);
	memset(to, 2, BYTES);
	pthread_barrier_init(&barrier, NULL, (unsigned)threads);
	for (int i = 0; i < threads; i++) {
		size_t bytes = BYTES / (size_t)threads;

		parts[i] = (struct part){.to = to + (size_t)i * bytes,
					 .from = from + (size_t)i * bytes,
					 .bytes = bytes,
					 .barrier = &barrier};
		pthread_create(&ids[i], NULL, copy, &parts[i]);
	}
	for (int i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	printf("%d threads copy %d MiB: %.1f GB/s read and written\n", threads, BYTES >> 20,
	       2e-9 * BYTES / parts[0].best);
	free(from);
	free(to);
	return 0;
}
