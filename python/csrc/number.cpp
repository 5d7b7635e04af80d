/* SPDX-License-Identifier: BSD-3-Clause */
#include "number.h"

#include <ATen/ATen.h>
#include <climits>

namespace gpucoll
{

static MPI_Datatype half(int (*make)(MPI_Datatype *), const char *name)
{
	MPI_Datatype type;

	job_check(make(&type), name);
	return type;
}

/* MPI_DATATYPE_NULL for a type of which MPI has no operations. */
static MPI_Datatype find(at::ScalarType type)
{
	switch (type) {
	case at::kBool:
	case at::kByte:
		return MPI_UINT8_T;
	case at::kChar:
		return MPI_INT8_T;
	case at::kShort:
		return MPI_INT16_T;
	case at::kUInt16:
		return MPI_UINT16_T;
	case at::kInt:
		return MPI_INT32_T;
	case at::kUInt32:
		return MPI_UINT32_T;
	case at::kLong:
		return MPI_INT64_T;
	case at::kUInt64:
		return MPI_UINT64_T;
	case at::kHalf:
		return half(gpucoll_type_float16, "gpucoll_type_float16");
	case at::kBFloat16:
		return half(gpucoll_type_bfloat16, "gpucoll_type_bfloat16");
	case at::kFloat:
		return MPI_FLOAT;
	case at::kDouble:
		return MPI_DOUBLE;
	case at::kComplexFloat:
		return MPI_C_FLOAT_COMPLEX;
	case at::kComplexDouble:
		return MPI_C_DOUBLE_COMPLEX;
	default:
		return MPI_DATATYPE_NULL;
	}
}

MPI_Datatype number_type(const at::Tensor &tensor)
{
	MPI_Datatype type = find(tensor.scalar_type());

	if (type != MPI_DATATYPE_NULL)
		return type;
	switch (tensor.element_size()) {
	case 1:
		return MPI_UINT8_T;
	case 2:
		return MPI_UINT16_T;
	case 4:
		return MPI_UINT32_T;
	default:
		TORCH_CHECK_TYPE(false, "gpucoll: tensors of ", tensor.scalar_type(),
				 " are not known");
	}
}

int number_count(int64_t elements)
{
	TORCH_CHECK(elements <= INT_MAX, "gpucoll: ", elements,
		    " elements in one block of a call; MPI takes 2^31 - 1");
	return static_cast<int>(elements);
}

static MPI_Op find_op(c10d::ReduceOp::RedOpType op, bool is_bool)
{
	switch (op) {
	case c10d::ReduceOp::SUM: /* of truth values: or */
		return is_bool ? MPI_MAX : MPI_SUM;
	case c10d::ReduceOp::AVG:
	case c10d::ReduceOp::PREMUL_SUM:
		return is_bool ? MPI_OP_NULL : MPI_SUM;
	case c10d::ReduceOp::PRODUCT:
		return is_bool ? MPI_MIN : MPI_PROD;
	case c10d::ReduceOp::MIN:
		return MPI_MIN;
	case c10d::ReduceOp::MAX:
		return MPI_MAX;
	case c10d::ReduceOp::BAND:
		return MPI_BAND;
	case c10d::ReduceOp::BOR:
		return MPI_BOR;
	case c10d::ReduceOp::BXOR:
		return MPI_BXOR;
	default:
		return MPI_OP_NULL;
	}
}

static const char *name_of(c10d::ReduceOp::RedOpType op)
{
	static const char *const names[] = {"SUM",  "AVG", "PRODUCT", "MIN",       "MAX",
					    "BAND", "BOR", "BXOR",    "PREMUL_SUM"};

	return op < std::size(names) ? names[op] : "of that number";
}

Reduction::Reduction(const c10d::ReduceOp &op_, const at::Tensor &tensor)
    : type(find(tensor.scalar_type())), op(find_op(op_, tensor.scalar_type() == at::kBool)),
      asked(op_)
{
	bool bits = op == MPI_BAND || op == MPI_BOR || op == MPI_BXOR;
	bool order = op == MPI_MIN || op == MPI_MAX;

	TORCH_CHECK_TYPE(type != MPI_DATATYPE_NULL && op != MPI_OP_NULL &&
				 !(bits && (tensor.is_floating_point() || tensor.is_complex())) &&
				 !(order && tensor.is_complex()),
			 "gpucoll: no reduction ", name_of(op_), " of ", tensor.scalar_type());
}

/* The factor is a number or a tensor of one. */
void Reduction::before_in_place(at::Tensor &tensor) const
{
	if (asked != c10d::ReduceOp::PREMUL_SUM)
		return;
	auto *scale = dynamic_cast<c10d::NCCLPreMulSumSupplement *>(asked.supplement_.get());
	TORCH_CHECK(scale, "gpucoll: PREMUL_SUM without a factor");
	if (scale->tensor_factor.defined())
		tensor.mul_(scale->tensor_factor);
	else
		tensor.mul_(scale->double_factor);
}

at::Tensor Reduction::before(const at::Tensor &input) const
{
	if (asked != c10d::ReduceOp::PREMUL_SUM)
		return input;
	at::Tensor scaled = input.clone();
	before_in_place(scaled);
	return scaled;
}

void Reduction::after(at::Tensor &result, int size) const
{
	if (asked != c10d::ReduceOp::AVG)
		return;
	if (result.is_complex()) /* as torch does it where it takes a complex number for two */
		at::view_as_real(result).div_(size);
	else if (result.is_floating_point())
		result.div_(size);
	else
		result.div_(size, "trunc");
}

} // namespace gpucoll
