/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpucoll-info --doctor: what this machine is found to do, what the library will do because of it,
 * and what can be done about it. For a new machine, and for reports of errors.
 */
#ifndef DOCTOR_H
#define DOCTOR_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Well; worth knowing; slower or less than it could be; does not work. */
enum doctor_level { DOCTOR_OK, DOCTOR_NOTE, DOCTOR_WARN, DOCTOR_BAD, DOCTOR_NUM_LEVELS };

/*
 * A line of the report. `found`: as printf. effect: what the library does because of it; remedy:
 * what the user can do; NULL: nothing to say.
 */
void doctor_say(enum doctor_level level, const char *topic, const char *effect, const char *remedy,
		const char *found, ...) __attribute__((format(printf, 5, 6)));

/* The driver's name of a result. */
const char *doctor_name_of(CUresult result);

/* The exit status: 0: nothing is DOCTOR_BAD. `json`: the report as JSON instead of text. */
int doctor_run(FILE *out, bool json);

/* ---- parts, each in a file of its own ---- */

/* The system: limits, shared memory, MPIs, UCX, NICs. No CUDA. */
void doctor_look_at_system(void);

/*
 * Processes that try each other's memory and kernels: forked here, or the ranks of a node under a
 * launcher. To be called before anything of CUDA. False: this process is one of the others, and is
 * done.
 */
bool doctor_look_at_pairs(void);

/* Handles of legacy IPC, by two processes that are forked for it; before anything of CUDA. */
void doctor_look_at_ipc(void);

/* Whether NVIDIA's MPS is there for processes that share a GPU. */
bool doctor_has_mps(void);

/* The driver's answers to what the library assumes, of the first device. Ends its context. */
void doctor_look_at_driver(void);

#endif
