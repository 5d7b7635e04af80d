/* SPDX-License-Identifier: BSD-3-Clause */
/* The words of a module's text, and what the parser's memory is. */
#include "ptx_parse.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ptx_refuse(struct parser *p, const char *format, ...)
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
void *ptx_allocate(struct parser *p, size_t bytes)
{
	struct ptx_memory *memory = calloc(1, sizeof(*memory) + bytes);

	if (!memory)
		ptx_refuse(p, "no memory");
	memory->next = p->module->memory;
	p->module->memory = memory;
	return memory + 1;
}

void *ptx_append(struct parser *p, struct list *list, size_t size)
{
	if (list->num == list->room) {
		size_t room = list->room ? 2 * list->room : 64;
		void *items = realloc(list->items, room * size);

		if (!items)
			ptx_refuse(p, "no memory");
		list->items = items;
		list->room = room;
	}
	memset((char *)list->items + list->num * size, 0, size);
	return (char *)list->items + list->num++ * size;
}

uint32_t ptx_hash_of(struct word word)
{
	uint32_t hash = 2166136261; /* FNV-1a */

	for (size_t i = 0; i < word.length; i++)
		hash = (hash ^ (unsigned char)word.at[i]) * 16777619;
	return hash;
}

bool ptx_is_same(struct word word, const char *text)
{
	return strlen(text) == word.length && !memcmp(word.at, text, word.length);
}

char *ptx_copy_of(struct parser *p, struct word word)
{
	char *text = ptx_allocate(p, word.length + 1);

	memcpy(text, word.at, word.length);
	return text;
}

/* ---- words ---- */

void ptx_skip_line(struct parser *p)
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

char ptx_look(struct parser *p)
{
	for (;;) {
		if (*p->at == '\n')
			p->line++;
		if (isspace((unsigned char)*p->at))
			p->at++;
		else if (!strncmp(p->at, "//", 2))
			ptx_skip_line(p);
		else if (!strncmp(p->at, "/*", 2))
			skip_comment(p);
		else
			return *p->at;
	}
}

bool ptx_accept(struct parser *p, char c)
{
	if (ptx_look(p) != c)
		return false;
	p->at++;
	return true;
}

void ptx_expect(struct parser *p, char c)
{
	if (!ptx_accept(p, c))
		ptx_refuse(p, "'%c' expected before \"%.20s\"", c, p->at);
}

static bool is_of_word(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.';
}

struct word ptx_take_word(struct parser *p)
{
	struct word word;

	bool is_directive = ptx_look(p) == '.';

	word.at = p->at;
	while (is_of_word(*p->at) || (p->at[0] == ':' && p->at[1] == ':')) {
		if (is_directive && *p->at == '.' && p->at > word.at) /* ".reg.f32" */
			break;
		p->at += *p->at == ':' ? 2 : 1;
	}
	word.length = (size_t)(p->at - word.at);
	if (!word.length)
		ptx_refuse(p, "a name expected before \"%.20s\"", p->at);
	return word;
}

struct word ptx_peek_word(struct parser *p)
{
	const char *before;
	struct word word = {0};

	ptx_look(p);
	before = p->at;
	if (is_of_word(*p->at))
		word = ptx_take_word(p);
	p->at = before;
	return word;
}

bool ptx_accept_word(struct parser *p, const char *text)
{
	if (!ptx_is_same(ptx_peek_word(p), text))
		return false;
	ptx_take_word(p);
	return true;
}

void ptx_skip_to(struct parser *p, char end)
{
	while (ptx_look(p) != end) {
		if (!*p->at)
			ptx_refuse(p, "'%c' expected before the end", end);
		if (*p->at == '"') {
			for (p->at++; *p->at && *p->at != '"'; p->at++)
				;
		}
		p->at += *p->at != 0;
	}
	p->at++;
}

void ptx_skip_braces(struct parser *p)
{
	unsigned depth = 0;

	do {
		char c = ptx_look(p);

		if (!c)
			ptx_refuse(p, "'}' expected before the end");
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
uint64_t ptx_take_number(struct parser *p)
{
	bool negative = ptx_accept(p, '-');
	uint64_t value;
	char *end;

	ptx_look(p);
	if (take_bits(p, &value))
		return value;
	if (!strncmp(p->at, "0b", 2) || !strncmp(p->at, "0B", 2))
		value = strtoull(p->at + 2, &end, 2);
	else
		value = strtoull(p->at, &end, 0);
	if (end == p->at || *end == '.')
		ptx_refuse(p, "a number expected before \"%.20s\"", p->at);
	p->at = end;
	if (*p->at == 'U' || *p->at == 'u')
		p->at++;
	return negative ? -value : value;
}

bool ptx_is_number(struct parser *p)
{
	return isdigit((unsigned char)ptx_look(p)) || *p->at == '-';
}
