/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One door to MPI's nonblocking calls and to those that are enqueued on a stream, so that each
 * collective of torch's is written once.
 */
#ifndef GPUCOLL_TORCH_CALL_H
#define GPUCOLL_TORCH_CALL_H

#include "job.h"

#include <deque>
#include <vector>

namespace gpucoll
{

/* How many elements each rank has, and where, in elements. */
struct Blocks {
	std::vector<int> counts, offsets;

	void add(int64_t elements);
	int64_t total() const;
};

class Call
{
      public:
	/* `stream`: a cudaStream_t that the communicator is for, or null for a nonblocking call. */
	explicit Call(MPI_Comm comm, void *stream = nullptr) : comm(comm), stream(stream)
	{
	}
	Call(const Call &) = delete;
	Call &operator=(const Call &) = delete;

	/* As MPI's. What fails throws; earlier calls of this one may be under way then. */
	void barrier();
	void broadcast(void *buffer, int64_t count, MPI_Datatype type, int root);
	void allreduce(void *buffer, int64_t count, MPI_Datatype type, MPI_Op op);
	void reduce(void *buffer, int64_t count, MPI_Datatype type, MPI_Op op, int root);
	void allgather(const void *send, void *recv, int count, MPI_Datatype type);
	void allgatherv(const void *send, int count, void *recv, Blocks blocks, MPI_Datatype type);
	void gatherv(const void *send, int count, void *recv, Blocks blocks, MPI_Datatype type,
		     int root);
	void scatterv(const void *send, Blocks blocks, void *recv, int count, MPI_Datatype type,
		      int root);
	void reduce_scatter(const void *send, void *recv, Blocks blocks, MPI_Datatype type,
			    MPI_Op op);
	void reduce_scatter_block(const void *send, void *recv, int count, MPI_Datatype type,
				  MPI_Op op);
	void alltoallv(const void *send, Blocks sent, void *recv, Blocks received,
		       MPI_Datatype type);
	void send(const void *buffer, int64_t count, MPI_Datatype type, int rank, int tag);
	void recv(void *buffer, int64_t count, MPI_Datatype type, int rank, int tag);

	/* Of nonblocking calls: what has been begun, to be tested by the caller. */
	std::vector<MPI_Request> requests;

      private:
	MPI_Request *begin();
	const Blocks &keep(Blocks blocks);

	MPI_Comm comm;
	void *stream;
	std::deque<Blocks> kept; /* the MPI reads them until the call has ended */
};

} // namespace gpucoll

#endif
