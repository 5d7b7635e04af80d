/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NVTX 3 is headers only: its first call looks whether a profiler has put its library's name into
 * the environment (NVTX_INJECTION64_PATH), and without one there are no domains. The headers come
 * with the CUDA Toolkit, but not with each of its parts.
 */
#include "gpu/gpu_range.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

static nvtxDomainHandle_t domain;

bool gpu_range_start(void)
{
	if (!domain)
		domain = nvtxDomainCreateA("gpucoll");
	return domain != NULL;
}

uint64_t gpu_range_begin(const char *name)
{
	nvtxEventAttributes_t event = {
		.version = NVTX_VERSION,
		.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
		.messageType = NVTX_MESSAGE_TYPE_ASCII,
		.message.ascii = name,
	};

	return domain ? nvtxDomainRangeStartEx(domain, &event) : 0;
}

void gpu_range_end(uint64_t range)
{
	if (domain && range)
		nvtxDomainRangeEnd(domain, range);
}
#else
bool gpu_range_start(void)
{
	return false;
}

uint64_t gpu_range_begin(const char *name)
{
	(void)name;
	return 0;
}

void gpu_range_end(uint64_t range)
{
	(void)range;
}
#endif
