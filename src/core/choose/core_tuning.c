/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/choose/core_tuning.h"
#include "core/comm/core_comm.h"
#include "core/job/core_mpi_job.h"
#include "util/util_config.h"
#include "util/util_hash.h"
#include "util/util_locale.h"
#include "util/util_log.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* One measurement. */
struct measured {
	struct core_tuning_key key;
	enum sched_coll coll;
	uint64_t bytes;
	struct algo_choice way;
};

static struct measured *all;
static size_t num_all;

/* ---- the text ---- */

/* Why the line is none; NULL: it is one. */
static const char *read_line(const char *line, struct measured *m)
{
	char coll[32], algo[32], proto[16];
	int end = 0, number;

	if (sscanf(line,
		   "time %" SCNx64 " ranks=%d nodes=%d gpus=%d %31s %" SCNu64 " %31s %15s %d %lf%n",
		   &m->key.machine, &m->key.ranks, &m->key.nodes, &m->key.gpus, coll, &m->bytes,
		   algo, proto, &m->way.channels, &m->way.time, &end) != 10 ||
	    line[end + (int)strspn(line + end, " \t\r\n")])
		return "it is no line of such a file";
	number = sched_coll_of(coll);
	if (number < 0)
		return "there is no such collective";
	m->coll = (enum sched_coll)number;
	m->way.algo = algo_find(algo, m->coll);
	if (!m->way.algo)
		return "the collective has no such algorithm";
	number = sched_proto_of(proto);
	if (number < 0)
		return "there is no such protocol";
	m->way.proto = (enum sched_proto)number;
	if (m->way.channels < 1 || m->way.channels > ALGO_MOST_CHANNELS)
		return "there is no such number of channels";
	return m->way.time > 0 && m->way.time < 1e12 ? NULL : "there is no such time";
}

static bool is_comment(const char *line)
{
	line += strspn(line, " \t\r\n");
	return !*line || *line == '#';
}

/* Why the line is wrong; NULL: it is not. `*begun`: the head has been read. */
static const char *take_line(char *line, bool *begun)
{
	struct measured *more;
	const char *why;

	line[strcspn(line, "\r\n")] = '\0';
	if (is_comment(line))
		return NULL;
	if (!*begun) {
		*begun = true;
		return strcmp(line, CORE_TUNING_HEAD) ? "it does not begin with " CORE_TUNING_HEAD
						      : NULL;
	}
	more = realloc(all, (num_all + 1) * sizeof(*all));
	if (!more)
		return "there is no memory";
	all = more;
	why = read_line(line, &all[num_all]);
	num_all += !why;
	return why;
}

/* Returns NULL, or what is wrong, with the number of its line. */
static const char *read_lines(FILE *in, const char *name, char *error, size_t bytes)
{
	locale_t before = util_locale_enter();
	const char *why = NULL;
	char *line = NULL;
	size_t room = 0;
	bool begun = false;
	int number = 0;

	while (!why && getline(&line, &room, in) >= 0) {
		number++;
		why = take_line(line, &begun);
	}
	free(line);
	util_locale_leave(before);
	if (!why)
		return NULL;
	snprintf(error, bytes, "%s:%d: %s", name, number, why);
	return error;
}

/* All of it, or nothing. */
static void parse(const char *text, size_t bytes, const char *name)
{
	FILE *in = bytes ? fmemopen((void *)(uintptr_t)text, bytes, "r") : NULL;
	char error[PATH_MAX + 128];

	if (!in)
		return;
	if (read_lines(in, name, error, sizeof(error))) {
		num_all = 0;
		if (core_mpi_job.rank == 0)
			util_log(UTIL_LOG_WARN, UTIL_SUBSYS_INIT,
				 "times that were measured are ignored: %s", error);
	} else if (core_mpi_job.rank == 0) {
		util_log(UTIL_LOG_INFO, UTIL_SUBSYS_INIT, "%s: %zu times that were measured", name,
			 num_all);
	}
	fclose(in);
}

/* Of what this process has understood. */
static uint64_t hash_all(void)
{
	locale_t before = util_locale_enter();
	uint64_t hash = UTIL_HASH_START;
	char text[64];

	for (size_t i = 0; i < num_all; i++) {
		snprintf(text, sizeof(text), "%zu %" PRIu64 " %d %a", i, all[i].bytes,
			 all[i].way.channels, all[i].way.time);
		hash = util_hash_text(hash, text);
	}
	util_locale_leave(before);
	return hash;
}

/* ---- the file ---- */

/* No device nor directory, nor what can't be such a file. Sets errno. */
static bool is_file_of_times(FILE *in)
{
	static const off_t most = 64 << 20;
	struct stat status;

	if (fstat(fileno(in), &status))
		return false;
	errno = S_ISREG(status.st_mode) ? EFBIG : S_ISDIR(status.st_mode) ? EISDIR : ENOTSUP;
	return S_ISREG(status.st_mode) && status.st_size <= most;
}

/* NULL: there is none, which is reported if it was asked for. The caller frees it. */
static char *read_file(const char *name, size_t *bytes)
{
	FILE *in = fopen(name, "r"), *out;
	char *text = NULL, part[4096];
	size_t got;

	if (in && !is_file_of_times(in)) {
		int error = errno;

		fclose(in);
		in = NULL;
		errno = error;
	}
	if (!in) {
		if (util_config.tuning_file)
			util_log(UTIL_LOG_WARN, UTIL_SUBSYS_INIT, "GPUCOLL_TUNING_FILE: %s: %s",
				 name, strerror(errno));
		return NULL;
	}
	out = open_memstream(&text, bytes);
	while (out && (got = fread(part, 1, sizeof(part), in)) > 0)
		fwrite(part, 1, got, out);
	fclose(in);
	if (out)
		fclose(out);
	return text;
}

void core_tuning_start(void)
{
	char name[PATH_MAX], *mine = NULL;
	size_t bytes = 0;
	int *sizes = NULL;
	void *text = NULL;

	util_config_tuning_path(name, sizeof(name));
	if (core_mpi_job.rank == 0 && *name)
		mine = read_file(name, &bytes);
	if (bytes > INT_MAX)
		bytes = 0;
	if (core_mpi_job_gather(mine, mine ? (int)bytes : 0, &text, &sizes) == UTIL_OK)
		parse(text, (size_t)sizes[0], name);
	/* Who goes by other times would choose otherwise, and the others wait for it. */
	if (!core_mpi_job_same(hash_all()))
		core_tuning_stop();
	free(mine);
	free(text);
	free(sizes);
}

void core_tuning_stop(void)
{
	free(all);
	all = NULL;
	num_all = 0;
}

/* ---- use ---- */

/* What a machine has, and how it hangs together. Rates are left out: links that rest are slower. */
static uint64_t hash_machine(uint64_t hash, const struct topo_machine *machine)
{
	char text[3 * TOPO_NAME_BYTES];

	for (int i = 0; i < machine->num_objects; i++) {
		const struct topo_object *object = &machine->objects[i];

		snprintf(text, sizeof(text), "%d %d %s %s %d\n", (int)object->kind, object->parent,
			 object->name, object->bus, object->cc);
		hash = util_hash_text(hash, text);
	}
	for (int i = 0; i < machine->num_links; i++) {
		snprintf(text, sizeof(text), "%d %d\n", machine->links[i].a, machine->links[i].b);
		hash = util_hash_text(hash, text);
	}
	return hash;
}

/* Machines that are alike count once. */
uint64_t core_tuning_fingerprint(int num_nodes, const struct topo_machine *const *machines,
				 bool sockets)
{
	uint64_t hash = UTIL_HASH_START, seen[CORE_MAX_RANKS];
	char text[32];
	int num = 0;

	for (int node = 0; node < num_nodes; node++) {
		uint64_t mine = machines[node] ? hash_machine(UTIL_HASH_START, machines[node]) : 0;
		int i = 0;

		while (i < num && seen[i] != mine)
			i++;
		if (i < num)
			continue;
		seen[num++] = mine;
		snprintf(text, sizeof(text), "%" PRIx64, mine);
		hash = util_hash_text(hash, text);
	}
	return sockets && num_nodes > 1 ? util_hash_text(hash, "sockets") : hash;
}

static bool is_same_key(const struct core_tuning_key *a, const struct core_tuning_key *b)
{
	return a->machine == b->machine && a->ranks == b->ranks && a->nodes == b->nodes &&
	       a->gpus == b->gpus;
}

bool core_tuning_apply(const struct core_tuning_key *key, enum sched_coll coll,
		       struct algo_table *table)
{
	bool well = true;

	for (size_t i = 0; i < num_all && well; i++) {
		if (all[i].coll == coll && is_same_key(&all[i].key, key))
			well = algo_table_measure(table, all[i].bytes, &all[i].way);
	}
	return well;
}

void core_tuning_describe(const struct core_tuning_key *key, enum sched_coll coll, uint64_t bytes,
			  const struct algo_choice *way, char *text, size_t size)
{
	snprintf(text, size,
		 "time %016" PRIx64 " ranks=%d nodes=%d gpus=%d %s %" PRIu64 " %s %s %d",
		 key->machine, key->ranks, key->nodes, key->gpus, sched_coll_name(coll), bytes,
		 way->algo->name, sched_proto_name(way->proto), way->channels);
}
