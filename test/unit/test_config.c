/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The configuration table: values, units, what is refused. The environment is read once, so each
 * test forks.
 */
#include "util/util_config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * Load with one variable set; exit status 0 when `check` holds and as many complaints are printed
 * as wanted.
 */
static void in_child(const char *name, const char *value, bool (*check)(void),
		     const char *complaint)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		char text[65536];
		FILE *out = fmemopen(text, sizeof(text), "w");

		clearenv();
		setenv(name, value, 1);
		util_config_load();
		util_config_print(out);
		fclose(out);
		bool said = strstr(text, "WARNING") != NULL;
		_exit(!check() || said != (complaint != NULL) ||
		      (complaint && !strstr(text, complaint)));
	}
	waitpid(child, &status, 0);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static bool pool_is_3m(void)
{
	return util_config.staging_pool == 3u << 20;
}

static bool pool_is_default(void)
{
	return util_config.staging_pool == 256u << 20;
}

static bool debug_is_trace(void)
{
	return util_config.debug == UTIL_LOG_TRACE;
}

static bool debug_is_default(void)
{
	return util_config.debug == UTIL_LOG_WARN;
}

static bool only_gpu(void)
{
	return util_config.debug_subsys == 1u << UTIL_SUBSYS_GPU;
}

static bool all_but_gpu(void)
{
	return util_config.debug_subsys == (1u << UTIL_SUBSYS_NUM) - 1 - (1u << UTIL_SUBSYS_GPU);
}

static bool disabled(void)
{
	return util_config.disable;
}

static bool not_disabled(void)
{
	return !util_config.disable;
}

static void sizes(void **state)
{
	(void)state;
	in_child("GPUCOLL_STAGING_POOL", "3M", pool_is_3m, NULL);
	in_child("GPUCOLL_STAGING_POOL", "3mb", pool_is_3m, NULL);
	in_child("GPUCOLL_STAGING_POOL", "3145728", pool_is_3m, NULL);
	in_child("GPUCOLL_STAGING_POOL", "3X", pool_is_default, "GPUCOLL_STAGING_POOL=3X");
	in_child("GPUCOLL_STAGING_POOL", "-1", pool_is_default, "GPUCOLL_STAGING_POOL=-1");
	in_child("GPUCOLL_STAGING_POOL", "", pool_is_default, "GPUCOLL_STAGING_POOL=");
	in_child("GPUCOLL_STAGING_POOL", "99999999999999999999", pool_is_default,
		 "99999999999999999999");
	in_child("GPUCOLL_STAGING_POOL", "99999999999T", pool_is_default, "99999999999T");
}

static void words(void **state)
{
	(void)state;
	in_child("GPUCOLL_DEBUG", "TRACE", debug_is_trace, NULL);
	in_child("GPUCOLL_DEBUG", "tracer", debug_is_default,
		 "valid: none, version, warn, info, trace");
	in_child("GPUCOLL_DEBUG_SUBSYS", "gpu", only_gpu, NULL);
	in_child("GPUCOLL_DEBUG_SUBSYS", "^gpu", all_but_gpu, NULL);
	in_child("GPUCOLL_DISABLE", "yes", disabled, NULL);
	in_child("GPUCOLL_DISABLE", "0", not_disabled, NULL);
	in_child("GPUCOLL_DISABLE", "maybe", not_disabled, "GPUCOLL_DISABLE=maybe");
}

static void names(void **state)
{
	(void)state;
	in_child("GPUCOLL_NONSENSE", "1", not_disabled, "GPUCOLL_NONSENSE");
	in_child("GPUCOLL_MPI", "mpich", not_disabled, NULL);
	in_child("OTHER", "1", not_disabled, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(sizes), cmocka_unit_test(words),
					   cmocka_unit_test(names)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
