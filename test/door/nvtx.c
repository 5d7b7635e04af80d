/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A profiler for NVTX, as NVTX_INJECTION64_PATH names one: writes the ranges of the domain
 * "gpucoll" to standard error, a line for each beginning, and how many have ended at the end.
 */
#include <nvtx3/nvToolsExt.h>

#include <stdio.h>
#include <string.h>

static nvtxRangeId_t begun;
static _Atomic unsigned long ended;

static nvtxDomainHandle_t create(const char *name)
{
	fprintf(stderr, "nvtx domain %s\n", name);
	return (nvtxDomainHandle_t)&begun;
}

static nvtxRangeId_t begin(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event)
{
	(void)domain;
	fprintf(stderr, "nvtx begin %s\n", event->message.ascii);
	return __atomic_add_fetch(&begun, 1, __ATOMIC_RELAXED);
}

static void end(nvtxDomainHandle_t domain, nvtxRangeId_t range)
{
	(void)domain;
	ended += range != 0;
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get);

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get)
{
	const NvtxExportTableCallbacks *callbacks = get(NVTX_ETID_CALLBACKS);
	NvtxFunctionTable table;
	unsigned size;

	if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size))
		return 0;
	*table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create;
	*table[NVTX_CBID_CORE2_DomainRangeStartEx] = (NvtxFunctionPointer)begin;
	*table[NVTX_CBID_CORE2_DomainRangeEnd] = (NvtxFunctionPointer)end;
	return 1;
}

__attribute__((destructor)) static void tell(void)
{
	if (begun)
		fprintf(stderr, "nvtx %lu begun, %lu ended\n", (unsigned long)begun, ended);
}
