/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Preloaded, it makes of an installed UCX one that was built with CUDA, for active messages: what
 * is in device memory it copies to the host and back. It says at the end how much that was.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

#define TEXT_OF(x) #x
#define NAME_OF(x) TEXT_OF(x) /* cuda.h's macros give functions their versions */

static atomic_long sent, received;

/* What a message's callback needs. */
struct bounce {
	ucp_request_param_t theirs;
	CUdeviceptr device;
	size_t bytes;
	char data[];
};

static void *next(const char *name)
{
	void *address = dlsym(RTLD_NEXT, name);

	if (!address)
		abort();
	return address;
}

static void *driver(const char *name)
{
	static void *libcuda;
	void *address;

	if (!libcuda)
		libcuda = dlopen("libcuda.so.1", RTLD_NOW);
	address = libcuda ? dlsym(libcuda, name) : NULL;
	if (!address)
		abort();
	return address;
}

/* Aborts where it is not device memory, or its context is not current, as CUDA's parts of UCX take
 * the one that is. */
static void copy(struct bounce *bounce, bool to_device)
{
	__typeof__(&cuPointerGetAttribute) get = driver(NAME_OF(cuPointerGetAttribute));
	__typeof__(&cuCtxGetCurrent) get_current = driver(NAME_OF(cuCtxGetCurrent));
	__typeof__(&cuMemcpyHtoD) put = driver(NAME_OF(cuMemcpyHtoD));
	__typeof__(&cuMemcpyDtoH) fetch = driver(NAME_OF(cuMemcpyDtoH));
	__typeof__(&cuStreamSynchronize) wait = driver(NAME_OF(cuStreamSynchronize));
	CUcontext context, current;

	if (get(&context, CU_POINTER_ATTRIBUTE_CONTEXT, bounce->device) || get_current(&current) ||
	    context != current)
		abort();
	if (to_device ? put(bounce->device, bounce->data, bounce->bytes)
		      : fetch(bounce->data, bounce->device, bounce->bytes))
		abort();
	if (wait(NULL)) /* copies from ordinary memory return before they are done */
		abort();
}

static bool is_device(const ucp_request_param_t *param, size_t bytes)
{
	return bytes && param->op_attr_mask & UCP_OP_ATTR_FIELD_MEMORY_TYPE &&
	       param->memory_type == UCS_MEMORY_TYPE_CUDA;
}

/* `*ours`: the parameters for host memory and a callback that gets the bounce. */
static struct bounce *new_bounce(const ucp_request_param_t *param, const void *device, size_t bytes,
				 ucp_request_param_t *ours)
{
	struct bounce *bounce = malloc(sizeof(*bounce) + bytes);

	if (!bounce)
		abort();
	bounce->theirs = *param;
	bounce->device = (CUdeviceptr)device;
	bounce->bytes = bytes;
	*ours = *param;
	ours->memory_type = UCS_MEMORY_TYPE_HOST;
	ours->user_data = bounce;
	return bounce;
}

ucs_status_t ucp_context_query(ucp_context_h context, ucp_context_attr_t *attributes)
{
	__typeof__(&ucp_context_query) query = next("ucp_context_query");
	ucs_status_t status = query(context, attributes);

	if (attributes->field_mask & UCP_ATTR_FIELD_MEMORY_TYPES)
		attributes->memory_types |= UCS_BIT(UCS_MEMORY_TYPE_CUDA);
	return status;
}

static void on_sent(void *request, ucs_status_t status, void *user)
{
	struct bounce *bounce = user;

	bounce->theirs.cb.send(request, status, bounce->theirs.user_data);
	free(bounce);
}

ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h endpoint, unsigned id, const void *header,
				 size_t header_bytes, const void *data, size_t bytes,
				 const ucp_request_param_t *param)
{
	__typeof__(&ucp_am_send_nbx) send = next("ucp_am_send_nbx");
	ucp_request_param_t ours;
	struct bounce *bounce;
	ucs_status_ptr_t request;

	if (!is_device(param, bytes))
		return send(endpoint, id, header, header_bytes, data, bytes, param);
	bounce = new_bounce(param, data, bytes, &ours);
	copy(bounce, false);
	ours.cb.send = on_sent;
	request = send(endpoint, id, header, header_bytes, bounce->data, bytes, &ours);
	if (!UCS_PTR_IS_PTR(request))
		free(bounce);
	atomic_fetch_add(&sent, 1);
	return request;
}

static void on_received(void *request, ucs_status_t status, size_t bytes, void *user)
{
	struct bounce *bounce = user;

	if (status == UCS_OK)
		copy(bounce, true);
	bounce->theirs.cb.recv_am(request, status, bytes, bounce->theirs.user_data);
	free(bounce);
}

/* Only as this library calls it: it never completes at once. */
ucs_status_ptr_t ucp_am_recv_data_nbx(ucp_worker_h worker, void *descriptor, void *to, size_t bytes,
				      const ucp_request_param_t *param)
{
	__typeof__(&ucp_am_recv_data_nbx) receive = next("ucp_am_recv_data_nbx");
	ucp_request_param_t ours;
	struct bounce *bounce;
	ucs_status_ptr_t request;

	if (!is_device(param, bytes))
		return receive(worker, descriptor, to, bytes, param);
	bounce = new_bounce(param, to, bytes, &ours);
	ours.cb.recv_am = on_received;
	request = receive(worker, descriptor, bounce->data, bytes, &ours);
	if (!UCS_PTR_IS_PTR(request))
		free(bounce);
	atomic_fetch_add(&received, 1);
	return request;
}

/* Who looks for UCX's functions in what this returns finds those above. */
void *dlopen(const char *name, int flags)
{
	void *(*open)(const char *, int) = (void *(*)(const char *, int))next("dlopen");
	void *handle =
		open(name, name && !strcmp(name, "libucp.so.0") ? flags | RTLD_GLOBAL : flags);

	return handle && name && !strcmp(name, "libucp.so.0") ? open(NULL, RTLD_NOW) : handle;
}

static void __attribute__((destructor)) say(void)
{
	if (sent || received)
		fprintf(stderr, "emu_ucp: %ld messages from device memory, %ld into it\n", sent,
			received);
}
