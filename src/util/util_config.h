/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The configuration: one table of options, the only reader of the environment.
 *
 * To add an option, add a field to struct util_config and a row to the table in util_config.c. The
 * row's documentation is what `gpucoll-info -c` prints and what gpucoll-env(7) is made from.
 */
#ifndef UTIL_CONFIG_H
#define UTIL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum util_log_level {
	UTIL_LOG_NONE,
	UTIL_LOG_VERSION,
	UTIL_LOG_WARN,
	UTIL_LOG_INFO,
	UTIL_LOG_TRACE
};

enum util_exec { UTIL_EXEC_AUTO, UTIL_EXEC_FUSED, UTIL_EXEC_STEPPED };
/* Bits. */
enum util_check { UTIL_CHECK_SCHEDULES = 1, UTIL_CHECK_ARGS = 2, UTIL_CHECK_STREAMS = 4 };
enum util_net { UTIL_NET_UCX, UTIL_NET_OFF };
enum util_partial { UTIL_PARTIAL_ABORT, UTIL_PARTIAL_SLEEP };
enum util_stream_wait { UTIL_STREAM_WAIT_AUTO, UTIL_STREAM_WAIT_WORD, UTIL_STREAM_WAIT_KERNEL };
enum util_stream_exec { UTIL_STREAM_EXEC_AUTO, UTIL_STREAM_EXEC_FUSED, UTIL_STREAM_EXEC_STAGED };
enum util_threads { UTIL_THREADS_MPI, UTIL_THREADS_MULTIPLE };
/* As enum topo_class behind the first. */
enum util_p2p {
	UTIL_P2P_AUTO,
	UTIL_P2P_LOC,
	UTIL_P2P_NVL,
	UTIL_P2P_PIX,
	UTIL_P2P_PXB,
	UTIL_P2P_PHB,
	UTIL_P2P_SYS
};
/* Who sends messages from device memory, and what is said to who asks. */
enum util_messages { UTIL_MESSAGES_AUTO, UTIL_MESSAGES_STAGE, UTIL_MESSAGES_MPI };
enum util_query { UTIL_QUERY_YES, UTIL_QUERY_MPI };
enum util_gdr { UTIL_GDR_AUTO, UTIL_GDR_ON, UTIL_GDR_OFF };

struct util_config {
	int debug;              /* enum util_log_level */
	unsigned debug_subsys;  /* bit mask over enum util_subsys */
	const char *debug_file; /* NULL: standard error */
	bool disable;
	bool accel;
	bool stats;
	bool reproducible;   /* as all processes of the job have it */
	const char *trace;   /* the same; NULL: none */
	const char *dump;    /* a file's name, for util_log_expand; NULL: none is written */
	const char *hostid;  /* NULL: the machine's own identity */
	size_t staging_pool; /* bytes of pinned host memory kept for reuse */
	size_t ipc_cache;    /* bytes of other processes' memory kept mapped */
	unsigned check;      /* of enum util_check */
	size_t window;       /* bytes: the window for a buffer that can't be exported */
	/* Lists (algo_wish.h); NULL: the library chooses. */
	const char *algo, *proto, *channels;
	const char *topo_file;   /* NULL: the machine is looked at */
	const char *tuning_file; /* NULL: util_config_tuning_path */
	int exec;                /* enum util_exec */
	int net;                 /* enum util_net */
	int net_gdr;             /* enum util_gdr */
	int p2p_level;           /* enum util_p2p */
	size_t eager_max;        /* bytes: all inputs of a call over several nodes that go ahead */
	size_t scratch;          /* bytes for messages, of a GPU and communicator */
	size_t timeout;          /* seconds; 0: never report */
	int threads;             /* enum util_threads */
	int stream_exec;         /* enum util_stream_exec */
	int stream_wait;         /* enum util_stream_wait */
	int partial;             /* enum util_partial */
	int p2p;                 /* enum util_messages */
	int query;               /* enum util_query */
	bool sessions;           /* initialise MPI with the first */
	bool wait_default;       /* for the legacy default stream */
};

enum util_subsys {
	UTIL_SUBSYS_INIT,
	UTIL_SUBSYS_PMPI,
	UTIL_SUBSYS_CORE,
	UTIL_SUBSYS_GPU,
	UTIL_SUBSYS_NET,
	UTIL_SUBSYS_NUM
};

/*
 * The process's configuration, filled by util_config_load. Read-only afterwards, so any thread may
 * read.
 */
extern struct util_config util_config;

/*
 * Read the environment into util_config; a second call does nothing. Every unknown GPUCOLL_* name
 * and every bad value is kept as a message for util_config_complaint, and the default stays in
 * force.
 */
void util_config_load(void);

/*
 * The file of times that were measured, into `path`: GPUCOLL_TUNING_FILE, or gpucoll/tuning in the
 * XDG directory for configuration; "": there is none.
 */
void util_config_tuning_path(char *path, size_t bytes);

/* What util_config_load found wrong, one after the other, from 0 on; NULL: no more. */
const char *util_config_complaint(int index);

/* Print every option with its value, where that comes from, its default and what it does. */
void util_config_print(FILE *out);

/* Print the table as the body of a man page (troff, man macros). */
void util_config_print_man(FILE *out);

#endif
