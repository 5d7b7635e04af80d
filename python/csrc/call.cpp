/* SPDX-License-Identifier: BSD-3-Clause */
#include "call.h"
#include "number.h"

#include <algorithm>
#include <climits>

namespace gpucoll
{

void Blocks::add(int64_t elements)
{
	offsets.push_back(number_count(total()));
	counts.push_back(number_count(elements));
}

int64_t Blocks::total() const
{
	return counts.empty() ? 0 : int64_t(offsets.back()) + counts.back();
}

MPI_Request *Call::begin()
{
	requests.push_back(MPI_REQUEST_NULL);
	return &requests.back();
}

const Blocks &Call::keep(Blocks blocks)
{
	kept.push_back(std::move(blocks));
	return kept.back();
}

/* Calls whose elements are independent, and more than MPI counts, are several, alike on all ranks.
 */
template <typename Part>
static void in_parts(void *buffer, int64_t count, MPI_Datatype type, Part part)
{
	int64_t done = 0;
	MPI_Aint lower, extent;

	MPI_Type_get_extent(type, &lower, &extent);
	do {
		int some = static_cast<int>(std::min<int64_t>(count - done, INT_MAX));

		part(static_cast<char *>(buffer) + done * extent, some);
		done += some;
	} while (done < count);
}

void Call::barrier()
{
	if (stream)
		return job_check(gpucoll_barrier_enqueue(comm, stream), "gpucoll_barrier_enqueue");
	job_check(MPI_Ibarrier(comm, begin()), "MPI_Ibarrier");
}

void Call::broadcast(void *buffer, int64_t count, MPI_Datatype type, int root)
{
	in_parts(buffer, count, type, [&](void *at, int n) {
		if (stream)
			return job_check(gpucoll_bcast_enqueue(at, n, type, root, comm, stream),
					 "gpucoll_bcast_enqueue");
		job_check(MPI_Ibcast(at, n, type, root, comm, begin()), "MPI_Ibcast");
	});
}

void Call::allreduce(void *buffer, int64_t count, MPI_Datatype type, MPI_Op op)
{
	in_parts(buffer, count, type, [&](void *at, int n) {
		if (stream)
			return job_check(gpucoll_allreduce_enqueue(MPI_IN_PLACE, at, n, type, op,
								   comm, stream),
					 "gpucoll_allreduce_enqueue");
		job_check(MPI_Iallreduce(MPI_IN_PLACE, at, n, type, op, comm, begin()),
			  "MPI_Iallreduce");
	});
}

void Call::reduce(void *buffer, int64_t count, MPI_Datatype type, MPI_Op op, int root)
{
	int me;

	MPI_Comm_rank(comm, &me);
	in_parts(buffer, count, type, [&](void *at, int n) {
		const void *in = me == root ? MPI_IN_PLACE : at;
		void *out = me == root ? at : nullptr;

		if (stream)
			return job_check(
				gpucoll_reduce_enqueue(in, out, n, type, op, root, comm, stream),
				"gpucoll_reduce_enqueue");
		job_check(MPI_Ireduce(in, out, n, type, op, root, comm, begin()), "MPI_Ireduce");
	});
}

void Call::allgather(const void *send, void *recv, int count, MPI_Datatype type)
{
	if (stream)
		return job_check(gpucoll_allgather_enqueue(send, count, type, recv, count, type,
							   comm, stream),
				 "gpucoll_allgather_enqueue");
	job_check(MPI_Iallgather(send, count, type, recv, count, type, comm, begin()),
		  "MPI_Iallgather");
}

void Call::allgatherv(const void *send, int count, void *recv, Blocks blocks, MPI_Datatype type)
{
	const Blocks &b = keep(std::move(blocks));

	if (stream)
		return job_check(gpucoll_allgatherv_enqueue(send, count, type, recv,
							    b.counts.data(), b.offsets.data(), type,
							    comm, stream),
				 "gpucoll_allgatherv_enqueue");
	job_check(MPI_Iallgatherv(send, count, type, recv, b.counts.data(), b.offsets.data(), type,
				  comm, begin()),
		  "MPI_Iallgatherv");
}

void Call::gatherv(const void *send, int count, void *recv, Blocks blocks, MPI_Datatype type,
		   int root)
{
	const Blocks &b = keep(std::move(blocks));

	if (stream)
		return job_check(gpucoll_gatherv_enqueue(send, count, type, recv, b.counts.data(),
							 b.offsets.data(), type, root, comm,
							 stream),
				 "gpucoll_gatherv_enqueue");
	job_check(MPI_Igatherv(send, count, type, recv, b.counts.data(), b.offsets.data(), type,
			       root, comm, begin()),
		  "MPI_Igatherv");
}

void Call::scatterv(const void *send, Blocks blocks, void *recv, int count, MPI_Datatype type,
		    int root)
{
	const Blocks &b = keep(std::move(blocks));

	if (stream)
		return job_check(gpucoll_scatterv_enqueue(send, b.counts.data(), b.offsets.data(),
							  type, recv, count, type, root, comm,
							  stream),
				 "gpucoll_scatterv_enqueue");
	job_check(MPI_Iscatterv(send, b.counts.data(), b.offsets.data(), type, recv, count, type,
				root, comm, begin()),
		  "MPI_Iscatterv");
}

void Call::reduce_scatter(const void *send, void *recv, Blocks blocks, MPI_Datatype type, MPI_Op op)
{
	const Blocks &b = keep(std::move(blocks));

	if (stream)
		return job_check(gpucoll_reduce_scatter_enqueue(send, recv, b.counts.data(), type,
								op, comm, stream),
				 "gpucoll_reduce_scatter_enqueue");
	job_check(MPI_Ireduce_scatter(send, recv, b.counts.data(), type, op, comm, begin()),
		  "MPI_Ireduce_scatter");
}

void Call::reduce_scatter_block(const void *send, void *recv, int count, MPI_Datatype type,
				MPI_Op op)
{
	if (stream)
		return job_check(gpucoll_reduce_scatter_block_enqueue(send, recv, count, type, op,
								      comm, stream),
				 "gpucoll_reduce_scatter_block_enqueue");
	job_check(MPI_Ireduce_scatter_block(send, recv, count, type, op, comm, begin()),
		  "MPI_Ireduce_scatter_block");
}

void Call::alltoallv(const void *send, Blocks sent, void *recv, Blocks received, MPI_Datatype type)
{
	const Blocks &s = keep(std::move(sent)), &r = keep(std::move(received));

	if (stream)
		return job_check(gpucoll_alltoallv_enqueue(send, s.counts.data(), s.offsets.data(),
							   type, recv, r.counts.data(),
							   r.offsets.data(), type, comm, stream),
				 "gpucoll_alltoallv_enqueue");
	job_check(MPI_Ialltoallv(send, s.counts.data(), s.offsets.data(), type, recv,
				 r.counts.data(), r.offsets.data(), type, comm, begin()),
		  "MPI_Ialltoallv");
}

void Call::send(const void *buffer, int64_t count, MPI_Datatype type, int rank, int tag)
{
	in_parts(const_cast<void *>(buffer), count, type, [&](void *at, int n) {
		job_check(MPI_Isend(at, n, type, rank, tag, comm, begin()), "MPI_Isend");
	});
}

void Call::recv(void *buffer, int64_t count, MPI_Datatype type, int rank, int tag)
{
	in_parts(buffer, count, type, [&](void *at, int n) {
		job_check(MPI_Irecv(at, n, type, rank, tag, comm, begin()), "MPI_Irecv");
	});
}

} // namespace gpucoll
