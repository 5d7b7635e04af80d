/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/net_port.h"
#include "net/net_context.h"
#include "net/net_sockets.h"
#include "net/net_ucx.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { AM_ID = 0x67 }; /* of all messages; which they are the header tells */

struct port {
	ucp_worker_h worker;                /* NULL: there is none */
	pthread_mutex_t lock;               /* recursive: handlers send */
	ucp_ep_h *endpoints[NET_NUM_PORTS]; /* by process; NULL: not made */
	net_handler handler;
	int event_fd;
	/* Under the lock. */
	int depth;
	void (*enter)(void), (*leave)(void); /* see net_set_context */
	bool inside;                         /* between the two */
	int device_uses;                     /* messages from or to device memory, under way */
	bool handles;                        /* UCX is in ucp_worker_progress */
	struct send *put_off, **put_off_end; /* see send_to */
	int looks;                           /* see look_for_sockets */
};

/*
 * An address as processes exchange it: a multiple of its own size, so that those that follow are
 * aligned.
 */
struct address {
	uint32_t bytes[NET_NUM_PORTS]; /* of each port's, which follow; 0: there is none */
	unsigned char ports[];
};

/* Kinds of messages of the ports' own, which handlers do not see. See net_watch. */
static const uint32_t kind_greeting = UINT32_MAX, kind_answer = UINT32_MAX - 1;

/* What is known of another process. */
struct other {
	atomic_bool answered[NET_NUM_PORTS]; /* a greeting, by the port that was greeted */
	atomic_bool given_up;                /* see net_lose */
	bool heard[NET_NUM_PORTS];           /* by the port here; under its lock */
	/* Of net_watch; under the main port's lock. */
	_Atomic uint64_t greeted; /* ns: when its service was; 0: not yet; UINT64_MAX: done */
	ucp_ep_h watch;
};

static struct {
	bool up; /* connections are not to break off */
	_Atomic bool ends;
	uint64_t job;
	int process, num;
	ucp_context_h context;
	bool takes_device;
	bool by_interface; /* the one that was given, and no other one */
	bool wakes;        /* what comes wakes who sleeps */
	struct port ports[NET_NUM_PORTS];
	struct address *mine;
	size_t mine_bytes;
	unsigned char *table;          /* all addresses */
	const struct address **others; /* in it */
	atomic_bool *lost;             /* by process: there is no connection any more */
	struct other *known;           /* by process */
	_Atomic int settling;          /* endpoints */
} net;

/*
 * UCX is called with the lock held; while it is at work on device memory of ours, in the context
 * that that is in: CUDA's parts of it take the one that is current. At other times the driver is
 * left alone: what it costs, and that another thread may wait in it for a kernel that waits for
 * what comes here.
 */
static void go_inside(struct port *port)
{
	if (port->inside || !port->enter)
		return;
	port->enter();
	port->inside = true;
}

static void enter(struct port *port)
{
	if (port->depth++ == 0 && port->device_uses)
		go_inside(port);
}

static void leave_port(struct port *port)
{
	if (--port->depth || !port->inside)
		return;
	port->leave();
	port->inside = false;
}

static void begin_device_use(struct port *port)
{
	go_inside(port);
	port->device_uses++;
}

static void end_device_use(struct port *port)
{
	port->device_uses--;
}

static void lock(struct port *port)
{
	pthread_mutex_lock(&port->lock);
	enter(port);
}

static void unlock(struct port *port)
{
	leave_port(port);
	pthread_mutex_unlock(&port->lock);
}

/* ---- arrivals ---- */

struct net_payload {
	struct port *port;
	void *data; /* of one that is fetched, UCX's descriptor */
	size_t bytes;
	bool rendezvous, lent; /* `data` is UCX's, to be given back */
	bool held;             /* UCX is to leave it alone when the handler returns */
	bool kept;             /* this structure is on the heap */
};

size_t net_payload_bytes(const struct net_payload *payload)
{
	return payload->bytes;
}

const void *net_payload_data(const struct net_payload *payload)
{
	return payload->rendezvous ? NULL : payload->data;
}

static enum util_status status_of(ucs_status_t status)
{
	return status == UCS_OK ? UTIL_OK : UTIL_ERR_PEER;
}

/* Release: who sees the status sees the payload. */
static void tell_status(_Atomic int *status, enum util_status value)
{
	if (status)
		atomic_store_explicit(status, value, memory_order_release);
}

static void on_fetched(void *request, ucs_status_t status, size_t bytes, void *user)
{
	(void)bytes;
	tell_status(user, status_of(status));
	net_ucx.ucp_request_free(request);
}

static void on_fetched_to_device(void *request, ucs_status_t status, size_t bytes, void *user)
{
	end_device_use(&net.ports[NET_MAIN]);
	on_fetched(request, status, bytes, user);
}

/* Without the memory's type UCX would ask the driver each time. */
static ucs_memory_type_t type_of(bool device)
{
	return device ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
}

static void fetch(struct net_payload *payload, void *to, bool device, _Atomic int *status)
{
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
		.cb.recv_am = device ? on_fetched_to_device : on_fetched,
		.memory_type = type_of(device),
		.user_data = (void *)status};
	void *request;

	tell_status(status, UTIL_IN_PROGRESS);
	if (device)
		begin_device_use(payload->port);
	request = net_ucx.ucp_am_recv_data_nbx(payload->port->worker, payload->data, to,
					       payload->bytes, &param);
	if (UCS_PTR_IS_ERR(request)) {
		if (device)
			end_device_use(payload->port);
		tell_status(status, status_of(UCS_PTR_STATUS(request)));
	}
	payload->held = true;
}

static void give_back(struct net_payload *payload)
{
	if (payload->lent)
		net_ucx.ucp_am_data_release(payload->port->worker, payload->data);
	else
		free(payload->data);
}

/* What is for device memory is fetched, unless it is damaged. */
static void copy_payload(struct net_payload *payload, void *to, bool device, _Atomic int *status)
{
	bool well = !device || !payload->bytes;

	if (well && payload->bytes)
		memcpy(to, payload->data, payload->bytes);
	if (payload->kept)
		give_back(payload);
	tell_status(status, well ? UTIL_OK : UTIL_ERR_PEER);
}

void net_payload_take(struct net_payload *payload, void *to, bool device, _Atomic int *status)
{
	struct port *port = payload->port;

	lock(port);
	if (payload->rendezvous)
		fetch(payload, to, device, status);
	else
		copy_payload(payload, to, device, status);
	if (payload->kept)
		free(payload);
	unlock(port);
}

/* In a handler. A payload that UCX does not lend is copied. */
struct net_payload *net_payload_keep(struct net_payload *payload)
{
	struct net_payload *kept = malloc(sizeof(*kept));
	void *copy = NULL;

	if (kept && !payload->lent && payload->bytes) {
		copy = malloc(payload->bytes);
		if (copy)
			memcpy(copy, payload->data, payload->bytes);
	}
	if (!kept || (!payload->lent && payload->bytes && !copy)) {
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_NET, "no memory for a message of %zu bytes",
			 payload->bytes);
		free(kept);
		return NULL;
	}
	*kept = *payload;
	kept->data = payload->lent ? payload->data : copy;
	kept->kept = true;
	payload->held = payload->lent;
	return kept;
}

void net_payload_drop(struct net_payload *kept)
{
	struct port *port = kept->port;

	lock(port);
	give_back(kept);
	free(kept);
	unlock(port);
}

/* A connection is being made, or has been, which takes UCX some steps. */
static void expect_sockets(struct port *port)
{
	enum { STEPS = 6 };

	port->looks = STEPS;
}

static void look_for_sockets(struct port *port)
{
	if (!port->looks)
		return;
	port->looks--;
	net_sockets_keep_waiting(port->event_fd);
}

static enum net_port number_of(const struct port *port)
{
	return (enum net_port)(port - net.ports);
}

/* True: the message is one of the ports' own. Once connections are settled no new one is made. */
static bool is_greeting(const struct port *port, const struct net_header *header)
{
	struct net_header answer = {.kind = kind_answer, .link = (uint32_t)number_of(port)};

	if (header->kind == kind_greeting && net.up)
		net_tell(number_of(port), (int)header->from, NET_MAIN, &answer, NULL, 0, NULL);
	else if (header->kind == kind_answer && header->link < NET_NUM_PORTS)
		net.known[header->from].answered[header->link] = true;
	return header->kind == kind_greeting || header->kind == kind_answer;
}

/* The first time, its connection is new. */
static void note_sender(struct port *port, uint32_t process)
{
	bool *heard = &net.known[process].heard[number_of(port)];

	if (!*heard)
		expect_sockets(port);
	*heard = true;
}

/* From UCX, in ucp_worker_progress. Anybody can send to a port, so nothing is believed. */
static ucs_status_t on_message(void *arg, const void *header, size_t header_bytes, void *data,
			       size_t bytes, const ucp_am_recv_param_t *param)
{
	struct port *port = arg;
	struct net_payload payload = {
		.port = port,
		.data = data,
		.bytes = bytes,
		.rendezvous = param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV,
		.lent = param->recv_attr &
			(UCP_AM_RECV_ATTR_FLAG_RNDV | UCP_AM_RECV_ATTR_FLAG_DATA),
	};
	struct net_header ours;

	if (header_bytes != sizeof(ours))
		return UCS_OK;
	memcpy(&ours, header, sizeof(ours)); /* it need not be aligned */
	if (ours.job != net.job || ours.from >= (uint32_t)net.num)
		return UCS_OK;
	note_sender(port, ours.from);
	if (is_greeting(port, &ours) || !port->handler)
		return UCS_OK;
	port->handler(number_of(port), &ours, &payload);
	return payload.held ? UCS_INPROGRESS : UCS_OK;
}

/* ---- endpoints ---- */

static void on_lost(void *arg, ucp_ep_h endpoint, ucs_status_t status)
{
	int process = (int)(intptr_t)arg;

	(void)endpoint;
	if (!net.up || atomic_exchange(&net.lost[process], true))
		return;
	util_log(net.ends ? UTIL_LOG_INFO : UTIL_LOG_WARN, UTIL_SUBSYS_NET,
		 "the connection to rank %d of MPI_COMM_WORLD is lost: %s", process,
		 net_ucx.ucs_status_string(status));
}

static void on_done(void *request, ucs_status_t status, void *user)
{
	tell_status(user, status_of(status));
	net_ucx.ucp_request_free(request);
}

static const ucp_address_t *address_of(int process, enum net_port port)
{
	const struct address *address = net.others[process];
	size_t skip = port == NET_SERVICE ? address->bytes[NET_MAIN] : 0;

	return address->bytes[port] ? (const ucp_address_t *)(address->ports + skip) : NULL;
}

static bool is_cut_off(int process)
{
	return atomic_load_explicit(&net.lost[process], memory_order_relaxed);
}

static ucs_status_t connect_to(struct port *port, int process, enum net_port to, ucp_ep_h *endpoint)
{
	ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
						UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
						UCP_EP_PARAM_FIELD_ERR_HANDLER,
				  .address = address_of(process, to),
				  .err_mode = UCP_ERR_HANDLING_MODE_PEER,
				  .err_handler = {.cb = on_lost, .arg = (void *)(intptr_t)process}};

	expect_sockets(port);
	return net_ucx.ucp_ep_create(port->worker, &params, endpoint);
}

/* Under the port's lock. NULL: it can't be had, which has been logged once. */
static ucp_ep_h endpoint_to(struct port *port, int process, enum net_port to)
{
	ucp_ep_h *endpoint = &port->endpoints[to][process];
	ucs_status_t status;

	if (*endpoint || !address_of(process, to) || is_cut_off(process))
		return is_cut_off(process) ? NULL : *endpoint;
	status = connect_to(port, process, to, endpoint);
	if (status == UCS_OK)
		return *endpoint;
	net_ucx_fail("ucp_ep_create", status);
	*endpoint = NULL;
	atomic_store(&net.lost[process], true);
	return NULL;
}

/*
 * Under the main port's lock. What is sent once, for UCX to make the connection, is no message of
 * ours (on_message).
 */
static void start_watch(int process)
{
	struct port *port = &net.ports[NET_MAIN];
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
						     UCP_OP_ATTR_FIELD_USER_DATA,
				     .cb.send = on_done,
				     .user_data = NULL}; /* nobody asks */
	ucp_ep_h *endpoint = &net.known[process].watch;

	if (!is_cut_off(process) && connect_to(port, process, NET_SERVICE, endpoint) == UCS_OK)
		net_ucx.ucp_am_send_nbx(*endpoint, AM_ID, NULL, 0, NULL, 0, &param);
	else
		*endpoint = NULL;
}

/*
 * UCX sets keepalives on connections that it makes, not on those that it accepts, and keeps one of
 * two that both sides make to each other; a service makes none but for what goes the first one's
 * way back. So that one is made first, both ways, by a message and its answer: UCX 1.13 complains
 * of a closed socket when it finds its way back on one connection while it reads from the other.
 */
void net_watch(int process)
{
	static const uint64_t done = UINT64_MAX, patience = UTIL_SECONDS(1); /* ns */
	struct port *port = &net.ports[NET_MAIN];
	struct other *other = &net.known[process];
	uint64_t greeted = atomic_load_explicit(&other->greeted, memory_order_relaxed);

	if (greeted == done ||
	    (greeted && !other->answered[NET_SERVICE] && util_now() - greeted < patience))
		return;
	lock(port);
	if (!port->handles && !other->greeted) {
		other->greeted = util_now();
		net_greet(process, NET_SERVICE);
	} else if (!port->handles && other->greeted == greeted) {
		other->greeted = done;
		start_watch(process);
	}
	unlock(port);
}

void net_greet(int process, enum net_port to)
{
	struct net_header greeting = {.kind = kind_greeting};

	net_tell(NET_MAIN, process, to, &greeting, NULL, 0, NULL);
}

bool net_has_answered(int process, enum net_port port)
{
	return net.known[process].answered[port];
}

void net_expect(int process)
{
	struct port *port = &net.ports[NET_MAIN];

	lock(port);
	endpoint_to(port, process, NET_MAIN);
	unlock(port);
}

void net_expect_ends(void)
{
	net.ends = true;
}

bool net_is_lost(int process)
{
	return is_cut_off(process) ||
	       atomic_load_explicit(&net.known[process].given_up, memory_order_relaxed);
}

void net_lose(int process)
{
	if (!atomic_exchange(&net.known[process].given_up, true))
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_NET,
			 "rank %d of MPI_COMM_WORLD is taken for lost: there is no memory for a "
			 "message to or from it",
			 process);
}

static void break_off(ucp_ep_h endpoint)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
						     UCP_OP_ATTR_FIELD_USER_DATA |
						     UCP_OP_ATTR_FIELD_FLAGS,
				     .flags = UCP_EP_CLOSE_FLAG_FORCE,
				     .cb.send = on_done,
				     .user_data = NULL}; /* nobody asks */

	if (endpoint)
		net_ucx.ucp_ep_close_nbx(endpoint, &param);
}

void net_break_off(int process)
{
	struct port *port = &net.ports[NET_MAIN];

	lock(port);
	atomic_store(&net.lost[process], true);
	for (int i = 0; i < NET_NUM_PORTS; i++) {
		break_off(port->endpoints[i][process]);
		port->endpoints[i][process] = NULL;
	}
	unlock(port);
}

/* ---- sending ---- */

/* What UCX reads until the message is out, and where it is to go. */
struct send {
	struct send *next;
	struct port *port; /* that UCX was given it from */
	int process;
	enum net_port to;
	struct net_data data;
	struct net_header header;
	_Atomic int *status, *underway; /* see net_send and net_tell; NULL: nobody asks */
	unsigned char copy[];
};

/*
 * For messages without data when there is no memory: that somebody stages a call or has failed in
 * it must get through.
 */
enum { NUM_RESERVED = 64 };

static struct {
	pthread_mutex_t lock;
	uint64_t used; /* a bit for each */
	struct send sends[NUM_RESERVED];
} reserve = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct send *take_reserve(void)
{
	struct send *send = NULL;

	pthread_mutex_lock(&reserve.lock);
	if (~reserve.used) {
		int index = __builtin_ctzll(~reserve.used);

		reserve.used |= UINT64_C(1) << index;
		send = &reserve.sends[index];
	}
	pthread_mutex_unlock(&reserve.lock);
	return send;
}

static void free_send(struct send *send)
{
	if (send < reserve.sends || send >= reserve.sends + NUM_RESERVED) {
		free(send);
		return;
	}
	pthread_mutex_lock(&reserve.lock);
	reserve.used &= ~(UINT64_C(1) << (send - reserve.sends));
	pthread_mutex_unlock(&reserve.lock);
}

static void end_send(struct send *send, ucs_status_t status)
{
	tell_status(send->status, status_of(status));
	if (send->underway)
		atomic_fetch_sub_explicit(send->underway, 1, memory_order_release);
	free_send(send);
}

/* What was given to UCX is out. */
static void end_post(struct send *send, ucs_status_t status)
{
	if (send->data.device)
		end_device_use(send->port);
	end_send(send, status);
}

static void on_sent(void *request, ucs_status_t status, void *user)
{
	end_post(user, status);
	net_ucx.ucp_request_free(request);
}

static void post(struct port *port, ucp_ep_h endpoint, struct send *send)
{
	const struct net_data *data = &send->data;
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_FLAGS,
		.flags = data->fetched ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER,
		.cb.send = on_sent,
		.memory_type = type_of(data->device),
		.user_data = send};
	void *request;

	send->port = port;
	if (data->device)
		begin_device_use(port);
	request = net_ucx.ucp_am_send_nbx(endpoint, AM_ID, &send->header, sizeof(send->header),
					  data->at, data->bytes, &param);
	if (!UCS_PTR_IS_PTR(request))
		end_post(send, UCS_PTR_STATUS(request));
}

static struct send *prepare_send(int process, enum net_port to, const struct net_header *header,
				 size_t copied)
{
	struct send *send = malloc(sizeof(*send) + copied);

	if (!send && !copied)
		send = take_reserve();
	if (!send)
		return NULL;
	*send = (struct send){.process = process, .to = to, .header = *header};
	send->header.job = net.job;
	send->header.from = (uint32_t)net.process;
	return send;
}

static void post_to_endpoint(struct port *port, struct send *send)
{
	ucp_ep_h endpoint = endpoint_to(port, send->process, send->to);

	if (endpoint)
		post(port, endpoint, send);
	else
		end_send(send, UCS_ERR_CONNECTION_RESET);
}

/*
 * No connection is made in a handler. If the other side has made one over TCP already, UCX uses
 * that; 1.13 then takes away the buffer from which it is calling handlers, and if there is more in
 * that, has none to give back and ends the process by SIGSEGV.
 */
static void send_to(enum net_port from, struct send *send)
{
	struct port *port = &net.ports[from];

	lock(port);
	if (port->handles && !port->endpoints[send->to][send->process]) {
		*port->put_off_end = send;
		port->put_off_end = &send->next;
	} else {
		post_to_endpoint(port, send);
	}
	unlock(port);
}

static void send_what_was_put_off(struct port *port)
{
	struct send *send;

	while ((send = port->put_off)) {
		port->put_off = send->next;
		if (!port->put_off)
			port->put_off_end = &port->put_off;
		post_to_endpoint(port, send);
	}
}

void net_send(enum net_port from, int process, enum net_port to, const struct net_header *header,
	      const struct net_data *data, _Atomic int *status)
{
	struct send *send = prepare_send(process, to, header, 0);

	tell_status(status, send ? UTIL_IN_PROGRESS : UTIL_ERR_PEER);
	if (!send)
		return;
	send->status = status;
	send->data = *data;
	send->data.fetched = data->fetched && data->bytes;
	send_to(from, send);
}

void net_tell(enum net_port from, int process, enum net_port to, const struct net_header *header,
	      const void *data, size_t bytes, _Atomic int *underway)
{
	struct send *send = prepare_send(process, to, header, bytes);

	if (!send) {
		net_lose(process);
		return;
	}
	if (bytes)
		memcpy(send->copy, data, bytes);
	send->underway = underway;
	if (underway)
		atomic_fetch_add_explicit(underway, 1, memory_order_relaxed);
	send->data = (struct net_data){.at = send->copy, .bytes = bytes};
	send_to(from, send);
}

void net_flush(enum net_port number, _Atomic int *status)
{
	struct port *port = &net.ports[number];
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
						     UCP_OP_ATTR_FIELD_USER_DATA,
				     .cb.send = on_done,
				     .user_data = (void *)status};
	void *request;

	lock(port);
	tell_status(status, UTIL_IN_PROGRESS);
	request = net_ucx.ucp_worker_flush_nbx(port->worker, &param);
	if (!UCS_PTR_IS_PTR(request))
		tell_status(status, status_of(UCS_PTR_STATUS(request)));
	unlock(port);
}

static void on_settled(void *request, ucs_status_t status, void *user)
{
	(void)status;
	(void)user;
	atomic_fetch_sub(&net.settling, 1);
	net_ucx.ucp_request_free(request);
}

/* An endpoint's flush waits for its connection; a worker's does not. */
static void settle(ucp_ep_h endpoint)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK,
				     .cb.send = on_settled};

	if (!endpoint)
		return;
	atomic_fetch_add(&net.settling, 1);
	if (!UCS_PTR_IS_PTR(net_ucx.ucp_ep_flush_nbx(endpoint, &param)))
		atomic_fetch_sub(&net.settling, 1);
}

static void settle_port(struct port *port)
{
	if (!port->worker)
		return;
	lock(port);
	for (int i = 0; i < net.num; i++) {
		for (int j = 0; j < NET_NUM_PORTS; j++)
			settle(port->endpoints[j][i]);
		if (port == &net.ports[NET_MAIN])
			settle(net.known[i].watch);
	}
	unlock(port);
}

void net_settle(void)
{
	net.up = false; /* some go earlier than others */
	for (int i = 0; i < NET_NUM_PORTS; i++)
		settle_port(&net.ports[i]);
}

bool net_is_settled(void)
{
	return !net.settling;
}

/* ---- progress ---- */

void net_lock(enum net_port port)
{
	pthread_mutex_lock(&net.ports[port].lock);
}

void net_unlock(enum net_port port)
{
	pthread_mutex_unlock(&net.ports[port].lock);
}

bool net_progress(enum net_port number)
{
	struct port *port = &net.ports[number];
	bool moved;

	if (!port->worker || pthread_mutex_trylock(&port->lock))
		return false;
	enter(port);
	port->handles = true;
	moved = net_ucx.ucp_worker_progress(port->worker);
	port->handles = false;
	send_what_was_put_off(port);
	if (moved)
		look_for_sockets(port);
	unlock(port);
	return moved;
}

void net_sleep(enum net_port number, int most_ms)
{
	enum { MOST_UNWOKEN = 20 }; /* ms */
	struct port *port = &net.ports[number];
	struct pollfd fd = {.fd = port->event_fd, .events = POLLIN};
	ucs_status_t status;

	if (!net.wakes && (most_ms < 0 || most_ms > MOST_UNWOKEN))
		most_ms = MOST_UNWOKEN;
	pthread_mutex_lock(&port->lock);
	status = net_ucx.ucp_worker_arm(port->worker);
	pthread_mutex_unlock(&port->lock);
	if (status == UCS_OK) /* else something has come in between */
		poll(&fd, 1, most_ms);
}

void net_wake(enum net_port number)
{
	if (net.ports[number].worker)
		net_ucx.ucp_worker_signal(net.ports[number].worker);
}

void net_set_context(void (*enter)(void), void (*leave)(void))
{
	struct port *port = &net.ports[NET_MAIN];

	pthread_mutex_lock(&port->lock);
	port->enter = enter;
	port->leave = leave;
	pthread_mutex_unlock(&port->lock);
}

void net_set_handler(enum net_port number, net_handler handler)
{
	struct port *port = &net.ports[number];

	pthread_mutex_lock(&port->lock);
	port->handler = handler;
	pthread_mutex_unlock(&port->lock);
}

/* ---- start and stop ---- */

static void init_lock(struct port *port)
{
	pthread_mutexattr_t attributes;

	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&port->lock, &attributes);
	pthread_mutexattr_destroy(&attributes);
}

bool net_is_by_sockets(void)
{
	return net_context_is_by_sockets(net.context);
}

bool net_is_by_interface(void)
{
	return net.by_interface;
}

bool net_takes_device_memory(void)
{
	return net.takes_device;
}

static enum util_status start_worker(struct port *port)
{
	ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
				      .thread_mode = UCS_THREAD_MODE_SERIALIZED};
	ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
							UCP_AM_HANDLER_PARAM_FIELD_CB |
							UCP_AM_HANDLER_PARAM_FIELD_ARG,
					  .id = AM_ID,
					  .cb = on_message,
					  .arg = port};
	ucs_status_t status = net_ucx.ucp_worker_create(net.context, &params, &port->worker);

	if (status != UCS_OK)
		return net_ucx_fail("ucp_worker_create", status);
	status = net_ucx.ucp_worker_set_am_recv_handler(port->worker, &handler);
	if (status == UCS_OK)
		status = net_ucx.ucp_worker_get_efd(port->worker, &port->event_fd);
	return status == UCS_OK ? UTIL_OK : net_ucx_fail("setting up a UCX worker", status);
}

/* Add the port's address to this process's. */
static enum util_status add_address(enum net_port number)
{
	ucp_worker_h worker = net.ports[number].worker;
	struct address *longer;
	ucp_address_t *address;
	size_t bytes, padded, old = net.mine_bytes ? net.mine_bytes : sizeof(*longer);
	ucs_status_t status = net_ucx.ucp_worker_get_address(worker, &address, &bytes);

	if (status != UCS_OK)
		return net_ucx_fail("ucp_worker_get_address", status);
	padded = (bytes + sizeof(*longer) - 1) / sizeof(*longer) * sizeof(*longer);
	longer = realloc(net.mine, old + padded);
	if (longer) {
		memset((char *)longer + (net.mine ? old : 0), 0, net.mine ? padded : old + padded);
		memcpy((char *)longer + old, address, bytes);
		longer->bytes[number] = (uint32_t)padded;
		net.mine = longer;
		net.mine_bytes = old + padded;
	}
	net_ucx.ucp_worker_release_address(worker, address);
	return longer ? UTIL_OK : UTIL_ERR_NO_MEMORY;
}

static enum util_status start_port(enum net_port number)
{
	struct port *port = &net.ports[number];
	enum util_status status;

	init_lock(port);
	port->put_off_end = &port->put_off;
	for (int i = 0; i < NET_NUM_PORTS; i++) {
		port->endpoints[i] = calloc((size_t)net.num, sizeof(*port->endpoints[i]));
		if (!port->endpoints[i])
			return UTIL_ERR_NO_MEMORY;
	}
	status = start_worker(port);
	return status == UTIL_OK ? add_address(number) : status;
}

bool net_takes_loopback(void)
{
	unsigned major, minor, release;

	if (!net_ucx_load())
		return true;
	net_ucx.ucp_get_version(&major, &minor, &release);
	return major != 1 || minor != 20;
}

enum util_status net_start(uint64_t job, int process, int num, bool with_service,
			   const struct net_devices *devices)
{
	enum util_status status = UTIL_ERR_NO_MEMORY;

	if (!net_ucx_load())
		return UTIL_ERR_UNSUPPORTED;
	net.job = job;
	net.process = process;
	net.num = num;
	net.others = calloc((size_t)num, sizeof(*net.others));
	net.lost = calloc((size_t)num, sizeof(*net.lost));
	net.known = calloc((size_t)num, sizeof(*net.known));
	net_sockets_begin();
	if (net.others && net.lost && net.known)
		status = net_context_open(devices, &net.context, &net.by_interface);
	net.takes_device = status == UTIL_OK && net_context_takes_device_memory(net.context);
	net.wakes = status == UTIL_OK && net_context_wakes(net.context);
	if (status == UTIL_OK)
		status = start_port(NET_MAIN);
	if (status == UTIL_OK && with_service)
		status = start_port(NET_SERVICE);
	net_sockets_keep_new();
	net.up = status == UTIL_OK;
	if (!net.up)
		net_stop();
	return status;
}

const void *net_address(size_t *bytes)
{
	*bytes = net.mine_bytes;
	return net.mine;
}

enum util_status net_set_addresses(const void *addresses, const int *bytes)
{
	size_t total = 0;

	for (int i = 0; i < net.num; i++)
		total += (size_t)bytes[i];
	net.table = malloc(total + 1);
	if (!net.table)
		return UTIL_ERR_NO_MEMORY;
	memcpy(net.table, addresses, total);
	total = 0;
	for (int i = 0; i < net.num; i++) {
		net.others[i] = (const struct address *)(net.table + total);
		total += (size_t)bytes[i];
	}
	return UTIL_OK;
}

static void stop_port(struct port *port)
{
	if (port->worker) {
		net_ucx.ucp_worker_destroy(port->worker); /* and its endpoints */
		pthread_mutex_destroy(&port->lock);
	}
	for (int i = 0; i < NET_NUM_PORTS; i++)
		free(port->endpoints[i]);
	*port = (struct port){0};
}

void net_stop(void)
{
	net.up = false;
	for (int i = 0; i < NET_NUM_PORTS; i++)
		stop_port(&net.ports[i]);
	if (net.context)
		net_ucx.ucp_cleanup(net.context);
	free(net.mine);
	free(net.table);
	free(net.others);
	free(net.lost);
	free(net.known);
	memset(&net, 0, sizeof(net));
}
