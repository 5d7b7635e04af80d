/* SPDX-License-Identifier: BSD-3-Clause */
#include "doctor.h"
#include "info-machine.h"
#include "net/net_context.h"
#include "topo/topo_nic.h"
#include "topo/topo_path.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- limits ---- */

static void look_at_shared_memory(void)
{
	static const double least = 64 << 20;
	struct statvfs status;
	double bytes;

	if (statvfs("/dev/shm", &status)) {
		doctor_say(DOCTOR_BAD, "shared memory", "everything is staged",
			   "mount a tmpfs at /dev/shm", "/dev/shm is not there");
		return;
	}
	bytes = (double)status.f_bavail * (double)status.f_frsize;
	if (bytes < least)
		doctor_say(DOCTOR_WARN, "shared memory",
			   "large jobs are staged: there is no room for the processes' board",
			   "more of it: docker run --shm-size=1g, or mount -o remount,size=1g "
			   "/dev/shm",
			   "%.0f MiB are left in /dev/shm", bytes / (1 << 20));
	else
		doctor_say(DOCTOR_OK, "shared memory", NULL, NULL, "%.0f MiB are left in /dev/shm",
			   bytes / (1 << 20));
}

static void look_at_limits(void)
{
	enum { FEW_FILES = 1024 };
	struct rlimit files, locked, size;

	getrlimit(RLIMIT_NOFILE, &files);
	getrlimit(RLIMIT_MEMLOCK, &locked);
	getrlimit(RLIMIT_FSIZE, &size);
	if (files.rlim_cur < FEW_FILES)
		doctor_say(DOCTOR_WARN, "open files",
			   "with many ranks or nodes, descriptors run out, and calls are staged",
			   "ulimit -n 65536", "at most %llu for a process",
			   (unsigned long long)files.rlim_cur);
	else
		doctor_say(DOCTOR_OK, "open files", NULL, NULL, "at most %llu for a process",
			   (unsigned long long)files.rlim_cur);
	if (locked.rlim_cur != RLIM_INFINITY)
		doctor_say(DOCTOR_NOTE, "locked memory",
			   "nothing on a node; verbs between nodes want it unlimited",
			   "ulimit -l unlimited, where there is InfiniBand or RoCE",
			   "at most %llu KiB", (unsigned long long)locked.rlim_cur >> 10);
	else
		doctor_say(DOCTOR_OK, "locked memory", NULL, NULL, "unlimited");
	if (size.rlim_cur != RLIM_INFINITY)
		doctor_say(DOCTOR_WARN, "size of files",
			   "the board in shared memory may be refused, and everything staged",
			   "ulimit -f unlimited", "at most %llu KiB",
			   (unsigned long long)size.rlim_cur >> 10);
}

static void look_at_kernel(void)
{
	int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

	if (fd < 0)
		doctor_say(DOCTOR_NOTE, "lost processes",
			   "processes that end are noticed by asking for their numbers", NULL,
			   "the kernel, or a filter, has no pidfd_open");
	else
		doctor_say(DOCTOR_OK, "lost processes", NULL, NULL, "the kernel tells of them");
	if (fd >= 0)
		close(fd);
}

/* ---- the network ---- */

static void look_at_ucx(void)
{
	unsigned major, minor, release;
	ucp_context_h context;
	char interface[64] = "";
	bool gdr, sockets, one = false;

	if (!net_ucx_load()) {
		doctor_say(DOCTOR_WARN, "UCX", "calls between nodes are staged",
			   "install UCX 1.11 or later, or name it in LD_LIBRARY_PATH",
			   "it can't be loaded");
		return;
	}
	net_ucx.ucp_get_version(&major, &minor, &release);
	topo_nic_interface(TOPO_SYSFS, interface, sizeof(interface));
	if (net_context_open(&(struct net_devices){NULL, interface}, &context, &one) != UTIL_OK) {
		doctor_say(DOCTOR_WARN, "UCX", "calls between nodes are staged",
			   "see what UCX says with UCX_LOG_LEVEL=info",
			   "version %u.%u.%u does not open", major, minor, release);
		return;
	}
	sockets = net_context_is_by_sockets(context);
	gdr = net_context_takes_device_memory(context);
	doctor_say(sockets ? DOCTOR_NOTE : DOCTOR_OK, "UCX",
		   sockets ? "messages between nodes go by TCP, by the processor's hand" : NULL,
		   sockets ? "where there is InfiniBand or RoCE: rdma-core, and no UCX_TLS without "
			     "it; another interface: UCX_NET_DEVICES"
			   : NULL,
		   "version %u.%u.%u, %s%s%s, %s", major, minor, release,
		   sockets ? "sockets only" : "network hardware", one ? ", by " : "",
		   one ? interface : "",
		   gdr ? "takes device memory"
		       : "does not take device memory (built without CUDA)");
	net_ucx.ucp_cleanup(context);
}

static void look_at_machine(void)
{
	struct topo_machine *machine = info_find_machine();
	int gpu;

	if (!machine) {
		doctor_say(DOCTOR_NOTE, "topology", "all GPUs and NICs count as alike",
			   "install hwloc 2 (libhwloc15)", "hwloc does not find the machine");
		return;
	}
	for (int i = 0; (gpu = topo_machine_nth(machine, TOPO_GPU, i)) >= 0; i++) {
		int nic = topo_path_nic_of(machine, gpu);

		if (nic >= 0)
			doctor_say(DOCTOR_OK, "NIC",
				   "its processes use that one alone, if all are in one network",
				   NULL, "%s is nearest to %s (%s)", machine->objects[nic].name,
				   machine->objects[gpu].name,
				   topo_class_name(topo_path_between(machine, gpu, nic).class));
	}
	if (topo_machine_nth(machine, TOPO_NIC, 0) < 0)
		doctor_say(DOCTOR_NOTE, "NIC", "UCX chooses", NULL, "none is to be seen on PCI");
	topo_machine_free(machine);
}

/* ---- MPIs ---- */

/* The first line that a command prints; false: there is none. */
static bool ask(const char *command, char *line, size_t bytes)
{
	FILE *out = popen(command, "r");
	bool said;

	if (!out)
		return false;
	said = fgets(line, (int)bytes, out) != NULL;
	while (fgetc(out) != EOF)
		;
	line[said ? strcspn(line, "\n") : 0] = 0;
	return pclose(out) == 0 && said && *line;
}

static void look_at_mpis(void)
{
	char line[256], aware[256];
	int found = 0;

	if (ask("timeout 20 ompi_info --version 2>/dev/null", line, sizeof(line))) {
		bool is_aware = ask("timeout 20 ompi_info --parsable --all 2>/dev/null | grep "
				    "'mpi_built_with_cuda_support:value:true'",
				    aware, sizeof(aware));

		doctor_say(DOCTOR_OK, "MPI", "host buffers and point-to-point go to it as they are",
			   NULL, "%s, %s", line,
			   is_aware ? "built with CUDA" : "built without CUDA");
		found++;
	}
	if (ask("(timeout 20 mpichversion || timeout 20 mpiexec.mpich --version || timeout 20 "
		"mpiexec.hydra --version) 2>/dev/null | grep -i -m 1 version",
		line, sizeof(line))) {
		doctor_say(DOCTOR_OK, "MPI", "host buffers and point-to-point go to it as they are",
			   NULL, "MPICH or a relative, %s", line);
		found++;
	}
	if (!found)
		doctor_say(DOCTOR_NOTE, "MPI", NULL, "module load, or PATH",
			   "neither Open MPI's nor MPICH's programs are in PATH");
}

void doctor_look_at_system(void)
{
	look_at_shared_memory();
	look_at_limits();
	look_at_kernel();
	look_at_machine();
	look_at_ucx();
	look_at_mpis();
}
