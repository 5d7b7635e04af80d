/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A buffer of `count` elements of a datatype, as messages and MPI_Pack have them, and what the real
 * MPI is given in its place where some of it is in device memory.
 */
#ifndef CORE_MPI_SIDE_H
#define CORE_MPI_SIDE_H

#include "core/call/core_mpi_handle.h"
#include "core/stage/core_dense.h"
#include "core/stage/core_stage.h"

enum core_side_state {
	CORE_SIDE_IDLE,
	CORE_SIDE_DUE, /* the stage is to be copied out */
	CORE_SIDE_COPIES,
};

struct core_mpi_side {
	bool always;                 /* set before: staged also where the MPI takes device memory */
	bool pinned;                 /* the same: its stage, also where the pool has no room */
	bool staged;                 /* else it is the application's own */
	bool ready;                  /* what is on default streams is not waited for */
	struct core_operand operand; /* of one piece; it and its map are here */
	struct core_piece piece;
	struct core_typemap map;
	struct core_dense dense;
	struct core_stage stage; /* of data that MPI sends twice, as they lie: instead of `dense` */
	enum core_side_state unpacking; /* of `stage` */
	size_t element, room; /* bytes of an element as MPI counts them, and in the stage */
	void *buffer;
	int64_t count;
	MPI_Datatype type;
	MPI_Datatype made; /* to be freed; MPI_DATATYPE_NULL: none */
};

/*
 * Of sides that this thread opens: their memory is ready, and what is on default streams may wait
 * for their messages. It goes with the side, as other threads may bring that to its end, and this
 * one others.
 */
extern _Thread_local bool core_mpi_side_opens_ready __attribute__((tls_model("initial-exec")));

/*
 * Look what memory it is, and take a stage where that is needed; of a zeroed side, to be closed
 * also after an error. `bytes`: the type, MPI_PACKED or MPI_BYTE, as which the real MPI gets data
 * that have gaps where they lie; MPI_DATATYPE_NULL: it is to get them as they lie, with their own
 * type. UTIL_ERR_MPI: it will refuse the type, and knows the right error.
 */
enum util_status core_mpi_side_open(struct core_mpi_side *side, const void *buffer, int64_t count,
				    core_handle type, MPI_Datatype bytes);

/* Give back the stage, if there is one, after copies that were begun have ended. */
void core_mpi_side_close(struct core_mpi_side *side);

/* Have the data in the stage. Waits for the copies. */
enum util_status core_mpi_side_pack(struct core_mpi_side *side);

/*
 * What comes may be less than the room, and end within an element that has padding: what is not
 * received is to be as it was, so the stage is to be packed first.
 */
bool core_mpi_side_is_filled_first(const struct core_mpi_side *side);

/*
 * What has come, so many bytes of data, or what there is room for, is to be copied from a dense
 * stage to where it belongs.
 */
void core_mpi_side_unpack(struct core_mpi_side *side, size_t bytes);

/* All that the stage has, of either kind, is to be copied to where it belongs. */
void core_mpi_side_unpack_all(struct core_mpi_side *side);

/* Go on with that: UTIL_IN_PROGRESS while there is something to copy. Or wait for it. */
enum util_status core_mpi_side_progress(struct core_mpi_side *side);
enum util_status core_mpi_side_wait(struct core_mpi_side *side);

#endif
