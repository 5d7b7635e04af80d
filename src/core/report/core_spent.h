/* SPDX-License-Identifier: BSD-3-Clause */
/* What an accelerated call spends its time with, for statistics. */
#ifndef CORE_SPENT_H
#define CORE_SPENT_H

/*
 * What an accelerated call spends its time with; the names of struct core_accel's states where it
 * is in one.
 */
enum core_stats_stage {
	CORE_STATS_CLASSIFY,
	CORE_STATS_READY,
	CORE_STATS_AGREE,
	CORE_STATS_LAUNCH, /* plan and launch */
	CORE_STATS_RUN,
	CORE_STATS_MEET,
	CORE_STATS_LAST,
	CORE_STATS_NUM_STAGES
};

#endif
