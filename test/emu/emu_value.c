/* SPDX-License-Identifier: BSD-3-Clause */
/* Words that streams write, and wait for. */
#include "emu.h"

#include <stdlib.h>
#include <time.h>

struct value {
	void *at;
	uint64_t value;
	unsigned flags;
	bool is_short; /* 32 bits */
};

static void write_value(void *argument)
{
	const struct value *value = argument;

	if (value->is_short)
		__atomic_store_n((uint32_t *)value->at, (uint32_t)value->value, __ATOMIC_RELEASE);
	else
		__atomic_store_n((uint64_t *)value->at, value->value, __ATOMIC_RELEASE);
}

static uint64_t load(const struct value *value)
{
	return value->is_short ? __atomic_load_n((uint32_t *)value->at, __ATOMIC_ACQUIRE)
			       : __atomic_load_n((uint64_t *)value->at, __ATOMIC_ACQUIRE);
}

static bool is_reached(const struct value *value)
{
	uint64_t now = load(value);

	switch (value->flags) {
	case CU_STREAM_WAIT_VALUE_EQ:
		return now == value->value;
	case CU_STREAM_WAIT_VALUE_AND:
		return now & value->value;
	default: /* counters may wrap */
		return value->is_short ? (int32_t)((uint32_t)now - (uint32_t)value->value) >= 0
				       : (int64_t)(now - value->value) >= 0;
	}
}

static void wait_value(void *argument)
{
	enum { LONGEST = 100000 }; /* ns; each costs a core of this machine some */
	struct timespec nap = {0, 5000};
	struct timespec aside = {emu_config.wait_us / 1000000,
				 1000L * (long)(emu_config.wait_us % 1000000)};

	/* Also where the word is there: whether it is depends on how this machine is loaded. */
	if (emu_config.wait_us)
		nanosleep(&aside, NULL);
	while (!is_reached(argument) && emu_lost() == CUDA_SUCCESS) {
		nanosleep(emu_config.wait_us ? &aside : &nap, NULL);
		nap.tv_nsec = nap.tv_nsec < LONGEST / 2 ? 2 * nap.tv_nsec : LONGEST;
	}
}

/* The stream that is to have it, and where the word is; an address that is nobody's is refused. */
static CUresult prepare(CUstream handle, CUdeviceptr address, struct value *value,
			struct emu_stream **stream)
{
	size_t bytes = value->is_short ? 4 : 8;
	struct emu_alloc alloc;
	CUresult result = emu_stream_use(handle, stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (address % bytes || !emu_find(address, &alloc) || !emu_covers(&alloc, address, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	value->at = emu_shadow(address);
	return CUDA_SUCCESS;
}

static CUresult submit(CUstream handle, CUdeviceptr address, struct value value, bool waits)
{
	struct emu_stream *stream;
	CUresult result = prepare(handle, address, &value, &stream);
	struct value *argument;

	if (result != CUDA_SUCCESS)
		return result;
	argument = malloc(sizeof(*argument));
	*argument = value;
	if (waits)
		emu_submit_waiting(stream, wait_value, argument);
	else
		emu_submit(stream, write_value, argument);
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuStreamWriteValue32(CUstream stream, CUdeviceptr address,
					      cuuint32_t value, unsigned flags)
{
	EMU_ENTER();
	return submit(stream, address, (struct value){NULL, value, flags, true}, false);
}

EMU_API CUresult CUDAAPI cuStreamWriteValue64(CUstream stream, CUdeviceptr address,
					      cuuint64_t value, unsigned flags)
{
	EMU_ENTER();
	return submit(stream, address, (struct value){NULL, value, flags, false}, false);
}

/* CU_STREAM_WAIT_VALUE_FLUSH is about hardware that writes past the device. */
static CUresult wait_for(CUstream stream, CUdeviceptr address, struct value value)
{
	value.flags &= ~(unsigned)CU_STREAM_WAIT_VALUE_FLUSH;
	if (value.flags > CU_STREAM_WAIT_VALUE_AND)
		return CUDA_ERROR_NOT_SUPPORTED;
	return submit(stream, address, value, true);
}

EMU_API CUresult CUDAAPI cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
					     unsigned flags)
{
	EMU_ENTER();
	return wait_for(stream, address, (struct value){NULL, value, flags, true});
}

EMU_API CUresult CUDAAPI cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
					     unsigned flags)
{
	EMU_ENTER();
	return wait_for(stream, address, (struct value){NULL, value, flags, false});
}
