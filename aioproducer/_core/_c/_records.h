/* Records in C: fields, varints and sizes, columns (_rows.c, _column.c), and the RecordBuffer (_buffer.c). */
#ifndef AIOPRODUCER_RECORDS_H
#define AIOPRODUCER_RECORDS_H

#include "_accelerator.h"

/* Without a GIL another thread may change lists and dicts, so Python reads them. */
#ifdef Py_GIL_DISABLED
#define LISTS_STAY 0
#else
#define LISTS_STAY 1
#endif

/* ---- Sizes, varints and fields ---- */

static inline char *put_varint(char *at, int64_t number)
{
    uint64_t rest = zigzag(number);
    for (; rest > 0x7F; rest >>= 7)
        *at++ = (char)(rest | 0x80);
    *at++ = (char)rest;
    return at;
}

/* A nullable field: a varint length, -1 for a null, and the bytes. */
typedef struct {
    char *data;
    Py_ssize_t size;
} Field;
static const Field null_field = {NULL, -1};

static inline Py_ssize_t length(Field field)
{
    return field.size < 0 ? 0 : field.size;
}

static inline Py_ssize_t field_size(Field field)
{
    return sum(varint_size(field.size), length(field));
}

static inline char *put_field(char *at, Field field)
{
    at = put_varint(at, field.size);
    if (field.size > 0)
        memcpy(at, field.data, (size_t)field.size);
    return at + length(field);
}

/* A column of bytes or None in the memory of another object (_column.c): no object per row. */
typedef struct {
    PyObject_HEAD
    PyObject *owner; /* column that holds the memory; NULL if this column does */
    Py_buffer data;  /* memory of the bytes, if `owner` is NULL */
    Field *fields;   /* allocated by this column, or part of the fields of another */
    Field *allocated;
    Py_ssize_t count;
} BytesColumn;

/* ---- Columns of records ---- */

/* A column as a tuple or a BytesColumn; items is NULL for a missing column. */
typedef struct {
    PyObject *items;
    const Field *fields; /* fields of a BytesColumn, else NULL */
} Column;

/* A header of all records. */
typedef struct {
    Field name;
    Field value;   /* value of all records, if `values` is missing */
    Column values; /* one value per record, or missing */
} HeaderColumn;

typedef struct {
    Column values;
    Column keys;
    PyObject *headers;      /* tuple of the pairs of each record, or NULL */
    HeaderColumn *by_place; /* headers as columns, or NULL */
    Py_ssize_t places;
    PyObject *parts; /* list that holds names and values of `by_place` */
    Py_ssize_t count;
} Columns;

static inline int field_of(PyObject *data, Field *field)
{
    *field = null_field;
    return data == Py_None ? 0 : PyBytes_AsStringAndSize(data, &field->data, &field->size);
}

/* Set *column*; *count* is the required number of items, or -1. */
static inline int column_init(Column *column, PyObject *items, Py_ssize_t count)
{
    int in_place = aioproducer_is_column(items);
    if (in_place && count >= 0 && ((BytesColumn *)items)->count != count) {
        PyErr_SetString(PyExc_ValueError, "columns are not of equal length");
        return -1;
    }
    column->items = in_place ? Py_NewRef(items) : tuple_of(items, count);
    column->fields = in_place ? ((BytesColumn *)items)->fields : NULL;
    return column->items == NULL ? -1 : 0;
}

static inline Py_ssize_t column_length(const Column *column)
{
    return column->fields != NULL ? ((BytesColumn *)column->items)->count : PyTuple_Size(column->items);
}

static inline int column_field(const Column *column, Py_ssize_t index, Field *field)
{
    if (column->fields == NULL)
        return field_of(PyTuple_GetItem(column->items, index), field);
    *field = column->fields[index];
    return 0;
}

static inline int header_column_init(HeaderColumn *column, PyObject *parts, Py_ssize_t count)
{
    PyObject *name, *value, *values;
    if (!PyArg_ParseTuple(parts, "UOO;three parts", &name, &value, &values))
        return -1;
    column->value = null_field;
    if (values != Py_None ? column_init(&column->values, values, count) < 0 : count > 0 && field_of(value, &column->value) < 0)
        return -1;
    if (count > 0)
        column->name.data = (char *)PyUnicode_AsUTF8AndSize(name, &column->name.size); /* kept by the str */
    return count > 0 && column->name.data == NULL ? -1 : 0;
}

/* Set the headers to those of HeaderColumns. */
static inline int header_columns_init(Columns *columns, PyObject *headers)
{
    PyObject *theirs = PyObject_GetAttrString(headers, "columns");
    columns->parts = theirs == NULL ? NULL : PySequence_List(theirs);
    Py_XDECREF(theirs);
    Py_ssize_t places = columns->parts == NULL ? -1 : PyList_Size(columns->parts);
    if (places < 0)
        return -1;
    if ((columns->by_place = PyMem_Calloc((size_t)places + 1, sizeof *columns->by_place)) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (; columns->places < places; columns->places++)
        if (header_column_init(&columns->by_place[columns->places], PyList_GetItem(columns->parts, columns->places),
                               columns->count) < 0) {
            columns->places++; /* so the values of this header are released, too */
            return -1;
        }
    return 0;
}

static inline void columns_clear(Columns *columns)
{
    Py_CLEAR(columns->values.items);
    Py_CLEAR(columns->keys.items);
    Py_CLEAR(columns->headers);
    for (Py_ssize_t place = 0; place < columns->places; place++)
        Py_CLEAR(columns->by_place[place].values.items);
    PyMem_Free(columns->by_place);
    Py_CLEAR(columns->parts);
}

static inline int columns_init(Columns *columns, PyObject *values, PyObject *keys, PyObject *headers)
{
    int by_record = PyList_Check(headers) || PyTuple_Check(headers), made;
    memset(columns, 0, sizeof *columns);
    made = column_init(&columns->values, values, -1);
    columns->count = made < 0 ? 0 : column_length(&columns->values);
    if (made == 0 && keys != Py_None)
        made = column_init(&columns->keys, keys, columns->count);
    if (made == 0 && by_record)
        made = (columns->headers = tuple_of(headers, columns->count)) == NULL ? -1 : 0;
    if (made == 0 && !by_record && headers != Py_None)
        made = header_columns_init(columns, headers);
    if (made < 0)
        columns_clear(columns);
    return made;
}

static inline int key_and_value(const Columns *columns, Py_ssize_t index, Field *key, Field *value)
{
    *key = null_field;
    if (columns->keys.items != NULL && column_field(&columns->keys, index, key) < 0)
        return -1;
    return column_field(&columns->values, index, value);
}

static inline Py_ssize_t header_count(const Columns *columns, Py_ssize_t index)
{
    return columns->headers == NULL ? columns->places : PyTuple_Size(PyTuple_GetItem(columns->headers, index));
}

/* Look up header *number* of the record at *index*. */
static inline int header_at(const Columns *columns, Py_ssize_t index, Py_ssize_t number, Field *name, Field *value)
{
    if (columns->headers == NULL) {
        const HeaderColumn *column = &columns->by_place[number];
        *name = column->name;
        *value = column->value;
        return column->values.items == NULL ? 0 : column_field(&column->values, index, value);
    }
    PyObject *pair = PyTuple_GetItem(PyTuple_GetItem(columns->headers, index), number);
    if (PyTuple_Size(pair) != 2) {
        PyErr_SetString(PyExc_TypeError, "a header must be a tuple of name and value");
        return -1;
    }
    name->data = (char *)PyUnicode_AsUTF8AndSize(PyTuple_GetItem(pair, 0), &name->size); /* kept by the str */
    return name->data == NULL ? -1 : field_of(PyTuple_GetItem(pair, 1), value);
}

/* Size of a record. */
typedef struct {
    Py_ssize_t headers; /* number of headers */
    Py_ssize_t fields;  /* its encoded key, value and headers, in bytes, without the number of headers */
    Py_ssize_t payload; /* payload by the count of records/columns.py */
} Measures;

static inline int measure(const Columns *columns, Py_ssize_t index, Measures *of)
{
    Field key, name, value;
    of->headers = header_count(columns, index);
    if (of->headers < 0 || key_and_value(columns, index, &key, &value) < 0)
        return -1;
    of->fields = sum(field_size(key), field_size(value));
    of->payload = sum(length(key), length(value));
    for (Py_ssize_t number = 0; number < of->headers; number++) {
        if (header_at(columns, index, number, &name, &value) < 0)
            return -1;
        of->fields = sum(of->fields, sum(field_size(name), field_size(value)));
        of->payload = sum(of->payload, sum(field_size(name), sum(length(value), HEADER_OVERHEAD)));
    }
    return 0;
}

/* A record before it is written. */
typedef struct {
    Py_ssize_t size; /* bytes behind the length */
    int64_t delta;   /* timestamp delta from the first record, in ms */
} Body;

/* Write the record at *index*, number *offset* of its batch, and return its end. Nothing can fail: `measure` has read all. */
static inline char *put_record(char *at, const Columns *columns, Py_ssize_t index, Py_ssize_t offset, Body body)
{
    Field key = null_field, name = null_field, value = null_field;
    Py_ssize_t headers = header_count(columns, index);
    (void)key_and_value(columns, index, &key, &value);
    at = put_varint(at, body.size);
    *at++ = 0; /* attributes */
    at = put_varint(at, body.delta);
    at = put_varint(at, offset);
    at = put_field(put_field(at, key), value);
    at = put_varint(at, headers);
    for (Py_ssize_t number = 0; number < headers; number++) {
        (void)header_at(columns, index, number, &name, &value);
        at = put_field(put_field(at, name), value);
    }
    return at;
}

/* ---- RecordBuffer ---- */

#define HEADER 61
#define LENGTH_PREFIX 12 /* base offset and length: not counted by the length, which is an int32 */
#define MARKED 64        /* interval between two records with a mark */
#define MOST_RUNS 16

/* Consecutive records with the same timestamp. */
typedef struct {
    Py_ssize_t start; /* index of the first record */
    int64_t ms;
} Run;

typedef struct {
    PyObject_HEAD
    char *data;
    Py_ssize_t size;     /* bytes of header and records */
    Py_ssize_t capacity; /* bytes of data; 0 before the first record */
    Py_ssize_t count;
    Py_ssize_t views; /* number of exported views */
    int64_t first_ms;
    int64_t min_ms;
    int64_t max_ms;
    PyObject *last_time; /* int of the last appended timestamp, or NULL; the next record mostly has the same object */
    int64_t last_ms;
    Run runs[MOST_RUNS];
    int run_count; /* MOST_RUNS + 1: more runs than `runs` holds */
    int has_keys;
    int has_headers;
    Py_ssize_t *marks; /* positions of records 0, 64, 128, …; set on request, so look-ups of late records are fast */
    Py_ssize_t marked;
} Buffer;

static inline Py_ssize_t held(const Buffer *own)
{
    return own->capacity < HEADER ? HEADER : own->capacity;
}

static inline int refuse_views(const Buffer *own)
{
    if (own->views == 0)
        return 0;
    PyErr_SetString(PyExc_BufferError, "RecordBuffer: a view of its memory exists; release the view before it changes");
    return -1;
}

/* ---- Timestamps ---- */

/* Set *delta* to the difference from the first timestamp; return -1 if the difference exceeds a varlong. */
static inline int delta_of(int64_t first_ms, int64_t timestamp_ms, int64_t *delta)
{
    if (first_ms < 0 ? timestamp_ms > INT64_MAX + first_ms : timestamp_ms < INT64_MIN + first_ms)
        return -1;
    *delta = timestamp_ms - first_ms;
    return 0;
}

static inline int delta_or_error(int64_t first_ms, int64_t timestamp_ms, int64_t *delta)
{
    if (delta_of(first_ms, timestamp_ms, delta) == 0)
        return 0;
    PyErr_SetString(PyExc_ValueError, "the timestamps are too far apart for a varlong");
    return -1;
}

static inline void note_run(Buffer *own, int64_t timestamp_ms)
{
    if (own->run_count < MOST_RUNS)
        own->runs[own->run_count] = (Run){own->count, timestamp_ms};
    own->run_count += own->run_count <= MOST_RUNS;
}

/* Note the timestamp of the next record. */
static inline void note(Buffer *own, int64_t timestamp_ms)
{
    if (own->count == 0)
        own->run_count = 0;
    if (own->run_count == 0 || (own->run_count <= MOST_RUNS && own->runs[own->run_count - 1].ms != timestamp_ms))
        note_run(own, timestamp_ms);
    if (own->count == 0)
        own->first_ms = own->min_ms = own->max_ms = timestamp_ms;
    else if (timestamp_ms > own->max_ms)
        own->max_ms = timestamp_ms;
    else if (timestamp_ms < own->min_ms)
        own->min_ms = timestamp_ms;
    own->count++;
}

/* _buffer.c */
int aioproducer_buffer_resize(Buffer *own, Py_ssize_t capacity);
int aioproducer_buffer_room(Buffer *own, Py_ssize_t more, Py_ssize_t limit, Py_ssize_t free);

/* _buffer_read.c */
extern PyGetSetDef aioproducer_buffer_parts[];
PyObject *aioproducer_buffer_encode(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *aioproducer_buffer_sizes(PyObject *self, PyObject *unused);
PyObject *aioproducer_buffer_take(PyObject *self, PyObject *indices);
PyObject *aioproducer_buffer_truncate(PyObject *self, PyObject *count);

#endif
