/* SPDX-License-Identifier: BSD-3-Clause */
#include "engine.h"
#include "job.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <algorithm>
#include <chrono>
#include <list>
#include <set>
#include <system_error>
#include <thread>

namespace gpucoll
{

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

struct Engine {
	std::mutex lock;
	std::condition_variable changed;
	std::list<PendingPtr> pending;      /* in the order in which they were submitted */
	std::list<PendingPtr> ended;        /* to be completed, in the order in which they ended */
	std::vector<PendingPtr> completing; /* by a thread */
	std::thread tester;
	std::vector<std::thread> completers;
	size_t busy = 0; /* completers */
	Clock::time_point last_taken;
	bool ends = false;
	std::thread::id stopper; /* who has ended it, and goes on alone */
};

/* Never destroyed: threads may be in it when the process ends. */
static Engine &engine()
{
	static Engine *made = new Engine;

	return *made;
}

static thread_local const Pending *completing_here;

/*
 * On a thread of ours: the device of what it works on becomes the thread's, and stays so. With
 * none, CUDA's runtime would make a context on device 0, which costs memory there. Errors come
 * again, where they can be told.
 */
static void use_device(const Pending &work) noexcept
{
	try {
		if (auto device = work.device())
			c10::impl::VirtualGuardImpl(device->type()).setDevice(*device);
	} catch (...) {
	}
}

/* ---- completion ---- */

/* Without the lock, but for a moment at the end. The work is in `completing`. */
static void complete(Engine &e, PendingPtr work)
{
	const Pending *outer = completing_here;

	completing_here = work.get();
	work->complete();
	completing_here = outer;
	std::lock_guard<std::mutex> held(e.lock);

	e.completing.erase(std::find(e.completing.begin(), e.completing.end(), work));
}

/* The next of what has ended, or of it that one; under the lock. */
static PendingPtr take(Engine &e, std::list<PendingPtr>::iterator at)
{
	PendingPtr work = std::move(*at);

	e.ended.erase(at);
	e.completing.push_back(work);
	return work;
}

static void complete_ended()
{
	Engine &e = engine();
	std::unique_lock<std::mutex> held(e.lock);

	while (true) {
		e.changed.wait(held, [&] { return e.ends || !e.ended.empty(); });
		if (e.ends)
			return;
		PendingPtr work = take(e, e.ended.begin());

		e.busy++;
		e.last_taken = Clock::now();
		held.unlock();
		use_device(*work);
		complete(e, std::move(work));
		held.lock();
		e.busy--;
	}
}

/*
 * One completes, so that callbacks come in order. Where they all seem to wait, for what other calls
 * bring, there must be one more. Under the lock.
 */
static void have_completer(Engine &e)
{
	if (e.ended.empty() || e.busy < e.completers.size() || e.ends ||
	    Clock::now() < e.last_taken + 2ms)
		return;
	try {
		e.completers.emplace_back(complete_ended);
	} catch (const std::system_error &) { /* later, perhaps */
	}
}

/* ---- progress ---- */

/* Under the lock. */
static void test_all(Engine &e, bool ours)
{
	std::set<const void *> waiting; /* groups */

	for (auto at = e.pending.begin(); at != e.pending.end();) {
		auto work = at++;
		const void *group = (*work)->group();

		if (ours)
			use_device(**work);
		if ((*work)->step(!waiting.count(group)))
			e.ended.splice(e.ended.end(), e.pending, work);
		else if (!(*work)->has_begun())
			waiting.insert(group);
	}
}

/* Whether its callbacks may come now: earlier ones of its group have come. Under the lock. */
static bool is_next(const Engine &e, std::list<PendingPtr>::const_iterator at)
{
	auto same = [&](const PendingPtr &other) { return other->group() == (*at)->group(); };

	return std::none_of(e.ended.begin(), at, same) &&
	       std::none_of(e.completing.begin(), e.completing.end(), same);
}

void engine_progress(const Pending *mine)
{
	Engine &e = engine();

	if (job_is_fork())
		return;
	std::unique_lock<std::mutex> held(e.lock, std::try_to_lock);

	/* Once the engine has ended, so has the program, nearly: other threads' works stay as they
	 * are. */
	if (!held.owns_lock() || (e.ends && std::this_thread::get_id() != e.stopper))
		return;
	test_all(e, false);
	auto at = std::find_if(e.ended.begin(), e.ended.end(),
			       [&](const PendingPtr &work) { return work.get() == mine; });

	PendingPtr work;

	if (e.ends)
		at = e.ended.begin(); /* there is nobody else */
	if (at != e.ended.end() && (e.ends || is_next(e, at)))
		work = take(e, at);
	if (!e.ended.empty())
		e.changed.notify_all();
	held.unlock();
	if (work.defined())
		complete(e, std::move(work));
}

static void run()
{
	Engine &e = engine();

	while (true) {
		bool hosts = false;
		{
			std::unique_lock<std::mutex> held(e.lock);

			e.changed.wait(held, [&] {
				return e.ends || !e.pending.empty() || !e.ended.empty();
			});
			if (e.ends)
				return;
			test_all(e, true);
			have_completer(e);
			if (!e.ended.empty())
				e.changed.notify_all();
			for (auto &work : e.pending)
				hosts = hosts || !work->has_begun() || !work->device();
		}
		std::this_thread::sleep_for(hosts ? 20us : 200us);
	}
}

void engine_submit(PendingPtr work)
{
	Engine &e = engine();
	std::lock_guard<std::mutex> held(e.lock);

	if (!e.tester.joinable() && !e.ends) {
		e.completers.emplace_back(complete_ended);
		e.tester = std::thread(run);
	}
	e.pending.push_back(std::move(work));
	e.changed.notify_all();
}

/* ---- what there is ---- */

std::vector<PendingPtr> engine_pending(const void *group)
{
	Engine &e = engine();
	std::lock_guard<std::mutex> held(e.lock);
	std::vector<PendingPtr> found;
	auto add = [&](const PendingPtr &work) {
		if (work->group() == group && work.get() != completing_here)
			found.push_back(work);
	};

	std::for_each(e.completing.begin(), e.completing.end(), add);
	std::for_each(e.ended.begin(), e.ended.end(), add);
	std::for_each(e.pending.begin(), e.pending.end(), add);
	return found;
}

bool engine_completes(const Pending *work)
{
	return completing_here == work;
}

bool engine_is_busy()
{
	Engine &e = engine();
	std::lock_guard<std::mutex> held(e.lock);

	return !e.pending.empty() || !e.ended.empty() || !e.completing.empty();
}

/* What has ended nearly, at the end of a program, is given a second. */
static void finish_pending()
{
	auto end = Clock::now() + 1s;

	while (engine_is_busy() && Clock::now() < end)
		std::this_thread::sleep_for(100us);
}

void engine_stop()
{
	Engine &e = engine();

	if (job_is_fork())
		return;
	finish_pending();
	{
		std::lock_guard<std::mutex> held(e.lock);

		e.ends = true;
		e.stopper = std::this_thread::get_id();
		e.changed.notify_all();
	}
	if (e.tester.joinable())
		e.tester.join();
	/* One may be in a callback that waits for ever. */
	for (auto &completer : e.completers)
		engine_is_busy() ? completer.detach() : completer.join();
}

} // namespace gpucoll
