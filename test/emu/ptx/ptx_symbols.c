/* SPDX-License-Identifier: BSD-3-Clause */
/* Names: registers, variables and parameters; labels, and who jumps there. */
#include "ptx_parse.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- symbols ---- */

static struct symbol *symbol_at(struct parser *p, size_t i)
{
	return (struct symbol *)p->symbols.items + i;
}

struct symbol *ptx_add_symbol(struct parser *p, struct word name, enum symbol_kind kind)
{
	struct symbol *symbol = ptx_append(p, &p->symbols, sizeof(*symbol));

	symbol->name = name;
	symbol->hash = ptx_hash_of(name);
	symbol->kind = kind;
	return symbol;
}

static bool is_called(const struct symbol *symbol, struct word name, uint32_t hash)
{
	return symbol->hash == hash && symbol->name.length == name.length &&
	       !memcmp(symbol->name.at, name.at, name.length);
}

/* The innermost one of exactly this name. */
const struct symbol *ptx_find_symbol(struct parser *p, struct word name)
{
	uint32_t hash = ptx_hash_of(name);

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
bool ptx_find_operand(struct parser *p, struct word name, struct ptx_operand *operand)
{
	struct word prefix = name;
	uint32_t hash = ptx_hash_of(name), prefix_hash, index;

	while (prefix.length && isdigit((unsigned char)prefix.at[prefix.length - 1]))
		prefix.length--;
	prefix_hash = ptx_hash_of(prefix);
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

void ptx_open_scope(struct parser *p)
{
	if (p->depth == MAX_SCOPES)
		ptx_refuse(p, "more than %d scopes", MAX_SCOPES);
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
		ptx_refuse(p, "%.*s is not what the branch needs", (int)label->name.length,
			   label->name.at);
	} else if (label->targets) {
		instr->targets = label->targets;
		instr->target = label->num_targets;
	} else {
		instr->target = label->pc;
	}
}

/* Jumps find the labels of their own scope, and then those of scopes around it. */
void ptx_close_scope(struct parser *p)
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
		ptx_refuse(p, "no label %.*s", (int)jumps[0].name.length, jumps[0].name.at);
	p->jumps.num = left;
	p->labels.num = scope->labels;
	p->symbols.num = scope->symbols;
}

void ptx_add_jump(struct parser *p, struct word name, uint32_t *to)
{
	struct jump *jump = ptx_append(p, &p->jumps, sizeof(*jump));

	*jump = (struct jump){name, ptx_hash_of(name), p->module->num_code, to};
}

/* "name: .branchtargets A, B;" */
static void take_targets(struct parser *p, struct label *label)
{
	enum { MOST = 4096 };
	uint32_t *targets = ptx_allocate(p, MOST * sizeof(*targets)), num = 0;

	do {
		if (num == MOST)
			ptx_refuse(p, "more than %d targets of a branch", MOST);
		ptx_add_jump(p, ptx_take_word(p), &targets[num++]);
	} while (ptx_accept(p, ','));
	ptx_expect(p, ';');
	label->targets = targets;
	label->num_targets = num;
}

void ptx_take_label(struct parser *p, struct word name)
{
	struct label *label = ptx_append(p, &p->labels, sizeof(*label)), kept;

	*label = (struct label){.name = name, .hash = ptx_hash_of(name), .pc = p->module->num_code};
	if (ptx_accept_word(p, ".branchtargets")) {
		kept = *label;
		take_targets(p, &kept);
		((struct label *)p->labels.items)[p->labels.num - 1] = kept;
	} else if (ptx_accept_word(p, ".callprototype")) {
		ptx_skip_to(p, ';');
	}
}
