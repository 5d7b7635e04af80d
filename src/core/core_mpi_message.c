/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages from and to device memory. See core_message.h. */
#include "core/core_mpi_message.h"
#include "core/core_mpi.h"
#include "core/core_mpi_type.h"
#include "core/core_stats.h"
#include "util/util_config.h"
#include "util/util_log.h"
#include "util/util_time.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { SENDS = 1, RECEIVES = 2, REPLACES = 4, NONBLOCKING = 8, PERSISTENT = 16 };

static const struct {
	const char *name;
	int flags;
} kinds[CORE_MESSAGE_NUM] = {
	[CORE_SEND] = {"MPI_Send", SENDS},
	[CORE_BSEND] = {"MPI_Bsend", SENDS},
	[CORE_SSEND] = {"MPI_Ssend", SENDS},
	[CORE_RSEND] = {"MPI_Rsend", SENDS},
	[CORE_RECV] = {"MPI_Recv", RECEIVES},
	[CORE_MRECV] = {"MPI_Mrecv", RECEIVES},
	[CORE_SENDRECV] = {"MPI_Sendrecv", SENDS | RECEIVES},
	[CORE_SENDRECV_REPLACE] = {"MPI_Sendrecv_replace", RECEIVES | REPLACES},
	[CORE_ISEND] = {"MPI_Isend", SENDS | NONBLOCKING},
	[CORE_IBSEND] = {"MPI_Ibsend", SENDS | NONBLOCKING},
	[CORE_ISSEND] = {"MPI_Issend", SENDS | NONBLOCKING},
	[CORE_IRSEND] = {"MPI_Irsend", SENDS | NONBLOCKING},
	[CORE_IRECV] = {"MPI_Irecv", RECEIVES | NONBLOCKING},
	[CORE_IMRECV] = {"MPI_Imrecv", RECEIVES | NONBLOCKING},
	[CORE_ISENDRECV] = {"MPI_Isendrecv", SENDS | RECEIVES | NONBLOCKING},
	[CORE_ISENDRECV_REPLACE] = {"MPI_Isendrecv_replace", RECEIVES | REPLACES | NONBLOCKING},
	[CORE_SEND_INIT] = {"MPI_Send_init", SENDS | PERSISTENT},
	[CORE_BSEND_INIT] = {"MPI_Bsend_init", SENDS | PERSISTENT},
	[CORE_SSEND_INIT] = {"MPI_Ssend_init", SENDS | PERSISTENT},
	[CORE_RSEND_INIT] = {"MPI_Rsend_init", SENDS | PERSISTENT},
	[CORE_RECV_INIT] = {"MPI_Recv_init", RECEIVES | PERSISTENT},
};

const char *core_message_name(enum core_message_kind kind)
{
	return kinds[kind].name;
}

static bool is(const struct core_message_call *call, int flags)
{
	return kinds[call->kind].flags & flags;
}

int core_mpi_raise_on(MPI_Comm comm, enum util_status status)
{
	int error = status == UTIL_ERR_NO_MEMORY ? MPI_ERR_NO_MEM : MPI_ERR_OTHER;

	PMPI_Comm_call_errhandler(comm, error);
	return error;
}

/* ---- what memory a buffer is, and how it is staged ---- */

/* Where the data lie one after the other as MPI sends them, the application's own count and type
 * will do. */
static bool is_solid(const struct core_typemap *map, int64_t count)
{
	struct core_mpi_solid solid;

	return map->runs == &map->only_run &&
	       (count == 1 || map->extent == (ptrdiff_t)map->only_run.length) &&
	       core_mpi_find_solid(core_mpi_as_type(map->type), &solid);
}

static enum util_status describe(struct core_mpi_side *side, void *buffer, int64_t count,
				 MPI_Datatype type)
{
	struct core_operand *operand = &side->operand;
	struct core_typemap *map = calloc(1, sizeof(*map));

	if (!map)
		return UTIL_ERR_NO_MEMORY;
	operand->maps = map;
	operand->address = buffer;
	if (!core_mpi_type_map(type, map))
		return UTIL_ERR_MPI;
	operand->num_maps = 1;
	side->element = map->size;
	if (is_solid(map, count)) {
		side->room = map->only_run.length;
		map->only_run.length *= (size_t)count;
		map->hi = map->lo + (ptrdiff_t)map->only_run.length;
		count = 1;
	}
	return core_operand_add(operand, 0, (size_t)count, map);
}

/* Data under MPI_BOTTOM may be anywhere, others are where their ends are. */
static enum util_status classify(struct core_mpi_side *side, struct gpu_pointer *where)
{
	struct core_operand *operand = &side->operand;
	const struct core_typemap *map = operand->maps;
	enum util_status status = UTIL_OK;

	gpu_pointer_classify(core_address(operand->address, operand->lo), where);
	if (where->memory == GPU_MEMORY_HOST)
		gpu_pointer_classify(core_address(operand->address, operand->hi - 1), where);
	if (!operand->address && where->memory == GPU_MEMORY_HOST && !map->runs)
		status = core_mpi_find_runs(operand);
	for (size_t i = 0; !operand->address && map->runs && i < map->num_runs &&
			   where->memory == GPU_MEMORY_HOST;
	     i++)
		gpu_pointer_classify(core_address(operand->address, map->runs[i].offset), where);
	return status;
}

/* A message of bytes, of which an int may not tell how many. */
static enum util_status type_of_bytes(struct core_mpi_side *side, size_t bytes)
{
	enum { LARGE = 1 << 30 };
	int lengths[2] = {(int)(bytes / LARGE), (int)(bytes % LARGE)};
	MPI_Aint displs[2] = {0, (MPI_Aint)(bytes - bytes % LARGE)};
	MPI_Datatype types[2] = {MPI_DATATYPE_NULL, MPI_PACKED};

	side->count = (int64_t)bytes;
	side->type = MPI_PACKED;
	if (bytes <= INT_MAX)
		return UTIL_OK;
	side->count = 1;
	PMPI_Type_contiguous(LARGE, MPI_PACKED, &types[0]);
	PMPI_Type_create_struct(2, lengths, displs, types, &side->made);
	PMPI_Type_free(&types[0]);
	PMPI_Type_commit(&side->made);
	side->type = side->made;
	return UTIL_OK;
}

/* MPI sends some bytes twice: the real MPI is to find them as they lie. */
static enum util_status open_as_they_lie(struct core_mpi_side *side,
					 const struct gpu_pointer *where)
{
	struct core_operand *operand = &side->operand;
	enum util_status status = core_stage_open(&side->stage, operand->address, operand->lo,
						  operand->hi, where, NULL);

	side->buffer = side->stage.host_address;
	return status;
}

static enum util_status open_dense(struct core_mpi_side *side, const struct gpu_pointer *where)
{
	const struct core_typemap *map = side->operand.maps;
	enum util_status status = core_dense_open(&side->dense, &side->operand, where);

	if (status != UTIL_OK)
		return status;
	side->buffer = core_dense_data(&side->dense);
	if (!side->room)
		return type_of_bytes(side, core_dense_bytes(&side->dense));
	side->buffer = core_address(side->buffer, -map->only_run.offset);
	return UTIL_OK;
}

/* UTIL_ERR_MPI: the real MPI will refuse the type, and knows the right error. */
static enum util_status open_side(struct core_mpi_side *side, const void *buffer, int64_t count,
				  core_handle type)
{
	struct core_typemap *map;
	struct gpu_pointer where;
	enum util_status status;

	side->buffer = (void *)buffer;
	side->count = count;
	side->type = core_mpi_as_type(type);
	side->made = MPI_DATATYPE_NULL;
	if (count <= 0 || side->type == MPI_DATATYPE_NULL)
		return UTIL_OK;
	status = describe(side, side->buffer, count, side->type);
	if (status != UTIL_OK || side->operand.lo == side->operand.hi)
		return status;
	status = classify(side, &where);
	if (status != UTIL_OK || where.memory == GPU_MEMORY_HOST)
		return status;
	side->staged = true;
	map = side->operand.maps;
	if (side->room)
		return open_dense(side, &where);
	status = core_mpi_find_order(map);
	if (status == UTIL_OK)
		status = map->in_order ? open_dense(side, &where) : open_as_they_lie(side, &where);
	if (status == UTIL_ERR_UNSUPPORTED)
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
			 "a datatype with gaps of more than 2 GiB of data in one element can't be "
			 "staged");
	return status;
}

static void close_side(struct core_mpi_side *side)
{
	if (side->dense.block)
		core_dense_close(&side->dense);
	if (side->stage.block)
		core_stage_close(&side->stage);
	if (side->made != MPI_DATATYPE_NULL)
		PMPI_Type_free(&side->made);
	core_operand_release(&side->operand);
}

/* ---- copies ---- */

static enum util_status pack_as_they_lie(struct core_mpi_side *side)
{
	struct core_wait wait = {0};
	enum util_status status;

	while ((status = gpu_stream_poll_legacy(side->stage.stream)) == UTIL_IN_PROGRESS)
		core_mpi_drive(&wait);
	if (status == UTIL_OK)
		status = core_stage_copy_in(&side->stage, &side->operand);
	if (status != UTIL_OK)
		return status;
	while ((status = core_stage_poll(&side->stage)) == UTIL_IN_PROGRESS)
		core_mpi_drive(&wait);
	return status;
}

static enum util_status pack_side(struct core_mpi_side *side)
{
	if (!side->staged)
		return UTIL_OK;
	if (side->stage.block)
		return pack_as_they_lie(side);
	core_dense_pack(&side->dense, core_dense_bytes(&side->dense));
	return core_dense_wait(&side->dense);
}

/* What comes may be less than the room, and end within an element that has padding: what is not
 * received is to be as it was. */
static bool is_filled_first(const struct core_mpi_side *side)
{
	return side->staged && side->room != side->element && side->room;
}

enum util_status core_mpi_message_pack(struct core_mpi_message *message)
{
	bool replaced = is(&message->call, REPLACES);
	enum util_status status = pack_side(&message->send);

	if (status == UTIL_OK && (replaced || is_filled_first(&message->recv)))
		status = pack_side(&message->recv);
	return status;
}

void core_mpi_message_arrive(struct core_mpi_message *message, const MPI_Status *status)
{
	struct core_mpi_side *side = &message->recv;
	MPI_Count bytes = 0;
	int cancelled = 0;

	if (!side->staged || message->arrived)
		return;
	message->arrived = true;
	PMPI_Test_cancelled(status, &cancelled);
	if (cancelled || PMPI_Get_elements_x(status, MPI_BYTE, &bytes) != MPI_SUCCESS || bytes < 0)
		return;
	if (side->room != side->element && side->room)
		bytes = (MPI_Count)(((size_t)bytes + side->element - 1) / side->element *
				    side->room);
	core_dense_unpack(&side->dense, (size_t)bytes);
}

/* ---- calls ---- */

static enum util_status open_sides(struct core_mpi_message *message)
{
	const struct core_message_call *call = &message->call;
	enum util_status status = UTIL_OK;

	message->send.made = message->recv.made = MPI_DATATYPE_NULL;
	if (is(call, SENDS))
		status = open_side(&message->send, call->sendbuf, call->sendcount, call->sendtype);
	if (status == UTIL_OK && is(call, RECEIVES))
		status = open_side(&message->recv, call->recvbuf, call->recvcount, call->recvtype);
	if (status == UTIL_OK && message->recv.stage.block) {
		util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE,
			 "%s: the datatype has bytes that belong to several elements, which can't "
			 "be received",
			 core_message_name(call->kind));
		status = UTIL_ERR_UNSUPPORTED;
	}
	return status;
}

/* As the real MPI is called. */
static struct core_message_call replace(const struct core_mpi_message *message)
{
	struct core_message_call real = message->call;

	if (message->send.staged) {
		real.sendbuf = message->send.buffer;
		real.sendcount = message->send.count;
		real.sendtype = (core_handle)message->send.type;
	}
	if (message->recv.staged) {
		real.recvbuf = message->recv.buffer;
		real.recvcount = message->recv.count;
		real.recvtype = (core_handle)message->recv.type;
	}
	return real;
}

void core_mpi_message_free(struct core_mpi_message *message)
{
	close_side(&message->send);
	close_side(&message->recv);
	free(message);
}

static int run_blocking(struct core_mpi_message *message)
{
	struct core_message_call real = replace(message);
	MPI_Status own, *status = real.status;
	enum util_status copied = UTIL_OK;
	int result;

	if (status == MPI_STATUS_IGNORE)
		status = &own;
	real.status = status;
	result = real.real(&real);
	if (result == MPI_SUCCESS && message->recv.staged) {
		core_mpi_message_arrive(message, status);
		copied = core_dense_wait(&message->recv.dense);
	}
	return copied == UTIL_OK ? result
				 : core_mpi_raise_on(core_mpi_as_comm(message->call.comm), copied);
}

/* Whether the request is complete as it is born: then its handle may be one that many have, and
 * the application will find it complete without us. */
static bool is_complete(struct core_mpi_message *message, MPI_Status *status)
{
	int complete = 0;

	return !message->persistent &&
	       PMPI_Request_get_status(message->request, &complete, status) == MPI_SUCCESS &&
	       complete;
}

/* Takes the message. */
static int run_nonblocking(struct core_mpi_message *message)
{
	struct core_message_call real = replace(message);
	enum util_status copied = UTIL_OK;
	int result = real.real(&real);
	MPI_Status status;

	if (result != MPI_SUCCESS) {
		core_mpi_message_free(message);
		return result;
	}
	message->request = *(MPI_Request *)real.request;
	if (!is_complete(message, &status)) {
		core_mpi_request_add(message);
		return result;
	}
	core_mpi_message_arrive(message, &status);
	copied = core_dense_wait(&message->recv.dense);
	core_mpi_message_free(message);
	return copied == UTIL_OK ? result : core_mpi_raise_on(MPI_COMM_WORLD, copied);
}

static void count(const struct core_mpi_message *message, double seconds)
{
	const struct core_mpi_side *sides[] = {&message->send, &message->recv};
	struct core_stats_call stats = {.coll = CORE_COLL_NUM,
					.name = core_message_name(message->call.kind),
					.path = CORE_PATH_STAGE,
					.why = "point to point",
					.comm = message->call.comm,
					.seconds = seconds};

	for (int i = 0; i < 2; i++) {
		if (sides[i]->staged)
			stats.bytes += core_operand_bytes(&sides[i]->operand);
	}
	core_stats_add(&stats);
}

static int fail(struct core_mpi_message *message, enum util_status status)
{
	MPI_Comm comm = message->call.comm ? core_mpi_as_comm(message->call.comm) : MPI_COMM_WORLD;

	util_log(UTIL_LOG_WARN, UTIL_SUBSYS_CORE, "%s failed: %s",
		 core_message_name(message->call.kind),
		 status == UTIL_ERR_NO_MEMORY ? "no memory" : "see above");
	core_mpi_message_free(message);
	return core_mpi_raise_on(comm, status);
}

int core_message_run(const struct core_message_call *call)
{
	double start = 1e-9 * (double)util_now();
	struct core_mpi_message *message = calloc(1, sizeof(*message));
	enum util_status status;
	int result;

	if (!message)
		return core_mpi_raise_on(MPI_COMM_WORLD, UTIL_ERR_NO_MEMORY);
	message->call = *call;
	message->persistent = is(call, PERSISTENT);
	status = open_sides(message);
	if (status == UTIL_ERR_MPI || (!message->send.staged && !message->recv.staged)) {
		core_mpi_message_free(message);
		return call->real(call);
	}
	if (status == UTIL_OK && !message->persistent)
		status = core_mpi_message_pack(message);
	if (status != UTIL_OK)
		return fail(message, status);
	if (is(call, NONBLOCKING | PERSISTENT)) {
		count(message, 0);
		return run_nonblocking(message);
	}
	result = run_blocking(message);
	count(message, 1e-9 * (double)util_now() - start);
	core_mpi_message_free(message);
	return result;
}
