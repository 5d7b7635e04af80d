/* SPDX-License-Identifier: BSD-3-Clause */
#include "info-desync.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MOST_RANKS = 65536, MOST_COMMS = 65536, NOBODY = -1 };

/* A rank of the job. */
struct process {
	json_t *rank;   /* as in the file; NULL: no file has it */
	double when;    /* the file was written */
	int *waits_for; /* ranks, once it is known that it waits; ended by NOBODY */
};

struct comm {
	const char *id;
	int size;
	bool is_world;
	int *members;  /* ranks in the job, by rank; or NOBODY */
	int64_t *made; /* how many operations each has come to */
};

struct job {
	int size, num_files;
	json_t **files;
	struct process *processes;
	struct comm *comms;
	size_t num_comms;
};

/* How a member stands to the operation that is looked at. */
enum stand { STAND_UNKNOWN, STAND_GONE, STAND_BEFORE, STAND_AT, STAND_PAST };

struct member {
	int rank; /* in the job */
	enum stand stand;
	json_t *call; /* the operation; of who has not come: the last one, or that in which it is */
};

/* ---- JSON ---- */

static int64_t number_of(const json_t *object, const char *key, int64_t fallback)
{
	const json_t *value = json_object_get(object, key);

	return json_is_number(value) ? (int64_t)json_number_value(value) : fallback;
}

static double seconds_of(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

static bool is_open(const json_t *call)
{
	return !json_is_true(json_object_get(call, "ended"));
}

static bool is_alive(const json_t *rank)
{
	return rank && !json_is_false(json_object_get(rank, "alive"));
}

/* In it, or it was handed on, and nobody looks at it. */
static bool may_wait(const json_t *call)
{
	return is_open(call) || json_is_true(json_object_get(call, "given"));
}

static bool has_failed(const json_t *call)
{
	return json_is_true(json_object_get(call, "failed"));
}

/* ---- the files ---- */

static void *must(void *memory)
{
	if (memory)
		return memory;
	fprintf(stderr, "gpucoll-info: no memory\n");
	exit(2);
}

static void *allocate(int num, size_t bytes)
{
	return must(calloc(num > 0 ? (size_t)num : 1, bytes));
}

static bool load(struct job *job, const char *path)
{
	json_error_t error;
	json_t *file = json_load_file(path, 0, &error);

	if (!file) {
		fprintf(stderr, "gpucoll-info: %s: %s (line %d)\n", path, error.text, error.line);
		return false;
	}
	if (!json_is_array(json_object_get(file, "ranks")) || number_of(file, "size", 0) < 1 ||
	    number_of(file, "size", 0) > MOST_RANKS) {
		fprintf(stderr, "gpucoll-info: %s is not a file that GPUCOLL_DUMP names\n", path);
		json_decref(file);
		return false;
	}
	if (job->num_files && strcmp(text_of(job->files[0], "job"), text_of(file, "job"))) {
		fprintf(stderr, "gpucoll-info: %s is of another job than the first file\n", path);
		json_decref(file);
		return false;
	}
	job->files[job->num_files++] = file;
	job->size = (int)number_of(file, "size", 0);
	return true;
}

/* Of several that tell of a rank, the newest. */
static void take_ranks(struct job *job)
{
	json_t *rank;
	size_t i;

	job->processes = allocate(job->size, sizeof(*job->processes));
	for (int f = 0; f < job->num_files; f++) {
		double when = seconds_of(job->files[f], "time");

		json_array_foreach(json_object_get(job->files[f], "ranks"), i, rank)
		{
			int64_t number = number_of(rank, "rank", -1);

			if (number < 0 || number >= job->size ||
			    (job->processes[number].rank && job->processes[number].when > when))
				continue;
			job->processes[number].rank = rank;
			job->processes[number].when = when;
		}
	}
}

static struct comm *find_comm(struct job *job, const char *id)
{
	for (size_t i = 0; i < job->num_comms; i++) {
		if (!strcmp(job->comms[i].id, id))
			return &job->comms[i];
	}
	return NULL;
}

static struct comm *add_comm(struct job *job, const char *id, int size)
{
	struct comm *comm;

	if (job->num_comms == MOST_COMMS)
		return NULL;
	job->comms = must(realloc(job->comms, (job->num_comms + 1) * sizeof(*job->comms)));
	comm = &job->comms[job->num_comms++];
	*comm = (struct comm){.id = id, .size = size};
	comm->members = allocate(size, sizeof(*comm->members));
	comm->made = allocate(size, sizeof(*comm->made));
	for (int i = 0; i < size; i++)
		comm->members[i] = NOBODY;
	return comm;
}

/* A process is a member of a communicator, and has come to so many of its operations. */
static void add_member(struct job *job, int process, const json_t *entry, int64_t made)
{
	const char *id = text_of(entry, "comm");
	int64_t rank = number_of(entry, "rank", -1), size = number_of(entry, "size", 0);
	struct comm *comm = find_comm(job, id);

	if (!*id || size < 1 || size > job->size || rank < 0 || rank >= size)
		return;
	if (!comm)
		comm = add_comm(job, id, (int)size);
	if (!comm || comm->size != size)
		return;
	comm->members[rank] = process;
	if (made > comm->made[rank])
		comm->made[rank] = made;
	comm->is_world |= json_is_true(json_object_get(entry, "world"));
}

/* Those that there are; and of calls on others, as on some of very many. */
static void take_comms(struct job *job)
{
	json_t *entry;
	size_t i;

	for (int process = 0; process < job->size; process++) {
		const json_t *rank = job->processes[process].rank;

		json_array_foreach(json_object_get(rank, "comms"), i, entry)
			add_member(job, process, entry, number_of(entry, "made", 0));
		json_array_foreach(json_object_get(rank, "calls"), i, entry)
			add_member(job, process, entry, number_of(entry, "number", -1) + 1);
	}
}

/* ---- words ---- */

/* "rank 3", "ranks 0-2 5". */
static const char *ranks_text(const int *ranks, int num)
{
	static char texts[4][400]; /* so that a line may name several */
	static unsigned turn;
	char *text = texts[turn++ % 4];
	size_t used = (size_t)snprintf(text, sizeof(texts[0]), num == 1 ? "rank" : "ranks");

	for (int i = 0, last; i < num && used < sizeof(texts[0]) - 40; i = last + 1) {
		for (last = i; last + 1 < num && ranks[last + 1] == ranks[last] + 1;)
			last++;
		used += (size_t)snprintf(text + used, sizeof(texts[0]) - used,
					 last > i ? " %d-%d" : " %d", ranks[i], ranks[last]);
		if (last + 1 < num && used >= sizeof(texts[0]) - 40)
			snprintf(text + used, sizeof(texts[0]) - used, " ...");
	}
	return text;
}

static const char *comm_text(const struct comm *comm)
{
	static char texts[4][460];
	static unsigned turn;
	char *text = texts[turn++ % 4];
	int known[comm->size], num = 0;

	if (comm->is_world)
		return "MPI_COMM_WORLD";
	for (int i = 0; i < comm->size; i++) {
		if (comm->members[i] != NOBODY)
			known[num++] = comm->members[i];
	}
	snprintf(text, sizeof(texts[0]), "communicator %s of %s%s",
		 comm->id + (strlen(comm->id) > 4 ? strlen(comm->id) - 4 : 0),
		 ranks_text(known, num), num < comm->size ? " and others" : "");
	return text;
}

static size_t add(char *text, size_t used, size_t size, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

static size_t add(char *text, size_t used, size_t size, const char *format, ...)
{
	va_list args;
	int length;

	if (used >= size)
		return used;
	va_start(args, format);
	length = vsnprintf(text + used, size - used, format, args);
	va_end(args);
	return used + (size_t)length;
}

/* "MPI_Bcast (4 MPI_INT, root 0)". */
static const char *call_text(const json_t *call)
{
	static char texts[4][300];
	static unsigned turn;
	char *text = texts[turn++ % 4];
	const char *separator = " (";
	size_t used = add(text, 0, sizeof(texts[0]), "%s", text_of(call, "call"));
	static const char *const buffers[][2] = {{"sendcount", "sendtype"},
						 {"recvcount", "recvtype"}};

	for (int i = 0; i < 2; i++) {
		if (!json_object_get(call, buffers[i][0]))
			continue;
		used = add(text, used, sizeof(texts[0]), "%s%lld %s", separator,
			   (long long)number_of(call, buffers[i][0], 0),
			   text_of(call, buffers[i][1]));
		separator = ", ";
	}
	if (json_object_get(call, "op")) {
		used = add(text, used, sizeof(texts[0]), "%s%s", separator, text_of(call, "op"));
		separator = ", ";
	}
	if (json_object_get(call, "root")) {
		used = add(text, used, sizeof(texts[0]), "%sroot %lld", separator,
			   (long long)number_of(call, "root", 0));
		separator = ", ";
	}
	if (*separator == ',')
		add(text, used, sizeof(texts[0]), ")");
	return text;
}

/* ---- one operation ---- */

/* The last call of a process that `fits`; NULL: there is none. */
static json_t *last_call(const json_t *rank, bool (*fits)(const json_t *call, const void *argument),
			 const void *argument)
{
	const json_t *calls = json_object_get(rank, "calls");
	size_t i = json_array_size(calls);

	while (i--) {
		json_t *call = json_array_get(calls, i);

		if (fits(call, argument))
			return call;
	}
	return NULL;
}

static bool is_on(const json_t *call, const void *id)
{
	return !strcmp(text_of(call, "comm"), id);
}

static bool is_any_open(const json_t *call, const void *nothing)
{
	(void)nothing;
	return is_open(call);
}

static bool is_any(const json_t *call, const void *nothing)
{
	(void)nothing;
	(void)call;
	return true;
}

struct place {
	const char *id;
	int64_t number;
};

static bool is_at(const json_t *call, const void *argument)
{
	const struct place *place = argument;

	return is_on(call, place->id) && number_of(call, "number", -1) == place->number;
}

/* The member's entry in the files; NULL: none. */
static json_t *rank_of(const struct job *job, const struct comm *comm, int index)
{
	return comm->members[index] == NOBODY ? NULL : job->processes[comm->members[index]].rank;
}

/* The first operation of the communicator in which a member that lives still is; -1: in none. */
static int64_t first_open(const struct job *job, const struct comm *comm)
{
	int64_t first = -1, number;
	json_t *call;
	size_t i;

	for (int m = 0; m < comm->size; m++) {
		json_t *rank = rank_of(job, comm, m);

		if (!is_alive(rank))
			continue;
		json_array_foreach(json_object_get(rank, "calls"), i, call)
		{
			number = number_of(call, "number", -1);
			if (is_on(call, comm->id) && is_open(call) && number >= 0 &&
			    (first < 0 || number < first))
				first = number;
		}
	}
	return first;
}

/*
 * The same of what was handed to the real MPI, or to a stream, and may be under way: the first to
 * which some have not come.
 */
static int64_t first_given(const struct job *job, const struct comm *comm)
{
	struct place place = {comm->id, INT64_MAX};
	const json_t *call;

	for (int m = 0; m < comm->size; m++) {
		if (is_alive(rank_of(job, comm, m)) && comm->made[m] < place.number)
			place.number = comm->made[m];
	}
	for (int m = 0; m < comm->size; m++) {
		call = last_call(rank_of(job, comm, m), is_at, &place);
		if (call && json_is_true(json_object_get(call, "given")))
			return place.number;
	}
	return -1;
}

static struct member look_at(const struct job *job, const struct comm *comm, int index,
			     int64_t number)
{
	struct place place = {comm->id, number};
	struct member member = {.rank = comm->members[index]};
	json_t *rank = rank_of(job, comm, index);

	if (!rank)
		return member;
	member.call = last_call(rank, is_at, &place);
	if (member.call) {
		member.stand = STAND_AT;
	} else {
		member.stand = comm->made[index] > number ? STAND_PAST : STAND_BEFORE;
		member.call = last_call(rank, is_any_open, NULL);
		if (!member.call)
			member.call = last_call(rank, is_any, NULL);
	}
	if (!is_alive(rank) &&
	    (member.stand == STAND_BEFORE || (member.stand == STAND_AT && is_open(member.call))))
		member.stand = STAND_GONE;
	return member;
}

/* ---- arguments ---- */

/* What all ranks of a collective must give alike, as far as that can be told from the outside. */
static bool counts_agree(const json_t *a, const json_t *b, const char *count, const char *type)
{
	const char *left = text_of(a, type), *right = text_of(b, type);

	if (!json_object_get(a, count) || !json_object_get(b, count) || !strcmp(left, "derived") ||
	    !strcmp(right, "derived"))
		return true;
	return !strcmp(left, right) && number_of(a, count, 0) == number_of(b, count, 0);
}

/* Whether a call is a form of the collective: MPI_Iallreduce and MPI_Allreduce_init are of
 * allreduce. */
static bool is_form_of(const char *name, const char *coll)
{
	size_t length = strlen(coll);
	const char *at = strcasestr(name, coll);

	return at && (at[length] == 0 || at[length] == '_');
}

static bool is_any_of(const char *name, const char *const *colls)
{
	for (; *colls; colls++) {
		if (is_form_of(name, *colls))
			return true;
	}
	return false;
}

/* NULL: nothing; else what does not agree. */
static const char *disagreement(const json_t *a, const json_t *b)
{
	/* In which all ranks give one count of what they receive, or send. */
	static const char *const receive[] = {
		"bcast",   "reduce",    "scan",     "exscan",
		"scatter", "allgather", "alltoall", "reduce_scatter_block",
		NULL};
	static const char *const send[] = {"gather", "allgather", "alltoall", NULL};
	const char *name = text_of(a, "call");
	bool in_place = json_object_get(a, "in_place") || json_object_get(b, "in_place");

	if (strcmp(name, text_of(b, "call")))
		return "the collective";
	if (number_of(a, "root", -1) != number_of(b, "root", -1))
		return "the root";
	if (strcmp(text_of(a, "op"), text_of(b, "op")))
		return "the operation";
	if (strcasestr(name, "neighbor"))
		return NULL;
	if (is_any_of(name, send) && !in_place && !counts_agree(a, b, "sendcount", "sendtype"))
		return "the count or type";
	if (is_any_of(name, receive) && !(in_place && is_form_of(name, "scatter")) &&
	    !counts_agree(a, b, "recvcount", "recvtype"))
		return "the count or type";
	return NULL;
}

/* With whom most agree; of equals the first. */
static const struct member *most_usual(const struct member *members, int num)
{
	const struct member *best = NULL;
	int most = 0;

	for (int i = 0; i < num; i++) {
		int agree = 0;

		if (members[i].stand != STAND_AT)
			continue;
		for (int j = 0; j < num; j++)
			agree += members[j].stand == STAND_AT &&
				 !disagreement(members[i].call, members[j].call);
		if (agree > most) {
			most = agree;
			best = &members[i];
		}
	}
	return best;
}

static bool tell_disagreement(const struct comm *comm, int64_t number, const struct member *members)
{
	const struct member *usual = most_usual(members, comm->size);
	int with[comm->size], num_with = 0;
	bool found = false;

	for (int i = 0; i < comm->size; i++) {
		if (members[i].stand == STAND_AT && !disagreement(usual->call, members[i].call))
			with[num_with++] = members[i].rank;
	}
	for (int i = 0; i < comm->size; i++) {
		const char *what = members[i].stand == STAND_AT
					   ? disagreement(usual->call, members[i].call)
					   : NULL;

		if (!what)
			continue;
		found = true;
		printf("rank %d is in %s, but %s in %s: %s differs (operation %lld of %s)\n",
		       members[i].rank, call_text(members[i].call), ranks_text(with, num_with),
		       call_text(usual->call), what, (long long)number, comm_text(comm));
	}
	return found;
}

/* ---- who waits for whom ---- */

static const char *waiters_text(const struct comm *comm, const struct member *members)
{
	int ranks[comm->size], num = 0;

	for (int i = 0; i < comm->size; i++) {
		if (members[i].stand == STAND_AT && may_wait(members[i].call))
			ranks[num++] = members[i].rank;
	}
	return ranks_text(ranks, num);
}

/* Where a rank is that has not come. */
static void excuse(struct job *job, const struct member *missing, char *text, size_t size)
{
	const json_t *call = missing->call;
	const struct comm *other = call ? find_comm(job, text_of(call, "comm")) : NULL;

	if (missing->stand == STAND_GONE)
		add(text, 0, size, "the process has ended");
	else if (call && is_open(call))
		add(text, 0, size, "it %s %s%s%s",
		    json_object_get(call, "blocking") ? "is in" : "has begun", call_text(call),
		    other ? ", on " : "", other ? comm_text(other) : "");
	else if (call)
		add(text, 0, size, "no collective since %s, which began %.0f s ago",
		    call_text(call), seconds_of(call, "began"));
	else
		add(text, 0, size, "no collective call yet");
}

/* Those that have the same to say together. */
static int tell_missing(struct job *job, const struct comm *comm, int64_t number,
			const struct member *members)
{
	const struct member *usual = most_usual(members, comm->size);
	char(*texts)[900] = allocate(comm->size, sizeof(*texts));
	int *ranks = allocate(comm->size, sizeof(*ranks)), all = 0;

	for (int i = 0; i < comm->size; i++) {
		if (members[i].stand == STAND_BEFORE || members[i].stand == STAND_GONE)
			excuse(job, &members[i], texts[i], sizeof(texts[i]));
	}
	for (int i = 0, num; i < comm->size; i++) {
		if (!texts[i][0])
			continue;
		num = 0;
		for (int j = i + 1; j < comm->size; j++) {
			if (strcmp(texts[i], texts[j]))
				continue;
			ranks[++num] = members[j].rank;
			texts[j][0] = 0;
		}
		ranks[0] = members[i].rank;
		all += num + 1;
		printf("%s did not come to %s, operation %lld of %s, awaited there by %s for "
		       "%.0f s: %s\n",
		       ranks_text(ranks, num + 1), call_text(usual->call), (long long)number,
		       comm_text(comm), waiters_text(comm, members),
		       seconds_of(usual->call, "began"), texts[i]);
	}
	free(ranks);
	free(texts);
	return all;
}

static void note_waits(struct job *job, const struct comm *comm, const struct member *members)
{
	for (int i = 0; i < comm->size; i++) {
		int *list, num = 0;

		if (members[i].stand != STAND_AT || !is_open(members[i].call) ||
		    !json_object_get(members[i].call, "blocking") ||
		    job->processes[members[i].rank].waits_for)
			continue;
		list = allocate(comm->size + 1, sizeof(*list));
		for (int j = 0; j < comm->size; j++) {
			if (members[j].stand == STAND_BEFORE)
				list[num++] = members[j].rank;
		}
		list[num] = NOBODY;
		job->processes[members[i].rank].waits_for = list;
	}
}

/* All are there: what they wait for. */
static void tell_states(const struct comm *comm, int64_t number, const struct member *members)
{
	const struct member *usual = most_usual(members, comm->size);

	printf("all that are known are in %s, operation %lld of %s (%.0f s):\n",
	       call_text(usual->call), (long long)number, comm_text(comm),
	       seconds_of(usual->call, "began"));
	for (int i = 0; i < comm->size; i++) {
		const char *words;

		if (members[i].stand == STAND_UNKNOWN)
			continue;
		if (members[i].stand != STAND_AT) {
			printf("  rank %d is past it\n", members[i].rank);
			continue;
		}
		words = text_of(members[i].call, "waits");
		printf("  rank %d %s%s%s\n", members[i].rank, text_of(members[i].call, "text"),
		       *words ? ": for " : "", words);
	}
}

static bool tell_of_comm(struct job *job, const struct comm *comm)
{
	int64_t open = first_open(job, comm), number = open < 0 ? first_given(job, comm) : open;
	struct member *members;
	int num_missing, num_unknown = 0;
	bool differ;

	if (number < 0)
		return false;
	members = allocate(comm->size, sizeof(*members));
	for (int i = 0; i < comm->size; i++) {
		members[i] = look_at(job, comm, i, number);
		num_unknown += members[i].stand == STAND_UNKNOWN;
	}
	differ = tell_disagreement(comm, number, members);
	num_missing = tell_missing(job, comm, number, members);
	if (!differ && !num_missing)
		tell_states(comm, number, members);
	if (num_unknown)
		printf("of %d of the %d ranks of %s no file tells\n", num_unknown, comm->size,
		       comm_text(comm));
	note_waits(job, comm, members);
	free(members);
	return true;
}

static bool waits_for(const struct job *job, int rank, int other)
{
	const int *list = job->processes[rank].waits_for;

	for (; list && *list != NOBODY; list++) {
		if (*list == other)
			return true;
	}
	return false;
}

static void tell_circles(const struct job *job)
{
	for (int a = 0; a < job->size; a++) {
		for (int b = a + 1; b < job->size; b++) {
			if (waits_for(job, a, b) && waits_for(job, b, a))
				printf("ranks %d and %d wait for each other: they have come to "
				       "collectives on two communicators in different orders\n",
				       a, b);
		}
	}
}

static void tell_dead(const struct job *job)
{
	for (int i = 0; i < job->size; i++) {
		const json_t *rank = job->processes[i].rank;
		const json_t *call = rank ? last_call(rank, is_any, NULL) : NULL;

		if (!rank || is_alive(rank))
			continue;
		printf("the process of rank %d has ended%s%s\n", i,
		       !call           ? ""
		       : is_open(call) ? ", in "
				       : "; its last collective was ",
		       call ? call_text(call) : "");
	}
}

/* The last calls on the communicator that have failed, by operation. */
static bool tell_failed(const struct job *job, const struct comm *comm)
{
	int *ranks = allocate(comm->size, sizeof(*ranks)), num = 0;
	const json_t *failed = NULL;

	for (int i = 0; i < comm->size; i++) {
		const json_t *rank =
			comm->members[i] == NOBODY ? NULL : job->processes[comm->members[i]].rank;
		const json_t *call = rank ? last_call(rank, is_on, comm->id) : NULL;

		if (!call || !has_failed(call) ||
		    (failed && number_of(failed, "number", 0) != number_of(call, "number", 0)))
			continue;
		failed = call;
		ranks[num++] = comm->members[i];
	}
	if (failed)
		printf("%s, operation %lld of %s, has failed on %s\n", call_text(failed),
		       (long long)number_of(failed, "number", 0), comm_text(comm),
		       ranks_text(ranks, num));
	free(ranks);
	return failed != NULL;
}

/* On communicators that the library knows nothing of. */
static bool tell_others(const struct job *job)
{
	bool found = false;
	json_t *call;
	size_t c;

	for (int i = 0; i < job->size; i++) {
		if (!is_alive(job->processes[i].rank))
			continue;
		json_array_foreach(json_object_get(job->processes[i].rank, "calls"), c, call)
		{
			if (!is_open(call) || json_object_get(call, "comm"))
				continue;
			found = true;
			printf("rank %d is in %s, for %.0f s, on a communicator whose ranks are not "
			       "known\n",
			       i, call_text(call), seconds_of(call, "began"));
		}
	}
	return found;
}

static void tell_unknown(const struct job *job)
{
	int *ranks = allocate(job->size, sizeof(*ranks)), num = 0;

	for (int i = 0; i < job->size; i++) {
		if (!job->processes[i].rank)
			ranks[num++] = i;
	}
	if (num)
		printf("no file tells of %s: send SIGUSR2 to a rank on each of their nodes, and name "
		       "the files that it writes, too\n",
		       ranks_text(ranks, num));
	free(ranks);
}

static void release(struct job *job)
{
	for (int i = 0; job->processes && i < job->size; i++)
		free(job->processes[i].waits_for);
	for (size_t i = 0; i < job->num_comms; i++) {
		free(job->comms[i].members);
		free(job->comms[i].made);
	}
	for (int i = 0; i < job->num_files; i++)
		json_decref(job->files[i]);
	free(job->processes);
	free(job->comms);
	free(job->files);
}

int info_desync(int num_files, char *const files[])
{
	struct job job = {0};
	bool loaded = true, found = false;

	if (num_files < 1) {
		fprintf(stderr, "gpucoll-info: --desync needs the files that GPUCOLL_DUMP names\n");
		return 2;
	}
	job.files = allocate(num_files, sizeof(*job.files));
	for (int i = 0; i < num_files && loaded; i++)
		loaded = load(&job, files[i]);
	if (loaded) {
		take_ranks(&job);
		take_comms(&job);
		for (size_t i = 0; i < job.num_comms; i++) {
			found |= tell_of_comm(&job, &job.comms[i]);
			found |= tell_failed(&job, &job.comms[i]);
		}
		found |= tell_others(&job);
		tell_circles(&job);
		tell_dead(&job);
		tell_unknown(&job);
		if (!found)
			printf("no rank that is known waits in a collective, and none has failed\n");
	}
	release(&job);
	return !loaded ? 2 : found;
}
