/* SPDX-License-Identifier: BSD-3-Clause */
#include "work.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <cstdio>
#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

namespace gpucoll
{

/* ---- failures ---- */

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

static std::atomic<bool> abandoned{false};

bool work_was_abandoned()
{
	return abandoned;
}

/* ---- the driver ---- */

/* Those of the driver's functions that torch has no word for. */
struct Driver {
	int (*create)(void **stream, unsigned flags);
	int (*destroy)(void *stream);
	int (*exchange_capture)(int *mode);
};

static Driver find_driver()
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	Driver d = {};

	TORCH_CHECK(library, "gpucoll: there is no CUDA driver: ", dlerror());
	d.create = reinterpret_cast<decltype(d.create)>(dlsym(library, "cuStreamCreate"));
	d.destroy = reinterpret_cast<decltype(d.destroy)>(dlsym(library, "cuStreamDestroy_v2"));
	d.exchange_capture = reinterpret_cast<decltype(d.exchange_capture)>(
		dlsym(library, "cuThreadExchangeStreamCaptureMode"));
	TORCH_CHECK(d.create && d.destroy && d.exchange_capture,
		    "gpucoll: the CUDA driver lacks functions for streams");
	return d;
}

static const Driver &driver()
{
	static const Driver found = find_driver();

	return found;
}

/* To ask for an event breaks a capture that another thread of the program makes, unless it is said
 * that it has nothing to do with it. */
static bool is_reached(const c10::Event &event)
{
	enum { RELAXED = 2 };
	int mode = RELAXED;
	bool reached;

	driver().exchange_capture(&mode);
	try {
		reached = event.query();
	} catch (...) {
		driver().exchange_capture(&mode);
		throw;
	}
	driver().exchange_capture(&mode);
	return reached;
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

static std::optional<c10::Device> device_of(const Plan &plan)
{
	if (!plan.first() || plan.first()->is_cpu())
		return std::nullopt;
	return plan.first()->device();
}

static c10::intrusive_ptr<c10::ivalue::Future> make_future(const std::optional<c10::Device> &device)
{
	std::vector<c10::Device> devices;

	if (device)
		devices.push_back(*device);
	return c10::make_intrusive<c10::ivalue::Future>(
		c10::ListType::create(c10::TensorType::get()), devices);
}

/* Clocks end. */
static Clock::time_point after_now(std::chrono::milliseconds timeout)
{
	return Clock::now() +
	       std::min<std::chrono::milliseconds>(timeout, std::chrono::hours(100000));
}

GroupWork::GroupWork(Plan plan_, const Owner &owner)
    : Pending(owner.rank, plan_.type, plan_.title, plan_.inputs), plan(std::move(plan_)),
      text(plan.text()), owner(owner), device_(device_of(plan)), future(make_future(device_)),
      deadline(after_now(plan.timeout))
{
}

const void *GroupWork::group() const
{
	return owner.fault.get();
}

std::optional<c10::Device> GroupWork::device() const
{
	return device_;
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
	engine_progress(this);
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
	engine_progress(this);
}

void GroupWork::fail(const std::string &why)
{
	owner.fault->set(why);
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

void GroupWork::keep_for_good()
{
	abandoned = true;
	c10::raw::intrusive_ptr::incref(this);
}

/* Staging goes, and the inputs: the caller may hold the work for long. */
void GroupWork::complete() noexcept
{
	at::ThreadLocalStateGuard as_caller(state);
	at::NoGradGuard no_grad;

	if (failed)
		keep_for_good();
	try {
		if (!failed && plan.end)
			plan.end();
	} catch (...) {
		failed = std::current_exception();
	}
	settled = true;
	if (!failed) {
		plan.begin = nullptr;
		plan.end = nullptr;
		plan.inputs.clear();
	}
	try {
		if (failed && !future->completed())
			future->setError(failed);
		else if (!future->completed())
			future->markCompleted(c10::IValue(plan.outputs));
	} catch (const std::exception &error) {
		TORCH_WARN("gpucoll: a callback of ", text, ": ", error.what());
	}
	finish(failed);
}

/*
 * Yields: ranks may be more than cores. The engine's lock may be with a thread that waits in a call
 * of CUDA's, so that lateness is seen here, too.
 */
bool GroupWork::wait_on_host(std::chrono::milliseconds timeout)
{
	const std::chrono::seconds grace(1); /* for the engine to see it first */
	auto end = timeout == kNoTimeout ? Clock::time_point::max() : after_now(timeout);

	while (!isCompleted()) {
		TORCH_CHECK(!job_is_fork(), "gpucoll: a process that was forked has no MPI");
		if (settled && engine_completes(this)) /* a callback of its own waits */
			break;
		TORCH_CHECK_WITH(DistBackendError, Clock::now() < end, "gpucoll: ", text,
				 " has not ended within the ", timeout.count(), " ms of this wait");
		TORCH_CHECK_WITH(
			DistBackendError, settled || Clock::now() < deadline + grace,
			"gpucoll: ", text,
			" did not end in time, and MPI or CUDA holds the thread that tests it");
		sched_yield();
	}
	if (auto error = exception())
		std::rethrow_exception(error);
	return true;
}

/* ---- by MPI's nonblocking calls ---- */

HostWork::HostWork(Plan plan, const Owner &owner, MPI_Comm comm)
    : GroupWork(std::move(plan), owner), call(comm)
{
}

void HostWork::begin()
{
	at::NoGradGuard no_grad;

	plan.begin(call);
	begun = true;
}

void HostWork::begin_in_turn()
{
	if (!device_)
		return;
	before.emplace(device_->type());
	before->record(c10::impl::VirtualGuardImpl(device_->type()).getStream(*device_));
}

void HostWork::abandon()
{
	if (std::all_of(call.requests.begin(), call.requests.end(),
			[](MPI_Request request) { return request == MPI_REQUEST_NULL; }))
		return;
	owner.fault->set(text + " was begun in part");
	keep_for_good();
}

bool HostWork::has_begun() const
{
	return begun;
}

namespace
{
/*
 * Its tensors are ready when it begins. What was put on a default stream since, torch's current one
 * mostly, may wait for a call that others come to only when they have this one's message.
 */
class ReadyTensors
{
      public:
	ReadyTensors() : waited(gpucoll_wait_default_stream(0))
	{
	}
	~ReadyTensors()
	{
		gpucoll_wait_default_stream(waited);
	}
	ReadyTensors(const ReadyTensors &) = delete;
	ReadyTensors &operator=(const ReadyTensors &) = delete;

      private:
	int waited;
};
} // namespace

/* One by one, as MPI tells an error of one more plainly than of several. */
bool HostWork::test()
{
	for (; ended < call.requests.size(); ended++) {
		MPI_Status status;
		int done;

		job_check(MPI_Test(&call.requests[ended], &done, &status), plan.title);
		if (!done)
			return false;
		if (ended == 0)
			source = status.MPI_SOURCE;
	}
	return true;
}

bool HostWork::step(bool may_begin) noexcept
{
	try {
		ReadyTensors ready;

		if (!begun && may_begin && (!before || is_reached(*before))) {
			c10::OptionalDeviceGuard guard(device_);

			begin();
		}
		if (begun && test())
			return true;
	} catch (const std::exception &error) {
		fail(text + ": " + error.what());
		return true;
	}
	return is_late();
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

/*
 * The event gives the thread its context, where this is its first call of CUDA's: torch makes none
 * for a device that is the current one already.
 */
static void *make_stream(c10::Device device)
{
	enum { NON_BLOCKING = 1 };
	c10::Event first(device.type());
	void *stream = nullptr;
	int result;

	first.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
	result = driver().create(&stream, NON_BLOCKING);
	TORCH_CHECK(!result, "gpucoll: cuStreamCreate: error ", result, " of the driver's");
	return stream;
}

/* torch's name for a stream that it has not made is its address (c10/cuda/CUDAStream.cpp). */
static c10::Stream name_stream(c10::Device device, void *stream)
{
	return c10::Stream(c10::Stream::UNSAFE, device, reinterpret_cast<c10::StreamId>(stream));
}

Channel::Channel(MPI_Comm comm, c10::Device device) : torch_stream(c10::Stream::UNSAFE, device, 0)
{
	c10::DeviceGuard guard(device);
	int error;

	stream = make_stream(device);
	torch_stream = name_stream(device, stream);
	error = gpucoll_stream_comm(comm, stream, &ordered);
	if (error)
		driver().destroy(stream);
	job_check(error, "gpucoll_stream_comm");
	MPI_Comm_set_errhandler(ordered, MPI_ERRORS_RETURN);
}

void Channel::free()
{
	MPI_Comm_free(&ordered);
	driver().destroy(stream);
}

DeviceWork::DeviceWork(Plan plan, const Owner &owner, std::shared_ptr<Channel> channel_)
    : GroupWork(std::move(plan), owner), channel(std::move(channel_)),
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
	c10::impl::VirtualGuardImpl guard(device_->type());
	c10::Event before(device_->type());
	at::NoGradGuard no_grad;

	before.record(guard.getStream(*device_));
	before.block(channel->torch_stream);
	c10::StreamGuard on(channel->torch_stream);
	Call call(channel->ordered, channel->stream);

	plan.begin(call);
	if (plan.end)
		plan.end();
	plan.end = nullptr;
	after.record(channel->torch_stream);
	future->markCompleted(c10::IValue(plan.outputs));
}

void DeviceWork::abandon()
{
	owner.fault->set(text + " may have been begun in part");
	keep_for_good();
}

bool DeviceWork::has_begun() const
{
	return true;
}

/*
 * What is late on a stream holds up all behind it there, and so the program, which may never ask
 * how the call went: the process ends, and the MPI's launcher ends the job.
 */
bool DeviceWork::step(bool) noexcept
{
	int error = MPI_SUCCESS;

	try {
		if (!is_reached(after)) {
			if (!is_late())
				return false;
			if (aborted)
				return true;
			fprintf(stderr,
				"gpucoll: rank %d: %s did not end within %lld ms: another rank may not have made the "
				"call, or is at another; a stream can't be told, so this process ends\n",
				owner.rank, text.c_str(),
				static_cast<long long>(plan.timeout.count()));
			_exit(1);
		}
		job_check(gpucoll_stream_error(channel->ordered, &error), "gpucoll_stream_error");
		/* It is told once, and may be of any call that was under way. */
		if (!channel->error)
			channel->error = error;
		job_check(channel->error, plan.title);
	} catch (const std::exception &thrown) {
		fail(thrown.what());
	}
	return true;
}

void DeviceWork::synchronize()
{
	after.block(c10::impl::VirtualGuardImpl(device_->type()).getStream(*device_));
}

void DeviceWork::blockCurrentStream()
{
	synchronize();
}

bool DeviceWork::wait(std::chrono::milliseconds timeout)
{
	if (auto error = exception())
		std::rethrow_exception(error);
	if (!c10d::Work::isCompleted())
		owner.fault->check();
	if (timeout != kNoTimeout)
		wait_on_host(timeout);
	synchronize();
	return true;
}

} // namespace gpucoll
