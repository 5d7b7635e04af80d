/* SPDX-License-Identifier: BSD-3-Clause */
/* What follows from the facts of a call, without a job: the offers of some ranks, made up. */
#include "core/agree/core_terms.h"
#include "core/job/core_mpi_job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { RANKS = 4 };

/* What core_comm.c and core_mail.c ask of the job, in which each node is a machine. */
struct core_mpi_job core_mpi_job = {.size = RANKS, .local_size = RANKS};

uint64_t core_mpi_node_machine(int node)
{
	return (uint64_t)node + 1;
}

int core_mpi_node_leader(int node)
{
	return node;
}

/* There is no board. */
enum util_status core_mpi_node_bcast(void *data, int bytes)
{
	(void)data;
	(void)bytes;
	return UTIL_ERR_MPI;
}

bool core_mpi_node_all(bool yes)
{
	return yes;
}

/* Of a call of four ranks, of which rank 0 is this one. */
struct made_up {
	const char *what;
	const char *nodes;   /* of each rank: the digit of its node */
	const char *devices; /* ... of the GPU of its offer */
	uint32_t any, all;   /* flags of the offers */
	enum core_together together;
	const char *cut;   /* two digits: ranks that do not reach each other's device memory */
	bool shm;          /* all have arenas in host memory, which all reach */
	bool without_data; /* some rank is */
	bool no_arena;     /* some rank has none */
};

struct call {
	struct core_comm *comm;
	struct core_agree agree;
	struct core_facts facts;
};

static void make_offers(struct call *call, const struct made_up *m)
{
	for (int i = 0; i < call->comm->num_near; i++) {
		int rank = call->comm->near[i];
		struct core_offer *offer = &core_area_desk_of(call->comm, 0, rank)->offer;

		offer->device = (uint64_t)m->devices[rank];
		offer->regions[CORE_REGION_ARENAS + GPU_TRANSPORT_SHM].buffer_id = m->shm;
	}
}

static struct call make(const struct made_up *m)
{
	struct core_member members[RANKS];
	struct call call = {0};
	size_t bytes;
	int near = 0;

	for (int i = 0; i < RANKS; i++) {
		int node = m->nodes[i] - '0';

		members[i] = (struct core_member){i, node, node == m->nodes[0] - '0' ? near++ : -1};
	}
	call.comm = core_comm_new(1, 0, RANKS, members);
	assert_non_null(call.comm);
	call.comm->spans = core_comm_spans(RANKS, members);
	call.comm->together = m->together;
	bytes = core_area_bytes(RANKS, near, RANKS, true);
	call.comm->area = aligned_alloc(64, (bytes + 63) / 64 * 64);
	assert_non_null(call.comm->area);
	memset(call.comm->area, 0, bytes);
	if (m->cut) {
		int a = m->cut[0] - '0', b = m->cut[1] - '0';

		call.comm->reach[GPU_TRANSPORT_P2P][a] &= ~(UINT64_C(1) << b);
		call.comm->reach[GPU_TRANSPORT_P2P][b] &= ~(UINT64_C(1) << a);
	}
	call.agree.comm = call.comm;
	make_offers(&call, m);
	return call;
}

static struct core_facts facts_of(const struct call *call, const struct made_up *m)
{
	return (struct core_facts){.comm = call->comm,
				   .agree = &call->agree,
				   .common = {.any = m->any | m->all,
					      .all = m->all,
					      .any_without_data = m->without_data,
					      .arena = m->no_arena ? 0 : 1 << 20},
				   .coll = CORE_ALLREDUCE,
				   .knows_sizes = true};
}

static void unmake(struct call *call)
{
	free(call->comm->area);
	free(call->comm);
}

/* NULL in both, or the one in the other. */
static void must_say(const char *what, const char *said, const char *wanted)
{
	if (!said != !wanted || (said && !strstr(said, wanted)))
		fail_msg("%s: says \"%s\", not \"%s\"", what, said ? said : "nothing",
			 wanted ? wanted : "nothing");
}

static void kernels_that_may_wait(void **state)
{
	static const struct {
		struct made_up made;
		bool gdr, fused;
		const char *never;
	} rows[] = {
		{.made = {.what = "a GPU each",
			  .nodes = "0000",
			  .devices = "1234",
			  .all = CORE_OFFER_CAN_FUSE},
		 .fused = true},
		{.made = {.what = "one has no room",
			  .nodes = "0000",
			  .devices = "1234",
			  .any = CORE_OFFER_CAN_FUSE},
		 .never = "no room for a kernel that waits"},
		{.made = {.what = "nobody needs room",
			  .nodes = "0000",
			  .devices = "1234",
			  .no_arena = true},
		 .fused = true},
		{.made = {.what = "a failure",
			  .nodes = "0000",
			  .devices = "1234",
			  .any = CORE_OFFER_LINKS_FAILED,
			  .all = CORE_OFFER_CAN_FUSE},
		 .never = "failed earlier"},
		{.made = {.what = "a shared GPU, not tried",
			  .nodes = "0000",
			  .devices = "1134",
			  .all = CORE_OFFER_CAN_FUSE},
		 .fused = true},
		{.made = {.what = "a shared GPU, they take turns",
			  .nodes = "0000",
			  .devices = "1134",
			  .all = CORE_OFFER_CAN_FUSE,
			  .together = CORE_TOGETHER_NO}},
		{.made = {.what = "they take turns on a GPU of nobody here",
			  .nodes = "0000",
			  .devices = "1234",
			  .any = CORE_OFFER_APART,
			  .all = CORE_OFFER_CAN_FUSE},
		 .fused = true},
		{.made = {.what = "a shared GPU, another communicator's probe",
			  .nodes = "0000",
			  .devices = "1134",
			  .any = CORE_OFFER_APART,
			  .all = CORE_OFFER_CAN_FUSE}},
		{.made = {.what = "a shared GPU that can't be tried",
			  .nodes = "0000",
			  .devices = "1134",
			  .all = CORE_OFFER_CAN_FUSE,
			  .cut = "01"}},
		{.made = {.what = "others that do not reach each other",
			  .nodes = "0000",
			  .devices = "1134",
			  .all = CORE_OFFER_CAN_FUSE,
			  .cut = "23"},
		 .fused = true},
		{.made = {.what = "two nodes",
			  .nodes = "0011",
			  .devices = "1212",
			  .all = CORE_OFFER_CAN_FUSE},
		 .fused = true},
		{.made = {.what = "two nodes, turns on one",
			  .nodes = "0011",
			  .devices = "1111",
			  .any = CORE_OFFER_APART,
			  .all = CORE_OFFER_CAN_FUSE},
		 .never = "on some node"},
		{.made = {.what = "messages into device memory",
			  .nodes = "0011",
			  .devices = "1212",
			  .all = CORE_OFFER_CAN_FUSE},
		 .gdr = true,
		 .never = "arrive in device memory"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct made_up *m = &rows[i].made;
		struct call call = make(m);
		struct core_facts facts = facts_of(&call, m);

		must_say(m->what, core_terms_why_never_fused(&facts, rows[i].gdr), rows[i].never);
		if (core_terms_may_fuse(&facts, rows[i].gdr) != rows[i].fused)
			fail_msg("%s: %sfused", m->what, rows[i].fused ? "not " : "");
		unmake(&call);
	}
}

static void messages_that_can_be(void **state)
{
	static const struct {
		struct made_up made;
		const char *refused;
	} rows[] = {
		{.made = {.what = "all reach all", .nodes = "0000", .devices = "1234"},
		 .refused = NULL},
		{.made = {.what = "no data",
			  .nodes = "0000",
			  .devices = "1234",
			  .without_data = true},
		 .refused = "no data"},
		{.made = {.what = "a window in",
			  .nodes = "0000",
			  .devices = "1234",
			  .any = CORE_OFFER_WINDOW_IN},
		 .refused = "can't be exported"},
		{.made = {.what = "a window out",
			  .nodes = "0000",
			  .devices = "1234",
			  .any = CORE_OFFER_WINDOW_OUT},
		 .refused = "can't be exported"},
		{.made = {.what = "no arena", .nodes = "0000", .devices = "1234", .no_arena = true},
		 .refused = "no memory for messages"},
		{.made = {.what = "a failure on one node",
			  .nodes = "0000",
			  .devices = "1234",
			  .any = CORE_OFFER_LINKS_FAILED},
		 .refused = NULL},
		{.made = {.what = "a failure on two",
			  .nodes = "0011",
			  .devices = "1212",
			  .any = CORE_OFFER_LINKS_FAILED},
		 .refused = "failed earlier"},
		{.made = {.what = "two apart", .nodes = "0000", .devices = "1234", .cut = "13"},
		 .refused = "can't be mapped"},
		{.made = {.what = "two apart, with host memory",
			  .nodes = "0000",
			  .devices = "1234",
			  .cut = "13",
			  .shm = true},
		 .refused = NULL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct made_up *m = &rows[i].made;
		struct call call = make(m);
		struct core_facts facts = facts_of(&call, m);

		must_say(m->what, core_terms_refuse(&facts), rows[i].refused);
		unmake(&call);
	}
}

static void how_links_go(void **state)
{
	const struct made_up m = {
		.what = "two apart", .nodes = "0001", .devices = "1231", .cut = "02", .shm = true};
	struct call call = make(&m);

	(void)state;
	assert_int_equal(core_terms_transport(call.comm, 1), GPU_TRANSPORT_P2P);
	assert_int_equal(core_terms_transport(call.comm, 2), GPU_TRANSPORT_SHM);
	assert_int_equal(core_terms_transport(call.comm, 3), GPU_TRANSPORT_NET);
	assert_false(core_terms_all_reach(call.comm, GPU_TRANSPORT_P2P));
	assert_true(core_terms_all_reach(call.comm, GPU_TRANSPORT_SHM));
	assert_true(core_terms_have_own_gpus(&call.agree));
	unmake(&call);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kernels_that_may_wait),
		cmocka_unit_test(messages_that_can_be),
		cmocka_unit_test(how_links_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
