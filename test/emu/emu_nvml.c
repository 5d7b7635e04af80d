/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A stand-in for NVML's functions about NVLinks. EMU_NVML lists the links of each GPU of the
 * emulated driver, GPUs with `;` between: the number of the GPU at the other end, `s` for an
 * NVSwitch, `h` for one that a hypervisor hides, `x` for a link that is down. "11s;00s" is two GPUs
 * with two links between them, and one each to a switch. EMU_NVML_APART lists pairs of GPUs that
 * have no peer access, as in "01,23".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	SUCCESS = 0,
	INVALID = 2,
	NOT_SUPPORTED = 3,
	GPU = 0,
	SWITCH = 2,
	CHIPSET_NOT_SUPPORTED = 1
};

struct pci {
	char legacy_bus[16];
	unsigned domain, bus, device, device_id, subsystem_id;
	char bus_id[32];
};

static const char *links_of(void *device)
{
	const char *links = getenv("EMU_NVML");

	for (size_t i = (size_t)device - 1; links && i; i--) {
		links = strchr(links, ';');
		links = links ? links + 1 : NULL;
	}
	return links ? links : "";
}

/* 0: there is no such link. */
static char link_of(void *device, unsigned link)
{
	const char *links = links_of(device);

	return strcspn(links, ";") > link ? links[link] : 0;
}

int nvmlInit_v2(void);
int nvmlInit_v2(void)
{
	return SUCCESS;
}

int nvmlShutdown(void);
int nvmlShutdown(void)
{
	return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetCount_v2(unsigned *count)
{
	const char *links = getenv("EMU_NVML");

	for (*count = 1; links && *links; links++)
		*count += *links == ';';
	return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
	*device = (void *)(size_t)(index + 1);
	return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(void *device, struct pci *pci);
int nvmlDeviceGetPciInfo_v3(void *device, struct pci *pci)
{
	memset(pci, 0, sizeof(*pci));
	pci->bus = (unsigned)(size_t)device;
	return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor);
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor)
{
	(void)device;
	*major = 8;
	*minor = 0;
	return SUCCESS;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device)
{
	unsigned number;

	if (sscanf(bus, "0000:%x:00.0", &number) != 1)
		return INVALID;
	*device = (void *)(size_t)number; /* GPU i is at bus i + 1 */
	return SUCCESS;
}

int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *active);
int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *active)
{
	char end = link_of(device, link);

	*active = end != 'x';
	return end ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, struct pci *pci);
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, struct pci *pci)
{
	char end = link_of(device, link);

	if (end == 'h')
		return NOT_SUPPORTED;
	memset(pci, 0, sizeof(*pci));
	pci->bus = end == 's' ? 0xc4 : (unsigned)(end - '0') + 1;
	return SUCCESS;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, int *type);
int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, int *type)
{
	char end = link_of(device, link);

	*type = end == 's' || end == 'h' ? SWITCH : GPU;
	return SUCCESS;
}

int nvmlDeviceGetP2PStatus(void *a, void *b, int what, int *status);
int nvmlDeviceGetP2PStatus(void *a, void *b, int what, int *status)
{
	const char *pairs = getenv("EMU_NVML_APART");
	char one = (char)('0' + (size_t)a - 1), other = (char)('0' + (size_t)b - 1);

	(void)what;
	*status = 0;
	for (; pairs && pairs[0] && pairs[1]; pairs += pairs[2] ? 3 : 2) {
		if ((pairs[0] == one && pairs[1] == other) ||
		    (pairs[0] == other && pairs[1] == one))
			*status = CHIPSET_NOT_SUPPORTED;
	}
	return SUCCESS;
}
