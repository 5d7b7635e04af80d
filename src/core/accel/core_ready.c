/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/accel/core_ready.h"
#include "core/call/core_layout.h"
#include "gpu/gpu_pointer.h"

static bool is_on_device(const struct core_buffer *buffer, struct gpu_pointer *where)
{
	if (buffer->lo == buffer->hi)
		return false;
	gpu_pointer_classify(core_address((void *)buffer->address, buffer->lo), where);
	return where->memory != GPU_MEMORY_HOST;
}

/*
 * What is not marked is asked for when it is looked at: where there is no stream for it, or there
 * are two contexts, which is for staging to know.
 */
void core_ready_mark(struct core_accel *accel)
{
	struct gpu_pointer in, out;
	bool has_in = is_on_device(&accel->shape.in, &in);
	bool has_out = is_on_device(&accel->shape.out, &out);

	if (has_in && has_out && !gpu_pointer_in_one_context(&in, &out))
		return;
	if (!has_in && !has_out)
		return;
	if (gpu_stream_get(has_out && (out.context || !has_in) ? &out : &in, &accel->marks) ==
	    UTIL_OK)
		core_ready_poll(accel);
}

enum util_status core_ready_poll(struct core_accel *accel)
{
	enum util_status status;

	if (accel->ready)
		return UTIL_OK;
	status = gpu_stream_poll_legacy(accel->marks ? accel->marks : accel->stream);
	accel->ready = status == UTIL_OK;
	if (status != UTIL_IN_PROGRESS)
		core_ready_close(accel);
	return status;
}

void core_ready_close(struct core_accel *accel)
{
	if (accel->marks)
		gpu_stream_put(accel->marks);
	accel->marks = NULL;
}
