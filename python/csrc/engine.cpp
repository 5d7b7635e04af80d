/* SPDX-License-Identifier: BSD-3-Clause */
#include "engine.h"

#include <chrono>
#include <list>
#include <set>
#include <thread>

namespace gpucoll
{

struct Engine {
	std::mutex lock;
	std::condition_variable work_or_end;
	std::list<c10::intrusive_ptr<Pending>> pending;
	std::thread thread;
	bool ends = false;
};

/* Never destroyed: threads may be in it when the process ends. */
static Engine &engine()
{
	static Engine *made = new Engine;

	return *made;
}

static std::list<c10::intrusive_ptr<Pending>> take_ended(Engine &e)
{
	std::list<c10::intrusive_ptr<Pending>> ended;
	std::set<const void *> waiting; /* queues */

	for (auto at = e.pending.begin(); at != e.pending.end();) {
		auto work = at++;
		const void *queue = (*work)->queue();

		if ((*work)->step(!waiting.count(queue)))
			ended.splice(ended.end(), e.pending, work);
		else if (!(*work)->has_begun())
			waiting.insert(queue);
	}
	return ended;
}

void engine_progress()
{
	Engine &e = engine();
	std::list<c10::intrusive_ptr<Pending>> ended;
	{
		std::unique_lock<std::mutex> held(e.lock, std::try_to_lock);

		if (!held.owns_lock())
			return;
		ended = take_ended(e);
	}
	for (auto &work : ended)
		work->complete();
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
				hosts = hosts || work->is_hosts();
		}
		engine_progress();
		std::this_thread::sleep_for(hosts ? 20us : 500us);
	}
}

void engine_submit(c10::intrusive_ptr<Pending> work)
{
	Engine &e = engine();
	std::lock_guard<std::mutex> held(e.lock);

	e.pending.push_back(std::move(work));
	if (!e.thread.joinable() && !e.ends)
		e.thread = std::thread(run);
	e.work_or_end.notify_one();
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
	{
		std::lock_guard<std::mutex> held(e.lock);

		e.ends = true;
		e.work_or_end.notify_one();
	}
	if (e.thread.joinable())
		e.thread.join();
}

} // namespace gpucoll
