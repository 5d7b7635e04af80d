/* SPDX-License-Identifier: BSD-3-Clause */
#include "topo/topo_machine.h"
#include "util/util_locale.h"

#include <stdlib.h>
#include <string.h>

static const char *const kinds[TOPO_NUM] = {"numa", "bridge", "switch", "gpu", "nic", "nvswitch"};

const char *topo_kind_name(enum topo_kind kind)
{
	return kinds[kind];
}

bool topo_bus_is(const char *text, unsigned domain, unsigned bus, unsigned device)
{
	unsigned numbers[3];

	return sscanf(text, "%x:%x:%x", &numbers[0], &numbers[1], &numbers[2]) == 3 &&
	       numbers[0] == domain && numbers[1] == bus && numbers[2] == device;
}

struct topo_machine *topo_machine_new(void)
{
	return calloc(1, sizeof(struct topo_machine));
}

void topo_machine_free(struct topo_machine *machine)
{
	if (!machine)
		return;
	free(machine->name);
	free(machine->source);
	free(machine->cpu);
	free(machine->objects);
	free(machine->links);
	free(machine->apart);
	free(machine);
}

int topo_machine_add(struct topo_machine *machine, enum topo_kind kind, int parent,
		     const char *name)
{
	size_t bytes = ((size_t)machine->num_objects + 1) * sizeof(*machine->objects);
	struct topo_object *objects = realloc(machine->objects, bytes), *object;

	if (!objects)
		return -1;
	machine->objects = objects;
	object = &objects[machine->num_objects];
	*object = (struct topo_object){.kind = kind, .parent = parent};
	snprintf(object->name, sizeof(object->name), "%s", name);
	return machine->num_objects++;
}

int topo_machine_link(struct topo_machine *machine, int a, int b, double rate)
{
	size_t bytes = ((size_t)machine->num_links + 1) * sizeof(*machine->links);
	struct topo_link *links = realloc(machine->links, bytes);

	if (!links)
		return -1;
	machine->links = links;
	links[machine->num_links++] = (struct topo_link){a, b, rate};
	return 0;
}

int topo_machine_part(struct topo_machine *machine, int a, int b)
{
	size_t bytes = ((size_t)machine->num_apart + 1) * sizeof(struct topo_apart);
	struct topo_apart *apart;

	if (topo_machine_are_apart(machine, a, b))
		return 0;
	apart = realloc(machine->apart, bytes);
	if (!apart)
		return -1;
	machine->apart = apart;
	apart[machine->num_apart++] = (struct topo_apart){a, b};
	return 0;
}

bool topo_machine_are_apart(const struct topo_machine *machine, int a, int b)
{
	for (int i = 0; i < machine->num_apart; i++) {
		const struct topo_apart *apart = &machine->apart[i];

		if ((apart->a == a && apart->b == b) || (apart->a == b && apart->b == a))
			return true;
	}
	return false;
}

int topo_machine_find(const struct topo_machine *machine, const char *name)
{
	for (int i = 0; i < machine->num_objects; i++) {
		if (!strcmp(machine->objects[i].name, name))
			return i;
	}
	return -1;
}

int topo_machine_nth(const struct topo_machine *machine, enum topo_kind kind, int index)
{
	for (int i = 0; i < machine->num_objects; i++) {
		if (machine->objects[i].kind == kind && index-- == 0)
			return i;
	}
	return -1;
}

/* ---- reading ---- */

enum { MOST_LEVELS = 16, LINE_BYTES = 512 };

struct reader {
	struct topo_machine *machine;
	const char *file;
	int line;
	int levels[MOST_LEVELS]; /* the last object of each */
	int level;               /* of the last object; -1: none */
	char *error;             /* "": none */
	size_t bytes;
};

/* The first one counts. */
static void fail_reading(struct reader *r, const char *what, const char *value)
{
	if (!*r->error)
		snprintf(r->error, r->bytes, "%s:%d: %s '%s'", r->file, r->line, what, value);
}

static char *next_word(char **rest)
{
	char *word;

	while ((word = strsep(rest, " \t"))) {
		if (*word)
			return word;
	}
	return NULL;
}

static double rate_of(struct reader *r, const char *text)
{
	char *end;
	double value = strtod(text, &end);

	/*
	 * No sum of what is found is to overflow, and nothing is to be divided by less than this.
	 */
	if (end != text && !*end && value >= 1e-6 && value <= 1e9)
		return value;
	fail_reading(r, "a rate in GB/s is needed, not", text);
	return 0;
}

static int cc_of(struct reader *r, const char *text)
{
	int major, minor, used = 0;

	if (sscanf(text, "%2d.%1d%n", &major, &minor, &used) == 2 && !text[used] && major > 0 &&
	    minor >= 0)
		return major * 10 + minor;
	fail_reading(r, "a compute capability such as 8.0 is needed, not", text);
	return 0;
}

static int copies_of(struct reader *r, const char *text)
{
	int copies, used = 0;

	if (sscanf(text, "%3d%n", &copies, &used) == 1 && !text[used] && copies > 0)
		return copies;
	fail_reading(r, "a number of copy engines is needed, not", text);
	return 0;
}

static void read_field(struct reader *r, struct topo_object *object, char *field)
{
	char *value = strchr(field, '=');

	if (!value) {
		fail_reading(r, "a field such as rate=12.5 is needed, not", field);
		return;
	}
	*value++ = 0;
	if (!strcmp(field, "rate"))
		object->rate = rate_of(r, value);
	else if (!strcmp(field, "bus") && strlen(value) < sizeof(object->bus))
		snprintf(object->bus, sizeof(object->bus), "%s", value);
	else if (!strcmp(field, "cc") && object->kind == TOPO_GPU)
		object->cc = cc_of(r, value);
	else if (!strcmp(field, "copies") && object->kind == TOPO_GPU)
		object->copies = copies_of(r, value);
	else if (!strcmp(field, "net") && object->kind == TOPO_NIC)
		object->net = rate_of(r, value);
	else
		fail_reading(r, "an unknown or too long field", field);
}

/* What may be below what. */
static bool fits_below(const struct topo_machine *machine, int parent, enum topo_kind kind)
{
	enum topo_kind above;

	if (parent < 0)
		return true;
	above = machine->objects[parent].kind;
	switch (kind) {
	case TOPO_BRIDGE:
		return above == TOPO_NUMA;
	case TOPO_SWITCH:
		return above == TOPO_BRIDGE || above == TOPO_SWITCH;
	case TOPO_GPU:
	case TOPO_NIC:
		return above == TOPO_NUMA || above == TOPO_BRIDGE || above == TOPO_SWITCH;
	default:
		return false;
	}
}

static void read_object(struct reader *r, enum topo_kind kind, int level, char *rest)
{
	struct topo_machine *machine = r->machine;
	const char *name = next_word(&rest);
	int parent = level > 0 ? r->levels[level - 1] : -1, index;
	char *field;

	if (!name || strlen(name) >= TOPO_NAME_BYTES || topo_machine_find(machine, name) >= 0) {
		fail_reading(r, "a new, short name is needed, not", name ? name : "");
		return;
	}
	if (!fits_below(machine, parent, kind)) {
		fail_reading(r, "it can't be below what it is below:", name);
		return;
	}
	index = topo_machine_add(machine, kind, parent, name);
	if (index < 0) {
		fail_reading(r, "no memory for", name);
		return;
	}
	r->levels[level] = index;
	r->level = level;
	while ((field = next_word(&rest)))
		read_field(r, &machine->objects[index], field);
}

/* The names of two objects. */
static void read_ends(struct reader *r, char **rest, int numbers[2])
{
	for (int i = 0; i < 2; i++) {
		const char *name = next_word(rest);

		numbers[i] = name ? topo_machine_find(r->machine, name) : -1;
		if (numbers[i] < 0)
			fail_reading(r, "there is no object", name ? name : "");
	}
	if (!*r->error && numbers[0] == numbers[1])
		fail_reading(r, "two ends are needed, not twice",
			     r->machine->objects[numbers[0]].name);
}

static void read_link(struct reader *r, char *rest)
{
	const char *rate;
	int ends[2];

	read_ends(r, &rest, ends);
	rate = next_word(&rest);
	if (!rate || strncmp(rate, "rate=", 5) || next_word(&rest))
		fail_reading(r, "a link has two ends and rate=..., not", rate ? rate : "");
	if (!*r->error && topo_machine_link(r->machine, ends[0], ends[1], rate_of(r, rate + 5)) < 0)
		fail_reading(r, "no memory for", "link");
}

static void read_apart(struct reader *r, char *rest)
{
	const char *more;
	int ends[2];

	read_ends(r, &rest, ends);
	more = next_word(&rest);
	if (more)
		fail_reading(r, "two GPUs are apart, and no", more);
	for (int i = 0; i < 2 && !*r->error; i++) {
		if (r->machine->objects[ends[i]].kind != TOPO_GPU)
			fail_reading(r, "GPUs are apart, and not",
				     r->machine->objects[ends[i]].name);
	}
	if (!*r->error && topo_machine_part(r->machine, ends[0], ends[1]) < 0)
		fail_reading(r, "no memory for", "apart");
}

static void read_text(struct reader *r, char **to, const char *text)
{
	text = text ? text + strspn(text, " \t") : "";
	free(*to);
	*to = strdup(text);
	if (!*to)
		fail_reading(r, "no memory for", text);
}

static void read_line(struct reader *r, char *line)
{
	int spaces = (int)strspn(line, " "), level = spaces / 2;
	char *rest = line + spaces, *word = next_word(&rest);

	if (!word)
		return;
	if (spaces % 2 || level > r->level + 1 || level >= MOST_LEVELS) {
		fail_reading(r, "indentation is two spaces for each level:", word);
		return;
	}
	for (int i = 0; i < TOPO_NUM; i++) {
		if (!strcmp(word, kinds[i])) {
			read_object(r, (enum topo_kind)i, level, rest);
			return;
		}
	}
	if (!strcmp(word, "link") && !level)
		read_link(r, rest);
	else if (!strcmp(word, "apart") && !level)
		read_apart(r, rest);
	else if (!strcmp(word, "name") && !level)
		read_text(r, &r->machine->name, rest);
	else if (!strcmp(word, "source") && !level)
		read_text(r, &r->machine->source, rest);
	else if (!strcmp(word, "cpu") && !level)
		read_text(r, &r->machine->cpu, rest);
	else
		fail_reading(r, "unknown:", word);
}

/* Comments, and what ends the line. Addresses on the net have `#`, too, but not after a space. */
static void cut(char *line)
{
	char *end = line + strcspn(line, "\r\n");

	*end = 0;
	for (char *at = line; *at; at++) {
		if (*at == '#' && (at == line || at[-1] == ' ' || at[-1] == '\t')) {
			*at = 0;
			break;
		}
	}
	for (end = line + strlen(line); end > line && (end[-1] == ' ' || end[-1] == '\t'); end--)
		end[-1] = 0;
}

static void read_lines(struct reader *r, FILE *in)
{
	static const char first[] = "gpucoll-machine 1";
	char line[LINE_BYTES];
	bool begun = false;

	while (!*r->error && fgets(line, sizeof(line), in)) {
		r->line++;
		if (!strchr(line, '\n') && !feof(in))
			fail_reading(r, "a line that is too long:", line);
		cut(line);
		if (!*line)
			continue;
		if (begun)
			read_line(r, line);
		else if (strcmp(line, first))
			fail_reading(r, "the first line must be 'gpucoll-machine 1', not", line);
		begun = true;
	}
	if (ferror(in))
		fail_reading(r, "it can't be read:", r->file);
	if (!begun)
		fail_reading(r, "it is empty:", r->file);
}

struct topo_machine *topo_machine_read(FILE *in, const char *file, char *error, size_t bytes)
{
	struct reader r = {.machine = topo_machine_new(),
			   .file = file,
			   .level = -1,
			   .error = error,
			   .bytes = bytes};

	locale_t before = util_locale_enter();

	*error = 0;
	if (r.machine)
		read_lines(&r, in);
	else
		fail_reading(&r, "no memory for", file);
	util_locale_leave(before);
	if (!*error)
		return r.machine;
	topo_machine_free(r.machine);
	return NULL;
}

/* ---- writing ---- */

static void write_object(const struct topo_machine *machine, int index, int level, FILE *out)
{
	const struct topo_object *object = &machine->objects[index];

	fprintf(out, "%*s%s %s", 2 * level, "", kinds[object->kind], object->name);
	if (object->rate > 0)
		fprintf(out, " rate=%.10g", object->rate);
	if (*object->bus)
		fprintf(out, " bus=%s", object->bus);
	if (object->cc)
		fprintf(out, " cc=%d.%d", object->cc / 10, object->cc % 10);
	if (object->copies)
		fprintf(out, " copies=%d", object->copies);
	if (object->net > 0)
		fprintf(out, " net=%.10g", object->net);
	fputs("\n", out);
	for (int i = index + 1; i < machine->num_objects; i++) {
		if (machine->objects[i].parent == index)
			write_object(machine, i, level + 1, out);
	}
}

void topo_machine_write(const struct topo_machine *machine, FILE *out)
{
	locale_t before = util_locale_enter();

	fputs("gpucoll-machine 1\n", out);
	if (machine->name)
		fprintf(out, "name %s\n", machine->name);
	if (machine->source)
		fprintf(out, "source %s\n", machine->source);
	if (machine->cpu)
		fprintf(out, "cpu %s\n", machine->cpu);
	for (int i = 0; i < machine->num_objects; i++) {
		if (machine->objects[i].parent < 0)
			write_object(machine, i, 0, out);
	}
	for (int i = 0; i < machine->num_links; i++) {
		const struct topo_link *link = &machine->links[i];

		fprintf(out, "link %s %s rate=%.10g\n", machine->objects[link->a].name,
			machine->objects[link->b].name, link->rate);
	}
	for (int i = 0; i < machine->num_apart; i++)
		fprintf(out, "apart %s %s\n", machine->objects[machine->apart[i].a].name,
			machine->objects[machine->apart[i].b].name);
	util_locale_leave(before);
}
