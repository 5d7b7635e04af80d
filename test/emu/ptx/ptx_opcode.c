/* SPDX-License-Identifier: BSD-3-Clause */
/* What an instruction's name means: "ld.relaxed.sys.global.v2.u64". */
#include "ptx.h"

#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	struct ptx_type type;
} types[] = {
	{"pred", {PTX_PRED, 1, false}},     {"b8", {PTX_BITS, 8, false}},
	{"b16", {PTX_BITS, 16, false}},     {"b32", {PTX_BITS, 32, false}},
	{"b64", {PTX_BITS, 64, false}},     {"u8", {PTX_UNSIGNED, 8, false}},
	{"u16", {PTX_UNSIGNED, 16, false}}, {"u32", {PTX_UNSIGNED, 32, false}},
	{"u64", {PTX_UNSIGNED, 64, false}}, {"s8", {PTX_SIGNED, 8, false}},
	{"s16", {PTX_SIGNED, 16, false}},   {"s32", {PTX_SIGNED, 32, false}},
	{"s64", {PTX_SIGNED, 64, false}},   {"f16", {PTX_FLOAT, 16, false}},
	{"f32", {PTX_FLOAT, 32, false}},    {"f64", {PTX_FLOAT, 64, false}},
	{"f16x2", {PTX_FLOAT, 32, true}},   {"bf16", {PTX_BFLOAT, 16, false}},
	{"bf16x2", {PTX_BFLOAT, 32, true}}, {"e4m3x2", {PTX_E4M3, 16, true}},
	{"e5m2x2", {PTX_E5M2, 16, true}},
};

static bool take_type(struct ptx_opcode *o, const char *word)
{
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		if (strcmp(word, types[i].name))
			continue;
		if (!o->type.kind)
			o->type = types[i].type;
		o->from = types[i].type;
		return true;
	}
	return false;
}

struct value {
	const char *name;
	int value;
};

static int value_of(const struct value *values, const char *word)
{
	while (values->name && strcmp(values->name, word))
		values++;
	return values->name ? values->value : -1;
}

static bool take_space(struct ptx_opcode *o, const char *word)
{
	static const struct value spaces[] = {
		{"global", PTX_GLOBAL},     {"shared", PTX_SHARED}, {"shared::cta", PTX_SHARED},
		{"local", PTX_LOCAL},       {"param", PTX_PARAM},   {"param::entry", PTX_PARAM},
		{"param::func", PTX_PARAM}, {"const", PTX_CONST},   {NULL, 0},
	};
	int space = value_of(spaces, word);

	if (space >= 0)
		o->space = (uint8_t)space;
	return space >= 0;
}

static bool take_rounding(struct ptx_opcode *o, const char *word)
{
	static const struct value roundings[] = {
		{"rn", PTX_NEAREST},  {"rz", PTX_ZERO},  {"rm", PTX_DOWN},  {"rp", PTX_UP},
		{"rni", PTX_NEAREST}, {"rzi", PTX_ZERO}, {"rmi", PTX_DOWN}, {"rpi", PTX_UP},
		{"rna", -2},          {NULL, 0},
	};
	int rounding = value_of(roundings, word);

	if (rounding < 0)
		return false;
	o->rounding = (uint8_t)rounding;
	o->to_integral = word[2] == 'i';
	return true;
}

static bool take_compare(struct ptx_opcode *o, const char *word)
{
	static const struct value compares[] = {
		{"eq", PTX_EQ},   {"ne", PTX_NE},   {"lt", PTX_LT},  {"le", PTX_LE},
		{"gt", PTX_GT},   {"ge", PTX_GE},   {"lo", PTX_LT},  {"ls", PTX_LE},
		{"hi", PTX_GT},   {"hs", PTX_GE},   {"equ", PTX_EQ}, {"neu", PTX_NE},
		{"ltu", PTX_LT},  {"leu", PTX_LE},  {"gtu", PTX_GT}, {"geu", PTX_GE},
		{"num", PTX_NUM}, {"nan", PTX_NAN}, {NULL, 0},
	};
	static const struct value combines[] = {{"and", '&'}, {"or", '|'}, {"xor", '^'}, {NULL, 0}};
	int compare = value_of(compares, word), combine = value_of(combines, word);

	if (strcmp(o->name, "setp") && strcmp(o->name, "set"))
		return false;
	if (compare > 0) {
		o->compare = (uint8_t)compare;
		o->unordered = strlen(word) == 3 && word[2] == 'u';
		return true;
	}
	if (combine > 0)
		o->combine = (uint8_t)combine;
	return combine > 0;
}

static bool is_one_of(const char *name, const char *const *names)
{
	while (*names && strcmp(*names, name))
		names++;
	return *names != NULL;
}

/* What else an instruction does, of several that share a name. */
static bool take_action(struct ptx_opcode *o, const char *word)
{
	static const struct value actions[] = {
		{"add", PTX_ADD},        {"and", PTX_AND},       {"or", PTX_OR},
		{"xor", PTX_XOR},        {"min", PTX_MIN},       {"max", PTX_MAX},
		{"exch", PTX_EXCH},      {"cas", PTX_CAS},       {"inc", PTX_INC},
		{"dec", PTX_DEC},        {"all", PTX_ALL},       {"any", PTX_ANY},
		{"uni", PTX_UNI},        {"ballot", PTX_BALLOT}, {"up", PTX_SHFL_UP},
		{"down", PTX_SHFL_DOWN}, {"bfly", PTX_BFLY},     {"idx", PTX_IDX},
		{"arrive", PTX_ARRIVE},  {"popc", PTX_POPC},     {NULL, 0},
	};
	static const char *const names[] = {"atom", "red",     "redux", "vote",
					    "shfl", "bar.red", "bar",   NULL};
	int action = value_of(actions, word);

	if (action < 0 || !is_one_of(o->name, names))
		return false;
	o->action = (uint8_t)action;
	return true;
}

/* Words that are part of the name for the tables. */
static bool take_into_name(struct ptx_opcode *o, const char *word)
{
	static const struct {
		const char *name, *words[10];
	} parts[] = {
		{"mul", {"hi", "lo", "wide"}},
		{"mad", {"hi", "lo", "wide"}},
		{"mul24", {"hi", "lo"}},
		{"mad24", {"hi", "lo"}},
		{"madc", {"hi", "lo"}},
		{"shf", {"l", "r"}},
		{"shf.l", {"wrap", "clamp"}},
		{"shf.r", {"wrap", "clamp"}},
		{"match", {"any", "all"}},
		{"bar", {"warp", "red"}},
		{"barrier", {"red"}},
		{"bfind", {"shiftamt"}},
		{"brx", {"idx"}},
		{"cp", {"async"}},
		{"cp.async", {"commit_group", "wait_group", "wait_all"}},
		{"bmsk", {"clamp", "wrap"}},
		{"prmt", {"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"}},
		{"testp", {"finite", "infinite", "number", "notanumber", "normal", "subnormal"}},
	};

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		if (strcmp(o->name, parts[i].name) || !is_one_of(word, parts[i].words))
			continue;
		strncat(o->name, ".", sizeof(o->name) - strlen(o->name) - 1);
		strncat(o->name, word, sizeof(o->name) - strlen(o->name) - 1);
		return true;
	}
	return false;
}

/* Hints, scopes (all are the system's here), and what says only how fast or how exactly. */
static bool is_ignored(const char *word)
{
	static const char *const words[] = {
		"uni",    "sync", "aligned", "weak", "cta", "gpu",     "sys",   "cluster",
		"ca",     "cg",   "cs",      "lu",   "cv",  "nc",      "wb",    "wt",
		"approx", "full", "noftz",   "mmio", "sc",  "acq_rel", "proxy", "alias",
		"async",  "gl",   "L1",      "L2",   NULL};

	return is_one_of(word, words) || !strncmp(word, "L1::", 4) || !strncmp(word, "L2::", 4);
}

static bool take_flag(struct ptx_opcode *o, const char *word)
{
	static const char *const visible[] = {"volatile", "relaxed", "acquire", "release", NULL};

	if (is_one_of(word, visible))
		o->visible = true;
	else if (!strcmp(word, "v2") || !strcmp(word, "v4"))
		o->vector = (uint8_t)(word[1] - '0');
	else if (!strcmp(word, "sat"))
		o->saturates = true;
	else if (!strcmp(word, "satfinite"))
		o->stays_finite = true;
	else if (!strcmp(word, "ftz"))
		o->flushes = true;
	else if (!strcmp(word, "NaN"))
		o->sees_nan = true;
	else if (!strcmp(word, "to"))
		o->to_space = true;
	else if (!strcmp(word, "cc"))
		o->carries = true;
	else
		return false;
	return true;
}

static bool take_word(struct ptx_opcode *o, const char *word)
{
	return take_compare(o, word) || take_into_name(o, word) || take_type(o, word) ||
	       take_space(o, word) || take_rounding(o, word) || take_action(o, word) ||
	       take_flag(o, word) || is_ignored(word);
}

static bool fits(const struct ptx_operation *row, const struct ptx_opcode *o)
{
	/* What is compared, not what comes out. */
	const struct ptx_type *type = strcmp(o->name, "set") ? &o->type : &o->from;
	uint8_t bits = (uint8_t)(type->bits | (type->pair ? PTX_PAIR : 0));

	return !strcmp(row->name, o->name) && (!row->kinds || row->kinds >> type->kind & 1) &&
	       (!row->bits || row->bits == bits) && (!type->pair || !row->kinds || row->bits);
}

static const struct ptx_operation *find_operation(const struct ptx_opcode *o)
{
	static const struct ptx_operation *const tables[] = {
		ptx_integer_operations, ptx_float_operations,  ptx_convert_operations,
		ptx_memory_operations,  ptx_warp_operations,   ptx_barrier_operations,
		ptx_lane_operations,    ptx_float8_operations, ptx_async_operations};

	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		for (const struct ptx_operation *row = tables[i]; row->name; row++) {
			if (fits(row, o))
				return row;
		}
	}
	return NULL;
}

/* What the tables would take for something else. */
static bool is_beyond(const struct ptx_opcode *o)
{
	bool is_float = o->type.kind == PTX_FLOAT || o->type.kind == PTX_BFLOAT;
	bool is_update = !strcmp(o->name, "atom") || !strcmp(o->name, "red");

	if (o->stays_finite != ptx_is_float8(&o->type))
		return true;
	if (ptx_is_float8(&o->from) && strcmp(o->name, "cvt"))
		return true;
	if (is_update)
		return (o->vector > 1 && !(is_float && o->type.bits < 64)) || o->type.bits < 16 ||
		       !o->action || (is_float && o->action != PTX_ADD && o->action != PTX_EXCH);
	if (!strcmp(o->name, "ld") || !strcmp(o->name, "st"))
		return o->type.bits < 8;
	if (!strcmp(o->name, "redux"))
		return is_float;
	if (!strcmp(o->name, "mad.hi") || !strcmp(o->name, "mad.lo"))
		return o->saturates;
	return !strncmp(o->name, "bar", 3) && strstr(o->text, "cluster");
}

static bool parse(struct ptx_opcode *o)
{
	char copy[sizeof(o->text)], *rest = NULL, *word;

	memcpy(copy, o->text, sizeof(copy));
	word = strtok_r(copy, ".", &rest);
	if (!word || strlen(word) >= sizeof(o->name))
		return false;
	memcpy(o->name, word, strlen(word) + 1);
	if (!strcmp(o->name, "barrier"))
		memcpy(o->name, "bar", sizeof("bar"));
	o->vector = 1;
	o->rounding = PTX_NOT_ROUNDED;
	while ((word = strtok_r(NULL, ".", &rest))) {
		if (!take_word(o, word))
			return false;
	}
	o->operation = find_operation(o);
	return o->operation != NULL && !is_beyond(o);
}

const struct ptx_opcode *ptx_opcode_find(struct ptx_module *module, const char *text)
{
	struct ptx_opcode **list, *o;
	unsigned hash = 0;

	for (const char *c = text; *c; c++)
		hash = 31 * hash + (unsigned char)*c;
	list = &module->opcodes[hash % (sizeof(module->opcodes) / sizeof(module->opcodes[0]))];
	for (o = *list; o; o = o->next) {
		if (!strcmp(o->text, text))
			return o;
	}
	o = calloc(1, sizeof(*o));
	if (!o || strlen(text) >= sizeof(o->text)) {
		free(o);
		return NULL;
	}
	memcpy(o->text, text, strlen(text) + 1);
	if (!parse(o)) {
		free(o);
		return NULL;
	}
	o->next = *list;
	*list = o;
	return o;
}
