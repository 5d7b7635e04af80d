/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the parser's files share: ptx_words.c, ptx_symbols.c, ptx_declare.c, ptx_statement.c,
 * ptx_parse.c.
 */
#ifndef EMU_PTX_PARSE_H
#define EMU_PTX_PARSE_H

#include "ptx.h"

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

struct declaration {
	struct word name;
	uint32_t align, size; /* of an element */
	uint64_t bytes;
	uint32_t count;        /* of "name<count>"; 0 */
	bool is_pred, is_open; /* without a length */
	bool is_managed;
};

/* ---- ptx_words.c ---- */

/* The module, or the function, can't be interpreted; says the line. */
void ptx_refuse(struct parser *p, const char *format, ...)
	__attribute__((format(printf, 2, 3), noreturn));
/* Zeros, until the module is freed. */
void *ptx_allocate(struct parser *p, size_t bytes);
/* Another item, of zeros, at the end of a list. */
void *ptx_append(struct parser *p, struct list *list, size_t size);
uint32_t ptx_hash_of(struct word word);
bool ptx_is_same(struct word word, const char *text);
/* Ended with 0. */
char *ptx_copy_of(struct parser *p, struct word word);
void ptx_skip_line(struct parser *p);
/* The next character that is not space or a comment, which stays. 0: the end. */
char ptx_look(struct parser *p);
/* Go past it, if it is next. */
bool ptx_accept(struct parser *p, char c);
/* Go past it; it has to be next. */
void ptx_expect(struct parser *p, char c);
/* A name; a directive ends before the next dot. */
struct word ptx_take_word(struct parser *p);
struct word ptx_peek_word(struct parser *p);
bool ptx_accept_word(struct parser *p, const char *text);
/* Behind the character; strings are gone past. */
void ptx_skip_to(struct parser *p, char end);
/* From '{' behind the '}' that ends it. */
void ptx_skip_braces(struct parser *p);
/* An integer, or the bits of a floating-point number. */
uint64_t ptx_take_number(struct parser *p);
bool ptx_is_number(struct parser *p);

/* ---- ptx_symbols.c ---- */

/* In the innermost scope. */
struct symbol *ptx_add_symbol(struct parser *p, struct word name, enum symbol_kind kind);
const struct symbol *ptx_find_symbol(struct parser *p, struct word name);
/* What a name stands for. false: nothing known. */
bool ptx_find_operand(struct parser *p, struct word name, struct ptx_operand *operand);
void ptx_open_scope(struct parser *p);
/* Its names are gone, and its jumps have landed. */
void ptx_close_scope(struct parser *p);
/* Of the instruction that comes next, or to a place in a table. */
void ptx_add_jump(struct parser *p, struct word name, uint32_t *to);
/* Behind its colon. */
void ptx_take_label(struct parser *p, struct word name);

/* ---- ptx_declare.c ---- */

/* Behind the space. `same`: another name of that declaration. */
struct declaration ptx_take_declaration(struct parser *p, const struct declaration *same);
uint64_t ptx_align_to(uint64_t value, uint32_t align);
/* Room in the function's frame. */
uint32_t ptx_take_frame(struct parser *p, const struct declaration *d);
void ptx_take_registers(struct parser *p);
/* Local variables, and what calls pass. */
void ptx_take_in_frame(struct parser *p, bool is_param);
/* The function of this name, which may come later. */
struct ptx_function *ptx_function_of(struct parser *p, struct word name);
void ptx_take_variable(struct parser *p, enum ptx_space space, bool is_extern);

/* ---- ptx_statement.c ---- */

struct ptx_instr *ptx_add_instr(struct parser *p);
const struct ptx_opcode *ptx_opcode_of(struct parser *p, const char *text);
void ptx_take_instruction(struct parser *p);

#endif
