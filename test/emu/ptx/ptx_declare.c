/* SPDX-License-Identifier: BSD-3-Clause */
/* Declarations: registers, local memory, the variables of a module with their values. */
#include "ptx_parse.h"

#include <string.h>

static uint32_t size_of_type(struct parser *p, struct word type, bool *is_pred)
{
	static const struct {
		const char *name;
		uint32_t size;
	} types[] = {{".b8", 1},  {".u8", 1},  {".s8", 1},    {".b16", 2},    {".u16", 2},
		     {".s16", 2}, {".f16", 2}, {".bf16", 2},  {".b32", 4},    {".u32", 4},
		     {".s32", 4}, {".f32", 4}, {".f16x2", 4}, {".bf16x2", 4}, {".b64", 8},
		     {".u64", 8}, {".s64", 8}, {".f64", 8},   {".b128", 16},  {".pred", 1}};

	*is_pred = ptx_is_same(type, ".pred");
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		if (ptx_is_same(type, types[i].name))
			return types[i].size;
	}
	ptx_refuse(p, "type %.*s is not interpreted", (int)type.length, type.at);
}

/* ".align 8 .b8 name[16]", ".b32 %r<38>", ".ptr .align 1 name", behind the space. */
struct declaration ptx_take_declaration(struct parser *p, const struct declaration *same)
{
	struct declaration d = same ? *same : (struct declaration){.align = 1};

	while (!same && ptx_look(p) == '.') {
		struct word word = ptx_take_word(p);
		bool is_pred;

		if (ptx_is_same(word, ".align")) {
			uint32_t align = (uint32_t)ptx_take_number(p);

			/* Behind the type it is that of what a pointer points to. */
			d.align = d.bytes ? d.align : align;
		} else if (ptx_is_same(word, ".attribute")) {
			ptx_expect(p, '(');
			d.is_managed |= ptx_is_same(ptx_peek_word(p), ".managed");
			ptx_skip_to(p, ')');
		} else if (ptx_is_same(word, ".ptr") || ptx_is_same(word, ".global") ||
			   ptx_is_same(word, ".shared") || ptx_is_same(word, ".const") ||
			   ptx_is_same(word, ".local")) {
			continue;
		} else if (ptx_is_same(word, ".v2") || ptx_is_same(word, ".v4")) {
			d.size = (uint32_t)(word.at[2] - '0');
		} else {
			uint32_t each = size_of_type(p, word, &is_pred);

			d.is_pred = is_pred;
			d.size = d.size ? d.size * each : each;
			d.bytes = d.size;
			d.align = d.align > d.size || d.size > 16 ? d.align : d.size;
		}
	}
	d.name = ptx_take_word(p);
	d.bytes = d.size;
	d.count = 0;
	d.is_open = false;
	if (ptx_accept(p, '<')) {
		d.count = (uint32_t)ptx_take_number(p);
		ptx_expect(p, '>');
	}
	while (ptx_accept(p, '[')) {
		if (ptx_look(p) == ']')
			d.is_open = true;
		else
			d.bytes *= ptx_take_number(p);
		ptx_expect(p, ']');
	}
	return d;
}

uint64_t ptx_align_to(uint64_t value, uint32_t align)
{
	return align ? (value + align - 1) / align * align : value;
}

/* Room in the function's frame. */
uint32_t ptx_take_frame(struct parser *p, const struct declaration *d)
{
	uint32_t at = (uint32_t)ptx_align_to(p->function->frame_bytes, d->align);

	if (d->bytes > PTX_STACK_BYTES)
		ptx_refuse(p, "a local variable of %llu bytes", (unsigned long long)d->bytes);
	p->function->frame_bytes = at + (uint32_t)d->bytes;
	return at;
}

void ptx_take_registers(struct parser *p)
{
	struct declaration d = ptx_take_declaration(p, NULL);

	for (;;) {
		struct symbol *symbol = ptx_add_symbol(p, d.name, REGISTERS);

		symbol->slot = p->function->slots;
		symbol->count = d.count;
		symbol->mask = d.is_pred ? 1 : ptx_mask_of(8 * d.size);
		if (d.count > MAX_SLOTS || p->function->slots > MAX_SLOTS)
			ptx_refuse(p, "more than %d registers", MAX_SLOTS);
		p->function->slots += d.count ? d.count : 1;
		if (!ptx_accept(p, ','))
			break;
		d = ptx_take_declaration(p, &d);
	}
	ptx_expect(p, ';');
}

/* Local variables, and what calls pass, within a function. */
void ptx_take_in_frame(struct parser *p, bool is_param)
{
	struct declaration d = ptx_take_declaration(p, NULL);

	for (;;) {
		struct symbol *symbol = ptx_add_symbol(p, d.name, PLACE);

		symbol->bytes = (uint32_t)d.bytes;
		symbol->place = (struct ptx_operand){.kind = PTX_FRAME,
						     .value = ptx_take_frame(p, &d) +
							      (is_param ? PTX_LOCAL_WINDOW : 0)};
		if (!ptx_accept(p, ','))
			break;
		d = ptx_take_declaration(p, &d);
	}
	ptx_expect(p, ';');
}

static struct ptx_variable *find_variable(const struct ptx_module *module, struct word name)
{
	for (struct ptx_variable *v = module->variables; v; v = v->next) {
		if (ptx_is_same(name, v->name))
			return v;
	}
	return NULL;
}

struct ptx_function *ptx_function_of(struct parser *p, struct word name)
{
	struct ptx_function *function;

	for (function = p->module->functions; function; function = function->next) {
		if (ptx_is_same(name, function->name))
			return function;
	}
	function = ptx_allocate(p, sizeof(*function));
	function->name = ptx_copy_of(p, name);
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

	if (ptx_is_number(p))
		return ptx_take_number(p);
	generic = ptx_accept_word(p, "generic");
	if (generic)
		ptx_expect(p, '(');
	name = ptx_take_word(p);
	variable = find_variable(p->module, name);
	if (generic)
		ptx_expect(p, ')');
	if (!variable)
		return PTX_CODE_WINDOW + ptx_function_of(p, name)->number;
	return variable->address + (ptx_accept(p, '+') ? ptx_take_number(p) : 0);
}

static void take_initials(struct parser *p, struct ptx_variable *variable, uint32_t size)
{
	uint64_t at = 0;
	bool braces = ptx_accept(p, '{');

	variable->initial = ptx_allocate(p, variable->bytes);
	do {
		uint64_t value = take_initial(p);

		if (at + size > variable->bytes || size > sizeof(value))
			ptx_refuse(p, "too many values for %s", variable->name);
		memcpy(variable->initial + at, &value, size);
		at += size;
	} while (braces && ptx_accept(p, ','));
	if (braces)
		ptx_expect(p, '}');
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
	at = ptx_align_to(*end, variable->align);
	if (variable->bytes > MAX_SHARED || at + variable->bytes > MAX_SHARED)
		ptx_refuse(p, "more than %d bytes of shared memory, with %s", MAX_SHARED,
			   variable->name);
	variable->address = at;
	*end = (uint32_t)(at + variable->bytes);
}

void ptx_take_variable(struct parser *p, enum ptx_space space, bool is_extern)
{
	struct declaration d = ptx_take_declaration(p, NULL);
	struct ptx_variable *variable = find_variable(p->module, d.name);
	struct symbol *symbol;

	if (!variable || p->function) {
		variable = ptx_allocate(p, sizeof(*variable));
		variable->next = p->module->variables;
		p->module->variables = variable;
		variable->name = ptx_copy_of(p, d.name);
	}
	variable->space = (uint8_t)space;
	variable->align = d.align;
	variable->is_managed = d.is_managed;
	variable->bytes = d.is_open ? 0 : d.bytes;
	if (ptx_accept(p, '='))
		take_initials(p, variable, d.size);
	ptx_expect(p, ';');
	if (space == PTX_SHARED && d.is_open)
		variable->address = PTX_DYNAMIC_SHARED;
	else if (space == PTX_SHARED)
		place_shared(p, variable);
	else if (is_extern)
		ptx_refuse(p, "variable %s is in another module, which is not interpreted",
			   variable->name);
	else
		variable->address = p->place(variable);
	if (!variable->address && space != PTX_SHARED)
		ptx_refuse(p, "no memory for %s", variable->name);
	symbol = ptx_add_symbol(p, d.name, PLACE);
	symbol->place = (struct ptx_operand){.kind = PTX_IMMEDIATE, .value = variable->address};
}
