/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI-IO on device memory, in all forms: what a form has written is read back into host memory, and
 * what it reads is compared with what was written, also where the file ends early.
 *
 *     test_io FILE
 */
#include "test.h"

#include <dlfcn.h>

enum form {
	PLAIN,
	AT,
	NONBLOCKING,
	NONBLOCKING_AT,
	ALL,
	AT_ALL,
	NONBLOCKING_ALL,
	NONBLOCKING_AT_ALL,
	SHARED,
	NONBLOCKING_SHARED,
	ORDERED,
	SPLIT_ALL,
	SPLIT_AT_ALL,
	SPLIT_ORDERED,
	NUM_FORMS
};

static const char *const names[NUM_FORMS] = {"",
					     "_at",
					     "i",
					     "i_at",
					     "_all",
					     "_at_all",
					     "i_all",
					     "i_at_all",
					     "_shared",
					     "i_shared",
					     "_ordered",
					     "_all_begin",
					     "_at_all_begin",
					     "_ordered_begin"};

static MPI_File file;

/* Where this rank's data begin, and what there is of them. */
struct part {
	MPI_Offset base, at; /* of rank 0, of this one; bytes */
	int count;
	MPI_Datatype type;
	size_t bytes; /* of a buffer */
};

static bool is_shared(enum form form)
{
	return form == SHARED || form == NONBLOCKING_SHARED;
}

static bool is_ordered(enum form form)
{
	return form == ORDERED || form == SPLIT_ORDERED;
}

/* The file pointers that the form goes by. */
static void seek(enum form form, const struct part *part)
{
	if (is_shared(form) || is_ordered(form))
		MPI_File_seek_shared(file, part->base, MPI_SEEK_SET);
	else
		MPI_File_seek(file, part->at, MPI_SEEK_SET);
}

static void read_form(enum form form, const struct part *p, void *buf, MPI_Status *status)
{
	MPI_Request request = MPI_REQUEST_NULL;

	switch (form) {
	case PLAIN:
		MPI_File_read(file, buf, p->count, p->type, status);
		break;
	case AT:
		MPI_File_read_at(file, p->at, buf, p->count, p->type, status);
		break;
	case NONBLOCKING:
		MPI_File_iread(file, buf, p->count, p->type, &request);
		break;
	case NONBLOCKING_AT:
		MPI_File_iread_at(file, p->at, buf, p->count, p->type, &request);
		break;
	case ALL:
		MPI_File_read_all(file, buf, p->count, p->type, status);
		break;
	case AT_ALL:
		MPI_File_read_at_all(file, p->at, buf, p->count, p->type, status);
		break;
	case NONBLOCKING_ALL:
		MPI_File_iread_all(file, buf, p->count, p->type, &request);
		break;
	case NONBLOCKING_AT_ALL:
		MPI_File_iread_at_all(file, p->at, buf, p->count, p->type, &request);
		break;
	case SHARED:
		MPI_File_read_shared(file, buf, p->count, p->type, status);
		break;
	case NONBLOCKING_SHARED:
		MPI_File_iread_shared(file, buf, p->count, p->type, &request);
		break;
	case ORDERED:
		MPI_File_read_ordered(file, buf, p->count, p->type, status);
		break;
	case SPLIT_ALL:
		MPI_File_read_all_begin(file, buf, p->count, p->type);
		MPI_File_read_all_end(file, buf, status);
		break;
	case SPLIT_AT_ALL:
		MPI_File_read_at_all_begin(file, p->at, buf, p->count, p->type);
		MPI_File_read_at_all_end(file, buf, status);
		break;
	default:
		MPI_File_read_ordered_begin(file, buf, p->count, p->type);
		MPI_File_read_ordered_end(file, buf, status);
	}
	if (request != MPI_REQUEST_NULL)
		MPI_Wait(&request, status);
}

static void write_form(enum form form, const struct part *p, const void *buf, MPI_Status *status)
{
	MPI_Request request = MPI_REQUEST_NULL;

	switch (form) {
	case PLAIN:
		MPI_File_write(file, buf, p->count, p->type, status);
		break;
	case AT:
		MPI_File_write_at(file, p->at, buf, p->count, p->type, status);
		break;
	case NONBLOCKING:
		MPI_File_iwrite(file, buf, p->count, p->type, &request);
		break;
	case NONBLOCKING_AT:
		MPI_File_iwrite_at(file, p->at, buf, p->count, p->type, &request);
		break;
	case ALL:
		MPI_File_write_all(file, buf, p->count, p->type, status);
		break;
	case AT_ALL:
		MPI_File_write_at_all(file, p->at, buf, p->count, p->type, status);
		break;
	case NONBLOCKING_ALL:
		MPI_File_iwrite_all(file, buf, p->count, p->type, &request);
		break;
	case NONBLOCKING_AT_ALL:
		MPI_File_iwrite_at_all(file, p->at, buf, p->count, p->type, &request);
		break;
	case SHARED:
		MPI_File_write_shared(file, buf, p->count, p->type, status);
		break;
	case NONBLOCKING_SHARED:
		MPI_File_iwrite_shared(file, buf, p->count, p->type, &request);
		break;
	case ORDERED:
		MPI_File_write_ordered(file, buf, p->count, p->type, status);
		break;
	case SPLIT_ALL:
		MPI_File_write_all_begin(file, buf, p->count, p->type);
		MPI_File_write_all_end(file, buf, status);
		break;
	case SPLIT_AT_ALL:
		MPI_File_write_at_all_begin(file, p->at, buf, p->count, p->type);
		MPI_File_write_at_all_end(file, buf, status);
		break;
	default:
		MPI_File_write_ordered_begin(file, buf, p->count, p->type);
		MPI_File_write_ordered_end(file, buf, status);
	}
	if (request != MPI_REQUEST_NULL)
		MPI_Wait(&request, status);
}

static struct part make_part(int count, MPI_Datatype type)
{
	struct part part = {.count = count, .type = type};
	MPI_Aint lb, extent;
	int size;

	MPI_Type_size(type, &size);
	MPI_Type_get_extent(type, &lb, &extent);
	part.base = 24;
	part.at = part.base + (MPI_Offset)test_rank * count * size;
	part.bytes = (size_t)count * (size_t)extent + 40;
	return part;
}

static bool counts(const MPI_Status *status, const struct part *part)
{
	int count = -1;

	MPI_Get_count(status, part->type, &count);
	if (count == part->count)
		return true;
	fprintf(stderr, "rank %d: %s: count %d of %d\n", test_rank, test_name, count, part->count);
	return false;
}

/* Elements of the type, from a host buffer to another: what a transfer there and back makes. */
static void move(const struct part *part, const void *from, void *to)
{
	MPI_Sendrecv(from, part->count, part->type, 0, 0, to, part->count, part->type, 0, 0,
		     MPI_COMM_SELF, MPI_STATUS_IGNORE);
}

/* All write, and then read, by a form; by one with a pointer that is shared only rank 0. */
static void run(enum form form, const struct part *part, enum place place)
{
	bool does = !is_shared(form) || test_rank == 0, ok = true;
	unsigned char *data = malloc(part->bytes), *want = malloc(part->bytes),
		      *host = malloc(part->bytes);
	struct buffer buffer = buffer_new(place, part->bytes);
	MPI_Status status;

	snprintf(test_name, sizeof(test_name), "form \"%s\", count %d, %zu bytes, place %d",
		 names[form], part->count, part->bytes, (int)place);
	for (size_t i = 0; i < part->bytes; i++)
		data[i] = (unsigned char)(i * 7 + (size_t)test_rank * 31 + (size_t)form);
	buffer_put(&buffer, data, part->bytes);
	seek(form, part);
	MPI_Barrier(MPI_COMM_WORLD);
	if (does)
		write_form(form, part, buffer.data, &status);
	ok &= !does || counts(&status, part);
	ok &= buffer_equals(&buffer, data, "what was written from");
	MPI_File_sync(file);
	MPI_Barrier(MPI_COMM_WORLD);
	memset(want, POISON, part->bytes);
	move(part, data, want);
	memset(host, POISON, part->bytes);
	MPI_File_read_at(file, part->at, host, part->count, part->type, MPI_STATUS_IGNORE);
	if (does && memcmp(host, want, part->bytes)) {
		fprintf(stderr, "rank %d: %s: the file has other data\n", test_rank, test_name);
		ok = false;
	}
	memset(host, POISON, part->bytes);
	buffer_put(&buffer, host, part->bytes);
	seek(form, part);
	MPI_Barrier(MPI_COMM_WORLD);
	if (does)
		read_form(form, part, buffer.data, &status);
	ok &= !does || counts(&status, part);
	ok &= buffer_equals(&buffer, does ? want : host, "what was read into");
	test_result(ok);
	buffer_free(&buffer);
	free(data);
	free(want);
	free(host);
}

/*
 * The file ends in the midst of what is read. What collective reads say then, and put behind the
 * end, differs between MPIs: the device buffer is to get the same as a host buffer.
 */
static void run_short(enum form form)
{
	enum { HAS = 10, ASKED = 25 };
	struct part part = make_part(ASKED, MPI_INT);
	struct buffer buffer = buffer_new(PLACE_DEVICE, ASKED * sizeof(int));
	int words[ASKED], got = -1, want = -1;
	MPI_Status status;

	if (is_shared(form) || is_ordered(form))
		return;
#ifdef OPEN_MPI /* 4.1 waits for what is behind the end, for ever */
	if (form != PLAIN && form != AT && form != ALL && form != AT_ALL)
		return;
#endif
	snprintf(test_name, sizeof(test_name), "form \"%s\" beyond the file's end", names[form]);
	part.base = part.at = 0;
	MPI_File_set_size(file, HAS * sizeof(int));
	for (int i = 0; i < HAS; i++)
		words[i] = i + 1000;
	if (test_rank == 0)
		MPI_File_write_at(file, 0, words, HAS, MPI_INT, MPI_STATUS_IGNORE);
	MPI_File_sync(file);
	MPI_Barrier(MPI_COMM_WORLD);
	seek(form, &part);
	read_form(form, &part, buffer.data, &status);
	MPI_Get_count(&status, MPI_INT, &got);
	memset(words, POISON, sizeof(words));
	MPI_Barrier(MPI_COMM_WORLD);
	seek(form, &part);
	read_form(form, &part, words, &status);
	MPI_Get_count(&status, MPI_INT, &want);
	test_result(buffer_equals(&buffer, words, "what was read into") && got == want &&
		    words[HAS - 1] == HAS - 1 + 1000);
	buffer_free(&buffer);
}

/* In another representation numbers' bytes are turned round, which needs their types. */
static void run_external(void)
{
	enum { NUM = 50 };
	struct buffer buffer = buffer_new(PLACE_DEVICE, NUM * sizeof(int));
	MPI_Offset at = (MPI_Offset)test_rank * NUM;
	int words[NUM], raw[NUM];
	bool ok = true;

	snprintf(test_name, sizeof(test_name), "external32");
	for (int i = 0; i < NUM; i++)
		words[i] = 1000 * test_rank + i;
	buffer_put(&buffer, words, sizeof(words));
	if (MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "external32", MPI_INFO_NULL)) {
		fprintf(stderr, "this MPI has no files in external32\n");
		return;
	}
	MPI_File_write_at(file, at, buffer.data, NUM, MPI_INT, MPI_STATUS_IGNORE);
	memset(raw, POISON, sizeof(raw));
	buffer_put(&buffer, raw, sizeof(raw));
	MPI_File_sync(file);
	MPI_File_read_at(file, at, buffer.data, NUM, MPI_INT, MPI_STATUS_IGNORE);
	ok &= buffer_equals(&buffer, words, "what was read into");
	MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
	MPI_File_read_at(file, at * (MPI_Offset)sizeof(int), raw, NUM, MPI_INT, MPI_STATUS_IGNORE);
	for (int i = 0; i < NUM; i++)
		ok &= (int)__builtin_bswap32((unsigned)raw[i]) == words[i];
	test_result(ok);
	buffer_free(&buffer);
}

/* Split halves of which the second comes while the library is switched off. */
static void run_switched_off(void)
{
	int (*enable)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "gpucoll_enable");
	struct buffer buffer = buffer_new(PLACE_DEVICE, 64);
	unsigned char data[64], host[64];
	MPI_Offset at = (MPI_Offset)test_rank * 64;

	if (!enable)
		return;
	snprintf(test_name, sizeof(test_name), "switched off between begin and end");
	memset(data, 1 + test_rank, sizeof(data));
	MPI_File_write_at(file, at, data, 64, MPI_BYTE, MPI_STATUS_IGNORE);
	MPI_File_read_at_all_begin(file, at, buffer.data, 64, MPI_BYTE);
	enable(0);
	MPI_File_read_at_all_end(file, buffer.data, MPI_STATUS_IGNORE);
	test_result(buffer_equals(&buffer, data, "what was read into"));
	MPI_File_read_at_all_begin(file, at, host, 64, MPI_BYTE);
	enable(1);
	memset(data, POISON, sizeof(data));
	buffer_put(&buffer, data, sizeof(data));
	MPI_File_read_at_all_end(file, host, MPI_STATUS_IGNORE);
	test_result(buffer_equals(&buffer, data, "an earlier buffer"));
	buffer_free(&buffer);
}

static void run_refused(const char *path)
{
	struct buffer buffer = buffer_new(PLACE_DEVICE, 64);
	unsigned char want[64];
	MPI_File only;
	bool ok = true;

	snprintf(test_name, sizeof(test_name), "a file that can't be written");
	MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &only);
	ok &= MPI_File_write_at(only, 0, buffer.data, 64, MPI_BYTE, MPI_STATUS_IGNORE) != 0;
	MPI_File_close(&only);
	memset(want, POISON, sizeof(want));
	ok &= buffer_equals(&buffer, want, "buffer");
	test_result(ok);
	buffer_free(&buffer);
}

int main(int argc, char **argv)
{
	static const int elements[] = {0, 1, 1001};
	MPI_Datatype gaps;
	int status;

	MPI_Init(&argc, &argv);
	test_start();
	if (argc < 2 || MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR,
				      MPI_INFO_NULL, &file)) {
		fprintf(stderr, "can't open '%s'\n", argc < 2 ? "" : argv[1]);
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	MPI_Type_vector(3, 2, 5, MPI_INT, &gaps);
	MPI_Type_commit(&gaps);
	for (int form = 0; form < NUM_FORMS; form++) {
		for (size_t i = 0; i < sizeof(elements) / sizeof(elements[0]); i++) {
			struct part solid = make_part(elements[i], MPI_INT),
				    sparse = make_part(elements[i], gaps);

			run((enum form)form, &solid, PLACE_DEVICE);
			run((enum form)form, &sparse, PLACE_DEVICE);
			run((enum form)form, &solid, test_rank % 2 ? PLACE_HOST : PLACE_MANAGED);
		}
		run_short((enum form)form);
	}
	run_external();
	run_switched_off();
	MPI_File_close(&file);
	run_refused(argv[1]);
	MPI_Type_free(&gaps);
	status = test_finish();
	MPI_Finalize();
	return status;
}
