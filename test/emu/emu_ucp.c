/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Preloaded, it makes of an installed UCX another one, by the words in EMU_UCP:
 *
 *   cuda  one that was built with CUDA, for active messages: the network reads and writes device
 *         memory itself, as by GPUDirect RDMA. It says at the end how many messages that were. This
 *         is the default.
 *   rdma  one that says that it has hardware which moves messages alone, though it has sockets.
 *   deaf  one with a transport that wakes nobody, as Amazon's SRD.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <ucp/api/ucp.h>

#define TEXT_OF(x) #x
#define NAME_OF(x) TEXT_OF(x) /* cuda.h's macros give functions their versions */

static atomic_long sent, received;

/* What a message's callback needs. */
struct use {
	ucp_request_param_t theirs;
	uintptr_t device;
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

/*
 * Aborts where it is not device memory, or its context is not current, as CUDA's parts of UCX take
 * the one that is.
 */
static void check(CUdeviceptr address, size_t bytes)
{
	__typeof__(&cuPointerGetAttribute) get = driver(NAME_OF(cuPointerGetAttribute));
	__typeof__(&cuMemGetAddressRange) get_range = driver(NAME_OF(cuMemGetAddressRange));
	__typeof__(&cuCtxGetCurrent) get_current = driver(NAME_OF(cuCtxGetCurrent));
	CUcontext context, current;
	CUdeviceptr start;
	size_t size;

	if (get(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address) || get_current(&current) ||
	    context != current || get_range(&start, &size, address) ||
	    address + bytes > start + size)
		abort();
}

static void *reach(uintptr_t device, int change)
{
	void *(*reach_memory)(uintptr_t, int) = driver("cuemu_reach");

	return reach_memory(device, change);
}

/*
 * `*ours`: the parameters for where the network finds device memory, and for a callback that gets
 * the use.
 */
static struct use *begin_use(const void *device, size_t bytes, const ucp_request_param_t *param,
			     ucp_request_param_t *ours)
{
	struct use *use = malloc(sizeof(*use));

	if (!use)
		abort();
	check((CUdeviceptr)device, bytes);
	*use = (struct use){*param, (uintptr_t)device};
	*ours = *param;
	ours->memory_type = UCS_MEMORY_TYPE_HOST;
	ours->user_data = use;
	return use;
}

/* Returns what the caller gave. */
static ucp_request_param_t end_use(struct use *use)
{
	ucp_request_param_t theirs = use->theirs;

	reach(use->device, -1);
	free(use);
	return theirs;
}

static bool is_wanted(const char *word)
{
	const char *words = getenv("EMU_UCP");

	return strstr(words ? words : "cuda", word);
}

void ucp_context_print_info(const ucp_context_h context, FILE *out)
{
	__typeof__(&ucp_context_print_info) print = next("ucp_context_print_info");

	print(context, out);
	if (is_wanted("rdma"))
		fputs("#  resource 99 :  md 99 dev 99 flags -- rc_verbs/emulated:1\n", out);
	if (is_wanted("deaf"))
		fputs("#  resource 98 :  md 98 dev 98 flags -- srd/emulated:1\n", out);
}

/* A descriptor that nothing is ever written to. */
ucs_status_t ucp_worker_get_efd(ucp_worker_h worker, int *fd)
{
	__typeof__(&ucp_worker_get_efd) get = next("ucp_worker_get_efd");

	if (!is_wanted("deaf"))
		return get(worker, fd);
	*fd = eventfd(0, EFD_CLOEXEC);
	return *fd >= 0 ? UCS_OK : UCS_ERR_IO_ERROR;
}

static bool is_device(const ucp_request_param_t *param, size_t bytes)
{
	return bytes && param->op_attr_mask & UCP_OP_ATTR_FIELD_MEMORY_TYPE &&
	       param->memory_type == UCS_MEMORY_TYPE_CUDA;
}

ucs_status_t ucp_context_query(ucp_context_h context, ucp_context_attr_t *attributes)
{
	__typeof__(&ucp_context_query) query = next("ucp_context_query");
	ucs_status_t status = query(context, attributes);

	if (attributes->field_mask & UCP_ATTR_FIELD_MEMORY_TYPES && is_wanted("cuda"))
		attributes->memory_types |= UCS_BIT(UCS_MEMORY_TYPE_CUDA);
	return status;
}

static void on_sent(void *request, ucs_status_t status, void *user)
{
	ucp_request_param_t theirs = end_use(user);

	theirs.cb.send(request, status, theirs.user_data);
}

ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h endpoint, unsigned id, const void *header,
				 size_t header_bytes, const void *data, size_t bytes,
				 const ucp_request_param_t *param)
{
	__typeof__(&ucp_am_send_nbx) send = next("ucp_am_send_nbx");
	ucp_request_param_t ours;
	ucs_status_ptr_t request;
	struct use *use;

	if (!is_device(param, bytes))
		return send(endpoint, id, header, header_bytes, data, bytes, param);
	use = begin_use(data, bytes, param, &ours);
	ours.cb.send = on_sent;
	request = send(endpoint, id, header, header_bytes, reach(use->device, 1), bytes, &ours);
	if (!UCS_PTR_IS_PTR(request))
		end_use(use);
	atomic_fetch_add(&sent, 1);
	return request;
}

static void on_received(void *request, ucs_status_t status, size_t bytes, void *user)
{
	ucp_request_param_t theirs = end_use(user);

	theirs.cb.recv_am(request, status, bytes, theirs.user_data);
}

/* Only as this library calls it: it never completes at once. */
ucs_status_ptr_t ucp_am_recv_data_nbx(ucp_worker_h worker, void *descriptor, void *to, size_t bytes,
				      const ucp_request_param_t *param)
{
	__typeof__(&ucp_am_recv_data_nbx) receive = next("ucp_am_recv_data_nbx");
	ucp_request_param_t ours;
	ucs_status_ptr_t request;
	struct use *use;

	if (!is_device(param, bytes))
		return receive(worker, descriptor, to, bytes, param);
	use = begin_use(to, bytes, param, &ours);
	ours.cb.recv_am = on_received;
	request = receive(worker, descriptor, reach(use->device, 1), bytes, &ours);
	if (!UCS_PTR_IS_PTR(request))
		end_use(use);
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
