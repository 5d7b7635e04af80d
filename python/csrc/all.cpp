/* SPDX-License-Identifier: BSD-3-Clause */
/* The extension as one unit: what it includes of torch takes most of the time, and is read once. */
#include "call.cpp"
#include "engine.cpp"
#include "group.cpp"
#include "job.cpp"
#include "module.cpp"
#include "number.cpp"
#include "work.cpp"
