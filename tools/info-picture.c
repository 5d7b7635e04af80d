/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A machine as a picture, in the manner of lstopo: boxes in boxes for what PCI has, from left to
 * right; below, NVLinks and NVSwitches in gray; a colour for each ring, and dashed lines from GPUs
 * to the NICs that are best for them.
 */
#include "info-machine.h"
#include "topo/topo_path.h"
#include "topo/topo_ring.h"

#include <stdlib.h>

enum {
	LEAF_WIDTH = 96,
	LEAF_HEIGHT = 44,
	GAP = 14,
	INSET = 8,
	LEVEL = 24, /* a title's height */
	TOP = 60,
	MARGIN = 24,
	BELOW = 250, /* for links and rings */
	LEAST_WIDTH = 620
};

/* Where an object is. */
struct box {
	int x, y, width, height;
};

struct picture {
	FILE *out;
	const struct topo_machine *machine;
	struct box *boxes;
	int x;     /* where the next leaf goes */
	int depth; /* of the deepest leaf */
	int floor; /* below all boxes */
};

/* ---- boxes ---- */

static bool is_leaf(const struct picture *p, int object)
{
	enum topo_kind kind = p->machine->objects[object].kind;

	return kind == TOPO_GPU || kind == TOPO_NIC;
}

static int depth_of(const struct picture *p, int object)
{
	int depth = 0;

	while ((object = p->machine->objects[object].parent) >= 0)
		depth++;
	return depth;
}

/* From left to right in the order of the text. Leaves all end at one height. */
static void place(struct picture *p, int object)
{
	int depth = depth_of(p, object), last = p->x;
	struct box *box = &p->boxes[object];

	*box = (struct box){p->x, TOP + depth * LEVEL, LEAF_WIDTH, 0};
	box->height = (p->depth - depth) * (LEVEL + INSET) + LEAF_HEIGHT;
	if (is_leaf(p, object)) {
		box->y = TOP + p->depth * LEVEL;
		box->height = LEAF_HEIGHT;
		p->x += LEAF_WIDTH + GAP;
		return;
	}
	p->x += INSET;
	for (int i = object + 1; i < p->machine->num_objects; i++) {
		if (p->machine->objects[i].parent == object)
			place(p, i);
	}
	if (p->x == last + INSET) /* nothing in it */
		p->x += LEAF_WIDTH;
	box->width = p->x - last - (p->x > last + INSET + LEAF_WIDTH ? GAP - INSET : 0);
	p->x = last + box->width + GAP;
}

static void place_all(struct picture *p)
{
	for (int i = 0; i < p->machine->num_objects; i++) {
		int depth = is_leaf(p, i) ? depth_of(p, i) : 0;

		p->depth = depth > p->depth ? depth : p->depth;
	}
	p->x = MARGIN;
	for (int i = 0; i < p->machine->num_objects; i++) {
		if (p->machine->objects[i].parent < 0 &&
		    p->machine->objects[i].kind != TOPO_NVSWITCH)
			place(p, i);
	}
	p->floor = TOP + p->depth * (LEVEL + LEVEL + INSET) + LEAF_HEIGHT;
}

static void draw_box(const struct picture *p, int object)
{
	static const char *const colors[TOPO_NUM] = {"#efdfde", "#ffffff", "#e6e6e6",
						     "#d2e7a4", "#bed295", "#dddddd"};
	const struct topo_object *o = &p->machine->objects[object];
	const struct box *box = &p->boxes[object];
	int x = box->x + (is_leaf(p, object) ? LEAF_WIDTH / 2 : 6);

	fprintf(p->out,
		"<g><title>%s %s %s</title><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" "
		"fill=\"%s\" stroke=\"#555\"/>",
		topo_kind_name(o->kind), o->name, o->bus, box->x, box->y, box->width, box->height,
		colors[o->kind]);
	fprintf(p->out, "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\">%s</text>", x, box->y + 15,
		is_leaf(p, object) ? "middle" : "start", o->name);
	if (is_leaf(p, object) && o->rate > 0)
		fprintf(p->out,
			"<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" fill=\"#555\">%.4g "
			"GB/s</text>",
			x, box->y + 32, o->rate);
	fputs("</g>\n", p->out);
}

/* ---- lines ---- */

static int middle(const struct picture *p, int object)
{
	return p->boxes[object].x + LEAF_WIDTH / 2;
}

static int foot(const struct picture *p, int object)
{
	return p->boxes[object].y + LEAF_HEIGHT;
}

/*
 * Between the feet of two leaves, the deeper the further they are apart; `shift` keeps several
 * apart.
 */
static void draw_arc(const struct picture *p, int a, int b, int shift, const char *style)
{
	int from = middle(p, a) + shift, to = middle(p, b) + shift;
	int deep = 40 + abs(to - from) / 4;

	deep = deep < BELOW - 60 ? deep : BELOW - 60;
	fprintf(p->out, "<path d=\"M%d,%d C%d,%d %d,%d %d,%d\" fill=\"none\" %s/>\n", from,
		foot(p, a), from, foot(p, a) + deep, to, foot(p, b) + deep, to, foot(p, b), style);
}

/* All NVSwitches as one, which all GPUs that have links to some are joined to. */
static void draw_switches(const struct picture *p, int width)
{
	int num = 0, y = p->floor + BELOW - 70;

	while (topo_machine_nth(p->machine, TOPO_NVSWITCH, num) >= 0)
		num++;
	for (int i = 0; i < p->machine->num_links; i++) {
		const struct topo_link *link = &p->machine->links[i];

		if (p->machine->objects[link->b].kind == TOPO_NVSWITCH &&
		    p->machine->objects[link->a].kind == TOPO_GPU)
			fprintf(p->out,
				"<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"#bbb\"/>\n",
				middle(p, link->a), foot(p, link->a), middle(p, link->a), y);
	}
	if (num)
		fprintf(p->out,
			"<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"30\" fill=\"#dddddd\" "
			"stroke=\"#555\"/><text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%d "
			"NVSwitches</text>\n",
			MARGIN, y, width - 2 * MARGIN, width / 2, y + 19, num);
}

static void draw_links(const struct picture *p)
{
	for (int i = 0; i < p->machine->num_links; i++) {
		const struct topo_link *link = &p->machine->links[i];
		char style[64];

		if (!is_leaf(p, link->a) || !is_leaf(p, link->b))
			continue;
		snprintf(style, sizeof(style), "stroke=\"#bbb\" stroke-width=\"%.1f\"",
			 link->rate / 12.5);
		draw_arc(p, link->a, link->b, 0, style);
	}
}

static void draw_rings(const struct picture *p)
{
	static struct topo_rings rings;
	char style[64];

	if (!topo_ring_find_all(p->machine, &rings))
		return;
	for (int i = 0; i < rings.num; i++) {
		int shift = (2 * i - rings.num + 1) * 3;

		snprintf(style, sizeof(style), "stroke=\"hsl(%d,75%%,45%%)\" stroke-width=\"1.5\"",
			 360 * i / rings.num);
		for (int j = 0; j < rings.num_gpus; j++)
			draw_arc(p, rings.order[i][j], rings.order[i][(j + 1) % rings.num_gpus],
				 shift, style);
	}
	if (rings.num)
		fprintf(p->out,
			"<text x=\"%d\" y=\"44\" fill=\"#555\">%d %s of %.4g GB/s, a colour each; "
			"dashed: the NIC that is best for a GPU; gray: NVLinks</text>\n",
			MARGIN, rings.num, rings.num > 1 ? "rings" : "ring", rings.rate);
}

static void draw_rails(const struct picture *p)
{
	for (int i = 0, gpu; (gpu = topo_machine_nth(p->machine, TOPO_GPU, i)) >= 0; i++) {
		int nic = topo_path_nic_of(p->machine, gpu);

		if (nic >= 0)
			draw_arc(p, gpu, nic, 20, "stroke=\"#2a7\" stroke-dasharray=\"5,4\"");
	}
}

/* ---- all ---- */

/* What XML would take for its own. */
static void print_escaped(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '&' || *text == '<' || *text == '>')
			fprintf(out, "&#%d;", *text);
		else
			fputc(*text, out);
	}
}

static void draw(struct picture *p)
{
	int width, height;

	place_all(p);
	width = p->x + MARGIN > LEAST_WIDTH ? p->x + MARGIN : LEAST_WIDTH;
	height = p->floor + BELOW;
	fprintf(p->out,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
		"font-family=\"sans-serif\" font-size=\"11\">\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
		"<text x=\"%d\" y=\"26\" font-size=\"15\">",
		width, height, MARGIN);
	print_escaped(p->out, p->machine->name ? p->machine->name : "This machine");
	fputs("</text>\n", p->out);
	draw_switches(p, width);
	for (int i = 0; i < p->machine->num_objects; i++) {
		if (p->machine->objects[i].kind != TOPO_NVSWITCH)
			draw_box(p, i);
	}
	draw_links(p);
	draw_rings(p);
	draw_rails(p);
	fputs("</svg>\n", p->out);
}

bool info_draw_machine(FILE *out, const struct topo_machine *machine)
{
	struct picture picture = {.out = out, .machine = machine};

	picture.boxes = calloc((size_t)machine->num_objects + 1, sizeof(*picture.boxes));
	if (!picture.boxes)
		return false;
	draw(&picture);
	free(picture.boxes);
	return true;
}
