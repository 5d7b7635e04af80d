/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that takes MPI's functions from the MPI's own library, as bindings of other languages
 * do: argv[1].
 */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	void *mpi = dlopen(argc > 1 ? argv[1] : "", RTLD_NOW | RTLD_LOCAL);
	int (*start)(int *, char ***), (*end)(void);

	if (!mpi) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	*(void **)&start = dlsym(mpi, "MPI_Init");
	*(void **)&end = dlsym(mpi, "MPI_Finalize");
	cuInit(0);
	start(NULL, NULL);
	puts("started");
	return end();
}
