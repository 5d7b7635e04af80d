/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/nccl_number.h"
#include "gpu/kernels/gpu_half.h"

#include <math.h>
#include <string.h>

size_t nccl_number_size(ncclDataType_t type)
{
	static const unsigned char sizes[ncclNumTypes] = {
		[ncclInt8] = 1,    [ncclUint8] = 1,    [ncclInt32] = 4,      [ncclUint32] = 4,
		[ncclInt64] = 8,   [ncclUint64] = 8,   [ncclFloat16] = 2,    [ncclFloat32] = 4,
		[ncclFloat64] = 8, [ncclBfloat16] = 2, [ncclFloat8e4m3] = 1, [ncclFloat8e5m2] = 1,
	};

	return (unsigned)type < ncclNumTypes ? sizes[type] : 0;
}

bool nccl_number_is_float(ncclDataType_t type)
{
	return type >= ncclFloat16;
}

/* ---- 8 bits: E4M3 has no infinity, and one NaN of each sign; E5M2 is binary16's upper half ----
 */

struct form {
	int mantissa, bias; /* bits of it; of the exponent */
	uint8_t largest;    /* the finite number */
};

static struct form form_of(ncclDataType_t type)
{
	return type == ncclFloat8e4m3 ? (struct form){3, 7, 0x7e} : (struct form){2, 15, 0x7b};
}

static double decode(ncclDataType_t type, uint8_t bits)
{
	struct form form = form_of(type);
	int exponent = (bits & 0x7f) >> form.mantissa;
	int fraction = bits & ((1 << form.mantissa) - 1);
	double value;

	if ((bits & 0x7f) > form.largest)
		value = type == ncclFloat8e5m2 && !fraction ? INFINITY : NAN;
	else if (exponent)
		value = ldexp(fraction + (1 << form.mantissa),
			      exponent - form.bias - form.mantissa);
	else
		value = ldexp(fraction, 1 - form.bias - form.mantissa);
	return bits & 0x80 ? -value : value;
}

static uint8_t encode(ncclDataType_t type, double value)
{
	struct form form = form_of(type);
	uint8_t sign = signbit(value) ? 0x80 : 0;
	int exponent;
	double units;

	if (isnan(value))
		return sign | 0x7f;
	value = fabs(value);
	if (value >= decode(type, form.largest))
		return sign | form.largest;
	/* Of zero it says nothing. */
	frexp(value, &exponent);
	if (value == 0 || exponent - 1 < 1 - form.bias)
		exponent = 2 - form.bias;
	exponent--;
	/* A carry out of the fraction goes into the exponent, as it should. */
	units = rint(ldexp(value, form.mantissa - exponent));
	return (uint8_t)(sign | (((exponent + form.bias - 1) << form.mantissa) + (int)units));
}

/* ---- elements ---- */

double nccl_number_load(ncclDataType_t type, const void *at)
{
	uint16_t half;
	float single;
	double value;

	switch (type) {
	case ncclFloat64:
		memcpy(&value, at, sizeof(value));
		return value;
	case ncclFloat32:
		memcpy(&single, at, sizeof(single));
		return single;
	case ncclFloat16:
	case ncclBfloat16:
		memcpy(&half, at, sizeof(half));
		return type == ncclFloat16 ? gpu_float16_to_float(half)
					   : gpu_bfloat16_to_float(half);
	default:
		return decode(type, *(const uint8_t *)at);
	}
}

void nccl_number_store(ncclDataType_t type, void *at, double value)
{
	float single = (float)value;
	uint16_t half;

	switch (type) {
	case ncclFloat64:
		memcpy(at, &value, sizeof(value));
		return;
	case ncclFloat32:
		memcpy(at, &single, sizeof(single));
		return;
	case ncclFloat16:
	case ncclBfloat16:
		half = type == ncclFloat16 ? gpu_float16_from_float(single)
					   : gpu_bfloat16_from_float(single);
		memcpy(at, &half, sizeof(half));
		return;
	default:
		*(uint8_t *)at = encode(type, value);
	}
}

/* The low bits of a product do not depend on signs. */
static uint64_t load_integer(ncclDataType_t type, const void *at)
{
	uint64_t value = 0;
	size_t size = nccl_number_size(type);
	bool is_signed = type == ncclInt8 || type == ncclInt32 || type == ncclInt64;

	memcpy(&value, at, size);
	if (is_signed && size < 8 && value >> (8 * size - 1))
		value |= UINT64_MAX << (8 * size);
	return value;
}

void nccl_number_multiply(ncclDataType_t type, void *at, size_t count, const void *factor)
{
	size_t size = nccl_number_size(type);
	bool is_float = nccl_number_is_float(type);
	double real = is_float ? nccl_number_load(type, factor) : 0;
	uint64_t whole = is_float ? 0 : load_integer(type, factor);
	char *element = at;

	for (size_t i = 0; i < count; i++, element += size) {
		if (is_float) {
			nccl_number_store(type, element, real * nccl_number_load(type, element));
		} else {
			uint64_t product = whole * load_integer(type, element);

			memcpy(element, &product, size);
		}
	}
}

void nccl_number_divide(ncclDataType_t type, void *at, size_t count, int divisor)
{
	size_t size = nccl_number_size(type);
	bool is_unsigned = type == ncclUint8 || type == ncclUint32 || type == ncclUint64;
	char *element = at;

	for (size_t i = 0; i < count; i++, element += size) {
		if (nccl_number_is_float(type)) {
			nccl_number_store(type, element, nccl_number_load(type, element) / divisor);
		} else {
			uint64_t value = load_integer(type, element);

			value = is_unsigned ? value / (uint64_t)divisor
					    : (uint64_t)((int64_t)value / divisor);
			memcpy(element, &value, size);
		}
	}
}
