/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu_await: what a stream does between the copies of an enqueued call (core_stream.h): it says
 * that it has come so far, and waits for the host.
 *
 * When: where the driver's own way to wait for a word is slow (gpu_word.h). On an H200 on which two
 * processes waited so a wait took 8.6 ms, under MPS as well: the hardware puts the waiting queue
 * aside, and comes back to it with its next time slice. A kernel sees the word within microseconds,
 * and holds a place on a multiprocessor meanwhile.
 */
#include "gpu/kernels/gpu_await.h"
#include "gpu/kernels/gpu_kernel.h"

/*
 * The first word: writer, this thread, for the copies that the stream has done before; reader, the
 * engine on the host. The other: writer, the engine, for what the real MPI has left in the stage;
 * reader, this thread, for the copies that the stream does next.
 */
GPU_KERNEL(gpu_await, struct gpu_await_args)
{
	if (gpu_thread() || gpu_block())
		return;
	gpu_store_release(args.came, args.number);
	while (args.awaited && gpu_load_acquire(args.awaited) < args.number)
		gpu_pause();
}
