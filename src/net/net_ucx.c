/* SPDX-License-Identifier: BSD-3-Clause */
#include "net/net_ucx.h"
#include "util/util_log.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define LIBUCP "libucp.so.0"

struct net_ucx net_ucx;

static const struct {
	const char *symbol;
	size_t offset;
} calls[] = {
#define ROW(name) {#name, offsetof(struct net_ucx, name)},
	NET_UCX_CALLS(ROW)
#undef ROW
};

/*
 * UCX puts its own handlers for SIGSEGV and such over the application's when it is loaded, unless
 * the user says otherwise. An application that brought UCX itself has them already.
 */
static void *open_quietly(void)
{
	static const char name[] = "UCX_ERROR_SIGNALS";
	void *handle = dlopen(LIBUCP, RTLD_NOW | RTLD_NOLOAD);

	if (handle || getenv(name))
		return handle ? handle : dlopen(LIBUCP, RTLD_NOW);
	setenv(name, "", 0);
	handle = dlopen(LIBUCP, RTLD_NOW);
	unsetenv(name);
	return handle;
}

static bool load_ucx(void)
{
	void *handle = open_quietly(), *address = NULL;
	unsigned major, minor, release;

	if (!handle) {
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_NET,
			 "%s; communicators of several nodes are staged", dlerror());
		return false;
	}
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		address = dlsym(handle, calls[i].symbol);
		if (!address) {
			util_log(UTIL_LOG_WARN, UTIL_SUBSYS_NET,
				 "%s lacks %s: it is older than UCX 1.11; communicators of several "
				 "nodes are staged",
				 LIBUCP, calls[i].symbol);
			return false;
		}
		memcpy((char *)&net_ucx + calls[i].offset, &address, sizeof(address));
	}
	net_ucx.ucp_get_version(&major, &minor, &release);
	util_log(UTIL_LOG_INFO, UTIL_SUBSYS_NET, "UCX %u.%u.%u", major, minor, release);
	return true;
}

bool net_ucx_load(void)
{
	static bool tried, loaded;

	if (!tried)
		loaded = load_ucx();
	tried = true;
	return loaded;
}

enum util_status net_ucx_fail(const char *call, ucs_status_t status)
{
	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_NET, "%s failed: %s (%d)", call,
		 net_ucx.ucs_status_string(status), (int)status);
	return status == UCS_ERR_NO_MEMORY ? UTIL_ERR_NO_MEMORY : UTIL_ERR_SYSTEM;
}
