/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Drives what is under way. A thread tests it, and so does whoever waits; one lock guards the
 * lists. What has ended is completed without the lock, as that runs callbacks of the program's, and
 * never by the thread that tests, as a callback may wait for another call: by whoever waits for it,
 * or by another thread, of which there is always one that does not seem to wait.
 */
#ifndef GPUCOLL_TORCH_ENGINE_H
#define GPUCOLL_TORCH_ENGINE_H

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace gpucoll
{

/* A call that is under way. */
class Pending : public c10d::Work
{
      public:
	using c10d::Work::Work;

	/*
	 * Under the engine's lock, in the order in which calls were submitted. `may_begin`: that no
	 * earlier call of this one's group waits to be begun. Returns whether it has ended, well or
	 * not. Does not throw.
	 */
	virtual bool step(bool may_begin) noexcept = 0;
	virtual bool has_begun() const = 0;
	/* Whose it is. */
	virtual const void *group() const = 0;
	/* Once, by one thread, without the lock. */
	virtual void complete() noexcept = 0;
	/* Of device memory, which; then the host need not look often. */
	virtual std::optional<c10::Device> device() const = 0;
};

using PendingPtr = c10::intrusive_ptr<Pending>;

void engine_submit(PendingPtr work);

/*
 * Tests all that is pending, unless another thread does, and completes `mine` here if it has ended,
 * and is the next of its group to be completed. Any thread.
 */
void engine_progress(const Pending *mine);

/* Those of a group that have not been completed, but for one that this thread is completing. */
std::vector<PendingPtr> engine_pending(const void *group);

/* Whether this thread is completing it: is in a callback of it. */
bool engine_completes(const Pending *work);

bool engine_is_busy();

/*
 * Ends the threads, a second later at most; what is pending then stays so until somebody waits for
 * it. The caller holds no lock, Python's neither. Afterwards only this thread's calls go on.
 */
void engine_stop();

} // namespace gpucoll

#endif
