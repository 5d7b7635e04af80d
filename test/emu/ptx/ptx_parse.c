/* SPDX-License-Identifier: BSD-3-Clause */
/* The text of a module: variables, functions, and instructions with their operands. */
#include "ptx.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SCOPES = 32, MAX_ARGS = 64, MAX_SLOTS = 1 << 20, MAX_SHARED = 48 << 10 };

/* A piece of the text. */
struct word {
	const char *at;
	size_t length;
};

enum symbol_kind { REGISTERS, PLACE };

struct symbol {
	struct word name;
	uint32_t hash;
	enum symbol_kind kind;
	uint32_t slot, count; /* of registers: "%r<count>"; 0: one of exactly that name */
	uint64_t mask;
	struct ptx_operand place; /* of a variable or parameter */
	uint32_t bytes;           /* of it */
};

struct label {
	struct word name;
	uint32_t hash, pc;
	uint32_t *targets, num_targets; /* of .branchtargets */
};

/* A jump whose label has not been seen. */
struct jump {
	struct word name;
	uint32_t hash, pc, *to; /* NULL: the instruction's */
};

struct scope {
	size_t symbols, labels, jumps;
};

struct list {
	void *items;
	size_t num, room;
};

struct parser {
	struct ptx_module *module;
	uint64_t (*place)(struct ptx_variable *variable);
	const char *at;
	uint32_t line, file, source_line;
	struct ptx_function *function;
	struct list symbols, labels, jumps;
	struct scope scopes[MAX_SCOPES];
	unsigned depth;
	jmp_buf failed;
};

static void fail(struct parser *p, const char *format, ...)
	__attribute__((format(printf, 2, 3), noreturn));

static void fail(struct parser *p, const char *format, ...)
{
	char text[200];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	snprintf(p->module->error, sizeof(p->module->error), "line %u%s%.60s: %s", p->line,
		 p->function ? " of " : "", p->function ? p->function->name : "", text);
	longjmp(p->failed, 1);
}

/* Until the module is freed. */
static void *allocate(struct parser *p, size_t bytes)
{
	struct ptx_memory *memory = calloc(1, sizeof(*memory) + bytes);

	if (!memory)
		fail(p, "no memory");
	memory->next = p->module->memory;
	p->module->memory = memory;
	return memory + 1;
}

static void *add(struct parser *p, struct list *list, size_t size)
{
	if (list->num == list->room) {
		size_t room = list->room ? 2 * list->room : 64;
		void *items = realloc(list->items, room * size);

		if (!items)
			fail(p, "no memory");
		list->items = items;
		list->room = room;
	}
	memset((char *)list->items + list->num * size, 0, size);
	return (char *)list->items + list->num++ * size;
}

static uint32_t hash_of(struct word word)
{
	uint32_t hash = 2166136261; /* FNV-1a */

	for (size_t i = 0; i < word.length; i++)
		hash = (hash ^ (unsigned char)word.at[i]) * 16777619;
	return hash;
}

static bool is_same(struct word word, const char *text)
{
	return strlen(text) == word.length && !memcmp(word.at, text, word.length);
}

static char *copy_of(struct parser *p, struct word word)
{
	char *text = allocate(p, word.length + 1);

	memcpy(text, word.at, word.length);
	return text;
}

/* ---- words ---- */

static void skip_line(struct parser *p)
{
	while (*p->at && *p->at != '\n')
		p->at++;
}

static void skip_comment(struct parser *p)
{
	for (p->at += 2; *p->at && strncmp(p->at, "*/", 2); p->at++)
		p->line += *p->at == '\n';
	p->at += *p->at ? 2 : 0;
}

static char look(struct parser *p)
{
	for (;;) {
		if (*p->at == '\n')
			p->line++;
		if (isspace((unsigned char)*p->at))
			p->at++;
		else if (!strncmp(p->at, "//", 2))
			skip_line(p);
		else if (!strncmp(p->at, "/*", 2))
			skip_comment(p);
		else
			return *p->at;
	}
}

static bool accept(struct parser *p, char c)
{
	if (look(p) != c)
		return false;
	p->at++;
	return true;
}

static void expect(struct parser *p, char c)
{
	if (!accept(p, c))
		fail(p, "'%c' expected before \"%.20s\"", c, p->at);
}

static bool is_of_word(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.';
}

static struct word take_word(struct parser *p)
{
	struct word word;

	bool is_directive = look(p) == '.';

	word.at = p->at;
	while (is_of_word(*p->at) || (p->at[0] == ':' && p->at[1] == ':')) {
		if (is_directive && *p->at == '.' && p->at > word.at) /* ".reg.f32" */
			break;
		p->at += *p->at == ':' ? 2 : 1;
	}
	word.length = (size_t)(p->at - word.at);
	if (!word.length)
		fail(p, "a name expected before \"%.20s\"", p->at);
	return word;
}

static struct word peek_word(struct parser *p)
{
	const char *before;
	struct word word = {0};

	look(p);
	before = p->at;
	if (is_of_word(*p->at))
		word = take_word(p);
	p->at = before;
	return word;
}

static bool accept_word(struct parser *p, const char *text)
{
	if (!is_same(peek_word(p), text))
		return false;
	take_word(p);
	return true;
}

static void skip_to(struct parser *p, char end)
{
	while (look(p) != end) {
		if (!*p->at)
			fail(p, "'%c' expected before the end", end);
		if (*p->at == '"') {
			for (p->at++; *p->at && *p->at != '"'; p->at++)
				;
		}
		p->at += *p->at != 0;
	}
	p->at++;
}

static void skip_braces(struct parser *p)
{
	unsigned depth = 0;

	do {
		char c = look(p);

		if (!c)
			fail(p, "'}' expected before the end");
		depth += c == '{';
		depth -= c == '}';
		p->at++;
	} while (depth);
}

/* ---- numbers ---- */

static int digit_of(char c)
{
	return isdigit((unsigned char)c) ? c - '0' : tolower((unsigned char)c) - 'a' + 10;
}

/* "0f3F800000": the bits of a float; "0d" of a double. */
static bool take_bits(struct parser *p, uint64_t *bits)
{
	if (p->at[0] != '0' || !strchr("fFdD", p->at[1]) || !p->at[1] ||
	    !isxdigit((unsigned char)p->at[2]))
		return false;
	for (p->at += 2, *bits = 0; isxdigit((unsigned char)*p->at); p->at++)
		*bits = *bits << 4 | (uint64_t)digit_of(*p->at);
	return true;
}

/* A decimal number with a point is a double, which no compiler writes: not taken. */
static uint64_t take_number(struct parser *p)
{
	bool negative = accept(p, '-');
	uint64_t value;
	char *end;

	look(p);
	if (take_bits(p, &value))
		return value;
	if (!strncmp(p->at, "0b", 2) || !strncmp(p->at, "0B", 2))
		value = strtoull(p->at + 2, &end, 2);
	else
		value = strtoull(p->at, &end, 0);
	if (end == p->at || *end == '.')
		fail(p, "a number expected before \"%.20s\"", p->at);
	p->at = end;
	if (*p->at == 'U' || *p->at == 'u')
		p->at++;
	return negative ? -value : value;
}

static bool is_number(struct parser *p)
{
	return isdigit((unsigned char)look(p)) || *p->at == '-';
}

/* ---- symbols ---- */

static struct symbol *symbol_at(struct parser *p, size_t i)
{
	return (struct symbol *)p->symbols.items + i;
}

static struct symbol *add_symbol(struct parser *p, struct word name, enum symbol_kind kind)
{
	struct symbol *symbol = add(p, &p->symbols, sizeof(*symbol));

	symbol->name = name;
	symbol->hash = hash_of(name);
	symbol->kind = kind;
	return symbol;
}

static bool is_called(const struct symbol *symbol, struct word name, uint32_t hash)
{
	return symbol->hash == hash && symbol->name.length == name.length &&
	       !memcmp(symbol->name.at, name.at, name.length);
}

/* The innermost one of exactly this name. */
static const struct symbol *find_symbol(struct parser *p, struct word name)
{
	uint32_t hash = hash_of(name);

	for (size_t i = p->symbols.num; i-- > 0;) {
		const struct symbol *symbol = symbol_at(p, i);

		if (!symbol->count && is_called(symbol, name, hash))
			return symbol;
	}
	return NULL;
}

static struct ptx_operand operand_of(const struct symbol *symbol, uint32_t index)
{
	if (symbol->kind == PLACE)
		return symbol->place;
	return (struct ptx_operand){
		.kind = PTX_REGISTER, .slot = symbol->slot + index, .mask = symbol->mask};
}

/* The innermost: of exactly this name, or one of many, "%r12" of "%r<38>". */
static bool find_operand(struct parser *p, struct word name, struct ptx_operand *operand)
{
	struct word prefix = name;
	uint32_t hash = hash_of(name), prefix_hash, index;

	while (prefix.length && isdigit((unsigned char)prefix.at[prefix.length - 1]))
		prefix.length--;
	prefix_hash = hash_of(prefix);
	index = (uint32_t)strtoul(prefix.at + prefix.length, NULL, 10);
	for (size_t i = p->symbols.num; i-- > 0;) {
		const struct symbol *symbol = symbol_at(p, i);

		if (!symbol->count && is_called(symbol, name, hash)) {
			*operand = operand_of(symbol, 0);
			return true;
		}
		if (symbol->count && prefix.length < name.length && index < symbol->count &&
		    is_called(symbol, prefix, prefix_hash)) {
			*operand = operand_of(symbol, index);
			return true;
		}
	}
	return false;
}

/* ---- scopes, labels ---- */

static void open_scope(struct parser *p)
{
	if (p->depth == MAX_SCOPES)
		fail(p, "more than %d scopes", MAX_SCOPES);
	p->scopes[p->depth++] = (struct scope){p->symbols.num, p->labels.num, p->jumps.num};
}

static const struct label *find_label(const struct parser *p, const struct jump *jump, size_t from)
{
	const struct label *labels = p->labels.items;

	for (size_t i = from; i < p->labels.num; i++) {
		if (labels[i].hash == jump->hash && labels[i].name.length == jump->name.length &&
		    !memcmp(labels[i].name.at, jump->name.at, jump->name.length))
			return &labels[i];
	}
	return NULL;
}

static void land(struct parser *p, const struct jump *jump, const struct label *label)
{
	struct ptx_instr *instr = &p->module->code[jump->pc];

	if (jump->to) {
		*jump->to = label->pc;
	} else if ((label->targets != NULL) != (instr->control == PTX_BRANCH_INDEXED)) {
		fail(p, "%.*s is not what the branch needs", (int)label->name.length,
		     label->name.at);
	} else if (label->targets) {
		instr->targets = label->targets;
		instr->target = label->num_targets;
	} else {
		instr->target = label->pc;
	}
}

/* Jumps find the labels of their own scope, and then those of scopes around it. */
static void close_scope(struct parser *p)
{
	const struct scope *scope = &p->scopes[--p->depth];
	struct jump *jumps = p->jumps.items;
	size_t left = scope->jumps;

	for (size_t i = scope->jumps; i < p->jumps.num; i++) {
		const struct label *label = find_label(p, &jumps[i], scope->labels);

		if (label)
			land(p, &jumps[i], label);
		else
			jumps[left++] = jumps[i];
	}
	if (left && p->depth == 1)
		fail(p, "no label %.*s", (int)jumps[0].name.length, jumps[0].name.at);
	p->jumps.num = left;
	p->labels.num = scope->labels;
	p->symbols.num = scope->symbols;
}

static void add_jump(struct parser *p, struct word name, uint32_t *to)
{
	struct jump *jump = add(p, &p->jumps, sizeof(*jump));

	*jump = (struct jump){name, hash_of(name), p->module->num_code, to};
}

/* "name: .branchtargets A, B;" */
static void take_targets(struct parser *p, struct label *label)
{
	enum { MOST = 4096 };
	uint32_t *targets = allocate(p, MOST * sizeof(*targets)), num = 0;

	do {
		if (num == MOST)
			fail(p, "more than %d targets of a branch", MOST);
		add_jump(p, take_word(p), &targets[num++]);
	} while (accept(p, ','));
	expect(p, ';');
	label->targets = targets;
	label->num_targets = num;
}

static void take_label(struct parser *p, struct word name)
{
	struct label *label = add(p, &p->labels, sizeof(*label)), kept;

	*label = (struct label){.name = name, .hash = hash_of(name), .pc = p->module->num_code};
	if (accept_word(p, ".branchtargets")) {
		kept = *label;
		take_targets(p, &kept);
		((struct label *)p->labels.items)[p->labels.num - 1] = kept;
	} else if (accept_word(p, ".callprototype")) {
		skip_to(p, ';');
	}
}

/* ---- variables ---- */

struct declaration {
	struct word name;
	uint32_t align, size; /* of an element */
	uint64_t bytes;
	uint32_t count;        /* of "name<count>"; 0 */
	bool is_pred, is_open; /* without a length */
	bool is_managed;
};

static uint32_t size_of_type(struct parser *p, struct word type, bool *is_pred)
{
	static const struct {
		const char *name;
		uint32_t size;
	} types[] = {{".b8", 1},  {".u8", 1},  {".s8", 1},    {".b16", 2},    {".u16", 2},
		     {".s16", 2}, {".f16", 2}, {".bf16", 2},  {".b32", 4},    {".u32", 4},
		     {".s32", 4}, {".f32", 4}, {".f16x2", 4}, {".bf16x2", 4}, {".b64", 8},
		     {".u64", 8}, {".s64", 8}, {".f64", 8},   {".b128", 16},  {".pred", 1}};

	*is_pred = is_same(type, ".pred");
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		if (is_same(type, types[i].name))
			return types[i].size;
	}
	fail(p, "type %.*s is not interpreted", (int)type.length, type.at);
}

/* ".align 8 .b8 name[16]", ".b32 %r<38>", ".ptr .align 1 name", behind the space. */
static struct declaration take_declaration(struct parser *p, const struct declaration *same)
{
	struct declaration d = same ? *same : (struct declaration){.align = 1};

	while (!same && look(p) == '.') {
		struct word word = take_word(p);
		bool is_pred;

		if (is_same(word, ".align")) {
			uint32_t align = (uint32_t)take_number(p);

			/* Behind the type it is that of what a pointer points to. */
			d.align = d.bytes ? d.align : align;
		} else if (is_same(word, ".attribute")) {
			expect(p, '(');
			d.is_managed |= is_same(peek_word(p), ".managed");
			skip_to(p, ')');
		} else if (is_same(word, ".ptr") || is_same(word, ".global") ||
			   is_same(word, ".shared") || is_same(word, ".const") ||
			   is_same(word, ".local")) {
			continue;
		} else if (is_same(word, ".v2") || is_same(word, ".v4")) {
			d.size = (uint32_t)(word.at[2] - '0');
		} else {
			uint32_t each = size_of_type(p, word, &is_pred);

			d.is_pred = is_pred;
			d.size = d.size ? d.size * each : each;
			d.bytes = d.size;
			d.align = d.align > d.size || d.size > 16 ? d.align : d.size;
		}
	}
	d.name = take_word(p);
	d.bytes = d.size;
	d.count = 0;
	d.is_open = false;
	if (accept(p, '<')) {
		d.count = (uint32_t)take_number(p);
		expect(p, '>');
	}
	while (accept(p, '[')) {
		if (look(p) == ']')
			d.is_open = true;
		else
			d.bytes *= take_number(p);
		expect(p, ']');
	}
	return d;
}

static uint64_t align_to(uint64_t value, uint32_t align)
{
	return align ? (value + align - 1) / align * align : value;
}

/* Room in the function's frame. */
static uint32_t take_frame(struct parser *p, const struct declaration *d)
{
	uint32_t at = (uint32_t)align_to(p->function->frame_bytes, d->align);

	if (d->bytes > PTX_STACK_BYTES)
		fail(p, "a local variable of %llu bytes", (unsigned long long)d->bytes);
	p->function->frame_bytes = at + (uint32_t)d->bytes;
	return at;
}

static void take_registers(struct parser *p)
{
	struct declaration d = take_declaration(p, NULL);

	for (;;) {
		struct symbol *symbol = add_symbol(p, d.name, REGISTERS);

		symbol->slot = p->function->slots;
		symbol->count = d.count;
		symbol->mask = d.is_pred ? 1 : ptx_mask_of(8 * d.size);
		if (d.count > MAX_SLOTS || p->function->slots > MAX_SLOTS)
			fail(p, "more than %d registers", MAX_SLOTS);
		p->function->slots += d.count ? d.count : 1;
		if (!accept(p, ','))
			break;
		d = take_declaration(p, &d);
	}
	expect(p, ';');
}

/* Local variables, and what calls pass, within a function. */
static void take_in_frame(struct parser *p, bool is_param)
{
	struct declaration d = take_declaration(p, NULL);

	for (;;) {
		struct symbol *symbol = add_symbol(p, d.name, PLACE);

		symbol->bytes = (uint32_t)d.bytes;
		symbol->place = (struct ptx_operand){.kind = PTX_FRAME,
						     .value = take_frame(p, &d) +
							      (is_param ? PTX_LOCAL_WINDOW : 0)};
		if (!accept(p, ','))
			break;
		d = take_declaration(p, &d);
	}
	expect(p, ';');
}

static struct ptx_variable *find_variable(const struct ptx_module *module, struct word name)
{
	for (struct ptx_variable *v = module->variables; v; v = v->next) {
		if (is_same(name, v->name))
			return v;
	}
	return NULL;
}

static struct ptx_function *function_of(struct parser *p, struct word name)
{
	struct ptx_function *function;

	for (function = p->module->functions; function; function = function->next) {
		if (is_same(name, function->name))
			return function;
	}
	function = allocate(p, sizeof(*function));
	function->name = copy_of(p, name);
	function->entry = UINT32_MAX;
	function->number = p->module->functions ? p->module->functions->number + 1 : 1;
	function->next = p->module->functions;
	p->module->functions = function;
	return function;
}

/* The address of a variable, perhaps "generic(name)", or of a function; or a number. */
static uint64_t take_initial(struct parser *p)
{
	const struct ptx_variable *variable;
	struct word name;
	bool generic;

	if (is_number(p))
		return take_number(p);
	generic = accept_word(p, "generic");
	if (generic)
		expect(p, '(');
	name = take_word(p);
	variable = find_variable(p->module, name);
	if (generic)
		expect(p, ')');
	if (!variable)
		return PTX_CODE_WINDOW + function_of(p, name)->number;
	return variable->address + (accept(p, '+') ? take_number(p) : 0);
}

static void take_initials(struct parser *p, struct ptx_variable *variable, uint32_t size)
{
	uint64_t at = 0;
	bool braces = accept(p, '{');

	variable->initial = allocate(p, variable->bytes);
	do {
		uint64_t value = take_initial(p);

		if (at + size > variable->bytes || size > sizeof(value))
			fail(p, "too many values for %s", variable->name);
		memcpy(variable->initial + at, &value, size);
		at += size;
	} while (braces && accept(p, ','));
	if (braces)
		expect(p, '}');
}

/*
 * A function's own begins behind what the module has: what that has later is not this function's.
 */
static void place_shared(struct parser *p, struct ptx_variable *variable)
{
	uint32_t *end = p->function ? &p->function->shared_bytes : &p->module->shared_bytes;
	uint64_t at;

	if (p->function && *end < p->module->shared_bytes)
		*end = p->module->shared_bytes;
	at = align_to(*end, variable->align);
	if (variable->bytes > MAX_SHARED || at + variable->bytes > MAX_SHARED)
		fail(p, "more than %d bytes of shared memory, with %s", MAX_SHARED, variable->name);
	variable->address = at;
	*end = (uint32_t)(at + variable->bytes);
}

static void take_variable(struct parser *p, enum ptx_space space, bool is_extern)
{
	struct declaration d = take_declaration(p, NULL);
	struct ptx_variable *variable = find_variable(p->module, d.name);
	struct symbol *symbol;

	if (!variable || p->function) {
		variable = allocate(p, sizeof(*variable));
		variable->next = p->module->variables;
		p->module->variables = variable;
		variable->name = copy_of(p, d.name);
	}
	variable->space = (uint8_t)space;
	variable->align = d.align;
	variable->is_managed = d.is_managed;
	variable->bytes = d.is_open ? 0 : d.bytes;
	if (accept(p, '='))
		take_initials(p, variable, d.size);
	expect(p, ';');
	if (space == PTX_SHARED && d.is_open)
		variable->address = PTX_DYNAMIC_SHARED;
	else if (space == PTX_SHARED)
		place_shared(p, variable);
	else if (is_extern)
		fail(p, "variable %s is in another module, which is not interpreted",
		     variable->name);
	else
		variable->address = p->place(variable);
	if (!variable->address && space != PTX_SHARED)
		fail(p, "no memory for %s", variable->name);
	symbol = add_symbol(p, d.name, PLACE);
	symbol->place = (struct ptx_operand){.kind = PTX_IMMEDIATE, .value = variable->address};
}

/* ---- instructions ---- */

static struct ptx_instr *add_instr(struct parser *p)
{
	struct ptx_module *module = p->module;
	struct ptx_instr *instr;

	if (module->num_code == module->room) {
		uint32_t room = module->room ? 2 * module->room : 1024;
		struct ptx_instr *code = realloc(module->code, room * sizeof(*code));

		if (!code)
			fail(p, "no memory");
		module->code = code;
		module->room = room;
	}
	instr = &module->code[module->num_code++];
	*instr = (struct ptx_instr){.line = p->line, .mask = ~UINT64_C(0)};
	return instr;
}

static const struct ptx_opcode *opcode_of(struct parser *p, const char *text)
{
	const struct ptx_opcode *opcode = ptx_opcode_find(p->module, text);

	if (!opcode)
		fail(p, "%s is not interpreted", text);
	return opcode;
}

/* What only a move can read goes through a register. */
static void move_first(struct parser *p, struct ptx_operand *operand)
{
	struct ptx_instr *move = add_instr(p);

	move->opcode = opcode_of(p, "mov.u64");
	move->run = move->opcode->operation->run;
	move->num = 2;
	move->operands[0] = (struct ptx_operand){
		.kind = PTX_REGISTER, .slot = p->function->slots++, .mask = ~UINT64_C(0)};
	move->operands[1] = *operand;
	*operand = move->operands[0];
}

static void put(struct parser *p, struct ptx_instr *instr, struct ptx_operand operand)
{
	if (instr->num == PTX_OPERANDS)
		fail(p, "%s has more than %d operands", instr->opcode->text, PTX_OPERANDS);
	instr->operands[instr->num++] = operand;
}

/* Most instructions' operands have one type; of slct the last one has another. */
static uint64_t width_of_immediates(const struct ptx_opcode *opcode)
{
	if (!strcmp(opcode->name, "mad.wide"))
		return ~UINT64_C(0);
	if (!strcmp(opcode->name, "slct"))
		return ptx_mask_of(opcode->type.bits);
	return opcode->from.kind == PTX_PRED || !opcode->from.bits ? ~UINT64_C(0)
								   : ptx_mask_of(opcode->from.bits);
}

static struct ptx_operand take_name(struct parser *p)
{
	struct word name = take_word(p);
	struct ptx_operand operand = {0};
	char text[64];
	int special;

	if (is_same(name, "_"))
		return (struct ptx_operand){.kind = PTX_SINK};
	if (find_operand(p, name, &operand))
		return operand;
	snprintf(text, sizeof(text), "%.*s", (int)name.length, name.at);
	special = ptx_special_find(text);
	if (special < 0 && *text != '%') /* a function's address */
		return (struct ptx_operand){.kind = PTX_IMMEDIATE,
					    .value =
						    PTX_CODE_WINDOW + function_of(p, name)->number};
	if (special < 0)
		fail(p, "%s is not known, or not interpreted", text);
	return (struct ptx_operand){.kind = PTX_SPECIAL, .slot = (uint32_t)special};
}

static struct ptx_operand take_operand(struct parser *p, const struct ptx_opcode *opcode)
{
	struct ptx_operand operand;

	if (is_number(p))
		return (struct ptx_operand){.kind = PTX_IMMEDIATE,
					    .value = take_number(p) & width_of_immediates(opcode)};
	if (accept(p, '!')) {
		operand = take_name(p);
		operand.negated = true;
		return operand;
	}
	operand = take_name(p);
	if (operand.kind != PTX_REGISTER && accept(p, '+')) /* mov of a variable's address */
		operand.value += take_number(p);
	return operand;
}

static struct ptx_operand take_address(struct parser *p)
{
	struct ptx_operand operand = {.kind = PTX_IMMEDIATE};

	if (!is_number(p))
		operand = take_name(p);
	if (operand.kind == PTX_IMMEDIATE && is_number(p))
		operand.value += take_number(p);
	else if (accept(p, '+'))
		operand.value += take_number(p);
	expect(p, ']');
	return operand;
}

static void take_operands(struct parser *p, struct ptx_instr *instr)
{
	const struct ptx_opcode *opcode = instr->opcode;
	const char *name = opcode->name;
	bool two = !strcmp(name, "setp") || !strcmp(name, "shfl") || !strcmp(name, "match.all");

	while (look(p) != ';') {
		if (accept(p, '[')) {
			put(p, instr, take_address(p));
		} else if (accept(p, '{')) {
			do {
				put(p, instr, take_operand(p, opcode));
			} while (accept(p, ','));
			expect(p, '}');
		} else {
			put(p, instr, take_operand(p, opcode));
		}
		if (two) { /* a second destination, behind a bar */
			put(p, instr,
			    accept(p, '|') ? take_name(p) : (struct ptx_operand){.kind = PTX_SINK});
			two = false;
		}
		if (!accept(p, ','))
			break;
	}
	expect(p, ';');
}

/* ---- calls ---- */

static struct ptx_param *take_passed(struct parser *p, uint32_t *num)
{
	struct ptx_param *params = allocate(p, MAX_ARGS * sizeof(*params));

	expect(p, '(');
	for (*num = 0; look(p) != ')'; ++*num) {
		struct word name = take_word(p);
		const struct symbol *symbol = find_symbol(p, name);

		if (!symbol || symbol->place.kind != PTX_FRAME || *num == MAX_ARGS)
			fail(p, "a call that passes %.*s is not interpreted", (int)name.length,
			     name.at);
		params[*num] = (struct ptx_param){
			(uint32_t)(symbol->place.value & ~PTX_LOCAL_WINDOW), symbol->bytes};
		accept(p, ',');
	}
	expect(p, ')');
	return params;
}

static void take_call(struct parser *p, struct ptx_instr *instr)
{
	struct ptx_call *call = allocate(p, sizeof(*call));
	struct ptx_operand address;
	struct word name;

	instr->call = call;
	if (look(p) == '(') {
		call->results = take_passed(p, &call->num_results);
		expect(p, ',');
	}
	name = take_word(p);
	if (find_operand(p, name, &address)) {
		if (address.kind != PTX_REGISTER)
			fail(p, "a call of %.*s", (int)name.length, name.at);
		call->address = address;
	} else {
		call->function = function_of(p, name);
		call->host = ptx_host_function(call->function->name);
	}
	if (accept(p, ',') && look(p) == '(')
		call->params = take_passed(p, &call->num_params);
	skip_to(p, ';');
}

/* ---- a function's body ---- */

static void take_guard(struct parser *p, struct ptx_instr *instr)
{
	struct ptx_operand guard;

	if (!accept(p, '@'))
		return;
	instr->guarded = true;
	instr->guard_negated = accept(p, '!');
	guard = take_name(p);
	if (guard.kind != PTX_REGISTER)
		fail(p, "a guard that is no register");
	instr->guard = guard.slot;
}

static void settle(struct parser *p, struct ptx_instr *instr)
{
	bool is_move = !strcmp(instr->opcode->name, "mov");

	for (unsigned i = 0; i < instr->num; i++) {
		struct ptx_operand *operand = &instr->operands[i];

		if ((operand->kind == PTX_SPECIAL && !is_move) ||
		    (operand->kind == PTX_FRAME && !instr->opcode->operation->takes_places))
			move_first(p, operand);
	}
}

/* How many operands an instruction has, destinations included. 0: it depends. */
static unsigned num_operands(const struct ptx_opcode *o)
{
	static const struct {
		const char *name;
		unsigned num;
	} known[] = {{"abs", 2},           {"neg", 2},       {"not", 2},      {"cnot", 2},
		     {"popc", 2},          {"clz", 2},       {"brev", 2},     {"bfind", 2},
		     {"cvta", 2},          {"rcp", 2},       {"sqrt", 2},     {"rsqrt", 2},
		     {"ex2", 2},           {"lg2", 2},       {"sin", 2},      {"cos", 2},
		     {"tanh", 2},          {"isspacep", 2},  {"mad", 4},      {"fma", 4},
		     {"mad.lo", 4},        {"mad.hi", 4},    {"mad.wide", 4}, {"madc.lo", 4},
		     {"madc.hi", 4},       {"mad24.lo", 4},  {"sad", 4},      {"bfe", 4},
		     {"prmt", 4},          {"slct", 4},      {"selp", 4},     {"dp4a", 4},
		     {"bfi", 5},           {"lop3", 5},      {"vote", 3},     {"shfl", 6},
		     {"match.any", 3},     {"match.all", 4}, {"redux", 3},    {"activemask", 1},
		     {"red", 2},           {"add", 3},       {"addc", 3},     {"sub", 3},
		     {"subc", 3},          {"mul", 3},       {"mul.lo", 3},   {"mul.hi", 3},
		     {"mul.wide", 3},      {"mul24.lo", 3},  {"div", 3},      {"rem", 3},
		     {"min", 3},           {"max", 3},       {"and", 3},      {"or", 3},
		     {"xor", 3},           {"shl", 3},       {"shr", 3},      {"copysign", 3},
		     {"bfind.shiftamt", 2}};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (!strcmp(known[i].name, o->name))
			return known[i].num;
	}
	if (!strncmp(o->name, "shf.", 4))
		return 4;
	if (!strncmp(o->name, "testp", 5))
		return 2;
	if (!strcmp(o->name, "setp"))
		return o->combine ? 5 : 4;
	if (!strcmp(o->name, "set"))
		return o->combine ? 4 : 3;
	if (!strcmp(o->name, "cvt"))
		return o->type.pair && !o->from.pair ? 3 : 2;
	if (!strcmp(o->name, "atom"))
		return o->action == PTX_CAS ? 4 : 3;
	return !strcmp(o->name, "ld") || !strcmp(o->name, "st") ? o->vector + 1U : 0;
}

/* What a handler takes for granted. */
static void check_operands(struct parser *p, const struct ptx_instr *instr)
{
	const struct ptx_opcode *o = instr->opcode;
	unsigned wanted = num_operands(o);
	bool stores = !strcmp(o->name, "st") || !strcmp(o->name, "red");
	bool has_result =
		(wanted && !stores) || !strcmp(o->name, "mov") || !strcmp(o->name, "bar.red");
	bool may_sink = o->vector > 1 || !strcmp(o->name, "mov") || !strcmp(o->name, "atom") ||
			!strcmp(o->name, "setp");

	if (wanted && instr->num != wanted)
		fail(p, "%s with %u operands, not %u", o->text, instr->num, wanted);
	if (!strcmp(o->name, "mov") && instr->num < 2)
		fail(p, "mov with %u operands", instr->num);
	if (!strcmp(o->name, "bar.red") && instr->num < 3)
		fail(p, "bar.red with %u operands", instr->num);
	if (has_result && instr->operands[0].kind != PTX_REGISTER &&
	    !(may_sink && instr->operands[0].kind == PTX_SINK))
		fail(p, "the result of %s is not for a register", o->text);
}

static void take_instr(struct parser *p, struct ptx_instr *instr, struct word name)
{
	char text[sizeof(instr->opcode->text)];

	if (name.length >= sizeof(text))
		fail(p, "%.*s is not interpreted", (int)name.length, name.at);
	memcpy(text, name.at, name.length);
	text[name.length] = 0;
	instr->opcode = opcode_of(p, text);
	instr->run = instr->opcode->operation->run;
	instr->control = instr->opcode->operation->control;
	instr->mask =
		instr->opcode->type.bits ? ptx_mask_of(instr->opcode->type.bits) : ~UINT64_C(0);
	if (instr->control == PTX_CALL) {
		take_call(p, instr);
	} else if (instr->control == PTX_BRANCH) {
		add_jump(p, take_word(p), NULL);
		expect(p, ';');
	} else if (instr->control == PTX_BRANCH_INDEXED) {
		put(p, instr, take_operand(p, instr->opcode));
		if (instr->operands[0].kind != PTX_REGISTER)
			fail(p, "a branch by what is no register");
		expect(p, ',');
		add_jump(p, take_word(p), NULL);
		expect(p, ';');
	} else {
		take_operands(p, instr);
		check_operands(p, instr);
	}
}

/* The jump of an instruction before which moves were put stays that instruction's. */
static void take_instruction(struct parser *p)
{
	struct ptx_instr instr = {
		.mask = ~UINT64_C(0), .file = p->file, .source_line = p->source_line};

	look(p);
	instr.line = p->line;
	take_guard(p, &instr);
	take_instr(p, &instr, take_word(p));
	settle(p, &instr);
	*add_instr(p) = instr;
}

/* Of the instructions that follow. */
static void take_location(struct parser *p)
{
	p->file = (uint32_t)take_number(p);
	p->source_line = (uint32_t)take_number(p);
	skip_line(p);
}

static void take_directive(struct parser *p, struct word name)
{
	if (is_same(name, ".reg"))
		take_registers(p);
	else if (is_same(name, ".local"))
		take_in_frame(p, false);
	else if (is_same(name, ".param"))
		take_in_frame(p, true);
	else if (is_same(name, ".shared"))
		take_variable(p, PTX_SHARED, false);
	else if (is_same(name, ".global"))
		take_variable(p, PTX_GLOBAL, false);
	else if (is_same(name, ".const"))
		take_variable(p, PTX_CONST, false);
	else if (is_same(name, ".loc"))
		take_location(p);
	else if (is_same(name, ".pragma"))
		skip_to(p, ';');
	else
		fail(p, "%.*s in a function is not interpreted", (int)name.length, name.at);
}

static void take_statement(struct parser *p)
{
	const char *before;
	struct word name;

	if (look(p) == '@') {
		take_instruction(p);
		return;
	}
	before = p->at;
	name = take_word(p);
	if (*name.at == '.') {
		take_directive(p, name);
	} else if (look(p) == ':') {
		p->at++;
		take_label(p, name);
	} else {
		p->at = before;
		take_instruction(p);
	}
}

/* So that who runs past the end returns. */
static void add_return(struct parser *p)
{
	struct ptx_instr *instr = add_instr(p);

	instr->opcode = opcode_of(p, "ret");
	instr->run = instr->opcode->operation->run;
	instr->control = PTX_RET;
}

static void take_body(struct parser *p)
{
	unsigned depth = p->depth;

	expect(p, '{');
	do {
		if (accept(p, '{')) {
			open_scope(p);
		} else if (accept(p, '}')) {
			if (p->depth > depth)
				close_scope(p);
			else
				break;
		} else {
			take_statement(p);
		}
	} while (true);
	add_return(p);
}

/* ---- functions ---- */

static struct ptx_param *take_params(struct parser *p, uint32_t *num)
{
	struct ptx_function *function = p->function;
	struct ptx_param *params = allocate(p, MAX_ARGS * sizeof(*params));

	for (*num = 0; look(p) != ')'; ++*num) {
		struct declaration d;
		struct symbol *symbol;
		struct ptx_param *param = &params[*num];

		if (*num == MAX_ARGS)
			fail(p, "more than %d parameters", MAX_ARGS);
		if (!accept_word(p, ".param"))
			fail(p, "a parameter in a register is not interpreted");
		d = take_declaration(p, NULL);
		symbol = add_symbol(p, d.name, PLACE);
		symbol->bytes = (uint32_t)d.bytes;
		param->bytes = (uint32_t)d.bytes;
		if (function->is_kernel) {
			param->offset = (uint32_t)align_to(function->param_bytes, d.align);
			function->param_bytes = param->offset + param->bytes;
			symbol->place = (struct ptx_operand){
				.kind = PTX_IMMEDIATE, .value = PTX_PARAM_WINDOW + param->offset};
		} else {
			param->offset = take_frame(p, &d);
			symbol->place = (struct ptx_operand){
				.kind = PTX_FRAME, .value = PTX_LOCAL_WINDOW + param->offset};
		}
		accept(p, ',');
	}
	expect(p, ')');
	return params;
}

/* The name comes behind the results, whose places are in the function's frame. */
static struct word name_behind_results(struct parser *p)
{
	const char *before;
	struct word name;
	uint32_t line;

	look(p);
	before = p->at;
	line = p->line;
	if (accept(p, '('))
		skip_to(p, ')');
	name = take_word(p);
	p->at = before;
	p->line = line;
	return name;
}

/*
 * Of a function that can't be interpreted it is remembered why, for who calls it: the others of the
 * module may be all that is needed.
 */
static void try_body(struct parser *p)
{
	const char *at = p->at;
	uint32_t line = p->line, num_code = p->module->num_code;
	unsigned depth = p->depth;
	jmp_buf failed;

	memcpy(failed, p->failed, sizeof(failed));
	p->function->entry = num_code;
	if (!setjmp(p->failed)) {
		take_body(p);
		close_scope(p);
		memcpy(p->failed, failed, sizeof(failed));
		return;
	}
	memcpy(p->failed, failed, sizeof(failed));
	p->function->why_not =
		copy_of(p, (struct word){p->module->error, strlen(p->module->error)});
	p->function->entry = UINT32_MAX;
	p->module->num_code = num_code;
	p->depth = depth - 1;
	p->symbols.num = p->scopes[p->depth].symbols;
	p->labels.num = p->scopes[p->depth].labels;
	p->jumps.num = p->scopes[p->depth].jumps;
	p->at = at;
	p->line = line;
	skip_braces(p);
}

static void take_function(struct parser *p, bool is_kernel)
{
	struct ptx_function *function;

	open_scope(p);
	p->function = function = function_of(p, name_behind_results(p));
	function->is_kernel = is_kernel;
	function->frame_bytes = function->slots = function->param_bytes = 0;
	function->results = function->params = NULL;
	function->num_params = function->num_results = 0;
	if (accept(p, '('))
		function->results = take_params(p, &function->num_results);
	take_word(p);
	if (accept(p, '('))
		function->params = take_params(p, &function->num_params);
	while (look(p) != '{' && *p->at != ';') {
		if (!*p->at)
			fail(p, "'{' expected before the end");
		p->at++;
	}
	if (*p->at == '{') {
		try_body(p);
	} else {
		p->at++;
		close_scope(p);
	}
	p->function = NULL;
}

/* ---- the module ---- */

/* ".file 1 "name"", which may come behind the functions. */
static void take_file(struct parser *p)
{
	struct ptx_file *file = allocate(p, sizeof(*file));
	struct word name;

	file->next = p->module->files;
	p->module->files = file;
	file->number = (uint32_t)take_number(p);
	expect(p, '"');
	name.at = p->at;
	name.length = strcspn(p->at, "\"\n");
	file->name = copy_of(p, name);
	skip_line(p);
}

static void take_of_module(struct parser *p)
{
	bool is_extern = false;

	for (;;) {
		struct word word = take_word(p);

		if (is_same(word, ".visible") || is_same(word, ".weak") ||
		    is_same(word, ".common")) {
			continue;
		} else if (is_same(word, ".extern")) {
			is_extern = true;
			continue;
		} else if (is_same(word, ".entry") || is_same(word, ".func")) {
			take_function(p, is_same(word, ".entry"));
		} else if (is_same(word, ".global")) {
			take_variable(p, PTX_GLOBAL, is_extern);
		} else if (is_same(word, ".const")) {
			take_variable(p, PTX_CONST, is_extern);
		} else if (is_same(word, ".shared")) {
			take_variable(p, PTX_SHARED, is_extern);
		} else if (is_same(word, ".section")) {
			take_word(p);
			skip_braces(p);
		} else if (is_same(word, ".target")) {
			look(p);
			if (!strncmp(p->at, "sm_", 3))
				p->module->target = (uint32_t)strtoul(p->at + 3, NULL, 10);
			skip_line(p);
		} else if (is_same(word, ".version") || is_same(word, ".address_size")) {
			skip_line(p);
		} else if (is_same(word, ".file")) {
			take_file(p);
		} else {
			fail(p, "%.*s is not interpreted", (int)word.length, word.at);
		}
		return;
	}
}

/* Calls of what has no body here end the launch, if they come to it. */
static void parse(struct parser *p)
{
	open_scope(p);
	while (look(p))
		take_of_module(p);
	for (struct ptx_function *f = p->module->functions; f; f = f->next) {
		if (f->shared_bytes < p->module->shared_bytes)
			f->shared_bytes = p->module->shared_bytes;
		f->shared_bytes = (uint32_t)align_to(f->shared_bytes, 16);
	}
}

struct ptx_module *ptx_parse(const char *text, uint64_t (*place)(struct ptx_variable *variable),
			     char *error, size_t bytes)
{
	struct parser p = {.place = place, .at = text, .line = 1};
	bool failed = true;

	p.module = calloc(1, sizeof(*p.module));
	if (!p.module) {
		snprintf(error, bytes, "no memory");
		return NULL;
	}
	if (!setjmp(p.failed)) {
		parse(&p);
		failed = false;
	}
	free(p.symbols.items);
	free(p.labels.items);
	free(p.jumps.items);
	if (!failed)
		return p.module;
	snprintf(error, bytes, "%s", p.module->error);
	ptx_free(p.module);
	return NULL;
}

void ptx_free(struct ptx_module *module)
{
	while (module->memory) {
		struct ptx_memory *memory = module->memory;

		module->memory = memory->next;
		free(memory);
	}
	for (size_t i = 0; i < sizeof(module->opcodes) / sizeof(module->opcodes[0]); i++) {
		while (module->opcodes[i]) {
			struct ptx_opcode *opcode = module->opcodes[i];

			module->opcodes[i] = opcode->next;
			free(opcode);
		}
	}
	free(module->code);
	free(module);
}

const struct ptx_function *ptx_find_function(const struct ptx_module *module, const char *name)
{
	const struct ptx_function *function = module->functions;

	while (function && strcmp(function->name, name))
		function = function->next;
	return function && function->entry != UINT32_MAX ? function : NULL;
}

const char *ptx_why_not(const struct ptx_module *module, const char *name)
{
	const struct ptx_function *function = module->functions;

	while (function && strcmp(function->name, name))
		function = function->next;
	return function ? function->why_not : NULL;
}

const struct ptx_variable *ptx_find_variable(const struct ptx_module *module, const char *name)
{
	const struct ptx_variable *variable = module->variables;

	while (variable && strcmp(variable->name, name))
		variable = variable->next;
	return variable;
}
