/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI's predefined datatypes and operations by numbers that are the same in all processes, as
 * handles, which may be addresses, are not. 0: not one of them.
 */
#ifndef CORE_MPI_PREDEFINED_H
#define CORE_MPI_PREDEFINED_H

#include "core/call/core_call.h"

/* Any thread. */
uint8_t core_mpi_type_number(core_handle type);
uint8_t core_mpi_op_number(core_handle op);

/* Whether its data may be received as another: of two numbers, as MPI_2INT; or MPI_PACKED. */
bool core_mpi_is_loose(core_handle type);

/* "MPI_INT", "MPI_SUM"; "derived", "user-defined". May be called in a signal's handler. */
const char *core_mpi_type_word(uint8_t number);
const char *core_mpi_op_word(uint8_t number);

#endif
