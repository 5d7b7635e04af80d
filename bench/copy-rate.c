/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * copy-rate [THREADS [SLOT_KIB]]: how fast this machine's cores copy memory together, bytes read
 * plus bytes written. On the emulated device, where kernels run on the cores, it is the rate that
 * limits them. With slots, every other thread copies memory into its slot again and again, and the
 * others out of it, as ranks do that send and receive; the memory is shared, as the device's is.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { BYTES = 64 << 20, ROUNDS = 12, MAX_THREADS = 256 };

struct part {
	char *to, *from;
	size_t bytes;
	size_t slot;   /* bytes; 0: there is none */
	bool receives; /* from the slot */
	pthread_barrier_t *barrier;
	double best;
};

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void copy_part(const struct part *part)
{
	size_t step = part->slot ? part->slot : part->bytes, length;

	for (size_t at = 0; at < part->bytes; at += length) {
		char *to = part->to + (part->slot && !part->receives ? 0 : at);
		const char *from = part->from + (part->slot && part->receives ? 0 : at);

		length = part->bytes - at < step ? part->bytes - at : step;
		memcpy(to, from, length);
	}
}

static void *copy(void *argument)
{
	struct part *part = argument;

	part->best = 1e9;
	for (int i = 0; i < ROUNDS; i++) {
		double start;

		pthread_barrier_wait(part->barrier);
		start = now();
		copy_part(part);
		pthread_barrier_wait(part->barrier);
		start = now() - start;
		part->best = start < part->best ? start : part->best;
	}
	return NULL;
}

static char *allocate(void)
{
	char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return NULL;
	memset(memory, 1, BYTES);
	return memory;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 2;
	size_t slot = argc > 2 ? (size_t)atoi(argv[2]) << 10 : 0;
	struct part parts[MAX_THREADS];
	pthread_t ids[MAX_THREADS];
	pthread_barrier_t barrier;
	char *from = allocate(), *to = allocate();

	if (threads < 1 || threads > MAX_THREADS) {
		fprintf(stderr, "copy-rate: '%s' is no number of threads from 1 to %d\n", argv[1],
			MAX_THREADS);
		return 2;
	}
	if (slot > BYTES / MAX_THREADS) {
		fprintf(stderr, "copy-rate: '%s' is no number of KiB from 0 to %d\n", argv[2],
			(BYTES / MAX_THREADS) >> 10);
		return 2;
	}
	if (!from || !to) {
		fprintf(stderr, "copy-rate: there is no memory\n");
		return 1;
	}
	pthread_barrier_init(&barrier, NULL, (unsigned)threads);
	for (int i = 0; i < threads; i++) {
		size_t bytes = BYTES / (size_t)threads;

		parts[i] = (struct part){.to = to + (size_t)i * bytes,
					 .from = from + (size_t)i * bytes,
					 .bytes = bytes,
					 .slot = slot,
					 .receives = i % 2,
					 .barrier = &barrier};
		pthread_create(&ids[i], NULL, copy, &parts[i]);
	}
	for (int i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	printf("%d threads copy %d MiB: %.1f GB/s read and written\n", threads, BYTES >> 20,
	       2e-9 * BYTES / parts[0].best);
	return 0;
}
