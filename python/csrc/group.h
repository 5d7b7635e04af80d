/* SPDX-License-Identifier: BSD-3-Clause */
/* torch.distributed's process group over MPI: the backend "gpucoll". */
#ifndef GPUCOLL_TORCH_GROUP_H
#define GPUCOLL_TORCH_GROUP_H

#include "number.h"
#include "work.h"

#include <map>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace gpucoll
{

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/*
 * Tensors of the CPU go to MPI's nonblocking calls; those of a device are enqueued on a stream of
 * the group's, between two events of the current one. Messages of device memory are MPI's own,
 * begun when the current stream has come so far, as ones that wait in a stream would hold up others
 * there.
 *
 * All ranks make a group's collectives in one order, and all with tensors of the CPU, or all with a
 * device's. Collectives are made by one thread at a time.
 */
class Group final : public c10d::Backend
{
      public:
	/* Collective; see job_make_comm. */
	Group(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
	      std::chrono::milliseconds timeout);
	~Group() override = default;

	const std::string getBackendName() const override;
	c10::intrusive_ptr<Options> getBackendOptions() override;
	void setTimeout(std::chrono::milliseconds timeout) override;
	c10d::ErrorType getError() override;
	void setSequenceNumberForGroup() override;
	uint64_t getSequenceNumberForGroup() override;
	/* Makes what is needed for a device, before anything is enqueued. Collective. */
	void eagerConnectSingleDevice(at::Device device) override;
	/* What is pending fails. */
	void abort() override;
	/* Waits for what is pending, and gives the communicators back. Collective. */
	void shutdown() override;

	WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) override;
	WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) override;
	WorkPtr allreduce_coalesced(Tensors &tensors,
				    const c10d::AllreduceCoalescedOptions &options) override;
	WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &options) override;
	WorkPtr allgather(TensorLists &outputs, Tensors &inputs,
			  const c10d::AllgatherOptions &options) override;
	WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input,
				const c10d::AllgatherOptions &options) override;
	WorkPtr allgather_coalesced(TensorLists &outputs, Tensors &inputs,
				    const c10d::AllgatherOptions &options) override;
	WorkPtr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
						const c10d::AllgatherOptions &options) override;
	WorkPtr gather(TensorLists &outputs, Tensors &inputs,
		       const c10d::GatherOptions &options) override;
	/* Of releases after torch 2.11. */
	WorkPtr gather_into_tensor(at::Tensor &output, at::Tensor &input,
				   const c10d::GatherOptions &options);
	WorkPtr scatter(Tensors &outputs, TensorLists &inputs,
			const c10d::ScatterOptions &options) override;
	WorkPtr reduce_scatter(Tensors &outputs, TensorLists &inputs,
			       const c10d::ReduceScatterOptions &options) override;
	WorkPtr _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
				     const c10d::ReduceScatterOptions &options) override;
	WorkPtr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
						const c10d::ReduceScatterOptions &options) override;
	WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input,
			      std::vector<int64_t> &output_splits,
			      std::vector<int64_t> &input_splits,
			      const c10d::AllToAllOptions &options) override;
	WorkPtr alltoall(Tensors &outputs, Tensors &inputs,
			 const c10d::AllToAllOptions &options) override;
	WorkPtr send(Tensors &tensors, int to, int tag) override;
	WorkPtr recv(Tensors &tensors, int from, int tag) override;
	WorkPtr recvAnysource(Tensors &tensors, int tag) override;
	WorkPtr barrier(const c10d::BarrierOptions &options) override;
	/* By the store: names the ranks that have not come. */
	void monitoredBarrier(const c10d::BarrierOptions &options, bool wait_all) override;

      private:
	WorkPtr run(Plan plan);
	WorkPtr message(Plan plan);
	WorkPtr receive(c10d::OpType type, const char *title, Tensors &tensors, int from, int tag);
	/* Throws where no call can be made any more. */
	void check();
	Owner owner() const;
	std::shared_ptr<Channel> channel_for(c10::Device device);
	/* On the host, for what was called before a barrier; not for messages, whose others may
	 * come after it. */
	void wait_for_earlier();
	void check_root(int64_t root) const;

	c10::intrusive_ptr<c10d::Store> store;
	std::chrono::milliseconds timeout;
	MPI_Comm comm;
	std::shared_ptr<Fault> fault = std::make_shared<Fault>();
	std::mutex lock; /* of what follows */
	std::map<c10::DeviceIndex, std::shared_ptr<Channel>> channels;
	std::atomic<uint64_t> sequence{0};
	uint64_t barriers = 0;
};

} // namespace gpucoll

#endif
