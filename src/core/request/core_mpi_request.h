/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI's completion calls, where requests of ours may be among the application's (see
 * core_requests.h). `next`: the real MPI's function. Under the door's guard. Thread-safe, as far as
 * the application may have two threads complete requests at a time.
 */
#ifndef CORE_MPI_REQUEST_H
#define CORE_MPI_REQUEST_H

#include "core/call/core_mpi_handle.h"

int core_request_Wait(int (*next)(MPI_Request *, MPI_Status *), MPI_Request *request,
		      MPI_Status *status);
int core_request_Test(int (*next)(MPI_Request *, int *, MPI_Status *), MPI_Request *request,
		      int *flag, MPI_Status *status);
int core_request_Waitall(int (*next)(int, MPI_Request[], MPI_Status[]), int count,
			 MPI_Request requests[], MPI_Status statuses[]);
int core_request_Testall(int (*next)(int, MPI_Request[], int *, MPI_Status[]), int count,
			 MPI_Request requests[], int *flag, MPI_Status statuses[]);
int core_request_Waitany(int (*next)(int, MPI_Request[], int *, MPI_Status *), int count,
			 MPI_Request requests[], int *indx, MPI_Status *status);
int core_request_Testany(int (*next)(int, MPI_Request[], int *, int *, MPI_Status *), int count,
			 MPI_Request requests[], int *indx, int *flag, MPI_Status *status);
int core_request_Waitsome(int (*next)(int, MPI_Request[], int *, int[], MPI_Status[]), int incount,
			  MPI_Request requests[], int *outcount, int indices[],
			  MPI_Status statuses[]);
int core_request_Testsome(int (*next)(int, MPI_Request[], int *, int[], MPI_Status[]), int incount,
			  MPI_Request requests[], int *outcount, int indices[],
			  MPI_Status statuses[]);
int core_request_Request_get_status(int (*next)(MPI_Request, int *, MPI_Status *),
				    MPI_Request request, int *flag, MPI_Status *status);
int core_request_Request_get_status_any(int (*next)(int, const MPI_Request[], int *, int *,
						    MPI_Status *),
					int count, const MPI_Request requests[], int *indx,
					int *flag, MPI_Status *status);
int core_request_Request_get_status_all(int (*next)(int, const MPI_Request[], int *, MPI_Status[]),
					int count, const MPI_Request requests[], int *flag,
					MPI_Status statuses[]);
int core_request_Request_get_status_some(int (*next)(int, const MPI_Request[], int *, int[],
						     MPI_Status[]),
					 int incount, const MPI_Request requests[], int *outcount,
					 int indices[], MPI_Status statuses[]);
int core_request_Request_free(int (*next)(MPI_Request *), MPI_Request *request);
int core_request_Start(int (*next)(MPI_Request *), MPI_Request *request);
int core_request_Startall(int (*next)(int, MPI_Request[]), int count, MPI_Request requests[]);

#endif
