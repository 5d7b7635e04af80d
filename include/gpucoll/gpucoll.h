/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The public interface of libgpucoll. No program needs it: the library works on MPI calls as they
 * are. It is for programs that want to ask. All functions may be called from any thread, also
 * before MPI_Init.
 *
 * A program that must also run without the library looks the functions up with dlsym(RTLD_DEFAULT,
 * ...).
 */
#ifndef GPUCOLL_H
#define GPUCOLL_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a collective was carried out. */
enum gpucoll_path {
	GPUCOLL_PATH_PASS = 0,  /* host buffers: the real MPI, untouched */
	GPUCOLL_PATH_STAGE = 1, /* device buffers through host memory and the real MPI */
	GPUCOLL_PATH_ACCEL = 2, /* GPU kernels over mapped memory */
};

/* The library's version, "MAJOR.MINOR.PATCH". */
const char *gpucoll_version(void);

/*
 * Switch the library off (0) or on in this process; off hands every call to the real MPI untouched.
 * Returns whether it was on.
 */
int gpucoll_enable(int on);

/*
 * Whether an address is device or managed memory as the library sees it. The address need not be
 * valid.
 */
int gpucoll_is_device_buffer(const void *address);

/* The path of the last collective that this thread made. */
enum gpucoll_path gpucoll_last_path(void);

/*
 * How many collectives this process has made by a path since MPI_Init, and how many bytes of its
 * buffers they read or wrote. Calls on host buffers are counted when GPUCOLL_STATS=1 only. Returns
 * 0, or -1 for a path that does not exist.
 */
int gpucoll_count_calls(enum gpucoll_path path, unsigned long long *calls,
			unsigned long long *bytes);

/*
 * Choose among these algorithms, protocols and numbers of channels from now on: texts as in
 * GPUCOLL_ALGO, GPUCOLL_PROTO and GPUCOLL_CHANNELS, or NULL for what the library chooses. The
 * wishes of a communicator's first rank count, and all its ranks should have the same. Not while a
 * collective is under way. Returns 0, or -1 where a text is not understood; nothing has changed
 * then.
 */
int gpucoll_set_algorithms(const char *algorithms, const char *protocols, const char *channels);

/*
 * How this thread's last collective (since gpucoll_enable(1)) was carried out, as a line of a
 * tuning file but for the time (see gpucoll-tune(1)), cut to `bytes` bytes. Returns 0, or -1 where
 * it was not accelerated, or short enough for there to be no choice.
 */
int gpucoll_last_choice(char *text, size_t bytes);

#ifdef MPI_VERSION /* after mpi.h */

/*
 * Datatypes of one 16-bit floating point number, which MPI has not: IEEE binary16 (CUDA's __half)
 * and bfloat16. MPI_SUM, MPI_PROD, MPI_MAX and MPI_MIN are valid on them in reductions, on device
 * and on host buffers; each operation is rounded to nearest even. They are committed, belong
 * to the library, and end with MPI_Finalize; a type made from one of them is for moving data only.
 * To be called after MPI_Init, by every process that takes part in a reduction. Returns MPI_SUCCESS
 * or an MPI error code.
 */
int gpucoll_type_float16(MPI_Datatype *type);
int gpucoll_type_bfloat16(MPI_Datatype *type);

#endif

#ifdef __cplusplus
}
#endif

#endif
