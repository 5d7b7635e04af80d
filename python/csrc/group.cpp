/* SPDX-License-Identifier: BSD-3-Clause */
#include "group.h"

#include <ATen/ATen.h>

namespace gpucoll
{

Group::Group(c10::intrusive_ptr<c10d::Store> store_, int rank, int size,
	     std::chrono::milliseconds timeout)
    : Backend(rank, size), store(std::move(store_)), timeout(timeout),
      comm(job_make_comm(*store, rank, size))
{
}

const std::string Group::getBackendName() const
{
	return "gpucoll";
}

c10::intrusive_ptr<c10d::Backend::Options> Group::getBackendOptions()
{
	return c10::make_intrusive<Options>(getBackendName(), timeout);
}

void Group::setTimeout(std::chrono::milliseconds timeout_)
{
	timeout = timeout_;
}

c10d::ErrorType Group::getError()
{
	return fault->is_set() ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
}

void Group::setSequenceNumberForGroup()
{
}

uint64_t Group::getSequenceNumberForGroup()
{
	return sequence;
}

void Group::check()
{
	TORCH_CHECK(!job_is_fork(), "gpucoll: a process that was forked has no MPI");
	fault->check();
}

Owner Group::owner() const
{
	return {getRank(), fault};
}

void Group::eagerConnectSingleDevice(at::Device device)
{
	check();
	if (device.is_cuda())
		channel_for(device);
}

void Group::abort()
{
	if (job_is_fork())
		return;
	for (auto &work : engine_pending(fault.get()))
		work->abort();
}

/* After a failure others may not come, and the MPI may not be done with what was begun: nothing is
 * given back. */
void Group::shutdown()
{
	if (comm == MPI_COMM_NULL || job_is_fork())
		return;
	for (auto &work : engine_pending(fault.get())) {
		while (!work->isCompleted())
			sched_yield();
	}
	if (fault->is_set())
		return;
	fault->set("it was shut down");
	for (auto &[device, channel] : channels)
		channel->free();
	channels.clear();
	MPI_Comm_free(&comm);
}

/* ---- checks ---- */

/* How elements must lie: as they do; without gaps, in an order that is then the same on all ranks;
 * in that of their indices. */
enum class Lie { ANY, DENSE, CONTIGUOUS };

static void check_tensors(const Tensors &tensors, Lie lie)
{
	TORCH_CHECK_VALUE(!tensors.empty(), "gpucoll: no tensors");
	for (auto &tensor : tensors) {
		TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, "gpucoll: a tensor is sparse");
		TORCH_CHECK_VALUE(lie != Lie::DENSE || tensor.is_non_overlapping_and_dense(),
				  "gpucoll: a tensor has gaps");
		TORCH_CHECK_VALUE(lie != Lie::CONTIGUOUS || tensor.is_contiguous(),
				  "gpucoll: a tensor is not contiguous");
		TORCH_CHECK_VALUE(tensor.device() == tensors.front().device() &&
					  (tensor.is_cpu() || tensor.is_cuda()),
				  "gpucoll: tensors on ", tensors.front().device(), " and ",
				  tensor.device());
		TORCH_CHECK_TYPE(tensor.scalar_type() == tensors.front().scalar_type(),
				 "gpucoll: tensors of ", tensors.front().scalar_type(), " and ",
				 tensor.scalar_type());
	}
}

static at::Tensor &only(Tensors &tensors, Lie lie)
{
	TORCH_CHECK_VALUE(tensors.size() == 1, "gpucoll: ", tensors.size(),
			  " tensors where one is expected");
	check_tensors(tensors, lie);
	return tensors.front();
}

/* The list for the only tensor, one of it for each rank. */
static Tensors &only_list(TensorLists &lists, int size)
{
	TORCH_CHECK_VALUE(lists.size() == 1 && static_cast<int>(lists.front().size()) == size,
			  "gpucoll: ", lists.empty() ? 0 : lists.front().size(),
			  " tensors in a list for ", size, " ranks");
	check_tensors(lists.front(), Lie::ANY);
	return lists.front();
}

static void check_alike(const at::Tensor &a, const at::Tensor &b, Lie lie)
{
	check_tensors({a, b}, lie);
}

static void check_times(const at::Tensor &whole, const at::Tensor &part, int size)
{
	check_alike(whole, part, Lie::CONTIGUOUS);
	TORCH_CHECK_VALUE(whole.numel() == part.numel() * size, "gpucoll: ", whole.numel(),
			  " elements are not ", size, " times ", part.numel());
}

void Group::check_root(int64_t root) const
{
	TORCH_CHECK_VALUE(root >= 0 && root < getSize(), "gpucoll: rank ", root, " is none of ",
			  getSize());
}

/* Buffers of one call may not overlap in MPI; in NCCL they may, and programs pass a slice of the
 * whole for a part. */
static bool overlap(const at::Tensor &a, const at::Tensor &b)
{
	const char *first = static_cast<const char *>(a.data_ptr());
	const char *second = static_cast<const char *>(b.data_ptr());

	return first < second + b.nbytes() && second < first + a.nbytes();
}

/* ---- staging of lists ---- */

static Blocks blocks_of(const Tensors &tensors)
{
	Blocks blocks;

	for (auto &tensor : tensors)
		blocks.add(tensor.numel());
	return blocks;
}

static Blocks equal_blocks(int64_t each, int size)
{
	Blocks blocks;

	for (int i = 0; i < size; i++)
		blocks.add(each);
	return blocks;
}

static at::Tensor joined(const Tensors &tensors)
{
	Tensors flat;

	for (auto &tensor : tensors)
		flat.push_back(tensor.reshape({-1}));
	return at::cat(flat);
}

static at::Tensor room_for(const Tensors &tensors)
{
	return at::empty({blocks_of(tensors).total()}, tensors.front().options());
}

static void part(const at::Tensor &from, const Tensors &into)
{
	Blocks blocks = blocks_of(into);

	for (size_t i = 0; i < into.size(); i++)
		into[i].copy_(
			from.narrow(0, blocks.offsets[i], blocks.counts[i]).view(into[i].sizes()));
}

/* ---- running ---- */

std::shared_ptr<Channel> Group::channel_for(c10::Device device)
{
	std::lock_guard<std::mutex> held(lock);
	auto found = channels.find(device.index());

	if (found != channels.end())
		return found->second;
	return channels[device.index()] = std::make_shared<Channel>(comm, device);
}

template <typename W> static WorkPtr begin(c10::intrusive_ptr<W> work)
{
	try {
		work->begin();
	} catch (...) {
		work->abandon();
		throw;
	}
	engine_submit(work);
	return work;
}

WorkPtr Group::run(Plan plan)
{
	const at::Tensor *first = plan.first();

	check();
	sequence++;
	if (plan.timeout == c10d::kUnsetTimeout)
		plan.timeout = timeout;
	if (!first || first->is_cpu())
		return begin(c10::make_intrusive<HostWork>(std::move(plan), owner(), comm));
	auto channel = channel_for(first->device());

	return begin(c10::make_intrusive<DeviceWork>(std::move(plan), owner(), std::move(channel)));
}

/* One of the host's memory is begun at once, unless earlier ones of a device's still wait: it would
 * overtake them. */
WorkPtr Group::message(Plan plan)
{
	bool at_once = plan.first()->is_cpu();

	check();
	for (auto &work : engine_pending(fault.get()))
		at_once = at_once && work->has_begun();
	if (at_once)
		return run(std::move(plan));
	plan.timeout = timeout;

	auto work = c10::make_intrusive<HostWork>(std::move(plan), owner(), comm);

	work->begin_in_turn();
	engine_submit(work);
	return work;
}

/* ---- collectives ---- */

WorkPtr Group::broadcast(Tensors &tensors, const c10d::BroadcastOptions &options)
{
	at::Tensor tensor = only(tensors, Lie::DENSE);
	int root = static_cast<int>(options.rootRank);

	check_root(options.rootRank);
	return run({c10d::OpType::BROADCAST, "gpucoll:broadcast", tensors, tensors, options.timeout,
		    [=](Call &call) {
			    call.broadcast(tensor.data_ptr(), tensor.numel(), number_type(tensor),
					   root);
		    },
		    nullptr});
}

/* Of one tensor or several, which may be of several types. */
static void allreduce_all(Call &call, Tensors &tensors, const std::vector<Reduction> &reductions)
{
	for (size_t i = 0; i < tensors.size(); i++) {
		reductions[i].before_in_place(tensors[i]);
		call.allreduce(tensors[i].data_ptr(), tensors[i].numel(), reductions[i].type,
			       reductions[i].op);
	}
}

static std::vector<Reduction> reductions_for(const c10d::ReduceOp &op, const Tensors &tensors)
{
	std::vector<Reduction> reductions;

	for (auto &tensor : tensors) {
		check_tensors({tensor}, Lie::DENSE);
		TORCH_CHECK_VALUE(tensor.device() == tensors.front().device(),
				  "gpucoll: tensors on ", tensors.front().device(), " and ",
				  tensor.device());
		reductions.emplace_back(op, tensor);
	}
	return reductions;
}

WorkPtr Group::allreduce(Tensors &tensors, const c10d::AllreduceOptions &options)
{
	std::vector<Reduction> reductions = reductions_for(options.reduceOp, tensors);
	Tensors t = tensors;
	int size = getSize();

	TORCH_CHECK_VALUE(!t.empty(), "gpucoll: no tensors");
	return run({c10d::OpType::ALLREDUCE, "gpucoll:all_reduce", t, t, options.timeout,
		    [=](Call &call) mutable { allreduce_all(call, t, reductions); },
		    [=]() mutable {
			    for (size_t i = 0; i < t.size(); i++)
				    reductions[i].after(t[i], size);
		    }});
}

WorkPtr Group::allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &options)
{
	return allreduce(tensors, options);
}

WorkPtr Group::reduce(Tensors &tensors, const c10d::ReduceOptions &options)
{
	at::Tensor tensor = only(tensors, Lie::DENSE);
	Reduction reduction(options.reduceOp, tensor);
	int root = static_cast<int>(options.rootRank), size = getSize();
	bool mine = root == getRank();
	auto before = std::make_shared<at::Tensor>();

	check_root(options.rootRank);
	return run({c10d::OpType::REDUCE, "gpucoll:reduce", tensors, tensors, options.timeout,
		    [=](Call &call) mutable {
			    if (mine)
				    reduction.before_in_place(tensor);
			    *before = mine ? tensor : reduction.before(tensor);
			    call.reduce(before->data_ptr(), tensor.numel(), reduction.type,
					reduction.op, root);
		    },
		    [=]() mutable {
			    if (mine)
				    reduction.after(tensor, size);
		    }});
}

WorkPtr Group::allgather(TensorLists &outputs, Tensors &inputs,
			 const c10d::AllgatherOptions &options)
{
	at::Tensor input = only(inputs, Lie::ANY).contiguous();
	Tensors out = only_list(outputs, getSize());
	Blocks blocks = blocks_of(out);
	int count = number_count(input.numel());
	auto all = std::make_shared<at::Tensor>();

	check_alike(out.front(), input, Lie::ANY);
	TORCH_CHECK_VALUE(blocks.counts[getRank()] == count, "gpucoll: ", count,
			  " elements go into ", blocks.counts[getRank()]);
	return run({c10d::OpType::ALLGATHER,
		    "gpucoll:all_gather",
		    {input},
		    out,
		    options.timeout,
		    [=](Call &call) {
			    *all = room_for(out);
			    call.allgatherv(input.data_ptr(), count, all->data_ptr(), blocks,
					    number_type(input));
		    },
		    [=] { part(*all, out); }});
}

WorkPtr Group::_allgather_base(at::Tensor &output, at::Tensor &input,
			       const c10d::AllgatherOptions &options)
{
	Tensors outputs = {output}, inputs = {input};

	return allgather_into_tensor_coalesced(outputs, inputs, options);
}

static void check_pairs(const Tensors &outputs, const Tensors &inputs)
{
	TORCH_CHECK_VALUE(!inputs.empty() && outputs.size() == inputs.size(),
			  "gpucoll: ", outputs.size(), " outputs for ", inputs.size(), " inputs");
}

WorkPtr Group::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
					       const c10d::AllgatherOptions &options)
{
	Tensors in = inputs, out = outputs;

	check_pairs(out, in);
	for (size_t i = 0; i < in.size(); i++) {
		check_times(out[i], in[i], getSize());
		number_count(in[i].numel());
		if (overlap(in[i], out[i]))
			in[i] = in[i].clone();
	}
	return run({c10d::OpType::_ALLGATHER_BASE, "gpucoll:_all_gather_base", in, out,
		    options.timeout,
		    [=](Call &call) {
			    for (size_t i = 0; i < in.size(); i++)
				    call.allgather(in[i].data_ptr(), out[i].data_ptr(),
						   number_count(in[i].numel()), number_type(in[i]));
		    },
		    nullptr});
}

/* outputs[rank][i] is what that rank has as input i. */
WorkPtr Group::allgather_coalesced(TensorLists &outputs, Tensors &inputs,
				   const c10d::AllgatherOptions &options)
{
	Tensors in, flat;
	TensorLists out(inputs.size()); /* by inputs */
	auto all = std::make_shared<Tensors>();

	TORCH_CHECK_VALUE(!inputs.empty() && static_cast<int>(outputs.size()) == getSize(),
			  "gpucoll: ", outputs.size(), " lists of outputs for ", getSize(),
			  " ranks");
	for (auto &input : inputs)
		in.push_back(input.contiguous());
	for (auto &of_rank : outputs) {
		check_pairs(of_rank, in);
		for (size_t i = 0; i < in.size(); i++) {
			check_alike(of_rank[i], in[i], Lie::ANY);
			out[i].push_back(of_rank[i]);
			flat.push_back(of_rank[i]);
		}
	}
	return run({c10d::OpType::ALLGATHER_COALESCED, "gpucoll:all_gather_coalesced", in, flat,
		    options.timeout,
		    [=](Call &call) {
			    for (size_t i = 0; i < in.size(); i++) {
				    all->push_back(room_for(out[i]));
				    call.allgatherv(in[i].data_ptr(), number_count(in[i].numel()),
						    all->back().data_ptr(), blocks_of(out[i]),
						    number_type(in[i]));
			    }
		    },
		    [=] {
			    for (size_t i = 0; i < in.size(); i++)
				    part((*all)[i], out[i]);
		    }});
}

WorkPtr Group::gather(TensorLists &outputs, Tensors &inputs, const c10d::GatherOptions &options)
{
	at::Tensor input = only(inputs, Lie::ANY).contiguous();
	int root = static_cast<int>(options.rootRank), count = number_count(input.numel());
	bool mine = root == getRank();
	Tensors out;
	auto all = std::make_shared<at::Tensor>();

	check_root(options.rootRank);
	if (mine) {
		out = only_list(outputs, getSize());
		check_alike(out.front(), input, Lie::ANY);
	}
	Blocks blocks = blocks_of(out);

	return run({c10d::OpType::GATHER,
		    "gpucoll:gather",
		    {input},
		    out,
		    options.timeout,
		    [=](Call &call) {
			    if (mine)
				    *all = room_for(out);
			    call.gatherv(input.data_ptr(), count, mine ? all->data_ptr() : nullptr,
					 blocks, number_type(input), root);
		    },
		    [=] {
			    if (mine)
				    part(*all, out);
		    }});
}

WorkPtr Group::gather_into_tensor(at::Tensor &output, at::Tensor &input,
				  const c10d::GatherOptions &options)
{
	at::Tensor in = input, out = output;
	int root = static_cast<int>(options.rootRank), size = getSize();
	bool mine = root == getRank();
	Blocks blocks = equal_blocks(in.numel(), size);

	check_root(options.rootRank);
	check_tensors({in}, Lie::CONTIGUOUS);
	if (mine) {
		check_times(out, in, size);
		if (overlap(in, out))
			in = in.clone();
	}
	return run({c10d::OpType::GATHER,
		    "gpucoll:gather_into_tensor",
		    {in},
		    mine ? Tensors{out} : Tensors{},
		    options.timeout,
		    [=](Call &call) {
			    call.gatherv(in.data_ptr(), blocks.counts.front(),
					 mine ? out.data_ptr() : nullptr, blocks, number_type(in),
					 root);
		    },
		    nullptr});
}

WorkPtr Group::scatter(Tensors &outputs, TensorLists &inputs, const c10d::ScatterOptions &options)
{
	at::Tensor output = only(outputs, Lie::CONTIGUOUS);
	int root = static_cast<int>(options.rootRank), count = number_count(output.numel());
	bool mine = root == getRank();
	Tensors in;
	auto all = std::make_shared<at::Tensor>();

	check_root(options.rootRank);
	if (mine) {
		in = only_list(inputs, getSize());
		check_alike(in.front(), output, Lie::ANY);
	}
	Blocks blocks = blocks_of(in);

	return run({c10d::OpType::SCATTER, "gpucoll:scatter", in, outputs, options.timeout,
		    [=](Call &call) {
			    if (mine)
				    *all = joined(in);
			    call.scatterv(mine ? all->data_ptr() : nullptr, blocks,
					  output.data_ptr(), count, number_type(output), root);
		    },
		    /* Until then it is read. */
		    [=] { all->reset(); }});
}

WorkPtr Group::reduce_scatter(Tensors &outputs, TensorLists &inputs,
			      const c10d::ReduceScatterOptions &options)
{
	at::Tensor output = only(outputs, Lie::CONTIGUOUS);
	Tensors in = only_list(inputs, getSize());
	Blocks blocks = blocks_of(in);
	Reduction reduction(options.reduceOp, output);
	int size = getSize();
	auto all = std::make_shared<at::Tensor>();

	check_alike(in.front(), output, Lie::ANY);
	TORCH_CHECK_VALUE(blocks.counts[getRank()] == output.numel(),
			  "gpucoll: ", blocks.counts[getRank()], " elements go into ",
			  output.numel());
	return run({c10d::OpType::REDUCE_SCATTER, "gpucoll:reduce_scatter", in, outputs,
		    options.timeout,
		    [=](Call &call) {
			    *all = joined(in);
			    reduction.before_in_place(*all);
			    call.reduce_scatter(all->data_ptr(), output.data_ptr(), blocks,
						reduction.type, reduction.op);
		    },
		    [=]() mutable {
			    reduction.after(output, size);
			    all->reset();
		    }});
}

WorkPtr Group::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
				    const c10d::ReduceScatterOptions &options)
{
	Tensors outputs = {output}, inputs = {input};

	return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

WorkPtr Group::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
					       const c10d::ReduceScatterOptions &options)
{
	Tensors in = inputs, out = outputs, to = outputs;
	int size = getSize();
	std::vector<Reduction> reductions = reductions_for(options.reduceOp, in);
	auto scaled = std::make_shared<Tensors>();

	check_pairs(out, in);
	for (size_t i = 0; i < in.size(); i++) {
		check_times(in[i], out[i], size);
		number_count(out[i].numel());
		if (overlap(in[i], out[i]))
			to[i] = at::empty_like(out[i]);
	}
	return run({c10d::OpType::_REDUCE_SCATTER_BASE, "gpucoll:_reduce_scatter_base", in, out,
		    options.timeout,
		    [=](Call &call) {
			    for (size_t i = 0; i < in.size(); i++) {
				    scaled->push_back(reductions[i].before(in[i]));
				    call.reduce_scatter_block(scaled->back().data_ptr(),
							      to[i].data_ptr(),
							      number_count(to[i].numel()),
							      reductions[i].type, reductions[i].op);
			    }
		    },
		    [=]() mutable {
			    for (size_t i = 0; i < out.size(); i++) {
				    reductions[i].after(to[i], size);
				    if (!to[i].is_same(out[i]))
					    out[i].copy_(to[i]);
			    }
			    scaled->clear();
		    }});
}

/* Rows of the first dimension: so many for each rank, or the same for all where none are named. */
static Blocks rows_for(const at::Tensor &tensor, const std::vector<int64_t> &splits, int size)
{
	int64_t rows = tensor.dim() ? tensor.size(0) : 0, sum = 0;
	int64_t row = rows ? tensor.numel() / rows : 0;
	Blocks blocks;

	if (splits.empty()) {
		TORCH_CHECK_VALUE(rows % size == 0, "gpucoll: ", rows,
				  " rows are not divisible by ", size, " ranks");
		return equal_blocks(rows / size * row, size);
	}
	TORCH_CHECK_VALUE(static_cast<int>(splits.size()) == size, "gpucoll: ", splits.size(),
			  " splits for ", size, " ranks");
	for (int64_t rows_of_one : splits) {
		TORCH_CHECK_VALUE(rows_of_one >= 0, "gpucoll: a split of ", rows_of_one, " rows");
		blocks.add(rows_of_one * row);
		sum += rows_of_one;
	}
	TORCH_CHECK_VALUE(sum == rows, "gpucoll: splits of ", sum, " rows of ", rows);
	return blocks;
}

WorkPtr Group::alltoall_base(at::Tensor &output, at::Tensor &input,
			     std::vector<int64_t> &output_splits,
			     std::vector<int64_t> &input_splits,
			     const c10d::AllToAllOptions &options)
{
	at::Tensor in = input, out = output;
	Blocks sent = rows_for(in, input_splits, getSize()),
	       received = rows_for(out, output_splits, getSize());

	check_alike(in, out, Lie::CONTIGUOUS);
	if (overlap(in, out))
		in = in.clone();
	return run({c10d::OpType::ALLTOALL_BASE,
		    "gpucoll:all_to_all",
		    {in},
		    {out},
		    options.timeout,
		    [=](Call &call) {
			    call.alltoallv(in.data_ptr(), sent, out.data_ptr(), received,
					   number_type(in));
		    },
		    nullptr});
}

WorkPtr Group::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options)
{
	Tensors in = inputs, out = outputs;
	auto sent = std::make_shared<at::Tensor>(), received = std::make_shared<at::Tensor>();

	TORCH_CHECK_VALUE(static_cast<int>(in.size()) == getSize() && out.size() == in.size(),
			  "gpucoll: ", out.size(), " outputs and ", in.size(), " inputs for ",
			  getSize(), " ranks");
	check_tensors(in, Lie::ANY);
	check_tensors(out, Lie::ANY);
	check_alike(in.front(), out.front(), Lie::ANY);
	Blocks sent_blocks = blocks_of(in), received_blocks = blocks_of(out);

	return run({c10d::OpType::ALLTOALL, "gpucoll:all_to_all", in, out, options.timeout,
		    [=](Call &call) {
			    *sent = joined(in);
			    *received = room_for(out);
			    call.alltoallv(sent->data_ptr(), sent_blocks, received->data_ptr(),
					   received_blocks, number_type(in.front()));
		    },
		    [=] {
			    part(*received, out);
			    sent->reset();
		    }});
}

/* ---- messages ---- */

WorkPtr Group::send(Tensors &tensors, int to, int tag)
{
	at::Tensor tensor = only(tensors, Lie::DENSE);

	check_root(to);
	return message({c10d::OpType::SEND,
			"gpucoll:send",
			tensors,
			{},
			c10d::kUnsetTimeout,
			[=](Call &call) {
				call.send(tensor.data_ptr(), tensor.numel(), number_type(tensor),
					  to, tag);
			},
			nullptr});
}

WorkPtr Group::receive(c10d::OpType type, const char *title, Tensors &tensors, int from, int tag)
{
	at::Tensor tensor = only(tensors, Lie::DENSE);

	return message({type,
			title,
			{},
			tensors,
			c10d::kUnsetTimeout,
			[=](Call &call) {
				call.recv(tensor.data_ptr(), tensor.numel(), number_type(tensor),
					  from, tag);
			},
			nullptr});
}

WorkPtr Group::recv(Tensors &tensors, int from, int tag)
{
	check_root(from);
	return receive(c10d::OpType::RECV, "gpucoll:recv", tensors, from, tag);
}

WorkPtr Group::recvAnysource(Tensors &tensors, int tag)
{
	return receive(c10d::OpType::RECVANYSOURCE, "gpucoll:recv_any_source", tensors,
		       MPI_ANY_SOURCE, tag);
}

/* ---- barriers ---- */

void Group::wait_for_earlier()
{
	for (auto &work : engine_pending(fault.get())) {
		if (!c10d::isP2POp(work->retrieveOpType()))
			static_cast<GroupWork *>(work.get())->wait_on_host(kNoTimeout);
	}
	std::lock_guard<std::mutex> held(lock);
	for (auto &[index, channel] : channels) {
		c10::Device device = channel->torch_stream.device();
		c10::Event now(device.type());

		now.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
		now.synchronize();
	}
}

WorkPtr Group::barrier(const c10d::BarrierOptions &options)
{
	check();
	wait_for_earlier();
	return run({c10d::OpType::BARRIER,
		    "gpucoll:barrier",
		    {},
		    {},
		    options.timeout,
		    [](Call &call) { call.barrier(); },
		    nullptr});
}

void Group::monitoredBarrier(const c10d::BarrierOptions &options, bool wait_all)
{
	auto limit = options.timeout == c10d::kUnsetTimeout ? timeout : options.timeout;
	auto end = Clock::now() + limit;
	std::string name = "gpucoll/barrier/" + std::to_string(barriers++) + "/", missing;
	auto come = [&](const std::string &key) {
		auto left =
			std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
		try {
			store->wait({key}, std::max(left, std::chrono::milliseconds(1)));
			return true;
		} catch (const c10::DistStoreError &) {
			return false;
		}
	};

	store->set(name + std::to_string(getRank()), "here");
	if (getRank() != 0) {
		TORCH_CHECK_WITH(DistBackendError, come(name + "all"), "gpucoll: rank ", getRank(),
				 " waited ", limit.count(),
				 " ms at a monitored barrier; rank 0 says who has not come");
		return;
	}
	for (int i = 1; i < getSize() && (missing.empty() || wait_all); i++) {
		if (!come(name + std::to_string(i)))
			missing += (missing.empty() ? "" : ", ") + std::to_string(i);
	}
	TORCH_CHECK_WITH(DistBackendError, missing.empty(), "gpucoll: ranks ", missing,
			 " have not come to a monitored barrier within ", limit.count(), " ms");
	store->set(name + "all", "here");
}

} // namespace gpucoll
