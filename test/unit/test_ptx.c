/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The interpreter of PTX: each instruction against what "Parallel Thread Execution ISA" says of it,
 * worked out by hand; threads, barriers and warps; and what ends a launch.
 */
#include "../emu/ptx/ptx.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- a device ---- */

static _Alignas(16) unsigned char memory[1 << 16];
static unsigned pauses;

void *ptx_device_place(uint64_t address, size_t bytes)
{
	uint64_t start = (uint64_t)(uintptr_t)memory;

	if (address < start || address + bytes > start + sizeof(memory))
		return NULL;
	return (void *)(uintptr_t)address;
}

uint64_t ptx_device_clock(void)
{
	static uint64_t now = UINT64_C(0x123456789a);

	return now++;
}

/* Nothing here has a heap. */
uint64_t ptx_device_allocate(void *heap, uint64_t bytes)
{
	(void)heap;
	(void)bytes;
	return 0;
}

bool ptx_device_release(void *heap, uint64_t address)
{
	(void)heap;
	(void)address;
	return false;
}

void ptx_device_pause(void)
{
	pauses++;
}

static uint64_t place_at_end(struct ptx_variable *variable)
{
	unsigned char *at = memory + sizeof(memory) - 4096;

	memset(at, 0, variable->bytes);
	if (variable->initial)
		memcpy(at, variable->initial, variable->bytes);
	return (uint64_t)(uintptr_t)at;
}

static struct ptx_module *parse(const char *text)
{
	char error[256] = "";
	struct ptx_module *module = ptx_parse(text, place_at_end, error, sizeof(error));

	if (!module)
		print_error("%s\n", error);
	assert_non_null(module);
	return module;
}

static bool watches; /* shared memory */

/* The kernel k of this text on one block; its only parameter is the memory's address. */
static struct ptx_end run_dynamic(const char *text, uint32_t threads, uint64_t seed,
				  uint32_t shared)
{
	struct ptx_module *module = parse(text);
	const struct ptx_function *kernel = ptx_find_function(module, "k");
	struct ptx_grid grid = {{1, 1, 1}, {threads, 1, 1}, shared, 0, NULL, NULL, watches};
	uint64_t args = (uint64_t)(uintptr_t)memory;
	struct ptx_end end;

	assert_non_null(kernel);
	ptx_run_block(module, kernel, &grid, &args, 0, seed, &end);
	ptx_free(module);
	return end;
}

static struct ptx_end run(const char *text, uint32_t threads, uint64_t seed)
{
	return run_dynamic(text, threads, seed, 0);
}

#define HEAD                                                                                       \
	".version 8.0\n.target sm_80\n.address_size 64\n"                                          \
	".visible .entry k(.param .u64 k_param_0)\n{\n"                                            \
	".reg .pred %p<8>; .reg .b16 %rs<8>; .reg .b32 %r<16>; .reg .b64 %rd<8>;"                  \
	".reg .f32 %f<8>; .reg .f64 %fd<8>;\n"                                                     \
	"ld.param.u64 %rd1, [k_param_0];\nmov.u32 %r1, %tid.x;\n"                                  \
	"mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd1, %rd2;\n"
#define TAIL "ret;\n}\n"

static uint32_t *words(void)
{
	return (uint32_t *)memory;
}

static void well(struct ptx_end end)
{
	if (end.code)
		print_error("%s\n", end.text);
	assert_int_equal(end.code, 0);
}

/* ---- one instruction ---- */

#define NAN32 UINT64_C(0x7fffffff)
#define INF32 UINT64_C(0x7f800000)
#define ONES32 UINT64_C(0xffffffff)
#define ONES64 (~UINT64_C(0))
#define TOP64 (UINT64_C(1) << 63)

/* `code` is of d and a, b, c, e, registers of these types. */
static const struct row {
	const char *code, *to, *from;
	uint64_t a, b, c, expected;
} rows[] = {
	{"add.u32 d, a, b;", "b32", "b32", ONES32, 2, 0, 1},
	{"add.sat.s32 d, a, b;", "b32", "b32", 0x7fffffff, 1, 0, 0x7fffffff},
	{"add.sat.s32 d, a, b;", "b32", "b32", 0x80000000, ONES32, 0, 0x80000000},
	{"add.s64 d, a, b;", "b64", "b64", ONES64, 2, 0, 1},
	{"add.u16 d, a, b;", "b16", "b16", 0xffff, 3, 0, 2},
	{"sub.sat.s32 d, a, b;", "b32", "b32", 0x80000000, 1, 0, 0x80000000},
	{"sub.s16 d, a, b;", "b16", "b16", 1, 2, 0, 0xffff},
	{"mul.lo.s32 d, a, b;", "b32", "b32", 0x10001, 0x10001, 0, 0x20001},
	{"mul.hi.u32 d, a, b;", "b32", "b32", ONES32, ONES32, 0, 0xfffffffe},
	{"mul.hi.s32 d, a, b;", "b32", "b32", ONES32, 5, 0, ONES32},
	{"mul.hi.u64 d, a, b;", "b64", "b64", ONES64, ONES64, 0, ONES64 - 1},
	{"mul.hi.s64 d, a, b;", "b64", "b64", TOP64, 2, 0, ONES64},
	{"mul.wide.u32 d, a, b;", "b64", "b32", ONES32, ONES32, 0, 0xfffffffe00000001},
	{"mul.wide.s32 d, a, b;", "b64", "b32", ONES32, 7, 0, (uint64_t)-7},
	{"mul.wide.s16 d, a, b;", "b32", "b16", 0xfffe, 3, 0, 0xfffffffa},
	{"mul24.lo.u32 d, a, b;", "b32", "b32", 0xff000003, 5, 0, 15},
	{"mul24.lo.s32 d, a, b;", "b32", "b32", 0xffffff, 5, 0, 0xfffffffb},
	{"mad24.lo.u32 d, a, b, c;", "b32", "b32", 0xff000003, 5, 7, 22},
	{"mad24.lo.s32 d, a, b, c;", "b32", "b32", 0xffffff, 5, 7, 2},
	{"mad.wide.u32 d, a, b, e;", "b64", "b32", ONES32, 2, 0, 0x8fffffffe},
	{"mad.wide.s32 d, a, b, e;", "b64", "b32", ONES32, 2, 0, 0x6fffffffe},
	{"mad.lo.s32 d, a, b, c;", "b32", "b32", 3, ONES32, 10, 7},
	{"mad.hi.u32 d, a, b, c;", "b32", "b32", ONES32, ONES32, 3, 1},
	{"mad.hi.s32 d, a, b, c;", "b32", "b32", ONES32, 1, 3, 2},
	{"add.cc.u32 d, a, b; addc.u32 d, c, 0;", "b32", "b32", ONES32, 1, 4, 5},
	{"add.cc.u64 d, a, b; addc.u64 d, c, 0;", "b64", "b64", ONES64, 1, 4, 5},
	{"sub.cc.u32 d, a, b; subc.u32 d, c, 0;", "b32", "b32", 1, 2, 4, 3},
	{"sub.cc.u32 d, a, b; subc.u32 d, c, 0;", "b32", "b32", 2, 2, 4, 4},
	{"mad.lo.cc.u32 d, a, b, c; madc.hi.u32 d, a, b, c;", "b32", "b32", ONES32, ONES32, ONES32,
	 0xfffffffe},
	{"div.u32 d, a, b;", "b32", "b32", 0xfffffff0, 16, 0, 0x0fffffff},
	{"div.s32 d, a, b;", "b32", "b32", 0xfffffff9, 2, 0, 0xfffffffd},
	{"div.s32 d, a, b;", "b32", "b32", 0x80000000, ONES32, 0, 0x80000000},
	{"div.s64 d, a, b;", "b64", "b64", TOP64, ONES64, 0, TOP64},
	{"rem.s32 d, a, b;", "b32", "b32", 0xfffffff9, 2, 0, ONES32},
	{"rem.s32 d, a, b;", "b32", "b32", 0x80000000, ONES32, 0, 0},
	{"rem.u64 d, a, b;", "b64", "b64", 1000, 7, 0, 6},
	{"abs.s32 d, a;", "b32", "b32", 0xfffffffb, 0, 0, 5},
	{"abs.s16 d, a;", "b16", "b16", 0x8000, 0, 0, 0x8000},
	{"neg.s32 d, a;", "b32", "b32", 1, 0, 0, ONES32},
	{"min.s32 d, a, b;", "b32", "b32", ONES32, 1, 0, ONES32},
	{"min.u32 d, a, b;", "b32", "b32", ONES32, 1, 0, 1},
	{"max.s64 d, a, b;", "b64", "b64", ONES64, 1, 0, 1},
	{"max.u16 d, a, b;", "b16", "b16", 0xffff, 1, 0, 0xffff},
	{"and.b32 d, a, b;", "b32", "b32", 0xff00ff00, 0x0ff00ff0, 0, 0x0f000f00},
	{"or.b64 d, a, b;", "b64", "b64", 1, 2, 0, 3},
	{"xor.b16 d, a, b;", "b16", "b16", 0xffff, 1, 0, 0xfffe},
	{"not.b16 d, a;", "b16", "b16", 0, 0, 0, 0xffff},
	{"cnot.b32 d, a;", "b32", "b32", 0, 0, 0, 1},
	/* Shifts by the width or more. */
	{"shl.b32 d, a, b;", "b32", "b32", 1, 32, 0, 0},
	{"shl.b64 d, a, 64;", "b64", "b64", 3, 0, 0, 0},
	{"shr.u64 d, a, 64;", "b64", "b64", ONES64, 0, 0, 0},
	{"shr.s64 d, a, 64;", "b64", "b64", TOP64, 0, 0, ONES64},
	{"shr.s32 d, a, b;", "b32", "b32", 0x7fffffff, 31, 0, 0},
	{"shl.b64 d, a, 63;", "b64", "b64", 3, 0, 0, TOP64},
	{"shr.u32 d, a, b;", "b32", "b32", ONES32, 40, 0, 0},
	{"shr.s32 d, a, b;", "b32", "b32", 0x80000000, 40, 0, ONES32},
	{"shr.s16 d, a, 4;", "b16", "b16", 0x8000, 0, 0, 0xf800},
	{"shr.u64 d, a, 63;", "b64", "b64", TOP64, 0, 0, 1},
	{"shf.l.wrap.b32 d, a, b, c;", "b32", "b32", 0x80000000, 1, 33, 3},
	{"shf.l.clamp.b32 d, a, b, c;", "b32", "b32", 0x12345678, 1, 40, 0x12345678},
	{"shf.r.wrap.b32 d, a, b, c;", "b32", "b32", 0x80000000, 1, 4, 0x18000000},
	{"shf.l.clamp.b32 d, a, b, c;", "b32", "b32", 0x12345678, 1, 31, 0x891a2b3c},
	{"shf.r.wrap.b32 d, a, b, c;", "b32", "b32", 0x80000000, 1, 36, 0x18000000},
	{"shf.r.clamp.b32 d, a, b, c;", "b32", "b32", 7, 0x55, 99, 0x55},
	{"sad.s32 d, a, b, c;", "b32", "b32", ONES32, 4, 10, 15},
	{"sad.u32 d, a, b, c;", "b32", "b32", 9, 4, 10, 15},
	{"bfe.u32 d, a, b, c;", "b32", "b32", 0x12345678, 8, 8, 0x56},
	{"bfe.s32 d, a, b, c;", "b32", "b32", 0x12348678, 8, 8, 0xffffff86},
	{"bfe.s32 d, a, b, c;", "b32", "b32", 0x80000000, 28, 16, 0xfffffff8},
	{"bfe.u64 d, a, 60, 8;", "b64", "b64", ONES64, 0, 0, 15},
	{"bfi.b32 d, a, b, 8, 8;", "b32", "b32", 0xab, 0x11111111, 0, 0x1111ab11},
	{"bfi.b64 d, a, b, 32, 32;", "b64", "b64", 0xab, 5, 0, 0xab00000005},
	{"prmt.b32 d, a, b, 0x3210;", "b32", "b32", 0x33221100, 0x77665544, 0, 0x33221100},
	{"prmt.b32 d, a, b, 0x5410;", "b32", "b32", 0x33221100, 0x77665544, 0, 0x55441100},
	{"prmt.b32 d, a, b, 0x88ff;", "b32", "b32", 0x80, 0x80000000, 0, ONES32},
	{"lop3.b32 d, a, b, c, 0x96;", "b32", "b32", 0xff, 0xf0, 0x3c, 0xff ^ 0xf0 ^ 0x3c},
	{"lop3.b32 d, a, b, c, 0xca;", "b32", "b32", 0xf0, 0x11, 0x2f, 0x1f},
	{"popc.b64 d, a;", "b32", "b64", 0xf00000000000000f, 0, 0, 8},
	{"clz.b32 d, a;", "b32", "b32", 1, 0, 0, 31},
	{"clz.b64 d, a;", "b32", "b64", 0, 0, 0, 64},
	{"brev.b32 d, a;", "b32", "b32", 1, 0, 0, 0x80000000},
	{"bfind.u32 d, a;", "b32", "b32", 0x1000, 0, 0, 12},
	{"bfind.s32 d, a;", "b32", "b32", ONES32, 0, 0, ONES32},
	{"dp4a.s32.s32 d, a, b, c;", "b32", "b32", 0xff01ff01, 0x02020202, 100, 100},
	{"dp4a.s32.u32 d, a, b, c;", "b32", "b32", 0xff01ff01, 0xff02ff02, 1000, 1000 - 506},
	{"dp4a.u32.s32 d, a, b, c;", "b32", "b32", 0xff02ff02, 0xff01ff01, 1000, 1000 - 506},
	{"dp4a.u32.u32 d, a, b, c;", "b32", "b32", 0xff01ff01, 0x02020202, 1, 1025},
	{"mov.b32 d, {a, b};", "b32", "b16", 0x1234, 0xabcd, 0, 0xabcd1234},
	{"mov.b64 d, {a, b};", "b64", "b32", 1, 2, 0, 0x200000001},
	{"mov.b64 {c, d}, e;", "b32", "b32", 0, 0, 0, 7},
	{"selp.b32 d, a, b, q;", "b32", "b32", 11, 22, 0, 22},
	{"slct.u32.s32 d, a, b, c;", "b32", "b32", 11, 22, 0, 11},
	{"setp.eq.xor.u32 p, a, b, q; selp.u32 d, 1, 0, p;", "b32", "b32", 1, 1, 0, 1},
	{"setp.eq.or.u32 p, a, b, q; selp.u32 d, 1, 0, p;", "b32", "b32", 1, 2, 0, 0},
	{"setp.eq.and.u32 p, a, b, p; selp.u32 d, 1, 0, p;", "b32", "b32", 1, 1, 0, 1},
	{"ld.global.s8 d, [%rd1+1024];", "b32", "b32", 0x80, 0, 0, 0xffffff80},
	{"ld.global.u8 d, [%rd1+1025];", "b32", "b32", 0x8000, 0, 0, 0x80},
	{"ld.global.v2.u16 {%rs1, %rs2}, [%rd1+1024]; cvt.u32.u16 d, %rs2;", "b32", "b32", 0x70008,
	 0, 0, 7},
	{"slct.u32.s32 d, a, b, c;", "b32", "b32", 11, 22, ONES32, 22},
	{"setp.lt.s32 p, a, b; selp.u32 d, 1, 0, p;", "b32", "b32", ONES32, 0, 0, 1},
	{"setp.lt.u32 p, a, b; selp.u32 d, 1, 0, p;", "b32", "b32", ONES32, 0, 0, 0},
	{"setp.ge.and.s64 p|q, a, b, !q; selp.u64 d, 1, 0, q;", "b64", "b64", 1, 2, 0, 1},
	{"setp.hi.u16 p, a, b; selp.b16 d, 1, 0, p;", "b16", "b16", 0xffff, 1, 0, 1},
	{"set.lt.u32.s32 d, a, b;", "b32", "b32", ONES32, 0, 0, ONES32},
	{"cvt.s32.s8 d, a;", "b32", "b32", 0x80, 0, 0, 0xffffff80},
	{"cvt.u16.u64 d, a;", "b16", "b64", 0x123456, 0, 0, 0x3456},
	{"cvt.s64.s32 d, a;", "b64", "b32", 0xfffffffe, 0, 0, (uint64_t)-2},
	{"cvt.sat.u8.s32 d, a;", "b32", "b32", 300, 0, 0, 255},
	{"cvt.sat.s16.s32 d, a;", "b32", "b32", 0x7fff, 0, 0, 0x7fff},
	{"cvt.sat.s16.s32 d, a;", "b32", "b32", 0x8000, 0, 0, 0x7fff},
	{"cvt.sat.u32.s64 d, a;", "b32", "b64", ONES64, 0, 0, 0},
	{"cvt.rzi.s32.f64 d, a;", "b32", "f64", 0xc1e0000000200000, 0, 0, 0x80000000},
	{"cvt.rzi.s32.f64 d, a;", "b32", "f64", 0x41dfffffffc00000, 0, 0, 0x7fffffff},
	{"cvt.rzi.u32.f64 d, a;", "b32", "f64", 0x41efffffffe00000, 0, 0, ONES32},
	{"cvt.rzi.u64.f64 d, a;", "b64", "f64", 0x43e0000000000000, 0, 0, TOP64},
	{"cvt.rzi.s64.f64 d, a;", "b64", "f64", 0xc3e0000000000000, 0, 0, TOP64},
	{"cvt.ftz.f64.f32 d, a;", "f64", "f32", 5, 0, 0, 0},
	{"cvt.ftz.rn.f32.f64 d, a;", "f32", "f64", 0x3690000000000000, 0, 0, 0},
	{"cvt.sat.f32.f32 d, a;", "f32", "f32", 0x40000000, 0, 0, 0x3f800000},
	{"cvt.sat.f32.f32 d, a;", "f32", "f32", 0xc0000000, 0, 0, 0},
	{"isspacep.global p, e; selp.u32 d, 1, 0, p;", "b32", "b32", 0, 0, 0, 1},
	{"isspacep.shared p, e; selp.u32 d, 1, 0, p;", "b32", "b32", 0, 0, 0, 0},
	{"cvta.shared.u64 e, 16; isspacep.shared p, e; selp.u32 d, 1, 0, p;", "b32", "b32", 0, 0, 0,
	 1},
	{"cvta.local.u64 e, 16; isspacep.local p, e; selp.u32 d, 1, 0, p;", "b32", "b32", 0, 0, 0,
	 1},
	{"cvt.sat.s8.s32 d, a;", "b32", "b32", 0xfffffe00, 0, 0, 0xffffff80},
	/* Floating point: 1 + 2^-24 is between 1 and its successor. */
	{"add.rn.f32 d, a, b;", "f32", "f32", 0x3f800000, 0x33800000, 0, 0x3f800000},
	{"add.rp.f32 d, a, b;", "f32", "f32", 0x3f800000, 0x33800000, 0, 0x3f800001},
	{"add.rm.f32 d, a, b;", "f32", "f32", 0x3f800000, 0xb3000000, 0, 0x3f7fffff},
	{"add.rz.f32 d, a, b;", "f32", "f32", 0xbf800000, 0xb3800000, 0, 0xbf800000},
	{"add.f32 d, a, b;", "f32", "f32", INF32, 0xff800000, 0, NAN32},
	{"add.f32 d, a, b;", "f32", "f32", 0xffc12345, 0, 0, NAN32},
	{"add.ftz.f32 d, a, b;", "f32", "f32", 1, 1, 0, 0},
	{"add.sat.f32 d, a, b;", "f32", "f32", 0x3f800000, 0x3f800000, 0, 0x3f800000},
	{"sub.f32 d, a, b;", "f32", "f32", 0x40400000, 0x3f800000, 0, 0x40000000},
	{"sub.rn.f64 d, a, b;", "f64", "f64", 0x4008000000000000, 0x3ff0000000000000, 0,
	 0x4000000000000000},
	{"mul.rn.f64 d, a, b;", "f64", "f64", 0x4008000000000000, 0x4000000000000000, 0,
	 0x4018000000000000},
	{"div.rn.f64 d, a, b;", "f64", "f64", 0x4018000000000000, 0x4000000000000000, 0,
	 0x4008000000000000},
	{"rcp.rn.f64 d, a;", "f64", "f64", 0x4000000000000000, 0, 0, 0x3fe0000000000000},
	{"sqrt.rn.f64 d, a;", "f64", "f64", 0x4010000000000000, 0, 0, 0x4000000000000000},
	{"rsqrt.approx.f64 d, a;", "f64", "f64", 0x4010000000000000, 0, 0, 0x3fe0000000000000},
	{"min.f64 d, a, b;", "f64", "f64", 0x4010000000000000, 0x4000000000000000, 0,
	 0x4000000000000000},
	{"sin.approx.f32 d, a;", "f32", "f32", 0x3fc90fdb, 0, 0, 0x3f800000},
	{"cos.approx.f32 d, a;", "f32", "f32", 0x40490fdb, 0, 0, 0xbf800000},
	{"tanh.approx.f32 d, a;", "f32", "f32", 0x42000000, 0, 0, 0x3f800000},
	{"sub.f16 d, a, b;", "b16", "b16", 0x4200, 0x3c00, 0, 0x4000},
	{"min.bf16 d, a, b;", "b16", "b16", 0x4040, 0xbf80, 0, 0xbf80},
	{"ex2.approx.f16 d, a;", "b16", "b16", 0x4000, 0, 0, 0x4400},
	{"tanh.approx.bf16 d, a;", "b16", "b16", 0x4200, 0, 0, 0x3f80},
	{"mul.rn.f32 d, a, b;", "f32", "f32", 0x40000000, 0x40400000, 0, 0x40c00000},
	{"div.rn.f32 d, a, b;", "f32", "f32", 0x3f800000, 0x40400000, 0, 0x3eaaaaab},
	{"div.rz.f32 d, a, b;", "f32", "f32", 0x3f800000, 0x40400000, 0, 0x3eaaaaaa},
	{"fma.rn.f32 d, a, b, c;", "f32", "f32", 0x3f800001, 0x3f800001, 0xbf800002, 0x28800000},
	{"min.f32 d, a, b;", "f32", "f32", 0x7fc00000, 0x3f800000, 0, 0x3f800000},
	{"min.NaN.f32 d, a, b;", "f32", "f32", 0x7fc00000, 0x3f800000, 0, NAN32},
	{"min.f32 d, a, b;", "f32", "f32", 0, 0x80000000, 0, 0x80000000},
	{"max.f32 d, a, b;", "f32", "f32", 0x80000000, 0, 0, 0},
	{"max.f32 d, a, b;", "f32", "f32", 0x40000000, 0x3f800000, 0, 0x40000000},
	{"rcp.rn.f32 d, a;", "f32", "f32", 0x40400000, 0, 0, 0x3eaaaaab},
	{"sqrt.rn.f32 d, a;", "f32", "f32", 0x40000000, 0, 0, 0x3fb504f3},
	{"rsqrt.approx.f32 d, a;", "f32", "f32", 0x40800000, 0, 0, 0x3f000000},
	{"ex2.approx.f32 d, a;", "f32", "f32", 0x40400000, 0, 0, 0x41000000},
	{"lg2.approx.f32 d, a;", "f32", "f32", 0x41000000, 0, 0, 0x40400000},
	{"abs.f32 d, a;", "f32", "f32", 0xff800000, 0, 0, INF32},
	{"neg.f64 d, a;", "f64", "f64", 0, 0, 0, TOP64},
	{"copysign.f32 d, a, b;", "f32", "f32", 0x80000000, 0x3f800000, 0, 0xbf800000},
	{"add.rn.f64 d, a, b;", "f64", "f64", 0x3ff0000000000000, 0x3ff0000000000000, 0,
	 0x4000000000000000},
	{"fma.rz.f64 d, a, b, c;", "f64", "f64", 0x3ff0000000000000, 0x3ff0000000000000,
	 0x3c90000000000000, 0x3ff0000000000000},
	{"max.f64 d, a, b;", "f64", "f64", 0x7ff8000000000000, 0x3ff0000000000000, 0,
	 0x3ff0000000000000},
	{"setp.ltu.f32 p, a, b; selp.f32 d, a, b, p;", "f32", "f32", 0x7fc00000, 1, 0, 0x7fc00000},
	{"setp.lt.f32 p, a, b; selp.f32 d, a, b, p;", "f32", "f32", 0x7fc00000, 1, 0, 1},
	{"setp.nan.f32 p, a, b; selp.f32 d, a, b, p;", "f32", "f32", 5, 1, 0, 1},
	{"cvt.rn.f32.s32 d, a;", "f32", "b32", 0x01000001, 0, 0, 0x4b800000},
	{"cvt.rp.f32.s32 d, a;", "f32", "b32", 0x01000001, 0, 0, 0x4b800001},
	{"cvt.rn.f32.u64 d, a;", "f32", "b64", 0xffffff8000000001, 0, 0, 0x5f800000},
	{"cvt.rz.f32.u64 d, a;", "f32", "b64", ONES64, 0, 0, 0x5f7fffff},
	{"cvt.rn.f64.s64 d, a;", "f64", "b64", (uint64_t)-3, 0, 0, 0xc008000000000000},
	{"cvt.rzi.s32.f32 d, a;", "b32", "f32", 0xc0200000, 0, 0, 0xfffffffe},
	{"cvt.rni.s32.f32 d, a;", "b32", "f32", 0x40200000, 0, 0, 2},
	{"cvt.rmi.s32.f32 d, a;", "b32", "f32", 0xc0200000, 0, 0, 0xfffffffd},
	{"cvt.rpi.u32.f32 d, a;", "b32", "f32", 0x40200000, 0, 0, 3},
	{"cvt.rzi.u32.f32 d, a;", "b32", "f32", 0xbf800000, 0, 0, 0},
	{"cvt.rzi.s32.f32 d, a;", "b32", "f32", 0x7fc00000, 0, 0, 0},
	{"cvt.rzi.s32.f32 d, a;", "b32", "f32", 0x4f800000, 0, 0, 0x7fffffff},
	{"cvt.rni.f32.f32 d, a;", "f32", "f32", 0x40200000, 0, 0, 0x40000000},
	{"cvt.rn.f32.f64 d, a;", "f32", "f64", 0x3ff0000010000000, 0, 0, 0x3f800000},
	{"cvt.f64.f32 d, a;", "f64", "f32", 0x3f800000, 0, 0, 0x3ff0000000000000},
	{"cvt.rn.f16.f32 d, a;", "b16", "f32", 0x477ff000, 0, 0, 0x7c00},
	{"cvt.rz.f16.f32 d, a;", "b16", "f32", 0x477ff000, 0, 0, 0x7bff},
	{"cvt.rn.f16.f32 d, a;", "b16", "f32", 0x33800000, 0, 0, 1},
	{"cvt.rn.f16.f32 d, a;", "b16", "f32", 0x33000000, 0, 0, 0},
	{"cvt.rn.f16.f32 d, a;", "b16", "f32", 0x7fc00000, 0, 0, 0x7fff},
	{"cvt.f32.f16 d, a;", "f32", "b16", 0x0001, 0, 0, 0x33800000},
	{"cvt.f32.f16 d, a;", "f32", "b16", 0xfc00, 0, 0, 0xff800000},
	{"cvt.rn.bf16.f32 d, a;", "b16", "f32", 0x3f808000, 0, 0, 0x3f80},
	{"cvt.rn.bf16.f32 d, a;", "b16", "f32", 0x3f818000, 0, 0, 0x3f82},
	{"cvt.f32.bf16 d, a;", "f32", "b16", 0xc040, 0, 0, 0xc0400000},
	{"cvt.rn.f16x2.f32 d, a, b;", "b32", "f32", 0x3f800000, 0x40000000, 0, 0x3c004000},
	{"cvt.rn.f16.s32 d, a;", "b16", "b32", 2049, 0, 0, 0x6800},
	/* 1 and -448; 17 between 16 and 18; what is too large; the smallest, and half of it */
	{"cvt.rn.satfinite.e4m3x2.f32 d, a, b;", "b16", "f32", 0x3f800000, 0xc3e00000, 0, 0x38fe},
	{"cvt.rn.satfinite.e4m3x2.f32 d, a, b;", "b16", "f32", 0x41880000, 0x7f800000, 0, 0x587e},
	{"cvt.rn.satfinite.e4m3x2.f32 d, a, b;", "b16", "f32", 0x3b000000, 0x3a800000, 0, 0x0100},
	{"cvt.rn.satfinite.e5m2x2.f32 d, a, b;", "b16", "f32", 0x7fc00000, 0x47800000, 0, 0x7f7b},
	{"cvt.rn.satfinite.e4m3x2.f32 d, a, b;", "b16", "f32", 0, 0x80000000, 0, 0x0080},
	{"cvt.rn.satfinite.e5m2x2.f16x2 d, a;", "b16", "b32", 0x3c00c080, 0, 0, 0x3cc0},
	{"cvt.rn.f16x2.e4m3x2 d, a;", "b32", "b16", 0x3801, 0, 0, 0x3c001800},
	{"cvt.rn.f16x2.e5m2x2 d, a;", "b32", "b16", 0xbc7c, 0, 0, 0xbc007c00},
	{"add.f16 d, a, b;", "b16", "b16", 0x3c00, 0x1000, 0, 0x3c00},
	{"add.f16x2 d, a, b;", "b32", "b32", 0x3c004000, 0x3c003c00, 0, 0x40004200},
	{"fma.rn.f16 d, a, b, c;", "b16", "b16", 0x4000, 0x4000, 0x3c00, 0x4500},
	{"mul.bf16x2 d, a, b;", "b32", "b32", 0x3f804000, 0x40004000, 0, 0x40004080},
	{"max.f16 d, a, b;", "b16", "b16", 0x7e00, 0x3c00, 0, 0x3c00},
	{"neg.f16x2 d, a;", "b32", "b32", 0x3c004000, 0, 0, 0xbc00c000},
	{"testp.infinite.f32 p, a; selp.f32 d, b, c, p;", "f32", "f32", INF32, 4, 5, 4},
	{"cvt.rzi.s32.f64 d, a;", "b32", "f64", 0x7ff8000000000000, 0, 0, 0x80000000},
	{"cvt.rzi.s64.f32 d, a;", "b64", "f32", 0x7fc00000, 0, 0, TOP64},
	{"mad.wide.s32 d, a, 4, -8;", "b64", "b32", 10, 0, 0, 32},
	{"slct.b64.s32 d, -1, 0, c;", "b64", "b32", 0, 0, 1, ONES64},
	{"slct.b32.f32 d, 11, 22, c;", "b32", "f32", 0, 0, 0x80000000, 11},
	{"slct.b32.f32 d, 11, 22, c;", "b32", "f32", 0, 0, 0x7fc00000, 22},
	{"set.lt.u32.f32 d, a, b;", "b32", "f32", 0xbf800000, 0x3f800000, 0, ONES32},
	{"set.eq.u32.f32 d, a, a;", "b32", "f32", 0x7fc00000, 0, 0, 0},
	{"set.lt.f32.f32 d, a, b;", "f32", "f32", 0xbf800000, 0x3f800000, 0, 0x3f800000},
	{"set.eq.u32.f16x2 d, a, b;", "b32", "b32", 0x3c003c00, 0x3c004000, 0, 0xffff0000},
	{"set.lt.f16x2.f16x2 d, a, b;", "b32", "b32", 0x3c003c00, 0x3c004000, 0, 0x00003c00},
	{"set.nan.bf16.bf16 d, a, b;", "b16", "b16", 0x7fff, 0, 0, 0x3f80},
	{"mov.b32 d, {-1, a};", "b32", "b16", 0x1234, 0, 0, 0x1234ffff},
	{"fma.rn.bf16 d, a, b, c;", "b16", "b16", 0x420c, 0x4130, 0x2180, 0x43c1},
	{"fma.rn.f16 d, a, b, c;", "b16", "b16", 0x3c01, 0x0bfe, 0x3801, 0x3801},
	{"fma.rn.sat.f16 d, a, b, c;", "b16", "b16", 0x3c01, 0x0bfe, 0x3801, 0x3801},
	{"cvt.rn.bf16.s32 d, a;", "b16", "b32", 0x40400001, 0, 0, 0x4e81},
	{"setp.eq.ftz.f16 p, a, b; selp.b16 d, 1, 0, p;", "b16", "b16", 1, 0, 0, 1},
	{"setp.eq.and.f16x2 p|q, a, b, q; selp.b32 d, 1, 0, p;", "b32", "b32", 0x3c003c00,
	 0x3c003c00, 0, 0},
	{"bmsk.clamp.b32 d, a, b;", "b32", "b32", 3, 4, 0, 0x78},
	{"bmsk.clamp.b32 d, a, b;", "b32", "b32", 32, 4, 0, 0},
	{"bmsk.wrap.b32 d, a, b;", "b32", "b32", 33, 34, 0, 6},
	{"bfind.shiftamt.u32 d, a;", "b32", "b32", 0x1000, 0, 0, 19},
	{"bfind.shiftamt.s32 d, a;", "b32", "b32", ONES32, 0, 0, ONES32},
	{"{ .reg .b32 %r2; mov.u32 %r2, 9; } mov.u32 d, %r2;", "b32", "b32", 0, 0, 0, 0},
	{".reg.f32 f; mov.f32 f, 0f3F800000; mov.f32 d, f;", "f32", "f32", 0, 0, 0, 0x3f800000},
	{".shared .align 4 .b8 s[64]; mov.u32 %r3, s; add.u32 %r3, %r3, -8;"
	 "st.shared.u32 [s+8], 77; ld.shared.u32 d, [%r3+16];",
	 "b32", "b32", 0, 0, 0, 77},
	{"and.pred p, p, !q; selp.u32 d, 1, 2, p;", "b32", "b32", 0, 0, 0, 1},
	{"@p add.u32 d, a, b; @!p add.u32 d, a, c;", "b32", "b32", 1, 2, 3, 3},
	{"@q mov.u32 d, 5; @!q mov.u32 d, 6;", "b32", "b32", 1, 2, 3, 6},
};

static unsigned bytes_of(const char *type)
{
	return (unsigned)atoi(type + 1) / 8;
}

static void instructions(void **state)
{
	enum { LANES = 33 };

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct row *row = &rows[i];
		char text[2048];
		uint64_t out = 0;

		snprintf(text, sizeof(text),
			 "%s.reg .pred p, q; .reg .%s d; .reg .%s a, b, c; .reg .b64 e;"
			 "setp.eq.u32 p|q, 1, 1;\n mov.b64 e, 0x700000000;"
			 "ld.global.%s a, [%%rd1+1024]; ld.global.%s b, [%%rd1+1032];"
			 "ld.global.%s c, [%%rd1+1040];\n%s\n"
			 "mul.wide.u32 %%rd3, %%r1, 8; add.s64 %%rd3, %%rd3, %%rd1;\n"
			 "st.global.%s [%%rd3], d;" TAIL,
			 HEAD, row->to, row->from, row->from, row->from, row->from, row->code,
			 row->to);
		memset(memory, 0xee, 1024);
		memcpy(memory + 1024, &row->a, 8);
		memcpy(memory + 1032, &row->b, 8);
		memcpy(memory + 1040, &row->c, 8);
		well(run(text, LANES, i + 1));
		for (unsigned lane = 0; lane < LANES; lane++) {
			memcpy(&out, memory + 8 * lane, bytes_of(row->to));
			if (out != row->expected)
				print_error("%s of %#llx, %#llx, %#llx: %#llx\n", row->code,
					    (unsigned long long)row->a, (unsigned long long)row->b,
					    (unsigned long long)row->c, (unsigned long long)out);
			assert_int_equal(out, row->expected);
		}
	}
}

/* ---- half precision against the definition: the nearest number, of two the even one ---- */

static void halves_round_to_nearest(void **state)
{
	const struct ptx_type half = {PTX_FLOAT, 16, false}, brain = {PTX_BFLOAT, 16, false};

	(void)state;
	for (uint32_t bits = 0; bits < 0x7c00; bits++) {
		double value = ptx_widen(&half, bits), next = ptx_widen(&half, bits + 1);

		assert_int_equal(ptx_narrow(&half, value, PTX_NEAREST), bits);
		assert_int_equal(ptx_narrow(&half, -value, PTX_NEAREST), bits | 0x8000);
		if (bits + 1 == 0x7c00)
			next = 65536;
		assert_int_equal(ptx_narrow(&half, (value + next) / 2, PTX_NEAREST),
				 bits + (bits & 1));
		assert_int_equal(ptx_narrow(&half, nextafter((value + next) / 2, 1e9), PTX_NEAREST),
				 bits + 1);
		assert_int_equal(ptx_narrow(&half, nextafter(next, 0), PTX_ZERO), bits);
	}
	for (uint32_t bits = 0; bits < 0x7f80; bits++)
		assert_int_equal(ptx_narrow(&brain, ptx_widen(&brain, bits), PTX_NEAREST), bits);
}

/* ---- threads ---- */

static const char sum_text[] = HEAD /* of 1 ... n by shared memory and barriers, in halves */
	".shared .align 4 .b8 room[4096];\n"
	"mov.u32 %r2, room; shl.b32 %r3, %r1, 2; add.u32 %r2, %r2, %r3; add.u32 %r4, %r1, 1;\n"
	"st.shared.u32 [%r2], %r4; mov.u32 %r5, %ntid.x;\n"
	"$more: shr.u32 %r5, %r5, 1; bar.sync 0; setp.eq.u32 %p1, %r5, 0; @%p1 bra $done;\n"
	"setp.ge.u32 %p2, %r1, %r5; @%p2 bra $more;\n"
	"shl.b32 %r6, %r5, 2; add.u32 %r7, %r2, %r6; ld.shared.u32 %r8, [%r7];\n"
	"ld.shared.u32 %r9, [%r2]; add.u32 %r9, %r9, %r8; st.shared.u32 [%r2], %r9; bra.uni $more;\n"
	"$done: setp.ne.u32 %p1, %r1, 0; @%p1 bra $end; ld.shared.u32 %r8, [room];\n"
	"st.global.u32 [%rd1], %r8;\n$end:" TAIL;

static void barriers_order_threads(void **state)
{
	(void)state;
	for (uint32_t threads = 1; threads <= 1024; threads *= 4) {
		for (uint64_t seed = 1; seed < 6; seed++) {
			words()[0] = 0;
			well(run(sum_text, threads, seed));
			assert_int_equal(words()[0], threads * (threads + 1) / 2);
		}
	}
}

/* Each thread takes what the one before it left, in the order of a word that they look at. */
static void threads_that_wait_for_each_other_go_on(void **state)
{
	static const char text[] = HEAD
		"$look: ld.relaxed.gpu.global.u32 %r2, [%rd1]; setp.ne.u32 %p1, %r2, %r1;\n"
		"@%p1 bra $look; add.u32 %r2, %r2, 1; st.release.gpu.global.u32 [%rd1], %r2;" TAIL;

	(void)state;
	for (uint64_t seed = 1; seed < 4; seed++) {
		words()[0] = 0;
		pauses = 0;
		well(run(text, 70, seed));
		assert_int_equal(words()[0], 70);
		assert_true(pauses > 0);
	}
}

static void atomics_count_every_thread(void **state)
{
	static const char text[] = HEAD
		"atom.global.add.u32 %r2, [%rd1], 1; red.global.add.f32 [%rd1+4], 0f3F000000;\n"
		"atom.global.max.s32 %r3, [%rd1+8], %r1; atom.global.inc.u32 %r4, [%rd1+12], 6;\n"
		"atom.global.cas.b32 %r5, [%rd1+16], 0, 77; atom.global.exch.b32 %r6, [%rd1+20], %r1;\n"
		"red.global.add.u64 [%rd1+24], 3; atom.global.min.s32 %r7, [%rd1+32], -5;\n"
		"atom.global.dec.u32 %r8, [%rd1+36], 9; red.global.or.b32 [%rd1+40], %r1;" TAIL;
	float sum;

	(void)state;
	memset(memory, 0, 64);
	well(run(text, 100, 5));
	memcpy(&sum, memory + 4, 4);
	assert_int_equal(words()[0], 100);
	assert_true(sum == 50);
	assert_int_equal(words()[2], 99);
	assert_int_equal(words()[3], 100 % 7);
	assert_int_equal(words()[4], 77);
	assert_true(words()[5] < 100);
	assert_int_equal(words()[6], 300);
	assert_int_equal((int)words()[8], -5);
	assert_int_equal(words()[9], 0);
	assert_int_equal(words()[10], 127);
}

static void atomics_of_vectors(void **state)
{
	static const char text[] = HEAD
		"mov.b32 %r1, 0f3F800000; mov.b32 %r2, 0f40000000;\n"
		"atom.global.add.v2.f32 {%r3, %r4}, [%rd1], {%r1, %r2};\n"
		"red.global.add.v4.f32 [%rd1+16], {%r1, %r2, %r1, %r2};\n"
		"mov.b32 %r5, 0x40003C00; red.global.add.noftz.v2.f16x2 [%rd1+32], {%r5, %r5};\n"
		"atom.global.add.v2.f32 {_, %r4}, [%rd1+40], {%r1, %r2}; st.global.b32 [%rd1+48], %r4;" TAIL;
	static const float wanted[8] = {40, 80, 0, 0, 40, 80, 40, 80};

	(void)state;
	memset(memory, 0, 64);
	well(run(text, 40, 5));
	assert_memory_equal(memory, wanted, sizeof(wanted));
	/* Sums of 40 and 80 in half precision, two to a word. */
	assert_int_equal(words()[8], 0x55005100);
	assert_int_equal(words()[9], 0x55005100);
}

static void the_nth_bit_is_found(void **state)
{
	static const struct {
		uint32_t mask, base;
		int32_t n;
		uint32_t wanted;
	} cases[] = {{0xf0, 4, 0, 4},      {0xf0, 3, 0, ~0U},       {0xf0, 0, 1, 4},
		     {0xf0, 0, 4, 7},      {0xf0, 0, 5, ~0U},       {0xf0, 31, -1, 7},
		     {0xf0, 6, -3, 4},     {0xf0, 6, -4, ~0U},      {0xf0, 32, 1, ~0U},
		     {1U << 31, 0, 1, 31}, {1, 31, INT32_MIN, ~0U}, {1, 0, -1, 0}};
	char text[2048];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(text, sizeof(text),
			 "%sfns.b32 %%r1, %u, %u, %d; st.global.u32 [%%rd1], %%r1;%s", HEAD,
			 cases[i].mask, cases[i].base, cases[i].n, TAIL);
		words()[0] = 77;
		well(run(text, 1, 5));
		assert_int_equal(words()[0], cases[i].wanted);
	}
}

/* ---- warps ---- */

/* Expect this of each thread, which leaves a word. */
static void each(const char *code, uint32_t threads, uint32_t (*expected)(uint32_t thread))
{
	char text[2048];

	snprintf(text, sizeof(text), "%s%s\nst.global.u32 [%%rd2], %%r2;" TAIL, HEAD, code);
	for (uint64_t seed = 1; seed < 6; seed++) {
		memset(memory, 0xee, 16384);
		well(run(text, threads, seed));
		for (uint32_t i = 0; i < threads; i++)
			assert_int_equal(words()[i], expected(i));
	}
}

static uint32_t ballot_of_odd(uint32_t thread)
{
	return thread < 32 ? 0xaaaaaaaa : 0xaa;
}

static uint32_t rotated(uint32_t thread)
{
	return thread / 32 * 32 + (thread + 1) % 32;
}

static uint32_t from_below(uint32_t thread)
{
	return thread % 32 < 3 ? thread : thread - 3;
}

static uint32_t from_above_in_eights(uint32_t thread)
{
	return thread % 8 >= 6 ? 1000 + thread : thread + 2;
}

static uint32_t turned(uint32_t thread)
{
	return thread ^ 5;
}

static uint32_t matches(uint32_t thread)
{
	return UINT32_C(0x11111111) << (thread & 3);
}

static uint32_t sum_of_lanes(uint32_t thread)
{
	(void)thread;
	return 31 * 16;
}

static uint32_t is_odd_met(uint32_t thread)
{
	return thread & 1 ? 0xaaaaaaaa : 0x55555555;
}

static uint32_t counted(uint32_t thread)
{
	(void)thread;
	return 30;
}

static uint32_t mask_below(uint32_t thread)
{
	return (UINT32_C(1) << thread % 32) - 1;
}

static void lanes_work_together(void **state)
{
	(void)state;
	each("and.b32 %r3, %r1, 1; setp.ne.u32 %p1, %r3, 0;"
	     "setp.lt.u32 %p2, %r1, 32; selp.b32 %r4, -1, 255, %p2;"
	     "vote.sync.ballot.b32 %r2, %p1, %r4;",
	     40, ballot_of_odd);
	each("add.u32 %r3, %r1, 1; shfl.sync.idx.b32 %r2|%p1, %r1, %r3, 31, -1;", 64, rotated);
	each("shfl.sync.up.b32 %r2, %r1, 3, 0, -1;", 64, from_below);
	each("shfl.sync.down.b32 %r2|%p1, %r1, 2, 0x1807, -1; @!%p1 add.u32 %r2, %r1, 1000;", 32,
	     from_above_in_eights);
	each("shfl.sync.bfly.b32 %r2, %r1, 5, 31, 0xffffffff;", 32, turned);
	each("and.b32 %r3, %r1, 3; match.any.sync.b32 %r2, %r3, 0xffffffff;", 64, matches);
	each("and.b32 %r3, %r1, 31; redux.sync.add.s32 %r2, %r3, -1;", 64, sum_of_lanes);
	each("mov.u32 %r2, %lanemask_lt;", 64, mask_below);
	/* Lanes that have parted meet by halves. */
	each("and.b32 %r3, %r1, 1; setp.ne.u32 %p1, %r3, 0; @%p1 bra $odd;"
	     "bar.warp.sync 0x55555555; vote.sync.ballot.b32 %r2, 1, 0x55555555; bra $met;"
	     "$odd: bar.warp.sync 0xaaaaaaaa; vote.sync.ballot.b32 %r2, 1, 0xaaaaaaaa; $met:",
	     32, is_odd_met);
	each("setp.ge.u32 %p1, %r1, 10; bar.red.popc.u32 %r2, 0, %p1;", 40, counted);
	/* From different places, and a barrier for whole warps of which lanes are missing. */
	each("setp.lt.u32 %p1, %r1, 16; @%p1 bra $a; shfl.sync.bfly.b32 %r2, %r1, 5, 31, -1;"
	     "bra $end; $a: shfl.sync.bfly.b32 %r2, %r1, 5, 31, -1; $end: bar.sync 1, 32;",
	     32, turned);
	each("bar.sync 1, 64; mov.u32 %r2, 30;", 40, counted);
	/* A warp that only says that it has been there, and ends, is counted once: the third is
	 * late. */
	each("mov.u32 %r2, 30; setp.ge.u32 %p1, %r1, 32; @%p1 bra $waits; st.global.u32 [%rd2], %r2;"
	     "bar.arrive 1, 96; exit; $waits: setp.lt.u32 %p2, %r1, 64; @%p2 bra $comes; mov.u32 %r5, 0;"
	     "$late: add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, 5000; @%p3 bra $late;"
	     "st.global.u32 [%rd1+8192], %r2; $comes: bar.sync 1, 96; ld.global.u32 %r2, [%rd1+8192];",
	     96, counted);
	/* Those that have ended are not waited for. */
	each("mov.u32 %r2, 30; st.global.u32 [%rd2], %r2; setp.lt.u32 %p1, %r1, 4; @%p1 exit;"
	     "bar.sync 0; bar.warp.sync -1;",
	     40, counted);
}

/* ---- functions, local memory, branches by a table, printf ---- */

static void functions_are_called(void **state)
{
	static const char text[] =
		".version 8.0\n.target sm_80\n.address_size 64\n"
		".func (.param .b32 out) fib(.param .b32 n)\n{\n"
		".reg .b32 %r<8>; .reg .pred %p<2>;\n"
		"ld.param.u32 %r1, [n]; setp.lt.u32 %p1, %r1, 2; @%p1 bra $leaf;\n"
		"{ .param .b32 a; .param .b32 b; sub.u32 %r2, %r1, 1; st.param.b32 [a], %r2;\n"
		"call.uni (b), fib, (a); ld.param.b32 %r3, [b]; }\n"
		"{ .param .b32 a; .param .b32 b; sub.u32 %r2, %r1, 2; st.param.b32 [a+0], %r2;\n"
		"call.uni (b), fib, (a); ld.param.b32 %r4, [b+0]; }\n"
		"add.u32 %r1, %r3, %r4;\n$leaf: st.param.b32 [out], %r1; ret;\n}\n"
		".visible .entry k(.param .u64 k_param_0)\n{\n.reg .b64 %rd<4>; .reg .b32 %r<8>;\n"
		".local .align 8 .b8 depot[64]; .reg .b64 %SP; .reg .b64 %SPL;\n"
		"mov.u64 %SPL, depot; cvta.local.u64 %SP, %SPL; ld.param.u64 %rd1, [k_param_0];\n"
		"mov.u32 %r1, %tid.x; rem.u32 %r2, %r1, 12; st.u32 [%SP+8], %r2;\n"
		"{ .param .b32 p; .param .b32 q; ld.local.u32 %r3, [%SPL+8]; st.param.b32 [p], %r3;\n"
		"call.uni (q), fib, (p); ld.param.b32 %r4, [q]; }\n"
		"mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd2, %rd1; st.global.u32 [%rd2], %r4;\n"
		"ret;\n}\n";
	static const uint32_t fib[] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89};

	(void)state;
	well(run(text, 50, 3));
	for (uint32_t i = 0; i < 50; i++)
		assert_int_equal(words()[i], fib[i % 12]);
}

static uint32_t of_table(uint32_t thread)
{
	static const uint32_t table[] = {10, 20, 30};

	return table[thread % 3];
}

static void branches_by_a_table(void **state)
{
	(void)state;
	each("rem.u32 %r3, %r1, 3; T: .branchtargets $a, $b, $c; brx.idx %r3, T;"
	     "$a: mov.u32 %r2, 10; bra $end; $b: mov.u32 %r2, 20; bra $end; $c: mov.u32 %r2, 30;"
	     "$end:",
	     64, of_table);
}

static void variables_have_their_values(void **state)
{
	static const char text[] =
		".version 8.0\n.target sm_80\n.address_size 64\n"
		".global .align 4 .u32 table[4] = {5, 6, 0x7, 8};\n"
		".visible .entry k(.param .u64 k_param_0)\n{\n.reg .b64 %rd<4>; .reg .b32 %r<8>;\n"
		"ld.param.u64 %rd1, [k_param_0]; ld.global.u32 %r1, [table+8];\n"
		"mov.u64 %rd2, table; cvta.global.u64 %rd2, %rd2; ld.u32 %r2, [%rd2+4];\n"
		"st.global.v2.u32 [%rd1], {%r1, %r2}; ret;\n}\n";

	(void)state;
	well(run(text, 1, 1));
	assert_int_equal(words()[0], 7);
	assert_int_equal(words()[1], 6);
}

static void dynamic_shared_memory_is_there(void **state)
{
	static const char text[] =
		".version 8.0\n.target sm_80\n.address_size 64\n"
		".extern .shared .align 16 .b8 room[];\n" HEAD ".shared .align 4 .u32 fixed;\n"
		"st.shared.u32 [fixed], 1; st.shared.u32 [room+60], 9; ld.shared.u32 %r2, [room+60];\n"
		"ld.shared.u32 %r3, [fixed]; add.u32 %r2, %r2, %r3; st.global.u32 [%rd1], %r2;\n"
		"mov.u32 %r4, %dynamic_smem_size; st.global.u32 [%rd1+4], %r4;" TAIL;

	(void)state;
	well(run_dynamic(text, 1, 1, 64));
	assert_int_equal(words()[0], 10);
	assert_int_equal(words()[1], 64);
	assert_int_equal(run_dynamic(text, 1, 1, 60).code, 700);
}

/* ---- what ends a launch ---- */

static void fails(const char *code, uint32_t threads, int error, const char *said)
{
	char text[2048];
	struct ptx_end end;

	snprintf(text, sizeof(text), "%s%s\n" TAIL, HEAD, code);
	end = run(text, threads, 1);
	if (end.code != error || !strstr(end.text, said))
		print_error("%s: %d, %s\n", code, end.code, end.text);
	assert_int_equal(end.code, error);
	assert_non_null(strstr(end.text, said));
}

static void errors_end_the_launch(void **state)
{
	(void)state;
	fails("ld.global.u64 %rd3, [%rd1+4];", 1, 716, "no multiple");
	fails("st.global.v2.u64 [%rd1+8], {%rd1, %rd1};", 1, 716, "16 bytes at");
	fails("add.s64 %rd3, %rd1, 65536; ld.global.u32 %r2, [%rd3];", 1, 700, "in no global");
	fails("mov.u64 %rd3, 0; st.u32 [%rd3], %r1;", 3, 700, "thread 0");
	fails(".shared .align 4 .b8 room[64]; setp.eq.u32 %p1, %r1, 37; @!%p1 bra $end;"
	      "st.shared.u32 [room+64], %r1; $end:",
	      64, 700, "thread 37");
	fails("setp.eq.u32 %p1, %r1, 1; @%p1 bra $end; $wait: bar.sync 0, 96; $end:", 40, 719,
	      "waits at barrier 0");
	fails("shfl.sync.idx.b32 %r2, %r1, 9, 31, 0xff;", 8, 719, "a shuffle from lane 9");
	fails("bar.warp.sync 0xfe;", 8, 719, "without this thread's lane 0");
	fails("st.param.u64 [k_param_0], %rd1;", 1, 700, "a kernel's parameters");
	fails("mov.u64 %rd3, 0; cvta.local.u64 %rd3, %rd3; st.shared.u32 [%rd3], 1;", 1, 700,
	      "in no shared");
	fails("bar.sync 0, 40;", 40, 719, "no whole warps");
	fails("setp.eq.u32 %p1, %r1, 5; @%p1 trap;", 8, 719, "thread 5");
	fails("setp.lt.u32 %p1, %r1, 8; @%p1 bra $a; bar.sync 1, 32; bra $end;"
	      "$a: bar.warp.sync 0xffff; $end:",
	      16, 719, "waits");
}

/* Each thread stores its number, and reads that of the next thread. */
#define STORE_OWN                                                                                  \
	".shared .align 4 .b8 room[512]; mov.u32 %r2, room; shl.b32 %r3, %r1, 2;"                  \
	"add.u32 %r2, %r2, %r3; mov.u32 %r5, %ntid.x; sub.u32 %r5, %r5, 1;"                        \
	"setp.eq.u32 %p2, %r1, %r5; mov.u32 %r6, 4; @%p2 mov.u32 %r6, 0;"                          \
	"st.shared.u32 [%r2], %r1; add.u32 %r6, %r2, %r6;"
#define LOAD_NEXT "ld.shared.u32 %r4, [%r6];"

/* Whatever the order in which threads go, by many seeds. */
static void is_well(const char *code, uint32_t threads)
{
	char text[2048];

	snprintf(text, sizeof(text), "%s%s\n" TAIL, HEAD, code);
	for (uint64_t seed = 1; seed < 40; seed++)
		well(run(text, threads, seed));
}

static void races_in_shared_memory_are_found(void **state)
{
	(void)state;
	is_well(STORE_OWN LOAD_NEXT, 64); /* as long as nobody asks */
	watches = true;
	fails(STORE_OWN LOAD_NEXT, 32, 719, "a race in shared memory with thread");
	is_well(STORE_OWN "bar.sync 0;" LOAD_NEXT, 96);
	is_well(STORE_OWN "bar.warp.sync 0xffffffff;" LOAD_NEXT, 32);
	fails(STORE_OWN "vote.sync.any.pred %p1, %p2, 0xffffffff;" LOAD_NEXT, 32, 719, "stores it");
	/* Between warps theirs orders nothing. */
	fails(STORE_OWN "bar.sync 0; bar.warp.sync 0xffffffff; st.shared.u32 [%r2], 7;"
			"bar.warp.sync 0xffffffff;" LOAD_NEXT,
	      64, 719, "a race in shared memory with thread");
	fails(STORE_OWN "bar.sync 0;" LOAD_NEXT "add.u32 %r4, %r4, 1; st.shared.u32 [%r2], %r4;",
	      32, 719, "reads it in line");
	is_well(STORE_OWN "bar.sync 0;" LOAD_NEXT "bar.sync 1; st.shared.u32 [%r2], %r4;", 64);
	watches = false;
}

static void what_orders_shared_memory_is_known(void **state)
{
	(void)state;
	watches = true;
	/* Thread 32 waits for a word that thread 0 stores behind its data. */
	is_well(".shared .align 4 .b8 room[8]; setp.ne.u32 %p1, %r1, 0; @%p1 bra $on;"
		"st.shared.u32 [room+4], 0; $on: bar.sync 0; @%p1 bra $other;"
		"st.shared.u32 [room], 5; st.volatile.shared.u32 [room+4], 1; bra $end;"
		"$other: setp.ne.u32 %p1, %r1, 32; @%p1 bra $end;"
		"$wait: ld.volatile.shared.u32 %r2, [room+4]; setp.eq.u32 %p1, %r2, 0;"
		"@%p1 bra $wait; ld.shared.u32 %r3, [room]; $end:",
		64);
	/* The same by a word of global memory; and not at all. */
	is_well(".shared .align 4 .b8 room[8]; st.volatile.global.u32 [%rd1], 0; bar.sync 0;"
		"setp.ne.u32 %p1, %r1, 0; @%p1 bra $other; st.shared.u32 [room], 5;"
		"st.release.gpu.global.u32 [%rd1], 1; bra $end;"
		"$other: setp.ne.u32 %p1, %r1, 32; @%p1 bra $end;"
		"$wait: ld.acquire.gpu.global.u32 %r2, [%rd1]; setp.eq.u32 %p1, %r2, 0;"
		"@%p1 bra $wait; ld.shared.u32 %r3, [room]; $end:",
		64);
	/* All count by an atomic operation, and look behind a barrier. */
	is_well(".shared .align 4 .b8 room[8]; setp.ne.u32 %p1, %r1, 0; @!%p1 st.shared.u32 [room], 0;"
		"bar.sync 0; atom.shared.add.u32 %r2, [room], 1; bar.sync 0; ld.shared.u32 %r3, [room];",
		96);
	fails(".shared .align 4 .b8 room[8]; setp.ne.u32 %p1, %r1, 0; @!%p1 st.shared.u32 [room], 0;"
	      "bar.sync 0; atom.shared.add.u32 %r2, [room], 1; ld.shared.u32 %r3, [room];",
	      32, 719, "a race in shared memory");
	/* One warp stores and goes on, the other waits. */
	is_well(STORE_OWN
		"setp.lt.u32 %p1, %r1, 32; @!%p1 bra $waits; bar.arrive 1, 64; bra $end;"
		"$waits: bar.sync 1, 64; sub.u32 %r2, %r2, 128; ld.shared.u32 %r4, [%r2]; $end:",
		64);
	/* The same from all. */
	is_well(".shared .align 4 .b8 room[8]; st.shared.u32 [room], 1;", 64);
	fails(".shared .align 4 .b8 room[8]; st.shared.u32 [room], %r1;", 32, 719, "stores it");
	watches = false;
}

static void what_nobody_has_stored_is_not_read(void **state)
{
	(void)state;
	watches = true;
	fails(".shared .align 4 .b8 room[64]; st.shared.u32 [room], 1; ld.shared.u32 %r2, [room+4];",
	      1, 719, "that nobody has stored to");
	fails(".shared .align 4 .b8 room[64]; atom.shared.add.u32 %r2, [room+4], 1;", 1, 719,
	      "that nobody has stored to");
	is_well(".shared .align 4 .b8 room[64]; st.shared.u8 [room+6], 1; ld.shared.u32 %r2, [room+4];",
		1);
	watches = false;
}

static void refuses(const char *text, const char *said)
{
	char error[256] = "";
	struct ptx_module *module = ptx_parse(text, place_at_end, error, sizeof(error));
	const char *why = module ? ptx_why_not(module, "k") : error;

	assert_non_null(why);
	assert_true(!module || !ptx_find_function(module, "k"));
	if (!strstr(why, said))
		print_error("%s: %s\n", text, why);
	assert_non_null(strstr(why, said));
	if (module)
		ptx_free(module);
}

#define COPY                                                                                       \
	".shared .align 16 .b8 room[64]; st.shared.u32 [room], 7; st.shared.u32 [room+16], 7;"     \
	"st.shared.u32 [room+20], 7; mov.u32 %r2, 5; st.global.u32 [%rd1+64], %r2;"                \
	"cp.async.ca.shared.global [room], [%rd1+64], 4; cp.async.commit_group;"                   \
	"cp.async.cg.shared.global.L2::128B [room+16], [%rd1+64], 16, 4; cp.async.commit_group;"

/* What is read before it has been waited for is what was there. */
static void copies_are_waited_for(void **state)
{
	(void)state;
	for (int checks = 0; checks < 2; checks++) {
		watches = checks;
		well(run(HEAD COPY "ld.shared.u32 %r3, [room]; cp.async.wait_group 1;"
				   "ld.shared.u32 %r4, [room]; ld.shared.u32 %r5, [room+16];"
				   "cp.async.wait_group 0; ld.shared.u32 %r6, [room+16];"
				   "ld.shared.u32 %r7, [room+20]; st.global.u32 [%rd1], %r3;"
				   "st.global.v4.u32 [%rd1+16], {%r4, %r5, %r6, %r7};" TAIL,
			 1, 1));
		assert_int_equal(words()[0], 7);
		assert_int_equal(words()[4], 5);
		assert_int_equal(words()[5], 7);
		assert_int_equal(words()[6], 5);
		assert_int_equal(words()[7], 0);
		well(run(HEAD COPY "cp.async.wait_all; ld.shared.u32 %r3, [room+20];"
				   "setp.eq.u32 %p1, %r3, %r3; mov.u32 %r4, 9;"
				   "st.shared.u32 [room+32], %r4;"
				   "cp.async.ca.shared.global [room+32], [%rd1+64], 4, %p1;"
				   "cp.async.wait_all; ld.shared.u32 %r4, [room+32];"
				   "st.global.v2.u32 [%rd1], {%r3, %r4};" TAIL,
			 1, 1));
		assert_int_equal(words()[0], 0);
		assert_int_equal(words()[1], 0);
	}
	fails(".shared .align 16 .b8 room[64]; cp.async.ca.shared.global [room], [%rd1+2], 4;", 1,
	      700, "not aligned");
	fails(".shared .align 16 .b8 room[64]; cp.async.ca.shared.global [room+4], [%rd1], 8;", 1,
	      716, "8 bytes at");
	fails(".shared .align 16 .b8 room[64]; cp.async.ca.shared.global [room], [%rd1], 4;"
	      "ld.shared.u32 %r2, [room];",
	      1, 719, "nobody has stored");
	fails(".shared .align 16 .b8 room[128]; shl.b32 %r2, %r1, 2; mov.u32 %r3, room;"
	      "add.u32 %r3, %r3, %r2; cp.async.ca.shared.global [%r3], [%rd1], 4;"
	      "cp.async.wait_all; xor.b32 %r3, %r3, 4; ld.shared.u32 %r2, [%r3];",
	      32, 719, "a race in shared memory");
	watches = false;
	refuses(HEAD "cp.async.bulk.commit_group;" TAIL, "cp.async.bulk");
}

static void what_is_not_interpreted_is_named(void **state)
{
	(void)state;
	refuses(HEAD "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f1, %f2}];" TAIL, "tex.2d");
	refuses(HEAD "wgmma.fence.sync.aligned;" TAIL, "wgmma");
	refuses(HEAD "max.f32 %f1, %f2, %f3, %f4;" TAIL, "with 4 operands");
	refuses(HEAD "add.u32 1, 2, 3;" TAIL, "not for a register");
	refuses(HEAD "mov.u32 %r1;" TAIL, "1 operands");
	refuses(HEAD "red.global.add.v2.f64 [%rd1], {%fd1, %fd2};" TAIL, "red.global.add.v2.f64");
	refuses(HEAD "red.global.min.v2.f32 [%rd1], {%f1, %f2};" TAIL, "red.global.min.v2.f32");
	refuses(HEAD "red.global.add.v4.f32 [%rd1], {%f1, %f2};" TAIL, "3 operands");
	refuses(HEAD "brx.idx %r1, $l; $l:" TAIL, "not what the branch needs");
	refuses(HEAD ".pragma \"nounroll", "expected");
	refuses(HEAD ".reg .b32 %many<2147483650>;" TAIL, "registers");
	refuses(HEAD ".shared .align 4 .b8 s[4294967280];" TAIL, "shared memory");
	refuses(HEAD "bra $nowhere;" TAIL, "no label $nowhere");
	refuses(HEAD "add.u32 %r1, %r99, 1;" TAIL, "%r99");
	refuses(HEAD "add.u32 %r1, %r2, 1", "expected");
	refuses(HEAD, "expected");
	refuses("nonsense", "nonsense");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(instructions),
		cmocka_unit_test(halves_round_to_nearest),
		cmocka_unit_test(barriers_order_threads),
		cmocka_unit_test(threads_that_wait_for_each_other_go_on),
		cmocka_unit_test(atomics_count_every_thread),
		cmocka_unit_test(atomics_of_vectors),
		cmocka_unit_test(the_nth_bit_is_found),
		cmocka_unit_test(lanes_work_together),
		cmocka_unit_test(functions_are_called),
		cmocka_unit_test(branches_by_a_table),
		cmocka_unit_test(variables_have_their_values),
		cmocka_unit_test(dynamic_shared_memory_is_there),
		cmocka_unit_test(errors_end_the_launch),
		cmocka_unit_test(races_in_shared_memory_are_found),
		cmocka_unit_test(what_orders_shared_memory_is_known),
		cmocka_unit_test(what_nobody_has_stored_is_not_read),
		cmocka_unit_test(copies_are_waited_for),
		cmocka_unit_test(what_is_not_interpreted_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
