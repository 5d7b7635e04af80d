/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Drives what is under way: a thread, and whoever waits. One lock guards the list; whoever takes a
 * call off it completes it without the lock, as completion runs the callers' callbacks.
 */
#ifndef GPUCOLL_TORCH_ENGINE_H
#define GPUCOLL_TORCH_ENGINE_H

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace gpucoll
{

/* A call that is under way. */
class Pending : public c10d::Work
{
      public:
	using c10d::Work::Work;

	/*
	 * Under the engine's lock, in the order in which calls were submitted. `may_begin`: that no
	 * earlier call of this one's `queue` waits to be begun. Returns whether it has ended, well
	 * or not.
	 */
	virtual bool step(bool may_begin) = 0;
	virtual bool has_begun() const
	{
		return true;
	}
	virtual const void *queue() const
	{
		return nullptr;
	}
	/* Once, by one thread, without the lock. */
	virtual void complete() = 0;
	/* Whether it is the host that brings it on, which should look often then. */
	virtual bool is_hosts() const = 0;
};

void engine_submit(c10::intrusive_ptr<Pending> work);

/* Tests all that is pending, unless another thread does. Any thread. */
void engine_progress();

bool engine_is_busy();

/* Ends the thread; what is pending stays so. The caller holds no lock, Python's neither. */
void engine_stop();

} // namespace gpucoll

#endif
