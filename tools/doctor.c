/* SPDX-License-Identifier: BSD-3-Clause */
#include "doctor-watch.h"
#include "doctor.h"
#include "gpu/gpu_driver.h"
#include "util/util_config.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char *const levels[DOCTOR_NUM_LEVELS] = {"ok", "note", "warn", "bad"};

/* Of the process that reports. */
static json_t *lines;
static int counts[DOCTOR_NUM_LEVELS];
static FILE *text; /* NULL: JSON */

/* A finding, which its process has told. */
static void take(const char *line)
{
	json_t *finding = json_loads(line, 0, NULL);
	const char *topic, *found, *effect = NULL, *remedy = NULL;
	int level;

	if (!finding || json_unpack(finding, "{s:i, s:s, s:s, s?s, s?s}", "level", &level, "topic",
				    &topic, "found", &found, "effect", &effect, "remedy", &remedy))
		return;
	counts[level]++;
	if (text) {
		fprintf(text, "[%-4s] %s: %s\n", levels[level], topic, found);
		if (effect)
			fprintf(text, "       -> %s\n", effect);
		if (remedy)
			fprintf(text, "       remedy: %s\n", remedy);
		fflush(text);
	}
	json_object_set_new(finding, "level", json_string(levels[level]));
	json_array_append_new(lines, finding);
}

void doctor_say(enum doctor_level level, const char *topic, const char *effect, const char *remedy,
		const char *found, ...)
{
	char value[512], *line, *c;
	json_t *finding;
	va_list args;

	va_start(args, found);
	vsnprintf(value, sizeof(value), found, args);
	va_end(args);
	for (c = value; *c; c++) /* JSON is UTF-8, and knows no other bytes */
		*c = (unsigned char)*c < 0x80 ? *c : '?';
	doctor_watch_step(topic);
	finding = json_pack("{s:i, s:s, s:s, s:s*, s:s*}", "level", (int)level, "topic", topic,
			    "found", value, "effect", effect, "remedy", remedy);
	line = json_dumps(finding, JSON_COMPACT);
	if (line)
		doctor_watch_tell(line);
	free(line);
	json_decref(finding);
}

const char *doctor_name_of(CUresult result)
{
	const char *name = NULL;

	gpu_driver.cuGetErrorName(result, &name);
	return name ? name : "?";
}

static const char *verdict(void)
{
	if (counts[DOCTOR_BAD])
		return "calls on device buffers will not be accelerated, or not be right, before "
		       "what is marked bad is mended";
	if (counts[DOCTOR_WARN])
		return "it works, and is slower than this machine could be: see what is marked "
		       "warn";
	return "all is well";
}

static void print_json(FILE *out)
{
	json_t *report = json_pack("{s:s, s:s, s:i, s:i, s:O}", "version", GPUCOLL_VERSION_STRING,
				   "verdict", verdict(), "bad", counts[DOCTOR_BAD], "warn",
				   counts[DOCTOR_WARN], "lines", lines);

	json_dumpf(report, out, JSON_INDENT(1));
	fputs("\n", out);
	json_decref(report);
}

/* Exit statuses of the process that is watched, which others don't take for theirs. */
enum { LOOKED = 80, HELPED };

static int look(void)
{
	doctor_watch_step("the driver");
	if (!doctor_look_at_pairs())
		return HELPED; /* another one reports */
	doctor_look_at_driver();
	doctor_look_at_system();
	return LOOKED;
}

int doctor_run(FILE *out, bool json)
{
	const char *what = "";
	int status;

	lines = json_array();
	text = json ? NULL : out;
	status = doctor_watch(look, take, &what);
	if (status == DOCTOR_WATCH_HANGS)
		doctor_say(DOCTOR_BAD, "driver", "programs that use the GPU may hang, too",
			   "dmesg (lines of NVRM: Xid); end what uses the GPU, or restart the "
			   "machine; GPUCOLL_TIMEOUT, where it is only slow",
			   "nothing has come of it for %zu s, after: %s", util_config.timeout,
			   what);
	else if (status != LOOKED && status != HELPED)
		doctor_say(DOCTOR_BAD, "driver", NULL, "a core file, or gdb",
			   "the process that asks it has ended early, after: %s", what);
	if (status != HELPED && json)
		print_json(out);
	else if (status != HELPED)
		fprintf(out, "verdict: %d bad, %d to look at: %s\n", counts[DOCTOR_BAD],
			counts[DOCTOR_WARN], verdict());
	json_decref(lines);
	return counts[DOCTOR_BAD] ? 1 : 0;
}
