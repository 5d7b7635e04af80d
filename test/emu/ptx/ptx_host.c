/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions that kernels call and that are not in their module: printf's, assert's, the heap's. */
#include "ptx.h"

#include <stdio.h>
#include <string.h>

enum { ILLEGAL_ADDRESS = 700, ASSERTED = 710 };

/* A parameter of the call. */
static uint64_t param_of(const struct ptx_warp *warp, const struct ptx_instr *instr, unsigned lane,
			 uint32_t which)
{
	const struct ptx_call *call = instr->call;
	const unsigned char *stack = warp->stacks + (size_t)lane * PTX_STACK_BYTES + warp->stack;
	uint64_t value = 0;

	if (which < call->num_params && call->params[which].bytes <= sizeof(value))
		memcpy(&value, stack + call->params[which].offset, call->params[which].bytes);
	return value;
}

static void return_value(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned lane,
			 uint64_t value)
{
	const struct ptx_call *call = instr->call;
	unsigned char *stack = warp->stacks + (size_t)lane * PTX_STACK_BYTES + warp->stack;

	if (call->num_results && call->results[0].bytes <= sizeof(value))
		memcpy(stack + call->results[0].offset, &value, call->results[0].bytes);
}

static void copy_text(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned lane,
		      uint64_t from, char *to, size_t room)
{
	size_t i = 0;

	while (i + 1 < room &&
	       (to[i] = *(char *)ptx_place(warp, instr, lane, PTX_GENERIC, from + i, 1)))
		i++;
	to[i] = 0;
}

/* ---- printf ---- */

struct output {
	char text[1024];
	size_t length;
};

static void put(struct output *out, const char *text)
{
	size_t length = strlen(text), room = sizeof(out->text) - 1 - out->length;

	length = length < room ? length : room;
	memcpy(out->text + out->length, text, length);
	out->length += length;
}

/* Arguments are in a buffer, each at a multiple of its size: int 4 bytes, long and double 8. */
struct arguments {
	uint32_t num; /* that were taken */
	struct ptx_warp *warp;
	const struct ptx_instr *instr;
	unsigned lane;
	uint64_t at;
};

static uint64_t next_argument(struct arguments *a, size_t bytes)
{
	uint64_t value = 0;

	a->num++;
	a->at = (a->at + bytes - 1) / bytes * bytes;
	memcpy(&value, ptx_place(a->warp, a->instr, a->lane, PTX_GENERIC, a->at, bytes), bytes);
	a->at += bytes;
	return value;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
/* One conversion, with its flags, as the host's printf knows it. */
static void convert(struct output *out, const char *format, bool is_long, struct arguments *args)
{
	char text[512], string[400];
	double number;
	uint64_t bits;

	switch (format[strlen(format) - 1]) {
	case 'a':
	case 'e':
	case 'f':
	case 'g':
	case 'A':
	case 'E':
	case 'F':
	case 'G':
		bits = next_argument(args, 8);
		memcpy(&number, &bits, sizeof(number));
		snprintf(text, sizeof(text), format, number);
		break;
	case 's':
		copy_text(args->warp, args->instr, args->lane, next_argument(args, 8), string,
			  sizeof(string));
		snprintf(text, sizeof(text), format, string);
		break;
	case 'p':
		snprintf(text, sizeof(text), format, (void *)(uintptr_t)next_argument(args, 8));
		break;
	default:
		if (is_long && !strchr("c", format[strlen(format) - 1]))
			snprintf(text, sizeof(text), format, next_argument(args, 8));
		else
			snprintf(text, sizeof(text), format, (unsigned)next_argument(args, 4));
		break;
	}
	put(out, text);
}
#pragma GCC diagnostic pop

/* A '*' in a conversion takes an argument, which becomes digits. */
static void format_all(struct output *out, const char *format, struct arguments *args)
{
	while (*format) {
		char one[64] = "%", plain[2] = {*format, 0};
		size_t length = 1;
		bool is_long = false;

		if (*format++ != '%') {
			put(out, plain);
			continue;
		}
		if (*format == '%') {
			put(out, "%");
			format++;
			continue;
		}
		while (*format && strchr("-+ #0123456789.*hljzt", *format) && length < 40) {
			is_long |= strchr("ljzt", *format) != NULL;
			if (*format == '*')
				length += (size_t)snprintf(one + length, 16, "%d",
							   (int)next_argument(args, 4));
			else if (!strchr("hljzt",
					 *format)) /* the length is put back for integers */
				one[length++] = *format;
			format++;
		}
		if (!*format || !strchr("diouxXcspaefgAEFG", *format))
			return; /* %n, which would write, and what is not known */
		if (is_long && strchr("diouxX", *format)) {
			one[length++] = 'l';
		}
		one[length++] = *format++;
		convert(out, one, is_long, args);
	}
}

static void print(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	PTX_FOR_LANES(lane, lanes)
	{
		struct arguments args = {0, warp, instr, lane, param_of(warp, instr, lane, 1)};
		struct output out = {.length = 0};
		char format[1024];

		copy_text(warp, instr, lane, param_of(warp, instr, lane, 0), format,
			  sizeof(format));
		format_all(&out, format, &args);
		fwrite(out.text, 1, out.length, stdout);
		return_value(warp, instr, lane, args.num);
	}
	fflush(stdout);
}

/* Message, file, line, function. */
static void fail_assertion(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	unsigned lane = (unsigned)__builtin_ctz(lanes);
	char message[80], file[80];

	copy_text(warp, instr, lane, param_of(warp, instr, lane, 0), message, sizeof(message));
	copy_text(warp, instr, lane, param_of(warp, instr, lane, 1), file, sizeof(file));
	ptx_fail(warp, instr, lane, ASSERTED, "%s:%u: assertion `%s' failed", file,
		 (unsigned)param_of(warp, instr, lane, 2), message);
}

/* ---- the heap ---- */

/* What is there is of no meaning. */
static void allocate(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	PTX_FOR_LANES(lane, lanes)
	return_value(warp, instr, lane,
		     ptx_device_allocate(warp->block->grid->heap, param_of(warp, instr, lane, 0)));
}

static void release(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes)
{
	PTX_FOR_LANES(lane, lanes)
	{
		uint64_t address = param_of(warp, instr, lane, 0);

		if (address && !ptx_device_release(warp->block->grid->heap, address))
			ptx_fail(warp, instr, lane, ILLEGAL_ADDRESS,
				 "free of %#llx, which malloc has not given",
				 (unsigned long long)address);
	}
}

bool ptx_host_has_heap(const char *name)
{
	return !strcmp(name, "malloc") || !strcmp(name, "free");
}

ptx_handler ptx_host_function(const char *name)
{
	if (!strcmp(name, "malloc"))
		return allocate;
	if (!strcmp(name, "free"))
		return release;
	if (!strcmp(name, "vprintf"))
		return print;
	if (!strcmp(name, "__assertfail"))
		return fail_assertion;
	return NULL;
}
