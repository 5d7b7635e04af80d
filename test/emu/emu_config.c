/* SPDX-License-Identifier: BSD-3-Clause */
#include "emu.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct emu_config emu_config;
atomic_bool emu_may_fault = true;

enum { MAX_FAULTS = 16 };

static struct fault {
	char name[64];
	unsigned nth, calls;
	bool later, hangs;
	CUresult code;
} faults[MAX_FAULTS];
static int num_faults;
static CUresult lost;
static pthread_mutex_t fault_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

void emu_die(const char *format, ...)
{
	va_list args;

	fputs("cuemu: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	fflush(stderr);
	abort();
}

static size_t number(const char *name, size_t fallback, size_t least, size_t most)
{
	static const char units[] = "KMG";
	const char *text = getenv(name), *unit;
	char *end;

	if (!text || !*text)
		return fallback;
	size_t value = strtoull(text, &end, 10);
	if (*end && (unit = strchr(units, *end))) {
		value <<= 10 * (unit - units + 1);
		end++;
	}
	if (*end || end == text || value < least || value > most)
		emu_die("%s=%s: a number from %zu to %zu is needed", name, text, least, most);
	return value;
}

/* Whether it is the second of two words; the first, if it is not set. */
static bool word(const char *name, const char *first, const char *second)
{
	const char *text = getenv(name);

	if (!text || !*text || !strcmp(text, first))
		return false;
	if (strcmp(text, second))
		emu_die("%s=%s: %s or %s is needed", name, text, first, second);
	return true;
}

static void load_p2p(void)
{
	const char *text = getenv("CUEMU_P2P");
	bool all = !text || !*text || !strcmp(text, "all"), lies = text && !strcmp(text, "lies");
	enum emu_p2p value = all ? EMU_P2P_WORKS : lies ? EMU_P2P_LIES : EMU_P2P_NONE;

	for (int i = 0; i < EMU_MAX_DEVICES; i++) {
		for (int j = 0; j < EMU_MAX_DEVICES; j++)
			emu_config.p2p[i][j] = i != j ? value : EMU_P2P_NONE;
	}
	if (all || lies || !strcmp(text, "none"))
		return;
	int row = 0, column = 0;
	for (const char *at = text; *at; at++) {
		if (*at == ',') {
			row++;
			column = 0;
		} else if (*at >= '0' && *at <= '0' + EMU_P2P_LIES_TO_KERNELS &&
			   row < EMU_MAX_DEVICES && column < EMU_MAX_DEVICES) {
			if (row != column)
				emu_config.p2p[row][column] = (enum emu_p2p)(*at - '0');
			column++;
		} else {
			emu_die("CUEMU_P2P=%s: all, none, lies, or rows of 0 to 3 separated by ','",
				text);
		}
	}
}

static void add_faults(const char *text)
{
	for (const char *at = text; at && *at;) {
		size_t length = strcspn(at, ",");
		struct fault *fault = &faults[num_faults];
		char item[128];
		char *mark;

		if (length >= sizeof(item) || num_faults == MAX_FAULTS)
			emu_die("CUEMU_FAULT=%s: too long", text);
		memcpy(item, at, length);
		item[length] = 0;
		*fault = (struct fault){.nth = 1, .code = CUDA_ERROR_OUT_OF_MEMORY};
		if ((mark = strchr(item, '='))) {
			fault->hangs = !strcmp(mark + 1, "hang");
			fault->code = (CUresult)(fault->hangs ? 1 : atoi(mark + 1));
			*mark = 0;
		}
		if ((mark = strchr(item, '+'))) {
			fault->later = true;
			*mark = 0;
		}
		if ((mark = strchr(item, ':'))) {
			fault->nth = (unsigned)atoi(mark + 1);
			*mark = 0;
		}
		if (!*item || strlen(item) >= sizeof(fault->name) || !fault->nth ||
		    fault->code <= 0)
			emu_die("CUEMU_FAULT=%s: NAME[:N][+][=CODE|=hang] is needed", text);
		strcpy(fault->name, item);
		num_faults++;
		at += length + (at[length] == ',');
	}
}

static void load(void)
{
	const char *blocking = getenv("CUDA_LAUNCH_BLOCKING");

	emu_config.devices = (int)number("CUEMU_DEVICES", 1, 0, EMU_MAX_DEVICES);
	emu_config.sms = (int)number("CUEMU_SMS", 4, 1, 1024);
	emu_config.memory = number("CUEMU_MEMORY", (size_t)8 << 30, 1 << 21, (size_t)1 << 40);
	emu_config.arena = number("CUEMU_ARENA", (size_t)64 << 30, 1 << 26, (size_t)1 << 44);
	emu_config.delay_us = (unsigned)number("CUEMU_DELAY_US", 20, 0, 10000000);
	emu_config.in_caller = number("CUEMU_IN_CALLER", 0, 0, 1);
	emu_config.slice_us = (unsigned)number("CUEMU_SLICE_US", 0, 0, 1000000);
	emu_config.first_us = (unsigned)number("CUEMU_FIRST_US", 0, 0, 10000000);
	emu_config.connections = (int)number("CUEMU_CONNECTIONS", 0, 0, 32);
	emu_config.wait_us = (unsigned)number("CUEMU_WAIT_US", 0, 0, 1000000);
	emu_config.room = number("CUEMU_ROOM", 0, 0, 1);
	emu_config.time_sliced = number("CUEMU_TIME_SLICED", 0, 0, 1);
	emu_config.mig = number("CUEMU_MIG", 0, 0, 1);
	emu_config.legacy_alone = word("CUEMU_LEGACY", "blocking", "alone");
	emu_config.managed_alone = word("CUEMU_MANAGED", "beside", "alone");
	emu_config.display = number("CUEMU_DISPLAY", 0, 0, 1);
	emu_config.exclusive = number("CUEMU_EXCLUSIVE", 0, 0, 1);
	emu_config.stale_die = word("CUEMU_STALE", "error", "die");
	emu_config.check_shared = number("CUEMU_CHECK_SHARED", 0, 0, 1);
	emu_config.interprets = word("CUEMU_KERNELS", "twins", "ptx");
	emu_config.threads = emu_config.interprets ? (int)number("CUEMU_THREADS", 64, 1, 1024)
						   : (int)number("CUEMU_THREADS", 2, 1, 64);
	emu_config.seed = number("CUEMU_SEED", 1, 0, SIZE_MAX);
	/*
	 * Kernels that run together meet within 1.6 ms (gpu_probe.cu), which is then 16 s: a
	 * machine may keep the cores from a process for seconds. Those that take turns do not meet,
	 * however long they wait.
	 */
	emu_config.slowness =
		(int)number("CUEMU_SLOWNESS", emu_config.time_sliced ? 1000 : 10000, 1, 10000);
	emu_config.blocking_launches = blocking && *blocking && strcmp(blocking, "0") != 0;
	load_p2p();
	add_faults(getenv("CUEMU_FAULT"));
	atomic_store(&emu_may_fault, num_faults > 0);
}

void emu_config_load(void)
{
	pthread_once(&once, load);
}

/*
 * A function that cuda.h calls cuMemAlloc is defined as cuMemAlloc_v2; a fault names it without
 * that.
 */
static bool matches(const struct fault *fault, const char *name)
{
	size_t length = strlen(fault->name);

	return !strncmp(fault->name, name, length) &&
	       (!name[length] || !strncmp(name + length, "_v", 2));
}

/* After which, as cuda.h says, any further work in the process returns the same error. */
static bool is_sticky(CUresult code)
{
	return code == CUDA_ERROR_ILLEGAL_ADDRESS || code == CUDA_ERROR_LAUNCH_TIMEOUT ||
	       code == CUDA_ERROR_ASSERT || (int)code == 226 /* CUDA_ERROR_CONTAINED */ ||
	       (code >= CUDA_ERROR_HARDWARE_STACK_ERROR && code <= CUDA_ERROR_LAUNCH_FAILED);
}

CUresult emu_find_fault(const char *name)
{
	bool hangs = false;
	CUresult code;

	emu_config_load();
	pthread_mutex_lock(&fault_lock);
	code = lost;
	for (int i = 0; i < num_faults && code == CUDA_SUCCESS; i++) {
		if (!matches(&faults[i], name))
			continue;
		faults[i].calls++;
		if (faults[i].calls == faults[i].nth ||
		    (faults[i].later && faults[i].calls > faults[i].nth))
			code = faults[i].code;
		hangs |= code != CUDA_SUCCESS && faults[i].hangs;
		if (is_sticky(code))
			lost = code;
	}
	pthread_mutex_unlock(&fault_lock);
	while (hangs)
		pause();
	return code;
}

void emu_lose(CUresult code)
{
	pthread_mutex_lock(&fault_lock);
	lost = code;
	pthread_mutex_unlock(&fault_lock);
	atomic_store(&emu_may_fault, true);
}

CUresult emu_lost(void)
{
	CUresult code;

	if (!atomic_load_explicit(&emu_may_fault, memory_order_relaxed))
		return CUDA_SUCCESS;
	pthread_mutex_lock(&fault_lock);
	code = lost;
	pthread_mutex_unlock(&fault_lock);
	return code;
}

EMU_API void cuemu_add_faults(const char *text)
{
	emu_config_load();
	add_faults(text);
	atomic_store(&emu_may_fault, true);
}
