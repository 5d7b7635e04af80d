/* SPDX-License-Identifier: BSD-3-Clause */
#include "info-schedule.h"
#include "algos/algo.h"
#include "algos/sched_levels.h"
#include "algos/sched_verify.h"

#include <inttypes.h>
#include <stdlib.h>

/* A schedule on its way out. */
struct view {
	FILE *out;
	const struct sched *sched;
	struct sched_levels trace;
	const struct info_call *call;
};

/* With the messages' flags. */
static struct sched_cost cost_of(const struct view *v)
{
	struct sched_cost cost = sched_cost_of(v->sched, &v->trace, v->call->bytes);

	cost.sent = (uint64_t)(sched_proto_parts(v->call->proto) * (double)cost.sent);
	return cost;
}

static void print_operand(const struct view *v, int rank, const struct sched_operand *o,
			  bool source)
{
	if (o->fifo) {
		const struct sched_connection *c = &v->sched->connections[o->at];

		fprintf(v->out, source ? "from %d" : "to %d", source ? c->from : c->to);
		return;
	}
	fputs(sched_buffer_name((enum sched_buffer)o->buffer), v->out);
	if (sched_num_blocks(&v->sched->request) > 1)
		fprintf(v->out, "[%d]", o->block);
	if (o->at != rank)
		fprintf(v->out, "@%d", o->at);
}

/* from 3 + IN -> OUT, to 1 */
static void print_operands(const struct view *v, int rank, const struct sched_step *step)
{
	const struct sched_operand *from = sched_sources(v->sched, step);
	const struct sched_operand *to = sched_targets(v->sched, step);

	for (int i = 0; i < step->num_sources; i++) {
		fputs(!i ? "" : step->swap ? " <-> " : " + ", v->out);
		print_operand(v, rank, &from[i], true);
	}
	for (int i = 0; i < step->num_targets; i++) {
		fputs(i ? ", " : " -> ", v->out);
		print_operand(v, rank, &to[i], false);
	}
}

static void print_cost(const struct view *v)
{
	struct sched_cost cost = cost_of(v);

	fprintf(v->out,
		"cost: %" PRIu32
		" messages one after the other, %d waits of all for all; of the rank that has "
		"most,\n"
		"      %" PRIu64 " bytes sent, %" PRIu64
		" read or written in others' buffers, %" PRIu64 " in its own memory; %" PRIu64
		" bytes of scratch\n",
		cost.hops, cost.waits, cost.sent, cost.remote, cost.local, cost.scratch);
}

static void print_title(const struct view *v)
{
	const struct sched_request *r = &v->sched->request;

	fprintf(v->out, "%s, %s, %d ranks", sched_coll_name(r->coll), v->sched->name, r->ranks);
	if (sched_coll_has_root(r->coll))
		fprintf(v->out, ", root %d", r->root);
	fprintf(v->out, ", %s, %s of %" PRIu64 " bytes in %d pieces of about %" PRIu64 " bytes\n",
		r->in_place ? "in place" : "out of place",
		sched_num_blocks(r) > 1 ? "blocks" : "a buffer", v->call->bytes, v->sched->pieces,
		sched_span(v->call->bytes, sched_unit(v->sched), v->sched->pieces, 0).bytes);
}

/* "3", or "4-7" of several. */
static const char *pieces_of(const struct sched_step *step, char *text, size_t bytes)
{
	if (step->span > 1)
		snprintf(text, bytes, "%d-%d", step->piece, step->piece + step->span - 1);
	else
		snprintf(text, bytes, "%d", step->piece);
	return text;
}

static void print_lane(const struct view *v, const struct sched_lane *lane)
{
	char pieces[32];

	fprintf(v->out, "\nrank %d, channel %d", lane->rank, lane->channel);
	if (v->sched->phases > 1)
		fprintf(v->out, ", phase %d", lane->phase);
	fputs("\n", v->out);
	for (uint32_t i = lane->first; i < lane->first + lane->num; i++) {
		const struct sched_step *step = &v->sched->steps[i];

		fprintf(v->out, "  %4" PRIu32 "  %-20s piece %-4s ", v->trace.level[i],
			sched_step_name(v->sched, lane->rank, step),
			pieces_of(step, pieces, sizeof(pieces)));
		print_operands(v, lane->rank, step);
		fputs("\n", v->out);
	}
}

static void print_text(const struct view *v)
{
	print_title(v);
	print_cost(v);
	fputs("The first column is the time at which a step can run if each takes one unit.\n",
	      v->out);
	for (int rank = 0; rank < v->sched->request.ranks; rank++) {
		for (uint32_t i = 0; i < v->sched->num_lanes; i++) {
			if (v->sched->lanes[i].rank == rank && v->sched->lanes[i].num)
				print_lane(v, &v->sched->lanes[i]);
		}
	}
}

/* ---- Graphviz ---- */

static void print_dot_lane(const struct view *v, uint32_t index)
{
	const struct sched_lane *lane = &v->sched->lanes[index];
	char pieces[32];

	fprintf(v->out, "  subgraph cluster_%" PRIu32 " { label=\"rank %d, channel %d\";\n", index,
		lane->rank, lane->channel);
	for (uint32_t i = lane->first; i < lane->first + lane->num; i++) {
		fprintf(v->out, "    s%" PRIu32 " [label=\"%s %s\\n", i,
			sched_step_name(v->sched, lane->rank, &v->sched->steps[i]),
			pieces_of(&v->sched->steps[i], pieces, sizeof(pieces)));
		print_operands(v, lane->rank, &v->sched->steps[i]);
		fputs("\"];\n", v->out);
		if (i > lane->first)
			fprintf(v->out, "    s%" PRIu32 " -> s%" PRIu32 " [color=gray];\n", i - 1,
				i);
	}
	fputs("  }\n", v->out);
}

static void print_dot(const struct view *v)
{
	fprintf(v->out, "digraph \"%s %s\" {\n  node [shape=box, fontsize=10];\n",
		sched_coll_name(v->sched->request.coll), v->sched->name);
	for (uint32_t i = 0; i < v->sched->num_lanes; i++)
		print_dot_lane(v, i);
	for (uint32_t i = 0; i < v->sched->num_steps; i++) {
		const struct sched_step *step = &v->sched->steps[i];

		for (uint32_t j = 0; j < (uint32_t)step->num_sources; j++) {
			uint32_t sender = v->trace.sender[step->first + j];

			if (sender != SCHED_NO_STEP)
				fprintf(v->out, "  s%" PRIu32 " -> s%" PRIu32 " [color=blue];\n",
					sender, i);
		}
	}
	fputs("}\n", v->out);
}

/* ---- a picture: ranks from left to right, time from top to bottom ---- */

enum { BOX_WIDTH = 150, BOX_HEIGHT = 22, COLUMN = 190, ROW = 52, MARGIN = 40, TOP = 84 };

/* Pieces have colours. */
static int hue(const struct view *v, int piece)
{
	return piece * 360 / v->sched->pieces;
}

static int row_at(const struct view *v, uint32_t step)
{
	return TOP + (int)v->trace.level[step] * ROW;
}

static int column_at(const int *columns, uint32_t lane)
{
	return MARGIN + columns[lane] * COLUMN;
}

static void draw_arrow(const struct view *v, int x1, int y1, int x2, int y2, int piece,
		       const char *style)
{
	fprintf(v->out,
		"<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"hsl(%d,70%%,45%%)\"%s "
		"marker-end=\"url(#head)\"/>\n",
		x1, y1, x2, y2, hue(v, piece), style);
}

/* The column of the first lane of the rank in the phase, which stands for the rank's buffers. */
static int column_of_rank(const struct view *v, const int *columns, int rank, int phase)
{
	for (uint32_t i = 0; i < v->sched->num_lanes; i++) {
		if (v->sched->lanes[i].rank == rank && v->sched->lanes[i].phase == phase)
			return column_at(columns, i);
	}
	return MARGIN;
}

static int middle(int left)
{
	return left + BOX_WIDTH / 2;
}

/*
 * Messages come from the steps that sent them; what is read or written in another's buffers goes
 * across, dashed.
 */
static void draw_arrows(const struct view *v, const int *columns, const int *lane_of, uint32_t step)
{
	const struct sched_step *s = &v->sched->steps[step];
	const struct sched_lane *lane = &v->sched->lanes[lane_of[step]];
	const struct sched_operand *o = sched_sources(v->sched, s);
	int x = middle(column_at(columns, (uint32_t)lane_of[step])), y = row_at(v, step);

	for (int i = 0; i < s->num_sources + s->num_targets; i++) {
		bool source = i < s->num_sources;
		int other;

		if (o[i].fifo && source) {
			uint32_t sender = v->trace.sender[s->first + (uint32_t)i];

			draw_arrow(v, middle(column_at(columns, (uint32_t)lane_of[sender])),
				   row_at(v, sender) + BOX_HEIGHT, x, y - 2, s->piece, "");
		}
		if (o[i].fifo || o[i].at == lane->rank)
			continue;
		other = middle(column_of_rank(v, columns, o[i].at, lane->phase));
		if (source && !s->swap)
			draw_arrow(v, other, y - ROW / 3, x, y - 2, s->piece,
				   " stroke-dasharray=\"4\"");
		else
			draw_arrow(v, x, y + BOX_HEIGHT, other, y + BOX_HEIGHT + ROW / 3, s->piece,
				   " stroke-dasharray=\"4\"");
	}
}

static void draw_box(const struct view *v, const int *columns, uint32_t lane, uint32_t step)
{
	const struct sched_step *s = &v->sched->steps[step];
	int x = column_at(columns, lane), y = row_at(v, step);
	char pieces[32];

	fprintf(v->out, "<g><title>rank %d: ", v->sched->lanes[lane].rank);
	print_operands(v, v->sched->lanes[lane].rank, s);
	fprintf(v->out,
		"</title><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"4\" "
		"fill=\"hsl(%d,70%%,88%%)\" stroke=\"hsl(%d,70%%,45%%)\"/><text x=\"%d\" "
		"y=\"%d\">%s %s</text></g>\n",
		x, y, BOX_WIDTH, BOX_HEIGHT, hue(v, s->piece), hue(v, s->piece), middle(x),
		y + BOX_HEIGHT - 7, sched_step_name(v->sched, v->sched->lanes[lane].rank, s),
		pieces_of(s, pieces, sizeof(pieces)));
}

/* Lanes by rank; those of later phases under those of the first. Returns their number. */
static int lay_out(const struct view *v, int *columns, int *lane_of)
{
	int column = 0;

	for (int rank = 0; rank < v->sched->request.ranks; rank++) {
		int widest = 0;

		for (int phase = 0; phase < v->sched->phases; phase++) {
			int width = 0;

			for (uint32_t i = 0; i < v->sched->num_lanes; i++) {
				const struct sched_lane *lane = &v->sched->lanes[i];

				if (lane->rank != rank || lane->phase != phase)
					continue;
				columns[i] = column + width++;
				for (uint32_t j = 0; j < lane->num; j++)
					lane_of[lane->first + j] = (int)i;
			}
			widest = width > widest ? width : widest;
		}
		column += widest;
	}
	return column;
}

static void draw(const struct view *v, int *columns, int *lane_of)
{
	int width = lay_out(v, columns, lane_of) * COLUMN + 2 * MARGIN;
	int least = 780; /* for the title */
	int height = TOP + (int)v->trace.levels * ROW + MARGIN;

	width = width > least ? width : least;
	fprintf(v->out,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
		"font-family=\"sans-serif\" font-size=\"11\" text-anchor=\"middle\">\n"
		"<defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" "
		"markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\"><path d=\"M0,0 L8,4 L0,8 "
		"z\"/></marker></defs>\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
		"<text x=\"%d\" y=\"24\" text-anchor=\"start\" font-size=\"14\">",
		width, height, MARGIN);
	print_title(v);
	fputs("</text>\n", v->out);
	for (uint32_t i = 0; i < v->sched->num_lanes; i++) {
		const struct sched_lane *lane = &v->sched->lanes[i];

		if (lane->phase == 0)
			fprintf(v->out,
				"<text x=\"%d\" y=\"56\" font-weight=\"bold\">rank %d</text>\n",
				middle(column_at(columns, i)), lane->rank);
	}
	for (uint32_t i = 0; i < v->sched->num_steps; i++)
		draw_arrows(v, columns, lane_of, i);
	for (uint32_t i = 0; i < v->sched->num_steps; i++)
		draw_box(v, columns, (uint32_t)lane_of[i], i);
	fputs("</svg>\n", v->out);
}

static int print_svg(const struct view *v)
{
	int *columns = calloc(v->sched->num_lanes + 1, sizeof(int));
	int *lane_of = calloc(v->sched->num_steps + 1, sizeof(int));
	bool enough = columns && lane_of;

	if (enough)
		draw(v, columns, lane_of);
	free(columns);
	free(lane_of);
	return enough ? 0 : 1;
}

/* ---- the two commands ---- */

static int print_form(const struct view *v, enum info_form form)
{
	if (form == INFO_SVG)
		return print_svg(v);
	if (form == INFO_DOT)
		print_dot(v);
	else
		print_text(v);
	return 0;
}

static int no_memory(void)
{
	fputs("gpucoll-info: there is not enough memory for the schedule\n", stderr);
	return 1;
}

/* Make, prove and trace. NULL: it was said why not. */
static struct sched *prepare(const struct algo *algo, struct view *v,
			     const struct sched_request *request)
{
	struct sched *sched = algo_make(algo, request);
	char why[256];

	if (!sched) {
		no_memory();
		return NULL;
	}
	if (!sched_verify(sched, algo->slots, why, sizeof(why))) {
		fprintf(stderr, "gpucoll-info: %s is wrong: %s\n", algo->name, why);
	} else if (!sched_levels_new(sched, &v->trace)) {
		no_memory();
	} else {
		v->sched = sched;
		return sched;
	}
	sched_free(sched);
	return NULL;
}

int info_print_schedule(FILE *out, const struct info_call *call, const char *name,
			enum info_form form)
{
	const struct sched_request *request = &call->request;
	const struct algo *algo = algo_find(name, request->coll);
	struct view view = {.out = out, .call = call};
	struct sched *sched;
	const char *why;
	int result;

	if (!algo) {
		fprintf(stderr, "gpucoll-info: there is no algorithm '%s' for %s; there are:", name,
			sched_coll_name(request->coll));
		for (algo = algo_catalogue; algo->name; algo++) {
			if (algo->colls >> request->coll & 1)
				fprintf(stderr, " %s", algo->name);
		}
		fputs("\n", stderr);
		return 2;
	}
	why = algo_refuses(algo, request, false);
	if (why) {
		fprintf(stderr, "gpucoll-info: %s for %s over %d ranks%s: %s\n", name,
			sched_coll_name(request->coll), request->ranks,
			request->in_place ? ", in place" : "", why);
		return 2;
	}
	sched = prepare(algo, &view, request);
	if (!sched)
		return 1;
	result = print_form(&view, form);
	sched_levels_free(&view.trace);
	sched_free(sched);
	return result ? no_memory() : 0;
}

static int print_algorithm(FILE *out, const struct algo *algo, const struct info_call *call)
{
	struct view view = {.out = out, .call = call};
	struct sched *sched = prepare(algo, &view, &call->request);
	struct sched_cost cost;

	if (!sched)
		return 1;
	cost = cost_of(&view);
	fprintf(out,
		"%-18s %8" PRIu32 " %6d %14" PRIu64 " %14" PRIu64 " %14" PRIu64 " %12" PRIu64 "\n",
		algo->name, cost.hops, cost.waits, cost.sent, cost.remote, cost.local,
		cost.scratch);
	sched_levels_free(&view.trace);
	sched_free(sched);
	return 0;
}

int info_print_algorithms(FILE *out, const struct info_call *call)
{
	const struct sched_request *request = &call->request;
	int result = 0;

	fprintf(out,
		"%s over %d ranks, %" PRIu64
		" bytes; messages one after the other, waits of all for all,\nand bytes of the "
		"rank that has most (see --algo)\n\n"
		"%-18s %8s %6s %14s %14s %14s %12s\n",
		sched_coll_name(request->coll), request->ranks, call->bytes, "algorithm",
		"messages", "waits", "sent", "others' memory", "own memory", "scratch");
	for (const struct algo *algo = algo_catalogue; algo->name && !result; algo++) {
		const char *why = algo_refuses(algo, request, false);

		if (!(algo->colls >> request->coll & 1))
			continue;
		if (why)
			fprintf(out, "%-18s %s\n", algo->name, why);
		else
			result = print_algorithm(out, algo, call);
	}
	return result;
}
