/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of requests of src/core/request/core_mpi_table.c: what is to be done when a request of the real MPI completes, by its handle.
 *
 * The real MPI has HANDLES handles for requests, which it gives to new ones as soon as old ones are complete and freed, and one more,
 * SHARED, which it gives to any request that is complete when it is made. Each of THREADS threads makes RECEIVES receives one after the
 * other, and completes them by a call that tests, once or often, or by one that asks without freeing (get_status), then one that does.
 * A receive has been unpacked into its own buffer once, and no other's, when its thread has been told that it is complete.
 *
 * Another thread asks about the first receive of the first thread, too, which it may until that one is completed.
 *
 * The lock is the table's, and each message has one for unpacking; a step of the real MPI is atomic. A message comes at any time after its receive was made.
 *
 * BREAK_* weaken the rules, one each; the tests expect an error from every one of them.
 */
#ifndef THREADS
#define THREADS 2
#endif
#ifndef RECEIVES
#define RECEIVES 2
#endif
#define HANDLES 2
#define SHARED HANDLES
#define NONE 255
#define ALL (THREADS * RECEIVES)

byte owner[HANDLES];         /* the real MPI's: which receive has the handle, or NONE */
bool come[ALL];              /* its message */
byte entry[HANDLES + 1];     /* the table: whose buffer is to be unpacked into, or NONE */
byte unpacked[ALL];          /* times */
byte asked_handle;           /* of the receive that another thread asks about */
bool may_ask, has_asked;

inline unpack(whose)
{
	unpacked[whose]++;
	assert(unpacked[whose] == 1)
}

/* Of get_status, under the message's lock. */
inline unpack_once(whose)
{
#ifdef BREAK_LOCK
	seen = unpacked[whose];
	if
	:: seen == 0 -> unpack(whose)
	:: else
	fi
#else
	atomic {
		if
		:: unpacked[whose] == 0 -> unpack(whose)
		:: else
		fi
	}
#endif
}

proctype thread(byte me)
{
	byte i = 0, id, handle, mine, seen;
	bool done;

	do
	:: i == RECEIVES -> break
	:: else ->
		id = me * RECEIVES + i;
		/* MPI_Irecv. */
		if
		:: atomic { come[id] = true; handle = SHARED } /* complete at birth */
		:: atomic { owner[0] == NONE -> owner[0] = id; handle = 0 }
		:: atomic { owner[1] == NONE -> owner[1] = id; handle = 1 }
		fi;
		/* core_mpi_table_begin, unless get_status says that it is complete. */
#ifdef BREAK_BIRTH
		entry[handle] = id;
#else
		if
		:: handle == SHARED -> unpack(id)
		:: else -> entry[handle] = id
		fi;
#endif
		done = false;
		if
		:: id == 0 && handle != SHARED -> asked_handle = handle; may_ask = true
		:: id == 0 && handle == SHARED -> has_asked = true
		:: else
		fi;
		/* MPI_Request_get_status, perhaps. */
		if
		:: handle != SHARED && come[id] ->
			mine = entry[handle];
			if
			:: mine != NONE -> unpack_once(mine)
			:: else
			fi;
			assert(unpacked[id] == 1)
		:: true
		fi;
		/* The program's threads have agreed on that. */
		id != 0 || has_asked;
		/* MPI_Test, until it is done. */
		do
		:: done -> break
		:: !done ->
#ifdef BREAK_TAKE
			/* Looked up when the handle may be another's. */
			if
			:: handle == SHARED -> done = true
			:: handle != SHARED && come[id] -> owner[handle] = NONE; done = true
			:: handle != SHARED && !come[id]
			fi;
			mine = entry[handle];
			if
			:: done -> entry[handle] = NONE
			:: else -> mine = NONE
			fi;
#else
			atomic { mine = entry[handle]; entry[handle] = NONE };
			if
			:: handle == SHARED -> done = true
			:: handle != SHARED && come[id] -> owner[handle] = NONE; done = true
			:: handle != SHARED && !come[id] -> skip
			fi;
			if
			:: !done && mine != NONE -> entry[handle] = mine; mine = NONE
			:: else
			fi;
#endif
			if
			:: done && mine != NONE ->
				assert(mine == id);
#ifdef BREAK_ONCE
				unpack(mine)
#else
				if
				:: unpacked[mine] == 0 -> unpack(mine)
				:: else
				fi
#endif
			:: else
			fi
		od;
		assert(unpacked[id] == 1);
		i++
	od
}

/* MPI_Request_get_status by another thread. */
active proctype asker()
{
	byte mine, seen;

end:
	may_ask && come[0];
	mine = entry[asked_handle];
	if
	:: mine != NONE -> unpack_once(mine)
	:: else
	fi;
	assert(unpacked[0] == 1);
	has_asked = true
}

/* Messages come. */
active proctype network()
{
	byte n;

	for (n : 0 .. ALL - 1) {
		come[n] = true
	}
}

init
{
	byte t;

	atomic {
		entry[0] = NONE; entry[1] = NONE; entry[SHARED] = NONE;
		owner[0] = NONE; owner[1] = NONE;
		for (t : 0 .. THREADS - 1) {
			run thread(t)
		}
	}
}
