/* SPDX-License-Identifier: BSD-3-Clause */
/* Instructions with their operands, and calls. */
#include "ptx_parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ptx_instr *ptx_add_instr(struct parser *p)
{
	struct ptx_module *module = p->module;
	struct ptx_instr *instr;

	if (module->num_code == module->room) {
		uint32_t room = module->room ? 2 * module->room : 1024;
		struct ptx_instr *code = realloc(module->code, room * sizeof(*code));

		if (!code)
			ptx_refuse(p, "no memory");
		module->code = code;
		module->room = room;
	}
	instr = &module->code[module->num_code++];
	*instr = (struct ptx_instr){.line = p->line, .mask = ~UINT64_C(0)};
	return instr;
}

const struct ptx_opcode *ptx_opcode_of(struct parser *p, const char *text)
{
	const struct ptx_opcode *opcode = ptx_opcode_find(p->module, text);

	if (!opcode)
		ptx_refuse(p, "%s is not interpreted", text);
	return opcode;
}

/* What only a move can read goes through a register. */
static void move_first(struct parser *p, struct ptx_operand *operand)
{
	struct ptx_instr *move = ptx_add_instr(p);

	move->opcode = ptx_opcode_of(p, "mov.u64");
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
		ptx_refuse(p, "%s has more than %d operands", instr->opcode->text, PTX_OPERANDS);
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
	struct word name = ptx_take_word(p);
	struct ptx_operand operand = {0};
	char text[64];
	int special;

	if (ptx_is_same(name, "_"))
		return (struct ptx_operand){.kind = PTX_SINK};
	if (ptx_find_operand(p, name, &operand))
		return operand;
	snprintf(text, sizeof(text), "%.*s", (int)name.length, name.at);
	special = ptx_special_find(text);
	if (special < 0 && *text != '%') /* a function's address */
		return (struct ptx_operand){.kind = PTX_IMMEDIATE,
					    .value = PTX_CODE_WINDOW +
						     ptx_function_of(p, name)->number};
	if (special < 0)
		ptx_refuse(p, "%s is not known, or not interpreted", text);
	return (struct ptx_operand){.kind = PTX_SPECIAL, .slot = (uint32_t)special};
}

static struct ptx_operand take_operand(struct parser *p, const struct ptx_opcode *opcode)
{
	struct ptx_operand operand;

	if (ptx_is_number(p))
		return (struct ptx_operand){.kind = PTX_IMMEDIATE,
					    .value = ptx_take_number(p) &
						     width_of_immediates(opcode)};
	if (ptx_accept(p, '!')) {
		operand = take_name(p);
		operand.negated = true;
		return operand;
	}
	operand = take_name(p);
	if (operand.kind != PTX_REGISTER && ptx_accept(p, '+')) /* mov of a variable's address */
		operand.value += ptx_take_number(p);
	return operand;
}

static struct ptx_operand take_address(struct parser *p)
{
	struct ptx_operand operand = {.kind = PTX_IMMEDIATE};

	if (!ptx_is_number(p))
		operand = take_name(p);
	if (operand.kind == PTX_IMMEDIATE && ptx_is_number(p))
		operand.value += ptx_take_number(p);
	else if (ptx_accept(p, '+'))
		operand.value += ptx_take_number(p);
	ptx_expect(p, ']');
	return operand;
}

static void take_operands(struct parser *p, struct ptx_instr *instr)
{
	const struct ptx_opcode *opcode = instr->opcode;
	const char *name = opcode->name;
	bool two = !strcmp(name, "setp") || !strcmp(name, "shfl") || !strcmp(name, "match.all");

	while (ptx_look(p) != ';') {
		if (ptx_accept(p, '[')) {
			put(p, instr, take_address(p));
		} else if (ptx_accept(p, '{')) {
			do {
				put(p, instr, take_operand(p, opcode));
			} while (ptx_accept(p, ','));
			ptx_expect(p, '}');
		} else {
			put(p, instr, take_operand(p, opcode));
		}
		if (two) { /* a second destination, behind a bar */
			put(p, instr,
			    ptx_accept(p, '|') ? take_name(p)
					       : (struct ptx_operand){.kind = PTX_SINK});
			two = false;
		}
		if (!ptx_accept(p, ','))
			break;
	}
	ptx_expect(p, ';');
}

/* ---- calls ---- */

static struct ptx_param *take_passed(struct parser *p, uint32_t *num)
{
	struct ptx_param *params = ptx_allocate(p, MAX_ARGS * sizeof(*params));

	ptx_expect(p, '(');
	for (*num = 0; ptx_look(p) != ')'; ++*num) {
		struct word name = ptx_take_word(p);
		const struct symbol *symbol = ptx_find_symbol(p, name);

		if (!symbol || symbol->place.kind != PTX_FRAME || *num == MAX_ARGS)
			ptx_refuse(p, "a call that passes %.*s is not interpreted",
				   (int)name.length, name.at);
		params[*num] = (struct ptx_param){
			(uint32_t)(symbol->place.value & ~PTX_LOCAL_WINDOW), symbol->bytes};
		ptx_accept(p, ',');
	}
	ptx_expect(p, ')');
	return params;
}

static void take_call(struct parser *p, struct ptx_instr *instr)
{
	struct ptx_call *call = ptx_allocate(p, sizeof(*call));
	struct ptx_operand address;
	struct word name;

	instr->call = call;
	if (ptx_look(p) == '(') {
		call->results = take_passed(p, &call->num_results);
		ptx_expect(p, ',');
	}
	name = ptx_take_word(p);
	if (ptx_find_operand(p, name, &address)) {
		if (address.kind != PTX_REGISTER)
			ptx_refuse(p, "a call of %.*s", (int)name.length, name.at);
		call->address = address;
	} else {
		call->function = ptx_function_of(p, name);
		call->host = ptx_host_function(call->function->name);
		p->module->has_heap |= call->host && ptx_host_has_heap(call->function->name);
	}
	if (ptx_accept(p, ',') && ptx_look(p) == '(')
		call->params = take_passed(p, &call->num_params);
	ptx_skip_to(p, ';');
}

/* ---- a whole instruction ---- */

static void take_guard(struct parser *p, struct ptx_instr *instr)
{
	struct ptx_operand guard;

	if (!ptx_accept(p, '@'))
		return;
	instr->guarded = true;
	instr->guard_negated = ptx_accept(p, '!');
	guard = take_name(p);
	if (guard.kind != PTX_REGISTER)
		ptx_refuse(p, "a guard that is no register");
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
	} known[] = {{"abs", 2},
		     {"neg", 2},
		     {"not", 2},
		     {"cnot", 2},
		     {"popc", 2},
		     {"clz", 2},
		     {"brev", 2},
		     {"bfind", 2},
		     {"cvta", 2},
		     {"rcp", 2},
		     {"sqrt", 2},
		     {"rsqrt", 2},
		     {"ex2", 2},
		     {"lg2", 2},
		     {"sin", 2},
		     {"cos", 2},
		     {"tanh", 2},
		     {"isspacep", 2},
		     {"mad", 4},
		     {"fma", 4},
		     {"mad.lo", 4},
		     {"mad.hi", 4},
		     {"mad.wide", 4},
		     {"madc.lo", 4},
		     {"madc.hi", 4},
		     {"mad24.lo", 4},
		     {"sad", 4},
		     {"bfe", 4},
		     {"fns", 4},
		     {"prmt", 4},
		     {"slct", 4},
		     {"selp", 4},
		     {"dp4a", 4},
		     {"bfi", 5},
		     {"lop3", 5},
		     {"vote", 3},
		     {"shfl", 6},
		     {"match.any", 3},
		     {"match.all", 4},
		     {"redux", 3},
		     {"activemask", 1},
		     {"add", 3},
		     {"addc", 3},
		     {"sub", 3},
		     {"subc", 3},
		     {"mul", 3},
		     {"mul.lo", 3},
		     {"mul.hi", 3},
		     {"mul.wide", 3},
		     {"mul24.lo", 3},
		     {"div", 3},
		     {"rem", 3},
		     {"min", 3},
		     {"max", 3},
		     {"and", 3},
		     {"or", 3},
		     {"xor", 3},
		     {"shl", 3},
		     {"shr", 3},
		     {"copysign", 3},
		     {"bfind.shiftamt", 2},
		     {"cp.async.wait_group", 1}};

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
	if (!strcmp(o->name, "red"))
		return o->vector + 1U;
	if (!strcmp(o->name, "atom"))
		return o->action == PTX_CAS ? 4 : 2U * o->vector + 1;
	return !strcmp(o->name, "ld") || !strcmp(o->name, "st") ? o->vector + 1U : 0;
}

/* What a handler takes for granted. */
static void check_operands(struct parser *p, const struct ptx_instr *instr)
{
	const struct ptx_opcode *o = instr->opcode;
	unsigned wanted = num_operands(o);
	bool stores = !strcmp(o->name, "st") || !strcmp(o->name, "red") ||
		      !strncmp(o->name, "cp.async", 8);
	bool has_result =
		(wanted && !stores) || !strcmp(o->name, "mov") || !strcmp(o->name, "bar.red");
	bool may_sink = o->vector > 1 || !strcmp(o->name, "mov") || !strcmp(o->name, "atom") ||
			!strcmp(o->name, "setp");

	if (wanted && instr->num != wanted)
		ptx_refuse(p, "%s with %u operands, not %u", o->text, instr->num, wanted);
	if (!strcmp(o->name, "mov") && instr->num < 2)
		ptx_refuse(p, "mov with %u operands", instr->num);
	if (!strcmp(o->name, "cp.async") && (instr->num < 3 || instr->num > 4))
		ptx_refuse(p, "cp.async with %u operands", instr->num);
	if (!strcmp(o->name, "bar.red") && instr->num < 3)
		ptx_refuse(p, "bar.red with %u operands", instr->num);
	if (has_result && instr->operands[0].kind != PTX_REGISTER &&
	    !(may_sink && instr->operands[0].kind == PTX_SINK))
		ptx_refuse(p, "the result of %s is not for a register", o->text);
}

static void take_instr(struct parser *p, struct ptx_instr *instr, struct word name)
{
	char text[sizeof(instr->opcode->text)];

	if (name.length >= sizeof(text))
		ptx_refuse(p, "%.*s is not interpreted", (int)name.length, name.at);
	memcpy(text, name.at, name.length);
	text[name.length] = 0;
	instr->opcode = ptx_opcode_of(p, text);
	instr->run = instr->opcode->operation->run;
	instr->control = instr->opcode->operation->control;
	instr->mask =
		instr->opcode->type.bits ? ptx_mask_of(instr->opcode->type.bits) : ~UINT64_C(0);
	if (instr->control == PTX_CALL) {
		take_call(p, instr);
	} else if (instr->control == PTX_BRANCH) {
		ptx_add_jump(p, ptx_take_word(p), NULL);
		ptx_expect(p, ';');
	} else if (instr->control == PTX_BRANCH_INDEXED) {
		put(p, instr, take_operand(p, instr->opcode));
		if (instr->operands[0].kind != PTX_REGISTER)
			ptx_refuse(p, "a branch by what is no register");
		ptx_expect(p, ',');
		ptx_add_jump(p, ptx_take_word(p), NULL);
		ptx_expect(p, ';');
	} else {
		take_operands(p, instr);
		check_operands(p, instr);
	}
}

/* The jump of an instruction before which moves were put stays that instruction's. */
void ptx_take_instruction(struct parser *p)
{
	struct ptx_instr instr = {
		.mask = ~UINT64_C(0), .file = p->file, .source_line = p->source_line};

	ptx_look(p);
	instr.line = p->line;
	take_guard(p, &instr);
	take_instr(p, &instr, ptx_take_word(p));
	settle(p, &instr);
	*ptx_add_instr(p) = instr;
}
