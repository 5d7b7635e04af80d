/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * As much of NVML as UCX's CUDA module is linked with, and asks for when it is loaded: there is no
 * NVML that works. In a folder of its own, as other tests are of machines without any.
 */
enum { DRIVER_NOT_LOADED = 9 };

int nvmlInit_v2(void);
int nvmlShutdown(void);
const char *nvmlErrorString(int result);

int nvmlInit_v2(void)
{
	return DRIVER_NOT_LOADED;
}

int nvmlShutdown(void)
{
	return 0;
}

const char *nvmlErrorString(int result)
{
	return result ? "the driver is not loaded" : "success";
}
