/* SPDX-License-Identifier: BSD-3-Clause */
/* The two kinds of calls: MPI's nonblocking ones, and those that are enqueued on a stream. */
#ifndef GPUCOLL_TORCH_WORK_H
#define GPUCOLL_TORCH_WORK_H

#include "call.h"
#include "engine.h"

#include <ATen/ThreadLocalState.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace gpucoll
{

using Clock = std::chrono::steady_clock;

/* What is known of a group by all its calls: the first failure, after which its calls are refused.
 */
class Fault
{
      public:
	void set(const std::string &text);
	/* Throws what was set. */
	void check();
	bool is_set();

      private:
	std::mutex lock;
	std::string text;
};

/* Whether a call has failed while MPI was at it: it may be still, and can't be ended then. */
bool work_was_abandoned();

/* A call as the group describes it. */
struct Plan {
	c10d::OpType type;
	const char *title;
	std::vector<at::Tensor> inputs, outputs;
	std::chrono::milliseconds timeout; /* or c10d::kUnsetTimeout, the group's */
	/* Calls MPI. Of device memory, the current stream is the one that the calls go to. */
	std::function<void(Call &)> begin;
	/* What is to be done with the results, or empty. */
	std::function<void()> end;

	const at::Tensor *first() const; /* or null, of a barrier */
	std::string text() const;
};

/* Whose calls these are. */
struct Owner {
	int rank;
	std::shared_ptr<Fault> fault; /* the group's, by which it is known */
};

/* What both kinds have. */
class GroupWork : public Pending
{
      public:
	GroupWork(Plan plan, const Owner &owner);

	const void *group() const override;
	std::optional<c10::Device> device() const override;
	void complete() noexcept override;

	std::vector<at::Tensor> result() override;
	c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
	bool isCompleted() override;
	bool isSuccess() const override;
	void abort() override;

	/* For the host: until the call has ended, or throws. Returns true. */
	bool wait_on_host(std::chrono::milliseconds timeout);

      protected:
	/* Fails where it is late; under the engine's lock. */
	bool is_late();
	void fail(const std::string &why);
	/* The MPI may still read and write what a call that failed has named: nothing of it is ever
	 * given back. */
	void keep_for_good();

	Plan plan;
	const std::string text; /* the call in words */
	const Owner owner;
	const std::optional<c10::Device> device_;
	const at::ThreadLocalState state; /* the caller's: inference mode ... */
	c10::intrusive_ptr<c10::ivalue::Future> future;
	Clock::time_point deadline;
	std::exception_ptr failed;
	std::atomic<bool> aborted{false};
	std::atomic<bool> settled{
		false}; /* MPI is done with it, and results are where they belong */
};

class HostWork final : public GroupWork
{
      public:
	HostWork(Plan plan, const Owner &owner, MPI_Comm comm);

	/*
	 * Either, once: begins it now; or, of a message, after earlier ones of its group, and where
	 * it is from or to device memory, when the current stream of its device has come so far.
	 */
	void begin();
	void begin_in_turn();
	/* After begin() has thrown: what of it is under way can't be taken back. */
	void abandon();

	bool step(bool may_begin) noexcept override;
	bool has_begun() const override;

	bool wait(std::chrono::milliseconds timeout) override;
	int sourceRank() const override;

      private:
	bool test();

	Call call;
	std::optional<c10::Event> before;
	std::atomic<bool> begun{false}; /* and MPI has been told */
	size_t ended = 0;               /* requests */
	int source = -1;
};

/* A stream of our own, for a group's calls on one device, and its communicator. */
class Channel
{
      public:
	/* Collective in `comm`, all of whose processes name a device of their own. */
	Channel(MPI_Comm comm, c10::Device device);
	/* After the last call has ended. Collective. */
	void free();

	MPI_Comm ordered = MPI_COMM_NULL;
	void *stream = nullptr;
	c10::Stream torch_stream;
	/* Under the engine's lock: the first error that a call on the stream has had. */
	int error = MPI_SUCCESS;
};

class DeviceWork final : public GroupWork
{
      public:
	DeviceWork(Plan plan, const Owner &owner, std::shared_ptr<Channel> channel);

	/* Enqueues it behind the current stream. */
	void begin();
	void abandon();

	bool step(bool may_begin) noexcept override;
	bool has_begun() const override;

	/* Makes the current stream wait; the host waits where a timeout is named. */
	bool wait(std::chrono::milliseconds timeout) override;
	void synchronize() override;
	/* As that: its future is complete at once, which torch's own way would go by. */
	void blockCurrentStream() override;

      private:
	std::shared_ptr<Channel> channel;
	c10::Event after;
};

} // namespace gpucoll

#endif
