/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 16-bit floating point as bits: IEEE binary16 and bfloat16, to float and back, rounding to nearest
 * even. C, C++ and CUDA.
 */
#ifndef GPU_HALF_H
#define GPU_HALF_H

#include "gpu/kernels/gpu_types.h"

#include <stdint.h>
#include <string.h>

GPU_COMMON float gpu_float_of_bits(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

GPU_COMMON uint32_t gpu_bits_of_float(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

#ifdef __CUDACC__

GPU_COMMON float gpu_float16_to_float(uint16_t half)
{
	float value;

	asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
	return value;
}

GPU_COMMON uint16_t gpu_float16_from_float(float value)
{
	uint16_t half;

	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
	return half;
}

#else

GPU_COMMON float gpu_float16_to_float(uint16_t half)
{
	uint32_t sign = (uint32_t)(half & 0x8000) << 16, fraction = half & 0x3ff;
	uint32_t exponent = (half >> 10) & 31;

	if (exponent == 31)
		return gpu_float_of_bits(sign | 0x7f800000 | fraction << 13);
	if (exponent == 0) /* fraction * 2^-24, exactly */
		return gpu_float_of_bits(sign |
					 gpu_bits_of_float((float)fraction * (1.0f / (1 << 24))));
	return gpu_float_of_bits(sign | (exponent + 127 - 15) << 23 | fraction << 13);
}

GPU_COMMON uint16_t gpu_float16_from_float(float value)
{
	uint32_t bits = gpu_bits_of_float(value), sign = bits >> 16 & 0x8000;
	uint32_t rest = bits & 0x7fffffff;

	if (rest > 0x7f800000)
		return (uint16_t)(sign | 0x7e00);
	if (rest >= 0x477ff000) /* 65520, from which on it rounds to infinity */
		return (uint16_t)(sign | 0x7c00);
	if (rest < 0x38800000) { /* 2^-14: the last place of 0.5f is that of a subnormal */
		float shifted = gpu_float_of_bits(rest) + 0.5f;

		return (uint16_t)(sign | (gpu_bits_of_float(shifted) - 0x3f000000));
	}
	rest += 0xfff + (rest >> 13 & 1);
	return (uint16_t)(sign | (rest - 0x38000000) >> 13);
}

#endif

GPU_COMMON float gpu_bfloat16_to_float(uint16_t half)
{
	return gpu_float_of_bits((uint32_t)half << 16);
}

GPU_COMMON uint16_t gpu_bfloat16_from_float(float value)
{
	uint32_t bits = gpu_bits_of_float(value);

	if ((bits & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
