/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/util_readable.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>

/* To be read: of devices the kernel does not read for others what a load of ours may. */
static bool is_mapped(uint64_t address)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned long long from, to;
	bool found = false;
	char line[512], may;

	while (maps && !found && fgets(line, sizeof(line), maps))
		found = sscanf(line, "%llx-%llx %c", &from, &to, &may) == 3 && address >= from &&
			address < to && may == 'r';
	if (maps)
		fclose(maps);
	return found;
}

/* The kernel knows what is mapped. Where it may not be asked, all may be read. */
bool util_may_be_read(const void *address)
{
	char byte;
	struct iovec here = {&byte, 1}, there = {(void *)(uintptr_t)address, 1};

	return process_vm_readv(getpid(), &here, 1, &there, 1, 0) >= 0 || errno != EFAULT ||
	       is_mapped((uint64_t)(uintptr_t)address);
}
