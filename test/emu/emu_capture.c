/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Capturing graphs, and launching them: what is put on a capturing stream goes into the graph, one
 * after the other. While one is captured the driver refuses
 * calls that may be unsafe, by the mode of the capture and of the calling thread, and work on the
 * legacy stream, which blocking streams wait for; either way the capture is lost.
 */
#include "emu.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct node {
	struct node *next;
	void (*function)(void *);
	void *argument;
	bool waits;
};

/* A stream of a capture, the first one or one that has joined it. */
struct member {
	struct emu_stream *stream;
	uint64_t puts, awaited; /* on it; and so many the first one has waited for */
};

enum { MOST_MEMBERS = 8 };

struct capture {
	struct capture *next;
	struct emu_stream *stream;
	CUcontext context;
	bool blocking;
	CUstreamCaptureMode mode;
	pthread_t thread;
	bool invalid;
	struct node *nodes, **last;
	uint64_t number; /* from 1 on */
	struct member members[MOST_MEMBERS];
	int num_members;
};

struct CUgraph_st {
	struct node *nodes;
};

struct CUgraphExec_st {
	struct node *nodes;
};

static void free_nodes(struct node *nodes)
{
	struct node *node;

	while ((node = nodes)) {
		nodes = node->next;
		free(node->argument);
		free(node);
	}
}

static void *copy_of(const void *argument, size_t bytes)
{
	void *copy = malloc(bytes);

	return argument ? memcpy(copy, argument, bytes) : copy;
}

static struct node *node_new(void (*function)(void *), void *argument, bool waits)
{
	struct node *node = malloc(sizeof(*node));

	*node = (struct node){.function = function, .argument = argument, .waits = waits};
	return node;
}

static struct node *copy_nodes(const struct node *from)
{
	struct node *all = NULL, **last = &all;

	for (; from; from = from->next) {
		*last = node_new(from->function,
				 copy_of(from->argument, malloc_usable_size(from->argument)),
				 from->waits);
		last = &(*last)->next;
	}
	return all;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct capture *captures; /* under the lock */
static uint64_t num_ever;
static atomic_int num_captures; /* without it: mostly there are none, and every call asks */
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static bool any(void)
{
	return atomic_load(&num_captures) > 0;
}

static struct member *member_of(struct capture *capture, const struct emu_stream *stream)
{
	for (int i = 0; i < capture->num_members; i++) {
		if (capture->members[i].stream == stream)
			return &capture->members[i];
	}
	return NULL;
}

/* Under the lock. */
static struct capture **find(const struct emu_stream *stream)
{
	struct capture **link = &captures;

	while (*link && !member_of(*link, stream))
		link = &(*link)->next;
	return link;
}

bool emu_capture_is_on(const struct emu_stream *stream)
{
	if (!any())
		return false;
	pthread_mutex_lock(&lock);
	bool on = *find(stream);
	pthread_mutex_unlock(&lock);
	return on;
}

bool emu_capture_take(struct emu_stream *stream, void (*function)(void *), void *argument,
		      bool waits)
{
	struct capture *capture;

	if (!any())
		return false;
	pthread_mutex_lock(&lock);
	capture = *find(stream);
	if (capture) {
		*capture->last = node_new(function, argument, waits);
		capture->last = &(*capture->last)->next;
		member_of(capture, stream)->puts++;
	}
	pthread_mutex_unlock(&lock);
	return capture != NULL;
}

struct emu_captured emu_capture_record(const struct emu_stream *stream)
{
	struct emu_captured captured = {0};
	struct capture *capture;

	if (!any())
		return captured;
	pthread_mutex_lock(&lock);
	capture = *find(stream);
	if (capture)
		captured = (struct emu_captured){capture->number, (struct emu_stream *)stream,
						 member_of(capture, stream)->puts};
	pthread_mutex_unlock(&lock);
	return captured;
}

/* Under the lock. What is put on the streams is in one order in the graph, so that nothing is lost.
 */
static CUresult follow(struct capture *capture, struct emu_stream *stream,
		       const struct emu_captured *captured)
{
	struct member *from = member_of(capture, captured->stream);

	if (!member_of(capture, stream)) {
		if (capture->num_members == MOST_MEMBERS || *find(stream))
			return CUDA_ERROR_STREAM_CAPTURE_MERGE;
		capture->members[capture->num_members++] =
			(struct member){stream, 1, 0}; /* it is to be waited for in any case */
	}
	if (stream == capture->stream && from && from->awaited < captured->puts)
		from->awaited = captured->puts;
	return CUDA_SUCCESS;
}

CUresult emu_capture_follow(struct emu_stream *stream, const struct emu_captured *captured)
{
	CUresult result = CUDA_ERROR_STREAM_CAPTURE_ISOLATION; /* that capture has ended */
	struct capture *capture;

	pthread_mutex_lock(&lock);
	for (capture = captures; capture && capture->number != captured->number;)
		capture = capture->next;
	if (capture)
		result = follow(capture, stream, captured);
	pthread_mutex_unlock(&lock);
	return result;
}

static bool forbids(const struct capture *capture)
{
	bool mine = pthread_equal(capture->thread, pthread_self());

	if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED ||
	    capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return false;
	return mine || (thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
			capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult emu_capture_unsafe(void)
{
	CUresult result = CUDA_SUCCESS;

	if (!any())
		return result;
	pthread_mutex_lock(&lock);
	for (struct capture *capture = captures; capture; capture = capture->next) {
		if (!forbids(capture))
			continue;
		capture->invalid = true;
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

/* Whether a blocking stream of the context captures; what does so may be broken by that. */
static bool legacy_is_captured(CUcontext context, bool breaks)
{
	bool captured = false;

	if (!any())
		return false;
	pthread_mutex_lock(&lock);
	for (struct capture *capture = captures; capture; capture = capture->next) {
		if (!capture->blocking || capture->context != context)
			continue;
		capture->invalid |= breaks;
		captured = true;
	}
	pthread_mutex_unlock(&lock);
	return captured;
}

CUresult emu_capture_use(struct emu_stream *stream, CUcontext context)
{
	if (stream == context->legacy && legacy_is_captured(context, true))
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	return CUDA_SUCCESS;
}

CUresult emu_capture_wait(struct emu_stream *stream)
{
	CUresult result = CUDA_SUCCESS;

	if (!any())
		return result;
	pthread_mutex_lock(&lock);
	struct capture *capture = *find(stream);
	if (capture) {
		capture->invalid = true;
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

/* Out of the list; NULL: there is none. The caller frees it. */
static struct capture *take(const struct emu_stream *stream)
{
	pthread_mutex_lock(&lock);
	struct capture **link = find(stream), *capture = *link;
	if (capture) {
		*link = capture->next;
		atomic_fetch_sub(&num_captures, 1);
	}
	pthread_mutex_unlock(&lock);
	return capture;
}

static void free_capture(struct capture *capture)
{
	if (capture)
		free_nodes(capture->nodes);
	free(capture);
}

void emu_capture_drop(const struct emu_stream *stream)
{
	free_capture(take(stream));
}

/* ---- the API ---- */

EMU_API CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	CUstreamCaptureMode before = thread_mode;

	EMU_ENTER();
	thread_mode = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
	struct emu_stream *stream = emu_stream_of(handle);

	EMU_ENTER();
	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	*status = CU_STREAM_CAPTURE_STATUS_NONE;
	if (!any())
		return CUDA_SUCCESS;
	if (stream == emu_current()->legacy && legacy_is_captured(emu_current(), false))
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	pthread_mutex_lock(&lock);
	struct capture *capture = *find(stream);
	*status = !capture           ? CU_STREAM_CAPTURE_STATUS_NONE
		  : capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
				     : CU_STREAM_CAPTURE_STATUS_ACTIVE;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode)
{
	struct emu_stream *stream = emu_stream_of(handle);
	struct capture *capture;

	EMU_ENTER();
	if (!stream || stream == emu_current()->legacy)
		return stream ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_ERROR_INVALID_HANDLE;
	if (emu_capture_is_on(stream))
		return CUDA_ERROR_ILLEGAL_STATE;
	capture = malloc(sizeof(*capture));
	*capture = (struct capture){.next = captures,
				    .stream = stream,
				    .context = emu_current(),
				    .blocking = emu_stream_is_blocking(stream),
				    .mode = mode,
				    .thread = pthread_self()};
	capture->last = &capture->nodes;
	capture->num_members = 1;
	capture->members[0] = (struct member){.stream = stream};
	pthread_mutex_lock(&lock);
	capture->number = ++num_ever;
	capture->next = captures;
	captures = capture;
	atomic_fetch_add(&num_captures, 1);
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

/* A stream that has joined, for which the first one has not waited, would be cut off. */
static CUresult end_of(const struct capture *capture)
{
	for (int i = 1; i < capture->num_members; i++) {
		if (capture->members[i].awaited < capture->members[i].puts)
			return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	}
	return capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
	struct emu_stream *stream = emu_stream_of(handle);
	struct capture *capture;
	CUresult result;

	EMU_ENTER();
	if (!stream || !graph)
		return CUDA_ERROR_INVALID_VALUE;
	capture = take(stream);
	*graph = NULL;
	if (!capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	result = capture->stream == stream ? end_of(capture) : CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	if (result != CUDA_SUCCESS) {
		free_capture(capture);
		return result;
	}
	*graph = malloc(sizeof(**graph));
	(*graph)->nodes = capture->nodes;
	free(capture);
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
						     unsigned long long flags)
{
	EMU_ENTER();
	if (!exec || !graph || flags)
		return CUDA_ERROR_INVALID_VALUE;
	*exec = malloc(sizeof(**exec));
	(*exec)->nodes = copy_nodes(graph->nodes);
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuGraphLaunch(CUgraphExec exec, CUstream handle)
{
	struct emu_stream *stream;
	CUresult result;

	EMU_ENTER();
	if (!exec)
		return CUDA_ERROR_INVALID_VALUE;
	result = emu_stream_use(handle, &stream);
	for (struct node *node = exec->nodes; node && result == CUDA_SUCCESS; node = node->next) {
		void *argument = copy_of(node->argument, malloc_usable_size(node->argument));

		(node->waits ? emu_submit_waiting : emu_submit)(stream, node->function, argument);
	}
	return result;
}

EMU_API CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec exec)
{
	EMU_ENTER();
	if (!exec)
		return CUDA_ERROR_INVALID_VALUE;
	free_nodes(exec->nodes);
	free(exec);
	return CUDA_SUCCESS;
}

EMU_API CUresult CUDAAPI cuGraphDestroy(CUgraph graph)
{
	EMU_ENTER();
	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	free_nodes(graph->nodes);
	free(graph);
	return CUDA_SUCCESS;
}
