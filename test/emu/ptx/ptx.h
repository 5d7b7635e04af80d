/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An interpreter of PTX, NVIDIA's virtual instruction set ("Parallel Thread Execution ISA"), for
 * the emulated device: what its files share.
 *
 * A module's text is parsed once into an array of instructions whose operands are numbers of slots
 * (ptx_parse.c) and whose handlers are functions (ptx_opcode.c, which the arithmetic and the memory
 * accesses have their tables in). A block runs on one OS thread. Each thread of it has a program
 * counter of its own, as GPUs have since Volta; those of a warp that are at the same instruction
 * with the same frame go together, so that an instruction is decoded once for up to 32 threads, and
 * registers are arrays over the warp's lanes (ptx_warp.c).
 *
 * Addresses. Those of global memory are the emulated driver's. Shared and local memory and a
 * kernel's parameters have windows of the generic address space that no memory of the host is in.
 * In their own space shared and local addresses count from the window's beginning, as they may be
 * kept in 32 bits there; parameters are always named by generic addresses.
 */
#ifndef EMU_PTX_H
#define EMU_PTX_H

#include <setjmp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PTX_LANES = 32, PTX_OPERANDS = 9, PTX_BARRIERS = 16, PTX_MAX_BLOCK = 1024 };

/* Of a row of the tables: with its bits, two values of half of them. */
enum { PTX_PAIR = 128 };

#define PTX_SHARED_WINDOW (UINT64_C(1) << 60)
#define PTX_LOCAL_WINDOW (UINT64_C(1) << 61)
#define PTX_PARAM_WINDOW (UINT64_C(1) << 62)
/* Functions' addresses: their numbers. */
#define PTX_CODE_WINDOW (UINT64_C(1) << 63)

/* Where the dynamic part of shared memory begins in its space: behind any static part. */
#define PTX_DYNAMIC_SHARED (UINT64_C(1) << 20)

enum ptx_kind {
	PTX_UNTYPED,
	PTX_BITS,
	PTX_UNSIGNED,
	PTX_SIGNED,
	PTX_FLOAT,
	PTX_BFLOAT,
	PTX_E4M3, /* of 8 bits, in pairs */
	PTX_E5M2,
	PTX_PRED
};

struct ptx_type {
	uint8_t kind; /* enum ptx_kind */
	uint8_t bits; /* 1: a predicate */
	bool pair;    /* two of half the bits: f16x2, bf16x2 */
};

enum ptx_space {
	PTX_GENERIC,
	PTX_GLOBAL,
	PTX_SHARED,
	PTX_LOCAL,
	PTX_PARAM,
	PTX_CONST,
};

enum ptx_rounding { PTX_NEAREST, PTX_ZERO, PTX_DOWN, PTX_UP, PTX_NOT_ROUNDED };

/* What an instruction's name says, with all that stands behind the first dot. */
struct ptx_opcode {
	char text[48];
	char name[28]; /* with what chooses between operations: "mul.wide", "setp", "atom" */
	struct ptx_type type, from; /* the first type and the last */
	uint8_t space, vector;      /* enum ptx_space; how many registers in braces */
	uint8_t rounding;           /* enum ptx_rounding */
	uint8_t compare;            /* enum ptx_compare */
	uint8_t combine;            /* of setp: 0, '&', '|', '^' */
	uint8_t action;             /* of atom, red, vote, shfl and so on: enum ptx_action */
	bool to_integral;           /* .rni and its like */
	bool saturates, flushes;    /* .sat, .ftz */
	bool stays_finite;          /* .satfinite */
	bool sees_nan;              /* .NaN of min and max */
	bool visible;               /* other threads may look: volatile, or with a scope */
	bool to_space;              /* cvta.to */
	bool carries;               /* .cc */
	bool unordered;             /* a comparison that is true of NaN: equ, ltu ... */
	const struct ptx_operation *operation;
	struct ptx_opcode *next;
};

enum ptx_compare { PTX_EQ = 1, PTX_NE, PTX_LT, PTX_LE, PTX_GT, PTX_GE, PTX_NUM, PTX_NAN };

enum ptx_action {
	PTX_ADD = 1,
	PTX_AND,
	PTX_OR,
	PTX_XOR,
	PTX_MIN,
	PTX_MAX,
	PTX_EXCH,
	PTX_CAS,
	PTX_INC,
	PTX_DEC,
	PTX_ALL,
	PTX_ANY,
	PTX_UNI,
	PTX_BALLOT,
	PTX_SHFL_UP,
	PTX_SHFL_DOWN,
	PTX_BFLY,
	PTX_IDX,
	PTX_ARRIVE,
	PTX_POPC,
};

/* PTX_FRAME: `value` from the beginning of the frame's memory. */
enum ptx_operand_kind {
	PTX_NONE,
	PTX_REGISTER,
	PTX_IMMEDIATE,
	PTX_SPECIAL,
	PTX_FRAME,
	PTX_SINK,
};

struct ptx_operand {
	uint8_t kind; /* enum ptx_operand_kind */
	bool negated; /* a predicate with ! */
	uint32_t slot;
	uint64_t value; /* of an immediate; an offset, of an address */
	uint64_t mask;  /* of the register's width */
};

struct ptx_warp;
struct ptx_instr;
typedef void (*ptx_handler)(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes);

enum ptx_control {
	PTX_PLAIN,
	PTX_BRANCH,
	PTX_BRANCH_INDEXED,
	PTX_CALL,
	PTX_RET,
	PTX_EXIT,
	PTX_BARRIER,
	PTX_WARP_SYNC, /* waits for the lanes of a mask */
};

/* A row of a table: what an instruction is called, what of it chooses the handler. */
struct ptx_operation {
	const char *name;
	uint16_t kinds; /* the types that it is for, as bits of enum ptx_kind; 0: any */
	uint8_t bits;   /* of such; 0: any */
	uint8_t control;
	ptx_handler run;
	bool takes_places; /* operands may be PTX_FRAME */
};

struct ptx_instr {
	ptx_handler run;
	uint8_t control; /* enum ptx_control */
	uint8_t num;     /* operands; of call: arguments */
	bool guarded, guard_negated;
	uint32_t guard; /* slot */
	uint32_t target;
	uint32_t line;              /* of the text */
	uint32_t file, source_line; /* of the source (-lineinfo); 0: not known */
	uint64_t mask;              /* of the type's width */
	const struct ptx_opcode *opcode;
	struct ptx_operand operands[PTX_OPERANDS]; /* the destination first */
	const struct ptx_call *call;
	const uint32_t *targets; /* of brx.idx; `target` of them */
};

/* Parameters of a function, or what a call passes: places in a frame's memory. */
struct ptx_param {
	uint32_t offset, bytes;
};

struct ptx_call {
	const struct ptx_function *function; /* NULL: by a register, or one of the host's */
	void (*host)(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes);
	struct ptx_operand address;
	uint32_t num_params, num_results;
	struct ptx_param *params, *results;
};

struct ptx_function {
	char *name;
	bool is_kernel;
	uint32_t entry, slots; /* the first instruction; registers */
	uint32_t frame_bytes; /* of a lane's memory: parameters, local variables, what calls pass */
	uint32_t num_params, num_results;
	struct ptx_param *params, *results; /* of a kernel: places in its argument buffer */
	uint32_t param_bytes;
	uint32_t number;       /* its address */
	const char *why_not;   /* it can't be interpreted; NULL: it can, or has no body */
	uint32_t shared_bytes; /* static */
	struct ptx_function *next;
};

/* A variable of the module. */
struct ptx_variable {
	char *name;
	uint8_t space;
	uint32_t align;
	uint64_t address, bytes; /* in its space */
	bool is_managed;         /* the host may touch it */
	unsigned char *initial;  /* NULL: zeros */
	struct ptx_variable *next;
};

/* A file that the source's lines are in. */
struct ptx_file {
	uint32_t number;
	char *name;
	struct ptx_file *next;
};

/* What a module's parts are in, each behind one of these. */
struct ptx_memory {
	_Alignas(16) struct ptx_memory *next;
};

struct ptx_module {
	struct ptx_memory *memory;
	struct ptx_file *files;
	struct ptx_function *functions;
	struct ptx_variable *variables;
	struct ptx_instr *code;
	uint32_t num_code, room;
	bool has_heap;         /* its kernels call malloc or free */
	uint32_t target;       /* the architecture: 80 */
	uint32_t shared_bytes; /* static, outside functions */
	struct ptx_opcode *opcodes[256];
	char error[256];
};

/*
 * Parse a module's text, which ends with 0. `place` gives memory for a variable of the global or
 * constant space: its address, 0 if there is none. NULL: it can't be; `error`, of `bytes` bytes,
 * says why, with the line. Freed with ptx_free, which leaves that memory.
 */
struct ptx_module *ptx_parse(const char *text, uint64_t (*place)(struct ptx_variable *variable),
			     char *error, size_t bytes);
void ptx_free(struct ptx_module *module);
const struct ptx_function *ptx_find_function(const struct ptx_module *module, const char *name);
/* Why a function that is there can't be interpreted, with the line; or NULL. */
const char *ptx_why_not(const struct ptx_module *module, const char *name);
const struct ptx_variable *ptx_find_variable(const struct ptx_module *module, const char *name);

/* What a name means, for the parser. NULL: there is no such instruction here. */
const struct ptx_opcode *ptx_opcode_find(struct ptx_module *module, const char *text);
/* What is called as a function and is the interpreter's own: vprintf and so on. NULL: none. */
ptx_handler ptx_host_function(const char *name);
/* Whether it is malloc or free. */
bool ptx_host_has_heap(const char *name);

struct ptx_grid {
	uint32_t blocks[3], threads[3];
	uint32_t shared_bytes;      /* dynamic */
	uint64_t workspace;         /* of a cooperative launch: where its blocks meet */
	const atomic_bool *stopped; /* another block has failed; NULL: nobody says */
	void *heap;                 /* of malloc; NULL: none */
	bool watches;               /* races in shared memory are errors (ptx_watch.h) */
};

/* How it ended; text: "" where it ended well. */
struct ptx_end {
	int code; /* a CUresult */
	char text[480];
};

/*
 * Run a block of a kernel, which is the `index`th of the grid. `seed` chooses who goes when.
 * `args`: the kernel's parameters, as their offsets say.
 */
void ptx_run_block(const struct ptx_module *module, const struct ptx_function *kernel,
		   const struct ptx_grid *grid, const void *args, uint32_t index, uint64_t seed,
		   struct ptx_end *end);

/* Instructions that threads have executed in this process, for benchmarks. */
extern _Atomic uint64_t ptx_executed;

/* ---- what the device is: emu_kernel.c, or a test ---- */

/*
 * Where the interpreter finds [address, address + bytes) of global memory. NULL: no memory that
 * kernels may touch.
 */
void *ptx_device_place(uint64_t address, size_t bytes);
/*
 * Of a grid's heap, for malloc and free in kernels: an address, or 0; and false where it is none
 * that was given out.
 */
uint64_t ptx_device_allocate(void *heap, uint64_t bytes);
bool ptx_device_release(void *heap, uint64_t address);
/* Nanoseconds of the device's clock; and let others have the core, as this block waits. */
uint64_t ptx_device_clock(void);
void ptx_device_pause(void);

/* ---- a block that runs ---- */

enum ptx_lane_state { PTX_RUNS, PTX_WAITS_FOR_BLOCK, PTX_WAITS_FOR_WARP, PTX_ENDED };

enum { PTX_DEPTH = 128, PTX_STACK_BYTES = 512 << 10 };

/* Of one lane, for when the function returns. */
struct ptx_frame {
	const struct ptx_instr *call; /* NULL: the kernel */
	const struct ptx_function *function;
	uint32_t base, stack; /* of its registers, and of its memory */
};

struct ptx_warp {
	struct ptx_warp *next; /* of those that are not in use */
	struct ptx_block *block;
	uint32_t number, there; /* of the warp in the block; lanes that it has */
	/* Of the lanes that go together now. */
	uint32_t base, stack;
	uint64_t (*registers)[PTX_LANES];
	uint32_t room; /* slots */
	uint8_t state[PTX_LANES];
	uint8_t barrier[PTX_LANES];
	uint8_t carry[PTX_LANES];
	/* At an instruction that lanes do together: which, and the values of its operands. */
	const struct ptx_instr *waits_at[PTX_LANES];
	uint64_t brought[PTX_LANES][PTX_OPERANDS];
	uint32_t wait_mask[PTX_LANES];
	uint32_t came[PTX_BARRIERS]; /* which lanes, to the block's barriers */
	/* Begun and not waited for, the oldest first; and how many groups of such a lane has. */
	struct ptx_copy *copies[PTX_LANES];
	uint32_t groups[PTX_LANES];
	uint32_t pc[PTX_LANES], depth[PTX_LANES];
	uint64_t ran[PTX_LANES]; /* when, in turns of the block */
	struct ptx_frame (*frames)[PTX_DEPTH];
	unsigned char *stacks;
};

struct ptx_block {
	const struct ptx_module *module;
	const struct ptx_function *kernel;
	const struct ptx_grid *grid;
	const unsigned char *args;
	unsigned char *shared;
	uint32_t shared_bytes, index, num_warps, threads, alive;
	uint32_t running; /* threads that wait for nothing */
	uint32_t arrived[PTX_BARRIERS], awaited[PTX_BARRIERS];
	uint32_t votes[PTX_BARRIERS]; /* of bar.red */
	uint64_t seed, turns, executed;
	uint32_t looks;                 /* at others' memory since something was stored; weighed */
	uint64_t looked_at, looked[16]; /* the last address, and the last of each hash */
	bool switches;                  /* the group that runs now is to give way */
	bool ended; /* some threads have, which others of their warps may wait for */
	struct ptx_warp **warps;
	struct ptx_watch *watch; /* of shared memory; NULL: nobody asks */
	struct ptx_end *end;
	jmp_buf failed;
};

/* The launch ends with this error; says which thread of which block, and which line. */
void ptx_fail(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned lane, int code,
	      const char *format, ...) __attribute__((format(printf, 5, 6), noreturn));

/* The address that an operand in brackets is. */
uint64_t ptx_address(struct ptx_warp *warp, const struct ptx_operand *operand, unsigned lane);

/* Others may see what the instruction does: now and then somebody else goes on. */
void ptx_visible(struct ptx_block *block);

/* Where bytes of a space are that a lane means by an address; checks them. */
void *ptx_place(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned lane,
		enum ptx_space space, uint64_t address, size_t bytes);

/* What a special register holds. */
uint64_t ptx_special(const struct ptx_warp *warp, unsigned lane, uint32_t which);
/* Its number; -1: there is none of that name. */
int ptx_special_find(const char *name);

/* ---- operands ---- */

static inline uint64_t *ptx_slot(struct ptx_warp *warp, uint32_t slot)
{
	return warp->registers[warp->base + slot];
}

/* An operand's values: of lane l at [l & *lanes]. */
static inline const uint64_t *ptx_source(struct ptx_warp *warp, const struct ptx_operand *operand,
					 unsigned *lanes)
{
	*lanes = operand->kind == PTX_REGISTER ? PTX_LANES - 1 : 0;
	return operand->kind == PTX_REGISTER ? ptx_slot(warp, operand->slot) : &operand->value;
}

static inline uint64_t ptx_value(struct ptx_warp *warp, const struct ptx_operand *operand,
				 unsigned lane)
{
	return operand->kind == PTX_REGISTER ? ptx_slot(warp, operand->slot)[lane] : operand->value;
}

static inline void ptx_set(struct ptx_warp *warp, const struct ptx_operand *operand, unsigned lane,
			   uint64_t value)
{
	if (operand->kind == PTX_REGISTER)
		ptx_slot(warp, operand->slot)[lane] = value & operand->mask;
}

#define PTX_FOR_LANES(lane, lanes)                                                                 \
	for (uint32_t left_ = (lanes), lane; left_ && (lane = (uint32_t)__builtin_ctz(left_), 1);  \
	     left_ &= left_ - 1)

static inline uint64_t ptx_mask_of(unsigned bits)
{
	return bits >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << bits) - 1;
}

static inline int64_t ptx_sign(uint64_t value, unsigned bits)
{
	return bits >= 64 ? (int64_t)value : (int64_t)(value << (64 - bits)) >> (64 - bits);
}

/* Of an instruction that does nothing here. */
void ptx_nothing(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes);
/*
 * What an atomic operation, or redux, leaves of what was there and its operands. `flushes`: single
 * precision without subnormal numbers.
 */
uint64_t ptx_apply(const struct ptx_opcode *o, uint64_t was, uint64_t b, uint64_t c, bool flushes);
/* A comparison of two that are known to be less, or equal, or neither. */
bool ptx_compare(enum ptx_compare how, bool less, bool equal);
/* setp and set combine an answer with a predicate, which is the operand `with`, if they do. */
bool ptx_combine(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned with, unsigned lane,
		 bool answer);
/* A comparison's answer, to one or two predicates, as setp's name says. */
void ptx_set_answer(struct ptx_warp *warp, const struct ptx_instr *instr, unsigned lane,
		    bool answer);

/* ---- floating-point numbers as bits (ptx_float.c, ptx_convert.c) ---- */

/* Half precision, by its type; rounds to nearest even, or to zero. */
float ptx_widen(const struct ptx_type *type, uint64_t bits);
uint64_t ptx_narrow(const struct ptx_type *type, double value, enum ptx_rounding rounding);
/* A number of the type, in the lowest bits; and back, with NaN as GPUs write it. */
double ptx_number(const struct ptx_type *type, uint64_t bits);
uint64_t ptx_bits(const struct ptx_type *type, double value);
/* Round as the instruction says, until it is called with PTX_NEAREST. */
void ptx_round(enum ptx_rounding rounding);

/* From two of 8 bits to two of half precision (ptx_float8.c). */
bool ptx_is_float8(const struct ptx_type *type);
void ptx_widen_pair(struct ptx_warp *warp, const struct ptx_instr *instr, uint32_t lanes);

/* The tables, each ended by a row without a name. */
extern const struct ptx_operation ptx_integer_operations[], ptx_float_operations[],
	ptx_memory_operations[], ptx_warp_operations[], ptx_convert_operations[],
	ptx_barrier_operations[], ptx_lane_operations[], ptx_float8_operations[],
	ptx_async_operations[];

#endif
