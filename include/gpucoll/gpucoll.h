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

/*
 * Whether messages that this thread begins from now on, from and to device buffers, wait first for
 * what is on the default streams, as they do unless GPUCOLL_WAIT_DEFAULT_STREAM is 0. A thread
 * whose buffers are ready says 0: what was put on a default stream since may itself wait for the
 * message. Of collectives it says nothing. Returns what it said before.
 */
int gpucoll_wait_default_stream(int waits);

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

/*
 * Collectives and messages in the order of a CUDA stream (see gpucoll-streams(7)).
 *
 * gpucoll_stream_comm makes a duplicate of a communicator for one stream (a cudaStream_t) of the
 * calling process; collective, and every process names a stream of its own. It ends by
 * MPI_Comm_free, which waits for what was enqueued on it. An intercommunicator has none.
 *
 * gpucoll_X_enqueue takes the arguments of MPI_X on such a communicator, and its stream. The call
 * is ordered on the stream as a kernel would be: its buffers are read and written after what was
 * put there before, and what is put there later comes after it. The host does not wait. All
 * processes enqueue the collectives of a communicator in one order. Buffers may be in device memory
 * or not; arrays and datatypes may be freed when the call returns; operations and datatypes of the
 * program's own that a reduction uses, and the status of a receive, when the stream has come past.
 *
 * On one node most collectives are kernels, which can be captured in a graph. All other calls need
 * MPI_THREAD_MULTIPLE, for which GPUCOLL_THREADS=multiple asks the MPI. Any thread may call them;
 * the calls of one communicator are ordered as they are made, one at a time.
 *
 * All return MPI_SUCCESS or an MPI error code, raised on the communicator: for what is known when
 * the call is made. What is found later is kept for gpucoll_stream_error, which tells the first
 * code since it was last asked; the stream goes on, with undefined results.
 */
int gpucoll_stream_comm(MPI_Comm comm, void *stream, MPI_Comm *newcomm);
int gpucoll_stream_error(MPI_Comm comm, int *error);
int gpucoll_barrier_enqueue(MPI_Comm comm, void *stream);
int gpucoll_bcast_enqueue(void *buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm,
			  void *stream);
int gpucoll_reduce_enqueue(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype,
			   MPI_Op op, int root, MPI_Comm comm, void *stream);
int gpucoll_allreduce_enqueue(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype,
			      MPI_Op op, MPI_Comm comm, void *stream);
int gpucoll_reduce_scatter_enqueue(const void *sendbuf, void *recvbuf, const int recvcounts[],
				   MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, void *stream);
int gpucoll_reduce_scatter_block_enqueue(const void *sendbuf, void *recvbuf, int count,
					 MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
					 void *stream);
int gpucoll_scan_enqueue(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype,
			 MPI_Op op, MPI_Comm comm, void *stream);
int gpucoll_exscan_enqueue(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype,
			   MPI_Op op, MPI_Comm comm, void *stream);
int gpucoll_gather_enqueue(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
			   int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm,
			   void *stream);
int gpucoll_gatherv_enqueue(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
			    void *recvbuf, const int recvcounts[], const int rdispls[],
			    MPI_Datatype recvtype, int root, MPI_Comm comm, void *stream);
int gpucoll_scatter_enqueue(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
			    void *recvbuf, int recvcount, MPI_Datatype recvtype, int root,
			    MPI_Comm comm, void *stream);
int gpucoll_scatterv_enqueue(const void *sendbuf, const int sendcounts[], const int sdispls[],
			     MPI_Datatype sendtype, void *recvbuf, int recvcount,
			     MPI_Datatype recvtype, int root, MPI_Comm comm, void *stream);
int gpucoll_allgather_enqueue(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
			      void *recvbuf, int recvcount, MPI_Datatype recvtype, MPI_Comm comm,
			      void *stream);
int gpucoll_allgatherv_enqueue(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
			       void *recvbuf, const int recvcounts[], const int rdispls[],
			       MPI_Datatype recvtype, MPI_Comm comm, void *stream);
int gpucoll_alltoall_enqueue(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
			     void *recvbuf, int recvcount, MPI_Datatype recvtype, MPI_Comm comm,
			     void *stream);
int gpucoll_alltoallv_enqueue(const void *sendbuf, const int sendcounts[], const int sdispls[],
			      MPI_Datatype sendtype, void *recvbuf, const int recvcounts[],
			      const int rdispls[], MPI_Datatype recvtype, MPI_Comm comm,
			      void *stream);
int gpucoll_alltoallw_enqueue(const void *sendbuf, const int sendcounts[], const int sdispls[],
			      const MPI_Datatype sendtypes[], void *recvbuf, const int recvcounts[],
			      const int rdispls[], const MPI_Datatype recvtypes[], MPI_Comm comm,
			      void *stream);
int gpucoll_neighbor_allgather_enqueue(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
				       void *recvbuf, int recvcount, MPI_Datatype recvtype,
				       MPI_Comm comm, void *stream);
int gpucoll_neighbor_allgatherv_enqueue(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
					void *recvbuf, const int recvcounts[], const int rdispls[],
					MPI_Datatype recvtype, MPI_Comm comm, void *stream);
int gpucoll_neighbor_alltoall_enqueue(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
				      void *recvbuf, int recvcount, MPI_Datatype recvtype,
				      MPI_Comm comm, void *stream);
int gpucoll_neighbor_alltoallv_enqueue(const void *sendbuf, const int sendcounts[],
				       const int sdispls[], MPI_Datatype sendtype, void *recvbuf,
				       const int recvcounts[], const int rdispls[],
				       MPI_Datatype recvtype, MPI_Comm comm, void *stream);
int gpucoll_neighbor_alltoallw_enqueue(const void *sendbuf, const int sendcounts[],
				       const MPI_Aint sdispls[], const MPI_Datatype sendtypes[],
				       void *recvbuf, const int recvcounts[],
				       const MPI_Aint rdispls[], const MPI_Datatype recvtypes[],
				       MPI_Comm comm, void *stream);
int gpucoll_send_enqueue(const void *buffer, int count, MPI_Datatype datatype, int dest, int tag,
			 MPI_Comm comm, void *stream);
int gpucoll_recv_enqueue(void *buffer, int count, MPI_Datatype datatype, int source, int tag,
			 MPI_Comm comm, MPI_Status *status, void *stream);

#endif

#ifdef __cplusplus
}
#endif

#endif
