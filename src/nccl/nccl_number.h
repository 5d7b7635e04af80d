/* SPDX-License-Identifier: BSD-3-Clause */
/* Elements of NCCL's types on the host. */
#ifndef NCCL_NUMBER_H
#define NCCL_NUMBER_H

#include "gpucoll/nccl.h"

#include <stdbool.h>
#include <stdint.h>

/* Bytes of an element; 0: there is no such type. */
size_t nccl_number_size(ncclDataType_t type);

bool nccl_number_is_float(ncclDataType_t type);

/* An element of a type of floating point, rounded to nearest even; 8 bits stay finite. */
double nccl_number_load(ncclDataType_t type, const void *at);
void nccl_number_store(ncclDataType_t type, void *at, double value);

/* Multiply elements by one of their type; divide them by a number. */
void nccl_number_multiply(ncclDataType_t type, void *at, size_t count, const void *factor);
void nccl_number_divide(ncclDataType_t type, void *at, size_t count, int divisor);

#endif
