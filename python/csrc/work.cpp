/* SPDX-License-Identifier: BSD-3-Clause */
#include "work.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <dlfcn.h>
#include <sched.h>

namespace gpucoll
{

/* ---- a group's failure ---- */

void Fault::set(const std::string &why)
{
	std::lock_guard<std::mutex> held(lock);

	if (text.empty())
		text = why;
}

void Fault::check()
{
	std::lock_guard<std::mutex> held(lock);

	TORCH_CHECK_WITH(
		DistBackendError, text.empty(),
		"gpucoll: this group is of no more use, as an earlier call failed: ", text);
}

bool Fault::is_set()
{
	std::lock_guard<std::mutex> held(lock);

	return !text.empty();
}

/* ---- all calls ---- */

const at::Tensor *Plan::first() const
{
	const std::vector<at::Tensor> &tensors = inputs.empty() ? outputs : inputs;

	return tensors.empty() ? nullptr : &tensors.front();
}

std::string Plan::text() const
{
	int64_t elements = 0;

	for (auto &tensor : inputs.empty() ? outputs : inputs)
		elements += tensor.numel();
	return std::string(title) + " of " + std::to_string(elements) + " elements";
}

static c10::intrusive_ptr<c10::ivalue::Future> make_future(const Plan &plan)
{
	std::vector<c10::Device> devices;

	if (plan.first() && !plan.first()->is_cpu())
		devices.push_back(plan.first()->device());
	return c10::make_intrusive<c10::ivalue::Future>(
		c10::ListType::create(c10::TensorType::get()), devices);
}

GroupWork::GroupWork(Plan plan_, int rank, std::shared_ptr<Fault> fault)
    : Pending(rank, plan_.type, plan_.title, plan_.inputs), plan(std::move(plan_)),
      text(plan.text()), fault(std::move(fault)), future(make_future(plan)),
      deadline(Clock::now() + plan.timeout)
{
}

std::vector<at::Tensor> GroupWork::result()
{
	return plan.outputs;
}

c10::intrusive_ptr<c10::ivalue::Future> GroupWork::getFuture()
{
	return future;
}

bool GroupWork::isCompleted()
{
	engine_progress();
	return c10d::Work::isCompleted();
}

bool GroupWork::isSuccess() const
{
	std::lock_guard<std::mutex> held(mutex_);

	return completed_ && !exception_;
}

void GroupWork::abort()
{
	aborted = true;
	engine_progress();
}

void GroupWork::fail(const std::string &why)
{
	fault->set(why);
	failed = std::make_exception_ptr(C10_BUILD_ERROR(DistBackendError, "gpucoll: " + why));
}

bool GroupWork::is_late()
{
	if (aborted)
		fail(text + " was aborted");
	else if (Clock::now() > deadline)
		fail(text + " did not end within " + std::to_string(plan.timeout.count()) +
		     " ms: another rank may not have made the call, or is at another");
	return static_cast<bool>(failed);
}

void GroupWork::end()
{
	if (failed && !future->completed())
		future->setError(failed);
	else if (!future->completed())
		future->markCompleted(c10::IValue(plan.outputs));
	finish(failed);
}

/*
 * Yields: ranks may be more than cores. The thread of the engine takes turns, as it may be the one
 * that has the lock.
 */
bool GroupWork::wait_on_host(std::chrono::milliseconds timeout)
{
	auto end = timeout == kNoTimeout ? Clock::time_point::max() : Clock::now() + timeout;

	while (!isCompleted()) {
		TORCH_CHECK_WITH(DistBackendError, Clock::now() < end, "gpucoll: ", text,
				 " has not ended within the ", timeout.count(), " ms of this wait");
		sched_yield();
	}
	if (auto error = exception())
		std::rethrow_exception(error);
	return true;
}

void GroupWork::keep_for_good()
{
	c10::raw::intrusive_ptr::incref(this);
}

/* ---- by MPI's nonblocking calls ---- */

HostWork::HostWork(Plan plan, int rank, std::shared_ptr<Fault> fault, MPI_Comm comm)
    : GroupWork(std::move(plan), rank, std::move(fault)), call(comm)
{
}

void HostWork::begin()
{
	at::NoGradGuard no_grad;

	begun = true;
	plan.begin(call);
}

void HostWork::begin_behind_stream(const void *queue)
{
	c10::Device device = plan.first()->device();
	c10::impl::VirtualGuardImpl guard(device.type());

	before.emplace(device.type());
	before->record(guard.getStream(device));
	queue_ = queue;
}

void HostWork::abandon()
{
	if (call.requests.empty())
		return;
	fault->set(text + " was begun in part");
	keep_for_good();
}

bool HostWork::has_begun() const
{
	return begun;
}

const void *HostWork::queue() const
{
	return queue_;
}

bool HostWork::is_hosts() const
{
	return true;
}

/* Whether all requests have ended. What MPI says of one that failed is kept; the others may go on,
 * and are let go. */
bool HostWork::test()
{
	std::vector<MPI_Status> statuses(call.requests.size());
	int done = 0, error;

	error = MPI_Testall(static_cast<int>(call.requests.size()), call.requests.data(), &done,
			    statuses.data());
	for (auto &status : statuses) {
		if (error == MPI_ERR_IN_STATUS && status.MPI_ERROR != MPI_SUCCESS &&
		    status.MPI_ERROR != MPI_ERR_PENDING)
			error = status.MPI_ERROR;
	}
	job_check(error, plan.title);
	if (done && !statuses.empty())
		source = statuses.front().MPI_SOURCE;
	return done;
}

bool HostWork::step(bool may_begin)
{
	try {
		c10::OptionalDeviceGuard guard;

		if (before)
			guard.reset_device(plan.first()->device());
		if (!begun && may_begin && before->query())
			begin();
		if (begun && test())
			return true;
	} catch (const std::exception &error) {
		fail(text + ": " + error.what());
		return true;
	}
	return is_late();
}

void HostWork::complete()
{
	at::NoGradGuard no_grad;

	if (failed) {
		keep_for_good();
		return end();
	}
	try {
		if (plan.end)
			plan.end();
	} catch (...) {
		failed = std::current_exception();
	}
	/* Staging goes; the caller may hold the work for long. */
	plan.begin = nullptr;
	plan.end = nullptr;
	end();
}

bool HostWork::wait(std::chrono::milliseconds timeout)
{
	return wait_on_host(timeout);
}

int HostWork::sourceRank() const
{
	return source;
}

/* ---- on a stream ---- */

/* The two functions of the driver that torch has no word for. */
struct Driver {
	int (*create)(void **stream, unsigned flags);
	int (*destroy)(void *stream);
};

static const Driver &driver()
{
	static const Driver found = [] {
		void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
		Driver d = {};

		TORCH_CHECK(library, "gpucoll: there is no CUDA driver: ", dlerror());
		d.create = reinterpret_cast<decltype(d.create)>(dlsym(library, "cuStreamCreate"));
		d.destroy =
			reinterpret_cast<decltype(d.destroy)>(dlsym(library, "cuStreamDestroy_v2"));
		return d;
	}();

	return found;
}

static void *make_stream(c10::Device device)
{
	enum { NON_BLOCKING = 1 };
	c10::DeviceGuard guard(device);
	void *stream = nullptr;
	int result = driver().create(&stream, NON_BLOCKING);

	TORCH_CHECK(!result, "gpucoll: cuStreamCreate: error ", result, " of the driver's");
	return stream;
}

/* torch's name for a stream that it has not made is its address (c10/cuda/CUDAStream.cpp). */
static c10::Stream name_stream(c10::Device device, void *stream)
{
	return c10::Stream(c10::Stream::UNSAFE, device, reinterpret_cast<c10::StreamId>(stream));
}

Channel::Channel(MPI_Comm comm, c10::Device device)
    : ordered(MPI_COMM_NULL), torch_stream(c10::Stream::UNSAFE, device, 0),
      stream(make_stream(device))
{
	c10::DeviceGuard guard(device);

	torch_stream = name_stream(device, stream);
	job_check(gpucoll_stream_comm(comm, stream, &ordered), "gpucoll_stream_comm");
	MPI_Comm_set_errhandler(ordered, MPI_ERRORS_RETURN);
}

void Channel::free()
{
	MPI_Comm_free(&ordered);
	driver().destroy(stream);
}

DeviceWork::DeviceWork(Plan plan, int rank, std::shared_ptr<Fault> fault, Channel *channel)
    : GroupWork(std::move(plan), rank, std::move(fault)), channel(channel),
      after(channel->torch_stream.device_type())
{
}

/*
 * Tensors that are made for staging are of the channel's stream, which is the current one then;
 * those of the caller are kept until the call has ended, so that torch gives their memory to nobody
 * before.
 */
void DeviceWork::begin()
{
	c10::Device device = channel->torch_stream.device();
	c10::impl::VirtualGuardImpl guard(device.type());
	c10::Event before(device.type());
	at::NoGradGuard no_grad;

	before.record(guard.getStream(device));
	before.block(channel->torch_stream);
	c10::StreamGuard on(channel->torch_stream);
	Call call(channel->ordered, channel->stream);

	plan.begin(call);
	if (plan.end)
		plan.end();
	after.record(channel->torch_stream);
	future->markCompleted(c10::IValue(plan.outputs));
}

void DeviceWork::abandon()
{
	fault->set(text + " may have been begun in part");
	keep_for_good();
}

bool DeviceWork::is_hosts() const
{
	return false;
}

bool DeviceWork::step(bool)
{
	int error = MPI_SUCCESS;

	if (!after.query())
		return is_late();
	try {
		job_check(gpucoll_stream_error(channel->ordered, &error), "gpucoll_stream_error");
		job_check(error, plan.title);
	} catch (const std::exception &thrown) {
		fail(thrown.what());
	}
	return true;
}

void DeviceWork::complete()
{
	if (failed) {
		keep_for_good();
		return end();
	}
	plan.begin = nullptr;
	plan.end = nullptr;
	plan.inputs.clear();
	end();
}

void DeviceWork::synchronize()
{
	c10::Device device = channel->torch_stream.device();
	c10::impl::VirtualGuardImpl guard(device.type());

	after.block(guard.getStream(device));
}

bool DeviceWork::wait(std::chrono::milliseconds timeout)
{
	if (auto error = exception())
		std::rethrow_exception(error);
	fault->check();
	if (timeout != kNoTimeout)
		wait_on_host(timeout);
	synchronize();
	return true;
}

} // namespace gpucoll
