/* SPDX-License-Identifier: BSD-3-Clause */
#include "group.h"

#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

namespace py = pybind11;

static c10::intrusive_ptr<c10d::Backend> create(const c10::intrusive_ptr<c10d::Store> &store,
						int rank, int size,
						const std::chrono::milliseconds &timeout)
{
	gpucoll::job_start();
	return c10::make_intrusive<gpucoll::Group>(store, rank, size, timeout);
}

PYBIND11_MODULE(_C, module)
{
	module.def("create", &create, py::arg("store"), py::arg("rank"), py::arg("size"),
		   py::arg("timeout"), py::call_guard<py::gil_scoped_release>());
	module.def("start", &gpucoll::job_start, py::call_guard<py::gil_scoped_release>());
	module.def("rank", &gpucoll::job_rank);
	module.def("size", &gpucoll::job_size);
	module.def("share", &gpucoll::job_share, py::call_guard<py::gil_scoped_release>());
	module.def("is_on_one_node", &gpucoll::job_is_on_one_node,
		   py::call_guard<py::gil_scoped_release>());
	module.def("stop", &gpucoll::engine_stop, py::call_guard<py::gil_scoped_release>());
}
