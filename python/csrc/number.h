/* SPDX-License-Identifier: BSD-3-Clause */
/* torch's element types and operations as MPI's. */
#ifndef GPUCOLL_TORCH_NUMBER_H
#define GPUCOLL_TORCH_NUMBER_H

#include "job.h"

#include <torch/csrc/distributed/c10d/Types.hpp>

namespace gpucoll
{

/* The type for moving a tensor's elements. */
MPI_Datatype number_type(const at::Tensor &tensor);

/* A number of elements as MPI takes it; throws for more than that. */
int number_count(int64_t elements);

/* What a reduction is to MPI, and what is done to a tensor before and after it. */
struct Reduction {
	Reduction(const c10d::ReduceOp &op, const at::Tensor &tensor);

	MPI_Datatype type;
	MPI_Op op;
	c10d::ReduceOp asked;

	/* Of PREMUL_SUM, what goes into the sum: a tensor of its own; else the tensor. */
	at::Tensor before(const at::Tensor &input) const;
	/* The same in place. */
	void before_in_place(at::Tensor &tensor) const;
	/* Of AVG, in place. */
	void after(at::Tensor &result, int size) const;
};

} // namespace gpucoll

#endif
