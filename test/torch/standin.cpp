/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What torch's CUDA part does for the backend, over the driver that is there, the emulated one:
 * streams, events, and the few operations on tensors that the backend makes. So its device path is
 * tested without torch's kernels. As torch's, they go to the current stream; those with arithmetic
 * wait for it and are made by the host.
 */
#include <ATen/ATen.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <cuda.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

static void check(CUresult result, const char *call)
{
	TORCH_CHECK(result == CUDA_SUCCESS, call, ": ", static_cast<int>(result));
}
#define DRIVER(call) check(call, #call)

/* ---- the device ---- */

static void use_device()
{
	static const CUcontext context = [] {
		CUcontext made;

		DRIVER(cuInit(0));
		DRIVER(cuDevicePrimaryCtxRetain(&made, 0));
		return made;
	}();

	DRIVER(cuCtxSetCurrent(context));
}

static thread_local CUstream current;

static CUstream stream_of(const c10::Stream &stream)
{
	return reinterpret_cast<CUstream>(stream.id());
}

static c10::Stream name(CUstream stream)
{
	return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::DeviceType::CUDA, 0),
			   reinterpret_cast<c10::StreamId>(stream));
}

/* A stream of its own for each thread, that hides no order behind that of the default stream. */
static CUstream current_stream()
{
	use_device();
	if (!current)
		DRIVER(cuStreamCreate(&current, CU_STREAM_NON_BLOCKING));
	return current;
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
	c10::DeviceType type() const override
	{
		return c10::DeviceType::CUDA;
	}
	c10::Device exchangeDevice(c10::Device) const override
	{
		use_device();
		return getDevice();
	}
	c10::Device getDevice() const override
	{
		return c10::Device(c10::DeviceType::CUDA, 0);
	}
	void setDevice(c10::Device) const override
	{
		use_device();
	}
	void uncheckedSetDevice(c10::Device) const noexcept override
	{
		use_device();
	}
	c10::Stream getStream(c10::Device) const noexcept override
	{
		return name(current_stream());
	}
	c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override
	{
		static const CUstream pooled = [] {
			CUstream made;

			use_device();
			DRIVER(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
			return made;
		}();

		return name(pooled);
	}
	c10::Stream exchangeStream(c10::Stream stream) const noexcept override
	{
		CUstream old = current_stream();

		current = stream_of(stream);
		return name(old);
	}
	c10::DeviceIndex deviceCount() const noexcept override
	{
		return 1;
	}
	void record(void **event, const c10::Stream &stream, const c10::DeviceIndex,
		    const c10::EventFlag) const override
	{
		use_device();
		if (!*event)
			DRIVER(cuEventCreate(reinterpret_cast<CUevent *>(event),
					     CU_EVENT_DISABLE_TIMING));
		DRIVER(cuEventRecord(static_cast<CUevent>(*event), stream_of(stream)));
	}
	void block(void *event, const c10::Stream &stream) const override
	{
		if (event)
			DRIVER(cuStreamWaitEvent(stream_of(stream), static_cast<CUevent>(event),
						 0));
	}
	bool queryEvent(void *event) const override
	{
		CUresult result = event ? cuEventQuery(static_cast<CUevent>(event)) : CUDA_SUCCESS;

		if (result != CUDA_ERROR_NOT_READY)
			check(result, "cuEventQuery");
		return result == CUDA_SUCCESS;
	}
	void synchronizeEvent(void *event) const override
	{
		DRIVER(cuEventSynchronize(static_cast<CUevent>(event)));
	}
	void destroyEvent(void *event, const c10::DeviceIndex) const noexcept override
	{
		if (event)
			cuEventDestroy(static_cast<CUevent>(event));
	}
};

/* ---- tensors ---- */

/* In the order of the stream that was current when it was made, as torch's allocator has it. */
static void release(void *pointer, CUstream stream)
{
	use_device();
	cuStreamSynchronize(stream);
	cuMemFree(reinterpret_cast<CUdeviceptr>(pointer));
}

static at::Tensor make(at::IntArrayRef sizes, at::ScalarType type)
{
	size_t bytes = c10::elementSize(type);
	CUstream stream = current_stream();
	CUdeviceptr pointer;

	for (int64_t size : sizes)
		bytes *= size;
	DRIVER(cuMemAlloc(&pointer, std::max<size_t>(bytes, 1)));
	return at::for_blob(reinterpret_cast<void *>(pointer), sizes)
		.deleter([stream](void *at) { release(at, stream); })
		.options(at::TensorOptions().dtype(type).device(c10::DeviceType::CUDA, 0))
		.target_device(c10::Device(c10::DeviceType::CUDA, 0))
		.make_tensor();
}

static void copy(void *to, const void *from, size_t bytes)
{
	if (bytes)
		DRIVER(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(to),
				     reinterpret_cast<CUdeviceptr>(from), bytes, current_stream()));
}

/* The bytes are copied first, and live until the stream has them: no tensor, whose end may need
 * Python's lock. */
static at::Tensor to_device(const at::Tensor &host)
{
	at::Tensor dense = host.contiguous();
	at::Tensor device = make(dense.sizes(), dense.scalar_type());
	const char *first = static_cast<const char *>(dense.data_ptr());
	auto *bytes = new std::vector<char>(first, first + dense.nbytes());

	copy(device.data_ptr(), bytes->data(), bytes->size());
	DRIVER(cuLaunchHostFunc(
		current_stream(),
		[](void *vector) { delete static_cast<std::vector<char> *>(vector); }, bytes));
	return device;
}

static at::Tensor to_host(const at::Tensor &device)
{
	at::Tensor host =
		at::empty(device.sizes(), at::TensorOptions().dtype(device.scalar_type()));

	copy(host.data_ptr(), device.data_ptr(), host.nbytes());
	DRIVER(cuStreamSynchronize(current_stream()));
	return host;
}

/* ---- the operations ---- */

static at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type,
			std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>,
			std::optional<at::MemoryFormat>)
{
	return make(sizes, *type);
}

static at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef,
				std::optional<at::ScalarType> type, std::optional<at::Layout>,
				std::optional<at::Device>, std::optional<bool>)
{
	return make(sizes, *type);
}

static at::Tensor &copy_(at::Tensor &to, const at::Tensor &from, bool)
{
	TORCH_CHECK(to.is_contiguous() && from.is_contiguous() && to.nbytes() == from.nbytes());
	copy(to.data_ptr(), from.data_ptr(), to.nbytes());
	return to;
}

static at::Tensor cat(const at::ITensorListRef &tensors, int64_t)
{
	int64_t total = 0, done = 0;
	at::Tensor whole;

	for (const at::Tensor &tensor : tensors)
		total += tensor.numel();
	for (const at::Tensor &tensor : tensors) {
		if (!whole.defined())
			whole = make({total}, tensor.scalar_type());
		copy(static_cast<char *>(whole.data_ptr()) + done, tensor.data_ptr(),
		     tensor.nbytes());
		done += tensor.nbytes();
	}
	return whole;
}

static void set(at::Tensor &device, const at::Tensor &host)
{
	copy(device.data_ptr(), host.data_ptr(), host.nbytes());
	DRIVER(cuStreamSynchronize(current_stream()));
}

/* What a product with a number is to torch. */
static at::Tensor &mul_out(const at::Tensor &self, const at::Tensor &other, at::Tensor &out)
{
	set(out, to_host(out).mul_(self.is_cpu() ? self : other));
	return out;
}

static at::Tensor &div_(at::Tensor &self, const at::Tensor &other)
{
	set(self, to_host(self).div_(other));
	return self;
}

TORCH_LIBRARY_IMPL(aten, CUDA, library)
{
	library.impl("empty.memory_format", empty);
	library.impl("empty_strided", empty_strided);
	library.impl("copy_", copy_);
	library.impl("cat", cat);
	library.impl("mul.out", mul_out);
	library.impl("div_.Tensor", div_);
}

PYBIND11_MODULE(standin, module)
{
	static const Guard guard;

	c10::impl::registerDeviceGuard(c10::DeviceType::CUDA, &guard);
	module.def("to_device", &to_device);
	module.def("to_host", &to_host);
}
