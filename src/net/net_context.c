/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/net_context.h"
#include "util/util_log.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether the user has not chosen devices: by the environment, or by UCX's file. */
static bool are_devices_free(const ucp_config_t *config)
{
	static const char name[] = "UCX_NET_DEVICES";
	char *text = NULL;
	size_t bytes;
	FILE *out = getenv(name) ? NULL : open_memstream(&text, &bytes);
	bool free_to_choose;

	if (!out)
		return false;
	net_ucx.ucp_config_print(config, out, NULL, UCS_CONFIG_PRINT_CONFIG);
	fclose(out);
	free_to_choose = text && strstr(text, "UCX_NET_DEVICES=all\n");
	free(text);
	return free_to_choose;
}

/*
 * What UCX says of the context, with a word "tcp/eth1" for each transport and device; NULL: no
 * memory. The caller frees it.
 */
static char *describe_context(ucp_context_h context)
{
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	if (!out)
		return NULL;
	net_ucx.ucp_context_print_info(context, out);
	fclose(out);
	return text;
}

/*
 * Whether some transport has it. Of a device that it can't open, as in a container that shows more
 * than it gives, UCX only warns.
 */
static bool has_device(ucp_context_h context, const char *device)
{
	char *text = describe_context(context), wanted[80];
	bool found = false;
	size_t length;

	/* "tcp/eth1", but not eth10 */
	length = (size_t)snprintf(wanted, sizeof(wanted), "/%s", device);
	for (const char *at = text; at && !found && (at = strstr(at, wanted)); at += length)
		found = at[length] == '\0' || isspace((unsigned char)at[length]);
	free(text);
	return found;
}

/* Whether there is such a text in what UCX says of the context. */
static bool is_said(ucp_context_h context, const char *wanted)
{
	char *text = describe_context(context);
	bool found = text && strstr(text, wanted);

	free(text);
	return found;
}

static bool has_sockets(ucp_context_h context)
{
	return is_said(context, " tcp/");
}

/* Whether something in hardware moves messages alone. */
static bool has_hardware(ucp_context_h context)
{
	/* As such transports begin. */
	static const char *const names[] = {" rc_", " dc_", " ud_", " srd/", " ugni_"};
	bool found = false;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !found; i++)
		found = is_said(context, names[i]);
	return found;
}

/* Set what the user has not. False: it was set, or this UCX does not have it. */
static bool set(ucp_config_t *config, const char *variable, const char *name, const char *value)
{
	return !getenv(variable) && net_ucx.ucp_config_modify(config, name, value) == UCS_OK;
}

/* The same of a field of TCP's, whose names have the prefix since UCX 1.17. */
static bool set_tcp(ucp_config_t *config, const char *variable, const char *value)
{
	unsigned major, minor, release;

	net_ucx.ucp_get_version(&major, &minor, &release);
	return set(config, variable,
		   variable + strlen(major == 1 && minor < 17 ? "UCX_TCP_" : "UCX_"), value);
}

/*
 * All processes of a job must have the same, as a receiver's buffers are for no more: so also those
 * that have hardware, and may talk by sockets to one that has none.
 */
static bool set_segment(ucp_config_t *config)
{
	char bytes[16];

	snprintf(bytes, sizeof(bytes), "%d", NET_SEGMENT);
	return set_tcp(config, "UCX_TCP_RX_SEG_SIZE", bytes);
}

/*
 * What connections by sockets need to be fast, and to fail in time. True: it takes a new context.
 *
 * UCX would wait in connect(), minutes where a link is down; and where the other process ends
 * between that and the first bytes, 1.13 gives up the connection before it is wholly made, and ends
 * this process by an assertion. And every 20 s it would send something on connections that are to
 * be idle (net_watch), which is not acknowledged where a link is down, and then TCP's keepalive is
 * silent. The times of that it rounds down to seconds after a conversion to the processor's clock
 * and back: its own 2 s are 1 s in some processes, so that one would give up 9 s before the other.
 */
static bool set_up_sockets(ucp_config_t *config, ucp_context_h context)
{
	bool changed;

	if (!has_sockets(context))
		return false;
	changed = set_segment(config);
	changed |= set_tcp(config, "UCX_TCP_CONN_NB", "y");
	changed |= set_tcp(config, "UCX_TCP_KEEPIDLE", "10.5s");
	changed |= set_tcp(config, "UCX_TCP_KEEPINTVL", "2.5s");
	if (!has_hardware(context))
		changed |= set(config, "UCX_KEEPALIVE_INTERVAL", "KEEPALIVE_INTERVAL", "inf");
	return changed;
}

/* With the user's settings; the device (NULL: UCX chooses), if these leave that free. */
static ucs_status_t open_with(const ucp_params_t *params, ucp_config_t *config, const char *device,
			      ucp_context_h *context)
{
	ucs_status_t status = UCS_OK;

	if (device)
		status = are_devices_free(config)
				 ? net_ucx.ucp_config_modify(config, "NET_DEVICES", device)
				 : UCS_ERR_INVALID_PARAM;
	if (status == UCS_OK)
		status = net_ucx.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, params, config,
						  context);
	/* UCX warns of what is said of sockets where it uses none, and knows that only now. */
	if (status != UCS_OK || !set_up_sockets(config, *context))
		return status;
	net_ucx.ucp_cleanup(*context);
	return net_ucx.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, params, config, context);
}

static ucs_status_t open_context(const ucp_params_t *params, const char *device,
				 ucp_context_h *context)
{
	ucp_config_t *config;
	ucs_status_t status = net_ucx.ucp_config_read(NULL, NULL, &config);

	if (status != UCS_OK)
		return status;
	status = open_with(params, config, device, context);
	net_ucx.ucp_config_release(config);
	return status;
}

/* A context that uses the device and no other one of the network. NULL: there can be none. */
static ucp_context_h open_on_device(const ucp_params_t *params, const char *device)
{
	ucp_context_h context;

	if (open_context(params, device, &context) != UCS_OK)
		return NULL;
	if (!has_device(context, device)) {
		net_ucx.ucp_cleanup(context);
		return NULL;
	}
	util_log(UTIL_LOG_INFO, UTIL_SUBSYS_NET, "of the network's devices UCX uses %s", device);
	return context;
}

/* By sockets, one interface and no other one: anybody who reaches a port can send to it. */
static bool keep_to(const ucp_params_t *params, const char *interface, ucp_context_h *context)
{
	ucp_context_h restricted;

	if (!interface || !net_context_is_by_sockets(*context))
		return false;
	restricted = open_on_device(params, interface);
	if (!restricted)
		return false;
	net_ucx.ucp_cleanup(*context);
	*context = restricted;
	return true;
}

enum util_status net_context_open(const struct net_devices *devices, ucp_context_h *context,
				  bool *by_interface)
{
	ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES |
					     UCP_PARAM_FIELD_MT_WORKERS_SHARED |
					     UCP_PARAM_FIELD_NAME,
			       .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
			       .mt_workers_shared = 1,
			       .name = "gpucoll"};
	ucs_status_t status = UCS_OK;

	*context = devices->nic ? open_on_device(&params, devices->nic) : NULL;
	if (!*context)
		status = open_context(&params, NULL, context);
	if (status == UCS_OK) {
		*by_interface = keep_to(&params, devices->interface, context);
		return UTIL_OK;
	}
	*context = NULL;
	return net_ucx_fail("ucp_init", status);
}

bool net_context_is_by_sockets(ucp_context_h context)
{
	return has_sockets(context) && !has_hardware(context);
}

/* Amazon's SRD has no events, and UCX asks for them of lanes for tagged messages only (1.19). */
bool net_context_wakes(ucp_context_h context)
{
	return !is_said(context, " srd/");
}

bool net_context_takes_device_memory(ucp_context_h context)
{
	ucp_context_attr_t attributes = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};

	return net_ucx.ucp_context_query(context, &attributes) == UCS_OK &&
	       attributes.memory_types >> UCS_MEMORY_TYPE_CUDA & 1;
}
