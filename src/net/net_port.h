/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages between processes of different nodes, over UCX.
 *
 * A process has a port that its calls drive (main), and one process of each node has another one,
 * which a thread of its own drives (service). Processes are named by their rank in MPI_COMM_WORLD.
 * An endpoint is made when first used.
 *
 * A message is a header and a payload, which comes with the header, or is announced by it, and
 * fetched when the receiver knows where to put it (rendezvous): then nobody needs to be told that
 * there is room. Messages to a process may overtake each other.
 *
 * Every function is thread-safe: a port has one lock. Handlers are called with it held.
 */
#ifndef NET_PORT_H
#define NET_PORT_H

#include "net/net_devices.h"
#include "util/util_status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum net_port { NET_MAIN, NET_SERVICE, NET_NUM_PORTS };

/*
 * What a message is about. Its meaning is the sender's and the handler's, but for `job` and `from`,
 * which net_send sets, and for the two highest kinds, which are not to be used.
 */
struct net_header {
	uint64_t job; /* messages of another job, or not of this library, are ignored */
	uint32_t from, kind;
	uint64_t comm, call;
	uint32_t link, message;
};

/* The payload of a message that has come. */
struct net_payload;

/* How many bytes it has. */
size_t net_payload_bytes(const struct net_payload *payload);

/*
 * One that came with its header, for as long as it is not taken or dropped; of any alignment. NULL:
 * it is to be fetched.
 */
const void *net_payload_data(const struct net_payload *payload);

/*
 * A message has come. The handler may take the payload, or keep it to take or drop it later;
 * otherwise it is dropped. It may send; what is the first to go to a port goes when UCX has
 * returned.
 */
typedef void (*net_handler)(enum net_port port, const struct net_header *header,
			    struct net_payload *payload);

/*
 * Put the payload into `to`, which has room for it, in host memory or, one that is fetched, in
 * device memory. `*status` is UTIL_IN_PROGRESS until it is there; release, the pair of whose reads
 * must be acquire. A payload that was kept is gone then.
 */
void net_payload_take(struct net_payload *payload, void *to, bool device, _Atomic int *status);

/* Returns what to take or drop later; NULL: there is no memory, and it is dropped. */
struct net_payload *net_payload_keep(struct net_payload *payload);

/* Drop what was kept. */
void net_payload_drop(struct net_payload *kept);

/*
 * Whether UCX's processes reach each other by the loopback interface, which UCX 1.20 takes for
 * unreachable (openucx, pull request 11202). For any time.
 */
bool net_takes_loopback(void);

/*
 * Start UCX: a main port, and a service port if wanted. `job`: a number that the job's processes
 * agree on; `process`: this one's, of `num`. An error has been logged, and leaves nothing.
 */
enum util_status net_start(uint64_t job, int process, int num, bool with_service,
			   const struct net_devices *devices);

/* Stop it. No thread may be in a call of the ports. */
void net_stop(void);

/*
 * This process's address, valid until net_stop; and those of all, one after the other, which are
 * copied.
 */
const void *net_address(size_t *bytes);
enum util_status net_set_addresses(const void *addresses, const int *bytes);

/* NULL: what comes is dropped. */
void net_set_handler(enum net_port port, net_handler handler);

/* Whether UCX has nothing better than sockets for other nodes, as far as it tells. */
bool net_is_by_sockets(void);

/* Whether, of those, it uses those of the given interface only. */
bool net_is_by_interface(void);

/* Whether UCX takes device memory. */
bool net_takes_device_memory(void);

/*
 * Set the functions that enter and leave the CUDA context of that memory, for a thread that drives
 * the main port. They are called in turns, with the port's lock held. Call before the first device
 * buffer, not in a handler.
 */
void net_set_context(void (*enter)(void), void (*leave)(void));

/* From so many bytes on hardware moves a payload faster if it is fetched. */
enum { NET_LONG = 32 << 10 };

/* What is sent. */
struct net_data {
	const void *at;
	size_t bytes;
	bool device;  /* it is device memory */
	bool fetched; /* if there are any */
};

/*
 * Send to a port of another process. `*status` is UTIL_IN_PROGRESS until the data may be changed,
 * then UTIL_OK, or UTIL_ERR_PEER if they did not arrive: a message that is fetched when the
 * receiver has it, another when it is out.
 */
void net_send(enum net_port from, int process, enum net_port to, const struct net_header *header,
	      const struct net_data *data, _Atomic int *status);

/*
 * Send a message that is not fetched, and is copied. `*underway`, if not NULL, is larger by one
 * until it is out: the first one to a process waits for the connection. Where there is no memory
 * for it the process is lost (net_lose); some that have no data find room in any case.
 */
void net_tell(enum net_port from, int process, enum net_port to, const struct net_header *header,
	      const void *data, size_t bytes, _Atomic int *underway);

/*
 * `*status` is UTIL_IN_PROGRESS until all that was sent from the port before has left the process,
 * or is with hardware that needs no help.
 */
void net_flush(enum net_port port, _Atomic int *status);

/*
 * Have all connections that this process has begun made, before any process goes on to net_stop:
 * UCX 1.13 may end a process whose answer to the beginning of a connection has not left by then.
 * All processes must make progress meanwhile. From here on nobody complains of a connection that
 * breaks off.
 */
void net_settle(void);

/* Whether they are. */
bool net_is_settled(void);

/*
 * Find out when the link to a process that has a service port goes down: by a connection that has
 * nothing to carry. TCP's keepalive, which UCX_TCP_KEEPIDLE and so on set to half a minute, is for
 * connections without anything unacknowledged; others are given up after a quarter of an hour. To
 * be called again and again: the connection is made once the other has answered a greeting, or does
 * not for a second.
 */
void net_watch(int process);

/*
 * Send a message to a port of another process that it answers when it makes progress, until
 * net_settle.
 */
void net_greet(int process, enum net_port to);

/* Whether the answer has come, so that there is a way to it and back. */
bool net_has_answered(int process, enum net_port port);

/*
 * Messages are to come from the process: find out if it is lost. UCX tells that only to who has an
 * endpoint to it, which receiving alone does not make. Not in a handler.
 */
void net_expect(int process);

/* From here on other processes may end before this one: a connection that breaks is no news. */
void net_expect_ends(void);

/* Whether a connection to it, or a message, was lost. */
bool net_is_lost(int process);

/*
 * A message to the process, or from it, could not be kept, which one of the two would wait for:
 * take it for lost. It can still be told that.
 */
void net_lose(int process);

/*
 * Break off what the main port has to the process, which is lost then: what is sent to or fetched
 * from it ends, in a while, with an error if it has not ended well.
 */
void net_break_off(int process);

/*
 * Hold the port's lock, which handlers are called with: for what they share with others. It may be
 * taken again by who has it.
 */
void net_lock(enum net_port port);

/* Let go of it. */
void net_unlock(enum net_port port);

/*
 * Let things move. Where another thread is at it, this one need not. True: something did, and
 * perhaps there is more.
 */
bool net_progress(enum net_port port);

/*
 * Sleep until something has come to the port, or net_wake, or `most_ms` have gone by, negative: for
 * ever; or for a while, where UCX can't tell that something has come. For the one thread that
 * drives it, once nothing moves any more: UCX 1.13 does not wake it for a first connection that it
 * is in the middle of.
 */
void net_sleep(enum net_port port, int most_ms);

/* Wake who sleeps there. Any thread. */
void net_wake(enum net_port port);

#endif
