/* SPDX-License-Identifier: BSD-3-Clause */
/* A module: functions, with their bodies, and what is around them. */
#include "ptx_parse.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a function's body ---- */

/* Of the instructions that follow. */
static void take_location(struct parser *p)
{
	p->file = (uint32_t)ptx_take_number(p);
	p->source_line = (uint32_t)ptx_take_number(p);
	ptx_skip_line(p);
}

static void take_directive(struct parser *p, struct word name)
{
	if (ptx_is_same(name, ".reg"))
		ptx_take_registers(p);
	else if (ptx_is_same(name, ".local"))
		ptx_take_in_frame(p, false);
	else if (ptx_is_same(name, ".param"))
		ptx_take_in_frame(p, true);
	else if (ptx_is_same(name, ".shared"))
		ptx_take_variable(p, PTX_SHARED, false);
	else if (ptx_is_same(name, ".global"))
		ptx_take_variable(p, PTX_GLOBAL, false);
	else if (ptx_is_same(name, ".const"))
		ptx_take_variable(p, PTX_CONST, false);
	else if (ptx_is_same(name, ".loc"))
		take_location(p);
	else if (ptx_is_same(name, ".pragma"))
		ptx_skip_to(p, ';');
	else
		ptx_refuse(p, "%.*s in a function is not interpreted", (int)name.length, name.at);
}

static void take_statement(struct parser *p)
{
	const char *before;
	struct word name;

	if (ptx_look(p) == '@') {
		ptx_take_instruction(p);
		return;
	}
	before = p->at;
	name = ptx_take_word(p);
	if (*name.at == '.') {
		take_directive(p, name);
	} else if (ptx_look(p) == ':') {
		p->at++;
		ptx_take_label(p, name);
	} else {
		p->at = before;
		ptx_take_instruction(p);
	}
}

/* So that who runs past the end returns. */
static void add_return(struct parser *p)
{
	struct ptx_instr *instr = ptx_add_instr(p);

	instr->opcode = ptx_opcode_of(p, "ret");
	instr->run = instr->opcode->operation->run;
	instr->control = PTX_RET;
}

static void take_body(struct parser *p)
{
	unsigned depth = p->depth;

	ptx_expect(p, '{');
	do {
		if (ptx_accept(p, '{')) {
			ptx_open_scope(p);
		} else if (ptx_accept(p, '}')) {
			if (p->depth > depth)
				ptx_close_scope(p);
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
	struct ptx_param *params = ptx_allocate(p, MAX_ARGS * sizeof(*params));

	for (*num = 0; ptx_look(p) != ')'; ++*num) {
		struct declaration d;
		struct symbol *symbol;
		struct ptx_param *param = &params[*num];

		if (*num == MAX_ARGS)
			ptx_refuse(p, "more than %d parameters", MAX_ARGS);
		if (!ptx_accept_word(p, ".param"))
			ptx_refuse(p, "a parameter in a register is not interpreted");
		d = ptx_take_declaration(p, NULL);
		symbol = ptx_add_symbol(p, d.name, PLACE);
		symbol->bytes = (uint32_t)d.bytes;
		param->bytes = (uint32_t)d.bytes;
		if (function->is_kernel) {
			param->offset = (uint32_t)ptx_align_to(function->param_bytes, d.align);
			function->param_bytes = param->offset + param->bytes;
			symbol->place = (struct ptx_operand){
				.kind = PTX_IMMEDIATE, .value = PTX_PARAM_WINDOW + param->offset};
		} else {
			param->offset = ptx_take_frame(p, &d);
			symbol->place = (struct ptx_operand){
				.kind = PTX_FRAME, .value = PTX_LOCAL_WINDOW + param->offset};
		}
		ptx_accept(p, ',');
	}
	ptx_expect(p, ')');
	return params;
}

/* The name comes behind the results, whose places are in the function's frame. */
static struct word name_behind_results(struct parser *p)
{
	const char *before;
	struct word name;
	uint32_t line;

	ptx_look(p);
	before = p->at;
	line = p->line;
	if (ptx_accept(p, '('))
		ptx_skip_to(p, ')');
	name = ptx_take_word(p);
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
		ptx_close_scope(p);
		memcpy(p->failed, failed, sizeof(failed));
		return;
	}
	memcpy(p->failed, failed, sizeof(failed));
	p->function->why_not =
		ptx_copy_of(p, (struct word){p->module->error, strlen(p->module->error)});
	p->function->entry = UINT32_MAX;
	p->module->num_code = num_code;
	p->depth = depth - 1;
	p->symbols.num = p->scopes[p->depth].symbols;
	p->labels.num = p->scopes[p->depth].labels;
	p->jumps.num = p->scopes[p->depth].jumps;
	p->at = at;
	p->line = line;
	ptx_skip_braces(p);
}

static void take_function(struct parser *p, bool is_kernel)
{
	struct ptx_function *function;

	ptx_open_scope(p);
	p->function = function = ptx_function_of(p, name_behind_results(p));
	function->is_kernel = is_kernel;
	function->frame_bytes = function->slots = function->param_bytes = 0;
	function->results = function->params = NULL;
	function->num_params = function->num_results = 0;
	if (ptx_accept(p, '('))
		function->results = take_params(p, &function->num_results);
	ptx_take_word(p);
	if (ptx_accept(p, '('))
		function->params = take_params(p, &function->num_params);
	while (ptx_look(p) != '{' && *p->at != ';') {
		if (!*p->at)
			ptx_refuse(p, "'{' expected before the end");
		p->at++;
	}
	if (*p->at == '{') {
		try_body(p);
	} else {
		p->at++;
		ptx_close_scope(p);
	}
	p->function = NULL;
}

/* ---- the module ---- */

/* ".file 1 "name"", which may come behind the functions. */
static void take_file(struct parser *p)
{
	struct ptx_file *file = ptx_allocate(p, sizeof(*file));
	struct word name;

	file->next = p->module->files;
	p->module->files = file;
	file->number = (uint32_t)ptx_take_number(p);
	ptx_expect(p, '"');
	name.at = p->at;
	name.length = strcspn(p->at, "\"\n");
	file->name = ptx_copy_of(p, name);
	ptx_skip_line(p);
}

static void take_of_module(struct parser *p)
{
	bool is_extern = false;

	for (;;) {
		struct word word = ptx_take_word(p);

		if (ptx_is_same(word, ".visible") || ptx_is_same(word, ".weak") ||
		    ptx_is_same(word, ".common")) {
			continue;
		} else if (ptx_is_same(word, ".extern")) {
			is_extern = true;
			continue;
		} else if (ptx_is_same(word, ".entry") || ptx_is_same(word, ".func")) {
			take_function(p, ptx_is_same(word, ".entry"));
		} else if (ptx_is_same(word, ".global")) {
			ptx_take_variable(p, PTX_GLOBAL, is_extern);
		} else if (ptx_is_same(word, ".const")) {
			ptx_take_variable(p, PTX_CONST, is_extern);
		} else if (ptx_is_same(word, ".shared")) {
			ptx_take_variable(p, PTX_SHARED, is_extern);
		} else if (ptx_is_same(word, ".section")) {
			ptx_take_word(p);
			ptx_skip_braces(p);
		} else if (ptx_is_same(word, ".target")) {
			ptx_look(p);
			if (!strncmp(p->at, "sm_", 3))
				p->module->target = (uint32_t)strtoul(p->at + 3, NULL, 10);
			ptx_skip_line(p);
		} else if (ptx_is_same(word, ".version") || ptx_is_same(word, ".address_size")) {
			ptx_skip_line(p);
		} else if (ptx_is_same(word, ".file")) {
			take_file(p);
		} else {
			ptx_refuse(p, "%.*s is not interpreted", (int)word.length, word.at);
		}
		return;
	}
}

/* Calls of what has no body here end the launch, if they come to it. */
static void parse(struct parser *p)
{
	ptx_open_scope(p);
	while (ptx_look(p))
		take_of_module(p);
	for (struct ptx_function *f = p->module->functions; f; f = f->next) {
		if (f->shared_bytes < p->module->shared_bytes)
			f->shared_bytes = p->module->shared_bytes;
		f->shared_bytes = (uint32_t)ptx_align_to(f->shared_bytes, 16);
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
