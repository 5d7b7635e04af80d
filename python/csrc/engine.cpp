/* SPDX-License-Identifier: BSD-3-Clause */
#include "engine.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <chrono>
#include <list>
#include <set>
#include <thread>
#include <unistd.h>

namespace gpucoll
{

struct Engine {
	std::mutex lock;
	std::condition_variable work_or_end;
	std::list<PendingPtr> pending;
	std::vector<std::thread> threads; /* the one that tests, and those that complete */
	bool ends = false;
	std::atomic<pid_t> process{0}; /* whose threads they are: a fork has none */

	std::mutex ended_lock;
	std::condition_variable ended_or_end;
	std::list<PendingPtr> ended;
	int idle = 0; /* of those that complete */
};

/* Never destroyed: threads may be in it when the process ends. */
static Engine &engine()
{
	static Engine *made = new Engine;

	return *made;
}

/*
 * On a thread of ours: the device of what it works on becomes the thread's, and stays so. With
 * none, CUDA's runtime would make a context on device 0, which costs memory there.
 */
static void use_device(const Pending &work)
{
	if (auto device = work.device())
		c10::impl::VirtualGuardImpl(device->type()).setDevice(*device);
}

static std::list<PendingPtr> take_ended(Engine &e, bool ours)
{
	std::list<PendingPtr> ended;
	std::set<const void *> waiting; /* groups */

	for (auto at = e.pending.begin(); at != e.pending.end();) {
		auto work = at++;
		const void *group = (*work)->group();

		if (ours)
			use_device(**work);
		if ((*work)->step(!waiting.count(group)))
			ended.splice(ended.end(), e.pending, work);
		else if (!(*work)->has_begun())
			waiting.insert(group);
	}
	return ended;
}

static void complete_ended()
{
	Engine &e = engine();
	std::unique_lock<std::mutex> held(e.ended_lock);

	while (true) {
		e.idle++;
		e.ended_or_end.wait(held, [&] { return e.ends || !e.ended.empty(); });
		e.idle--;
		if (e.ends)
			return;
		PendingPtr work = std::move(e.ended.front());
		e.ended.pop_front();
		held.unlock();
		use_device(*work);
		work->complete();
		work.reset();
		held.lock();
	}
}

/* There is an idle thread for each, as any may wait for what a later one does. */
static void hand_over(std::list<PendingPtr> ended)
{
	Engine &e = engine();

	if (ended.empty())
		return;
	std::lock_guard<std::mutex> held(e.ended_lock);
	e.ended.splice(e.ended.end(), ended);
	for (size_t i = e.idle; i < e.ended.size() && !e.ends; i++)
		e.threads.emplace_back(complete_ended);
	e.ended_or_end.notify_all();
}

static void progress(const Pending *mine, bool ours)
{
	Engine &e = engine();
	std::list<PendingPtr> ended;
	PendingPtr found;
	{
		std::unique_lock<std::mutex> held(e.lock, std::try_to_lock);

		if (!held.owns_lock())
			return;
		ended = take_ended(e, ours);
	}
	for (auto work = ended.begin(); work != ended.end(); ++work) {
		if (work->get() != mine)
			continue;
		found = std::move(*work);
		ended.erase(work);
		break;
	}
	hand_over(std::move(ended));
	if (found.defined())
		found->complete();
}

void engine_progress(const Pending *mine)
{
	progress(mine, false);
}

static void run()
{
	using namespace std::chrono_literals;
	Engine &e = engine();

	while (true) {
		bool hosts = false;
		{
			std::unique_lock<std::mutex> held(e.lock);

			e.work_or_end.wait(held, [&] { return e.ends || !e.pending.empty(); });
			if (e.ends)
				return;
			for (auto &work : e.pending)
				hosts = hosts || !work->has_begun() || !work->device();
		}
		progress(nullptr, true);
		std::this_thread::sleep_for(hosts ? 20us : 200us);
	}
}

void engine_submit(PendingPtr work)
{
	Engine &e = engine();

	/* A fork may have been made while another thread had the lock. */
	TORCH_CHECK(!e.process || e.process == getpid(),
		    "gpucoll: a process that was forked has no MPI");
	std::lock_guard<std::mutex> held(e.lock);

	e.pending.push_back(std::move(work));
	if (!e.process && !e.ends) {
		std::lock_guard<std::mutex> ended_held(e.ended_lock);

		e.process = getpid();
		e.threads.emplace_back(run);
	}
	e.work_or_end.notify_one();
}

std::vector<PendingPtr> engine_pending(const void *group)
{
	Engine &e = engine();
	std::lock_guard<std::mutex> held(e.lock);
	std::vector<PendingPtr> found;

	for (auto &work : e.pending) {
		if (work->group() == group)
			found.push_back(work);
	}
	return found;
}

bool engine_is_busy()
{
	Engine &e = engine();
	std::lock_guard<std::mutex> held(e.lock);

	return !e.pending.empty();
}

void engine_stop()
{
	Engine &e = engine();
	std::vector<std::thread> threads;

	if (e.process != getpid())
		return;
	{
		std::scoped_lock held(e.lock, e.ended_lock);

		e.ends = true;
		threads.swap(e.threads);
		e.work_or_end.notify_all();
		e.ended_or_end.notify_all();
	}
	for (auto &thread : threads)
		thread.join();
}

} // namespace gpucoll
