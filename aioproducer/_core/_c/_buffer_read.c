/* Reading of a RecordBuffer (_buffer.c): the parts of its records, and a buffer of some records.

   This code keeps positions instead of pointers, because an allocation may run a finalizer that appends to the buffer. Each
   position is checked, because a program can write to a view of the memory.
*/
#include "_records.h"

/* ---- Reading ---- */

/* A record read: positions in the data. */
typedef struct {
    Py_ssize_t start;
    Py_ssize_t key; /* position of the first field */
    Py_ssize_t end;
    int64_t delta;
} Place;

static int damaged(void)
{
    PyErr_SetString(PyExc_ValueError, "RecordBuffer: the records cannot be read; their memory was changed from outside");
    return -1;
}

static inline int read_varint(const Buffer *own, Py_ssize_t *at, Py_ssize_t end, int64_t *number)
{
    uint64_t zigzagged = 0;
    if (*at < end && (unsigned char)own->data[*at] < 0x80) {
        zigzagged = (unsigned char)own->data[(*at)++];
        *number = (int64_t)(zigzagged >> 1 ^ (~(zigzagged & 1) + 1));
        return 0;
    }
    for (int shift = 0; shift < 70 && *at < end; shift += 7) {
        uint64_t byte = (unsigned char)own->data[(*at)++];
        zigzagged |= (byte & 0x7F) << shift;
        if (byte < 0x80) {
            *number = (int64_t)(zigzagged >> 1 ^ (~(zigzagged & 1) + 1));
            return 0;
        }
    }
    return damaged();
}

/* Read the timestamp delta of the next record, and its end; `key` is the position behind the delta. */
static int read_delta(const Buffer *own, Place *place)
{
    int64_t body;
    place->key = place->start = place->end;
    if (read_varint(own, &place->key, own->size, &body) < 0)
        return -1;
    if (body < 1 || body > own->size - place->key)
        return damaged();
    place->end = place->key + (Py_ssize_t)body;
    place->key++; /* attributes */
    return read_varint(own, &place->key, place->end, &place->delta);
}

static int read_place(const Buffer *own, Py_ssize_t start, Place *place)
{
    int64_t offset;
    place->end = start;
    return read_delta(own, place) < 0 ? -1 : read_varint(own, &place->key, place->end, &offset);
}

/* Read a field as bytes, None for a null. */
static PyObject *read_field(const Buffer *own, Py_ssize_t *at, Py_ssize_t end, int is_wanted)
{
    int64_t size;
    if (read_varint(own, at, end, &size) < 0)
        return NULL;
    if (size < -1 || size > end - *at) {
        (void)damaged();
        return NULL;
    }
    if (size < 0)
        return Py_NewRef(Py_None);
    *at += (Py_ssize_t)size;
    return is_wanted ? PyBytes_FromStringAndSize(own->data + *at - size, (Py_ssize_t)size) : Py_NewRef(Py_None);
}

static int skip_field(const Buffer *own, Py_ssize_t *at, Py_ssize_t end)
{
    PyObject *skipped = read_field(own, at, end, 0);
    Py_XDECREF(skipped);
    return skipped == NULL ? -1 : 0;
}

static PyObject *read_header(const Buffer *own, Py_ssize_t *at, Py_ssize_t end)
{
    int64_t size;
    if (read_varint(own, at, end, &size) < 0)
        return NULL;
    if (size < 0 || size > end - *at) {
        (void)damaged();
        return NULL;
    }
    PyObject *name = PyUnicode_DecodeUTF8(own->data + *at, (Py_ssize_t)size, NULL);
    *at += (Py_ssize_t)size;
    PyObject *value = name == NULL ? NULL : read_field(own, at, end, 1);
    if (value != NULL)
        return Py_BuildValue("(NN)", name, value);
    Py_XDECREF(name);
    return NULL;
}

enum part { PART_KEY, PART_VALUE, PART_HEADERS, PART_SIZE };

static PyObject *read_part(const Buffer *own, const Place *place, enum part part)
{
    Py_ssize_t at = place->key;
    int64_t count;
    if (part == PART_SIZE)
        return PyLong_FromSsize_t(place->end - place->start);
    if (part == PART_KEY)
        return read_field(own, &at, place->end, 1);
    if (skip_field(own, &at, place->end) < 0)
        return NULL;
    if (part == PART_VALUE)
        return read_field(own, &at, place->end, 1);
    if (skip_field(own, &at, place->end) < 0 || read_varint(own, &at, place->end, &count) < 0)
        return NULL;
    if (count < 0 || count > place->end - at) {
        (void)damaged();
        return NULL;
    }
    PyObject *headers = PyTuple_New((Py_ssize_t)count);
    for (Py_ssize_t number = 0; headers != NULL && number < count; number++) {
        PyObject *header = read_header(own, &at, place->end);
        if (header == NULL || PyTuple_SetItem(headers, number, header) < 0)
            Py_CLEAR(headers);
    }
    return headers;
}

static PyObject *read_all(const Buffer *own, enum part part)
{
    PyObject *list = PyList_New(own->count);
    Place place = {0, 0, HEADER, 0};
    for (Py_ssize_t index = 0; list != NULL && index < PyList_Size(list); index++) {
        PyObject *item = read_place(own, place.end, &place) < 0 ? NULL : read_part(own, &place, part);
        if (item == NULL || PyList_SetItem(list, index, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *get_values(PyObject *self, void *unused)
{
    (void)unused;
    return read_all((Buffer *)self, PART_VALUE);
}

static PyObject *get_keys(PyObject *self, void *unused)
{
    (void)unused;
    return ((Buffer *)self)->has_keys ? read_all((Buffer *)self, PART_KEY) : Py_NewRef(Py_None);
}

static PyObject *get_headers(PyObject *self, void *unused)
{
    (void)unused;
    return ((Buffer *)self)->has_headers ? read_all((Buffer *)self, PART_HEADERS) : Py_NewRef(Py_None);
}

PyObject *aioproducer_buffer_sizes(PyObject *self, PyObject *unused)
{
    (void)unused;
    return read_all((Buffer *)self, PART_SIZE);
}

/* Set *times* from each record; equal neighbours share one object. */
static int read_times(const Buffer *own, PyObject *times)
{
    PyObject *time = NULL;
    Place place = {0, 0, HEADER, 0};
    int64_t last = 0;
    int failed = 0;
    for (Py_ssize_t index = 0; !failed && index < PyTuple_Size(times); index++) {
        failed = read_delta(own, &place) < 0;
        if (!failed && (time == NULL || place.delta != last)) {
            last = place.delta;
            Py_XDECREF(time);
            time = PyLong_FromLongLong((int64_t)((uint64_t)own->first_ms + (uint64_t)last));
        }
        failed = failed || time == NULL || PyTuple_SetItem(times, index, Py_NewRef(time)) < 0;
    }
    Py_XDECREF(time);
    return failed ? -1 : 0;
}

/* Set *times* from the runs, without reading the records. */
static int copy_runs(const Buffer *own, PyObject *times)
{
    Py_ssize_t index = 0, count = PyTuple_Size(times);
    for (int run = 0; run < own->run_count; run++) {
        Py_ssize_t end = run + 1 < own->run_count ? own->runs[run + 1].start : count;
        PyObject *time = PyLong_FromLongLong(own->runs[run].ms);
        int failed = time == NULL;
        for (; !failed && index < end; index++)
            failed = PyTuple_SetItem(times, index, Py_NewRef(time)) < 0;
        Py_XDECREF(time);
        if (failed)
            return -1;
    }
    return 0;
}

/* Return the timestamps as a tuple, because the garbage collector untracks a tuple of ints, but never a list. */
static PyObject *get_timestamps(PyObject *self, void *unused)
{
    Buffer *own = (Buffer *)self;
    PyObject *times = PyTuple_New(own->count);
    (void)unused;
    if (times != NULL && (own->run_count <= MOST_RUNS ? copy_runs(own, times) : read_times(own, times)) < 0)
        Py_CLEAR(times);
    return times;
}

static PyObject *get_held(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromSsize_t(held((Buffer *)self));
}

static PyObject *get_size(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromSsize_t(((Buffer *)self)->size);
}

static PyObject *get_span(PyObject *self, void *unused)
{
    (void)unused;
    return Py_BuildValue("(LL)", (long long)((Buffer *)self)->first_ms, (long long)((Buffer *)self)->max_ms);
}

PyGetSetDef aioproducer_buffer_parts[] = {
    {"headers", get_headers, NULL, NULL, NULL},
    {"held", get_held, NULL, NULL, NULL},
    {"keys", get_keys, NULL, NULL, NULL},
    {"size", get_size, NULL, NULL, NULL},
    {"span", get_span, NULL, NULL, NULL},
    {"timestamps", get_timestamps, NULL, NULL, NULL},
    {"values", get_values, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* ---- encode(attributes, producer_id, producer_epoch, base_sequence, crc32c) ---- */

#define UNTRACKED 400 /* bytes: the garbage collector visits the two objects of a view, and no copy */
enum { CRC_AT = 17, CHECKED_FROM = 21 };

static char *put_number(char *at, int64_t number, int bytes)
{
    for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
        *at++ = (char)((uint64_t)number >> shift);
    return at;
}

/* Read *number*, which has to fit into *bytes*. */
static int read_number(PyObject *argument, int bytes, int64_t *number)
{
    *number = PyLong_AsLongLong(argument);
    if (*number == -1 && PyErr_Occurred())
        return -1;
    if (*number == (int64_t)((uint64_t)*number << (64 - 8 * bytes)) >> (64 - 8 * bytes))
        return 0;
    PyErr_SetString(PyExc_OverflowError, "RecordBuffer: a number does not fit into the header of a batch");
    return -1;
}

/* Write the CRC by the function *crc32c*, from the initial value 0; mode 0 keeps the GIL, as `_KEEP_GIL` of record_batch.py.
   *crc32c* may be any function, so the buffer refuses records during the call. */
static int put_crc(Buffer *own, PyObject *crc32c)
{
    PyObject *checked = PyMemoryView_FromMemory(own->data + CHECKED_FROM, own->size - CHECKED_FROM, PyBUF_READ);
    PyObject *zero = PyLong_FromLong(0), *crc = NULL;
    own->views++;
    if (checked != NULL && zero != NULL)
        crc = PyObject_CallFunctionObjArgs(crc32c, checked, zero, zero, NULL);
    own->views--;
    Py_XDECREF(zero);
    unsigned long value = crc == NULL ? 0 : PyLong_AsUnsignedLong(crc);
    Py_XDECREF(crc);
    Py_XDECREF(checked);
    if (PyErr_Occurred())
        return -1;
    (void)put_number(own->data + CRC_AT, (int64_t)value, 4);
    return 0;
}

/* Write the header in front of the records, and return the batch: a copy of a small batch, else a view of the memory. */
PyObject *aioproducer_buffer_encode(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Buffer *own = (Buffer *)self;
    int64_t attributes, producer_id, producer_epoch, base_sequence;
    if (!has_arguments("encode", count, 5) || read_number(args[0], 2, &attributes) < 0 ||
        read_number(args[1], 8, &producer_id) < 0 || read_number(args[2], 2, &producer_epoch) < 0 ||
        read_number(args[3], 4, &base_sequence) < 0)
        return NULL;
    if (own->count == 0) {
        PyErr_SetString(PyExc_ValueError, "a batch has at least one record");
        return NULL;
    }
    char *at = put_number(own->data, 0, 8); /* base offset */
    at = put_number(at, own->size - LENGTH_PREFIX, 4);
    at = put_number(at, -1, 4); /* leader epoch */
    at = put_number(at, 2, 1);  /* magic */
    at = put_number(at + 4, attributes, 2);
    at = put_number(at, own->count - 1, 4);
    at = put_number(at, own->first_ms, 8);
    at = put_number(at, own->max_ms, 8);
    at = put_number(at, producer_id, 8);
    at = put_number(at, producer_epoch, 2);
    at = put_number(at, base_sequence, 4);
    (void)put_number(at, own->count, 4);
    if (put_crc(own, args[4]) < 0)
        return NULL;
    return own->size > UNTRACKED ? PyMemoryView_FromObject(self) : PyByteArray_FromStringAndSize(own->data, own->size);
}

/* ---- take(indices), truncate(count) ---- */

/* Set *start* to the position of the record at *index*, and set missing marks of earlier records. */
static int locate(Buffer *own, Py_ssize_t index, Py_ssize_t *start)
{
    Py_ssize_t mark = index / MARKED;
    Place place = {0, 0, HEADER, 0};
    if (mark >= own->marked) {
        Py_ssize_t *marks = PyMem_Realloc(own->marks, (size_t)(mark + 1) * sizeof *marks);
        if (marks == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        own->marks = marks;
        if (own->marked == 0)
            marks[own->marked++] = HEADER;
    }
    for (; own->marked <= mark; own->marked++) {
        place.end = own->marks[own->marked - 1];
        for (int step = 0; step < MARKED; step++)
            if (read_place(own, place.end, &place) < 0)
                return -1;
        own->marks[own->marked] = place.end;
    }
    place.end = own->marks[mark];
    for (Py_ssize_t at = mark * MARKED; at < index; at++)
        if (read_place(own, place.end, &place) < 0)
            return -1;
    *start = place.end;
    return 0;
}

/* Look up the position of a record. The successor of the previous record needs no search. */
static int find_place(Buffer *own, PyObject *number, Py_ssize_t *next, Place *place)
{
    Py_ssize_t index = PyNumber_AsSsize_t(number, PyExc_IndexError), start = place->end;
    if (index == -1 && PyErr_Occurred())
        return -1;
    index += index < 0 ? own->count : 0;
    if (index < 0 || index >= own->count) {
        PyErr_SetString(PyExc_IndexError, "RecordBuffer: there is no record of that index");
        return -1;
    }
    if (index != *next && locate(own, index, &start) < 0)
        return -1;
    *next = index + 1;
    return read_place(own, start, place);
}

static int copy_record(Buffer *copy, const Buffer *own, const Place *place)
{
    int64_t timestamp_ms = (int64_t)((uint64_t)own->first_ms + (uint64_t)place->delta), delta = 0, count, key;
    Py_ssize_t fields = place->end - place->key, body, at = place->key;
    if (copy->count > 0 && delta_or_error(copy->first_ms, timestamp_ms, &delta) < 0)
        return -1;
    body = sum(fields, 1 + varint_size(delta) + varint_size(copy->count));
    if (aioproducer_buffer_room(copy, sum(body, varint_size(body)), PY_SSIZE_T_MAX, PY_SSIZE_T_MAX) < 0)
        return -1;
    char *to = put_varint(copy->data + copy->size, body);
    *to++ = 0; /* attributes */
    to = put_varint(put_varint(to, delta), copy->count);
    memcpy(to, own->data + place->key, (size_t)fields);
    copy->size = to + fields - copy->data;
    note(copy, timestamp_ms);
    if (read_varint(own, &at, place->end, &key) < 0)
        return -1;
    at = place->key;
    copy->has_keys |= key >= 0;
    if (own->has_headers) {
        if (skip_field(own, &at, place->end) < 0 || skip_field(own, &at, place->end) < 0 ||
            read_varint(own, &at, place->end, &count) < 0)
            return -1;
        copy->has_headers |= count > 0;
    }
    return 0;
}

PyObject *aioproducer_buffer_take(PyObject *self, PyObject *indices)
{
    Buffer *own = (Buffer *)self;
    PyObject *copy = NULL;
    Place place = {0, 0, HEADER, 0};
    Py_ssize_t next = 0;
    if ((indices = tuple_of(indices, -1)) != NULL)
        copy = PyType_GenericAlloc(Py_TYPE(self), 0);
    if (copy != NULL)
        ((Buffer *)copy)->size = HEADER;
    for (Py_ssize_t at = 0; copy != NULL && at < PyTuple_Size(indices); at++)
        if (find_place(own, PyTuple_GetItem(indices, at), &next, &place) < 0 ||
            copy_record((Buffer *)copy, own, &place) < 0)
            Py_CLEAR(copy);
    if (copy != NULL && ((Buffer *)copy)->capacity > ((Buffer *)copy)->size)
        (void)aioproducer_buffer_resize((Buffer *)copy, ((Buffer *)copy)->size);
    Py_XDECREF(indices);
    return copy;
}

PyObject *aioproducer_buffer_truncate(PyObject *self, PyObject *number)
{
    Buffer *own = (Buffer *)self;
    Py_ssize_t count = PyLong_AsSsize_t(number);
    Buffer kept = *own;
    Place place = {0, 0, HEADER, 0};
    if ((count == -1 && PyErr_Occurred()) || refuse_views(own) < 0)
        return NULL;
    if (count < 0) {
        PyErr_SetString(PyExc_ValueError, "RecordBuffer: a count of records is not negative");
        return NULL;
    }
    if (count >= own->count)
        Py_RETURN_NONE;
    kept.count = kept.run_count = 0;
    while (kept.count < count) {
        if (read_place(own, place.end, &place) < 0)
            return NULL;
        note(&kept, (int64_t)((uint64_t)own->first_ms + (uint64_t)place.delta));
    }
    own->size = place.end;
    own->count = count;
    own->run_count = kept.run_count;
    memcpy(own->runs, kept.runs, sizeof own->runs);
    own->min_ms = kept.min_ms;
    own->max_ms = kept.max_ms;
    own->has_keys = own->has_keys && count > 0;
    own->has_headers = own->has_headers && count > 0;
    if (own->marked > (count + MARKED - 1) / MARKED)
        own->marked = (count + MARKED - 1) / MARKED;
    Py_RETURN_NONE;
}
