/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Processes that the program spawns get the library in the way that it got it: gpucoll-exec names
 * itself and its options in the environment, and is put before the commands. A launcher starts
 * such processes, and gives them its own environment, so LD_PRELOAD alone does not reach them.
 */
#include "pmpi/pmpi_call.h"
#include "util/util_log.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* GPUCOLL_SPAWN: gpucoll-exec, and its options, by newlines. */
enum { MOST_OPTIONS = 8 };

struct spawner {
	char *text; /* of the words, which are in it */
	char *words[MOST_OPTIONS];
	int num; /* 0: there is none */
};

static void find_spawner(struct spawner *spawner)
{
	const char *text = getenv("GPUCOLL_SPAWN");
	char *rest = NULL;

	*spawner = (struct spawner){.text = text ? strdup(text) : NULL};
	if (!spawner->text)
		return;
	for (char *word = strtok_r(spawner->text, "\n", &rest); word && spawner->num < MOST_OPTIONS;
	     word = strtok_r(NULL, "\n", &rest))
		spawner->words[spawner->num++] = word;
}

/* Whether the MPI is told where to look for the command, which gpucoll-exec would not know. */
static bool has_path(MPI_Info info)
{
	char value[2];
	int found = 0;

	if (info != MPI_INFO_NULL)
		PMPI_Info_get(info, "path", 1, value, &found);
	return found;
}

/*
 * The command's arguments behind gpucoll-exec: its options, the command, its own arguments. The
 * list is to be freed. NULL: no memory.
 */
static char **prepend(const struct spawner *spawner, const char *command, char **argv)
{
	int num = 0, at = 0;
	char **list;

	while (argv && argv[num])
		num++;
	list = calloc((size_t)(spawner->num + num + 1), sizeof(*list));
	if (!list)
		return NULL;
	for (int i = 1; i < spawner->num; i++)
		list[at++] = spawner->words[i];
	list[at++] = (char *)command;
	for (int i = 0; i < num; i++)
		list[at++] = argv[i];
	return list;
}

int pmpi_own_Comm_spawn(pmpi_spawn next, const char *command, char *argv[], int maxprocs,
			MPI_Info info, int root, MPI_Comm comm, MPI_Comm *intercomm, int errcodes[])
{
	struct spawner spawner;
	char **list = NULL;
	int rank = -1, result;

	find_spawner(&spawner);
	PMPI_Comm_rank(comm, &rank);
	/* Only the root's are looked at. */
	if (spawner.num && rank == root && !has_path(info))
		list = prepend(&spawner, command, argv);
	result = next(list ? spawner.words[0] : command, list ? list : argv, maxprocs, info, root,
		      comm, intercomm, errcodes);
	free(list);
	free(spawner.text);
	return result;
}

/* What is spawned, of several commands. */
struct commands {
	char **commands;
	char ***argvs;
	int num;
};

static void free_commands(struct commands *all)
{
	for (int i = 0; all->argvs && i < all->num; i++)
		free(all->argvs[i]);
	free(all->argvs);
	free(all->commands);
	*all = (struct commands){0};
}

static void prepend_all(struct commands *all, const struct spawner *spawner, int num,
			char *commands[], char **argvs[])
{
	bool well;

	*all = (struct commands){calloc((size_t)num, sizeof(*all->commands)),
				 calloc((size_t)num, sizeof(*all->argvs)), num};
	well = all->commands && all->argvs;
	for (int i = 0; well && i < num; i++) {
		all->commands[i] = spawner->words[0];
		all->argvs[i] = prepend(spawner, commands[i], argvs ? argvs[i] : NULL);
		well = all->argvs[i] != NULL;
	}
	if (!well)
		free_commands(all);
}

int pmpi_own_Comm_spawn_multiple(pmpi_spawn_multiple next, int count, char *commands[],
				 char **argvs[], const int maxprocs[], const MPI_Info infos[],
				 int root, MPI_Comm comm, MPI_Comm *intercomm, int errcodes[])
{
	struct commands all = {0};
	struct spawner spawner;
	int rank = -1, result;
	bool paths = false;

	find_spawner(&spawner);
	PMPI_Comm_rank(comm, &rank);
	if (spawner.num && rank == root && count > 0) {
		for (int i = 0; i < count; i++)
			paths |= has_path(infos[i]);
		if (!paths)
			prepend_all(&all, &spawner, count, commands, argvs);
	}
	result = next(count, all.num ? all.commands : commands, all.num ? all.argvs : argvs,
		      maxprocs, infos, root, comm, intercomm, errcodes);
	free_commands(&all);
	free(spawner.text);
	return result;
}
