/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/nccl_door.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static _Thread_local char last[400];

ncclResult_t nccl_fail(ncclResult_t result, const char *format, ...)
{
	const char *debug = getenv("NCCL_DEBUG");
	va_list args;

	va_start(args, format);
	vsnprintf(last, sizeof(last), format, args);
	va_end(args);
	if (debug && strcasecmp(debug, "VERSION"))
		fprintf(stderr, "gpucoll-nccl WARN %s\n", last);
	return result;
}

const char *ncclGetLastError(ncclComm_t comm)
{
	(void)comm;
	return last;
}

/* NCCL_DEBUG is read each time. */
void ncclResetDebugInit(void)
{
}

const char *ncclGetErrorString(ncclResult_t result)
{
	static const char *const texts[ncclNumResults] = {
		[ncclSuccess] = "no error",
		[ncclUnhandledCudaError] = "a CUDA call failed",
		[ncclSystemError] = "a system call or the MPI failed",
		[ncclInternalError] = "internal error",
		[ncclInvalidArgument] = "invalid argument",
		[ncclInvalidUsage] = "invalid usage",
		[ncclRemoteError] = "another rank failed, or is lost",
		[ncclInProgress] = "in progress",
	};

	return result >= 0 && result < ncclNumResults ? texts[result] : "unknown result code";
}

ncclResult_t nccl_of_mpi(int error, const char *call)
{
	char text[MPI_MAX_ERROR_STRING] = "";
	int length;

	if (error == MPI_SUCCESS)
		return ncclSuccess;
	MPI_Error_string(error, text, &length);
	return nccl_fail(ncclSystemError, "%s failed: %s", call, text);
}

ncclResult_t nccl_of_driver(CUresult result, const char *call)
{
	const char *name = "?";

	if (result == CUDA_SUCCESS)
		return ncclSuccess;
	nccl_driver.cuGetErrorName(result, &name);
	return nccl_fail(ncclUnhandledCudaError, "%s failed: %s", call, name);
}
