/* The sizes of records, and their bytes: the twins of `python_sizes` in aioproducer/records/sizes.py and of
   `python_records_section` in aioproducer/records/interleave.py.
*/
#include "_accelerator.h"

/* ---- Sizes, varints and fields ---- */

static char *put_varint(char *at, int64_t number)
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

static Py_ssize_t length(Field field)
{
    return field.size < 0 ? 0 : field.size;
}

static Py_ssize_t field_size(Field field)
{
    return sum(varint_size(field.size), length(field));
}

static char *put_field(char *at, Field field)
{
    at = put_varint(at, field.size);
    if (field.size > 0)
        memcpy(at, field.data, (size_t)field.size);
    return at + length(field);
}

/* ---- Columns of records ---- */

/* What a record has none of is NULL; all else are tuples that are ours. */
typedef struct {
    PyObject *values;
    PyObject *keys;
    PyObject *headers;        /* pairs of each record, ... */
    PyObject *header_columns; /* ... or of each header: its name, the value of all, their values or None */
    Py_ssize_t count;
} Columns;

/* Return the columns of HeaderColumns, with tuples in place of their lists of values. */
static PyObject *header_columns_of(PyObject *headers, Py_ssize_t count)
{
    PyObject *theirs = PyObject_GetAttrString(headers, "columns");
    PyObject *columns = theirs == NULL ? NULL : PySequence_List(theirs);
    for (Py_ssize_t at = 0; columns != NULL && at < PyList_Size(columns); at++) {
        PyObject *name, *value, *values, *column = NULL;
        if (PyArg_ParseTuple(PyList_GetItem(columns, at), "UOO;three parts", &name, &value, &values)) {
            values = values == Py_None ? Py_NewRef(values) : tuple_of(values, count);
            column = values == NULL ? NULL : Py_BuildValue("(OON)", name, value, values);
        }
        if (column == NULL || PyList_SetItem(columns, at, column) < 0)
            Py_CLEAR(columns);
    }
    PyObject *tuple = columns == NULL ? NULL : PyList_AsTuple(columns);
    Py_XDECREF(columns);
    Py_XDECREF(theirs);
    return tuple;
}

static void columns_clear(Columns *columns)
{
    Py_CLEAR(columns->values);
    Py_CLEAR(columns->keys);
    Py_CLEAR(columns->headers);
    Py_CLEAR(columns->header_columns);
}

static int columns_init(Columns *columns, PyObject *values, PyObject *keys, PyObject *headers)
{
    int by_record = PyList_Check(headers) || PyTuple_Check(headers);
    memset(columns, 0, sizeof *columns);
    columns->values = tuple_of(values, -1);
    columns->count = columns->values == NULL ? 0 : PyTuple_Size(columns->values);
    if (!PyErr_Occurred() && keys != Py_None)
        columns->keys = tuple_of(keys, columns->count);
    if (!PyErr_Occurred() && by_record)
        columns->headers = tuple_of(headers, columns->count);
    if (!PyErr_Occurred() && !by_record && headers != Py_None)
        columns->header_columns = header_columns_of(headers, columns->count);
    if (!PyErr_Occurred())
        return 0;
    columns_clear(columns);
    return -1;
}

static int field_of(PyObject *data, Field *field)
{
    *field = null_field;
    return data == Py_None ? 0 : PyBytes_AsStringAndSize(data, &field->data, &field->size);
}

static int key_and_value(const Columns *columns, Py_ssize_t index, Field *key, Field *value)
{
    PyObject *own = columns->keys == NULL ? Py_None : PyTuple_GetItem(columns->keys, index);
    return field_of(own, key) < 0 ? -1 : field_of(PyTuple_GetItem(columns->values, index), value);
}

static Py_ssize_t header_count(const Columns *columns, Py_ssize_t index)
{
    if (columns->header_columns != NULL)
        return PyTuple_Size(columns->header_columns);
    return columns->headers == NULL ? 0 : PyTuple_Size(PyTuple_GetItem(columns->headers, index));
}

/* Look up header *number* of the record at *index*. */
static int header_at(const Columns *columns, Py_ssize_t index, Py_ssize_t number, Field *name, Field *value)
{
    PyObject *pair, *data;
    if (columns->header_columns != NULL) {
        pair = PyTuple_GetItem(columns->header_columns, number);
        PyObject *values = PyTuple_GetItem(pair, 2);
        data = values == Py_None ? PyTuple_GetItem(pair, 1) : PyTuple_GetItem(values, index);
    } else {
        pair = PyTuple_GetItem(PyTuple_GetItem(columns->headers, index), number);
        if (PyTuple_Size(pair) != 2) {
            PyErr_SetString(PyExc_TypeError, "a header must be a tuple of name and value");
            return -1;
        }
        data = PyTuple_GetItem(pair, 1);
    }
    name->data = (char *)PyUnicode_AsUTF8AndSize(PyTuple_GetItem(pair, 0), &name->size); /* kept by the str */
    return name->data == NULL ? -1 : field_of(data, value);
}

/* What a record takes. */
typedef struct {
    Py_ssize_t headers; /* how many it has */
    Py_ssize_t fields;  /* its encoded key, value and headers, in bytes, without the number of headers */
    Py_ssize_t payload; /* these as records/sizes.py counts them */
} Measures;

static int measure(const Columns *columns, Py_ssize_t index, Measures *of)
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

/* ---- sizes(values, keys, headers) ---- */

static PyObject *size_bound(const Columns *columns, Py_ssize_t index)
{
    Measures record;
    if (measure(columns, index, &record) < 0)
        return NULL;
    Py_ssize_t large = LARGE_RECORD_OVERHEAD + (LARGE_HEADER_OVERHEAD - HEADER_OVERHEAD) * record.headers;
    return PyLong_FromSsize_t(sum(record.payload, record.payload < SMALL_PAYLOAD ? RECORD_OVERHEAD : large));
}

PyObject *aioproducer_sizes(PyObject *module, PyObject *args)
{
    PyObject *values, *keys, *headers;
    Columns columns;
    if (!PyArg_ParseTuple(args, "OOO:sizes", &values, &keys, &headers) ||
        columns_init(&columns, values, keys, headers) < 0)
        return NULL;
    PyObject *bounds = PyList_New(columns.count);
    for (Py_ssize_t index = 0; bounds != NULL && index < columns.count; index++) {
        PyObject *bound = size_bound(&columns, index);
        if (bound == NULL || PyList_SetItem(bounds, index, bound) < 0)
            Py_CLEAR(bounds);
    }
    columns_clear(&columns);
    return bounds;
}

/* ---- records_section(values, keys, headers, timestamps, room) ---- */

/* How far apart timestamps are is asked once for each object: those of one iteration of the event loop are one. */
typedef struct {
    PyObject *first;
    PyObject *last; /* the one that was asked about last, and ... */
    int64_t delta;  /* ... how many milliseconds it is later than the first */
} Timestamps;

static int look_at(Timestamps *timestamps, PyObject *own)
{
    if (own == timestamps->last)
        return 0;
    int64_t from = PyLong_AsLongLong(timestamps->first), to = PyLong_AsLongLong(own);
    if ((from == -1 || to == -1) && PyErr_Occurred())
        return -1;
    if (from < 0 ? to > INT64_MAX + from : to < INT64_MIN + from) {
        PyErr_SetString(PyExc_ValueError, "the timestamps are too far apart for a varlong");
        return -1;
    }
    timestamps->last = own;
    timestamps->delta = to - from;
    return 0;
}

/* What is known of a record before it is written. */
typedef struct {
    Py_ssize_t size; /* behind its length */
    int64_t delta;   /* how many milliseconds it is later than the first record */
} Body;

static int look_at_body(const Columns *columns, Timestamps *timestamps, PyObject *own, Py_ssize_t index, Body *body)
{
    Measures record;
    if (look_at(timestamps, own) < 0 || measure(columns, index, &record) < 0)
        return -1;
    body->delta = timestamps->delta;
    body->size = sum(record.fields, 1 + varint_size(body->delta) + varint_size(index) + varint_size(record.headers));
    return 0;
}

/* Write the record at *index* and return where it ends. Nothing can fail: `look_at_body` has looked at all of it. */
static char *put_record(char *at, const Columns *columns, Py_ssize_t index, Body body)
{
    Field key = null_field, name = null_field, value = null_field;
    Py_ssize_t headers = header_count(columns, index);
    (void)key_and_value(columns, index, &key, &value);
    at = put_varint(at, body.size);
    *at++ = 0; /* attributes */
    at = put_varint(at, body.delta);
    at = put_varint(at, index);
    at = put_field(put_field(at, key), value);
    at = put_varint(at, headers);
    for (Py_ssize_t number = 0; number < headers; number++) {
        (void)header_at(columns, index, number, &name, &value);
        at = put_field(put_field(at, name), value);
    }
    return at;
}

static PyObject *section_of(const Columns *columns, PyObject *timestamps, Py_ssize_t room, Body *bodies)
{
    Py_ssize_t total = room;
    PyObject *first = columns->count > 0 ? PyTuple_GetItem(timestamps, 0) : NULL;
    Timestamps known = {first, first, 0};
    for (Py_ssize_t index = 0; index < columns->count; index++) {
        Body *body = &bodies[index];
        if (look_at_body(columns, &known, PyTuple_GetItem(timestamps, index), index, body) < 0)
            return NULL;
        total = sum(total, sum(varint_size(body->size), body->size));
    }
    PyObject *section = total == PY_SSIZE_T_MAX ? PyErr_NoMemory() : PyByteArray_FromStringAndSize(NULL, total);
    if (section == NULL)
        return NULL;
    char *at = PyByteArray_AsString(section);
    memset(at, 0, (size_t)room);
    at += room;
    for (Py_ssize_t index = 0; index < columns->count; index++)
        at = put_record(at, columns, index, bodies[index]);
    return section;
}

PyObject *aioproducer_records_section(PyObject *module, PyObject *args)
{
    PyObject *values, *keys, *headers, *timestamps, *section = NULL;
    Py_ssize_t room;
    Columns columns;
    if (!PyArg_ParseTuple(args, "OOOOn:records_section", &values, &keys, &headers, &timestamps, &room) ||
        columns_init(&columns, values, keys, headers) < 0)
        return NULL;
    Body *bodies = PyMem_Calloc((size_t)columns.count, sizeof *bodies);
    timestamps = bodies == NULL ? PyErr_NoMemory() : tuple_of(timestamps, columns.count);
    if (timestamps != NULL)
        section = section_of(&columns, timestamps, room < 0 ? 0 : room, bodies);
    Py_XDECREF(timestamps);
    PyMem_Free(bodies);
    columns_clear(&columns);
    return section;
}

/* ---- keep_freed_memory(size) ---- */

PyObject *aioproducer_keep_freed_memory(PyObject *module, PyObject *size)
{
    size_t bytes = PyLong_AsSize_t(size);
    if (bytes == (size_t)-1 && PyErr_Occurred())
        return NULL;
    void *volatile block = malloc(bytes); /* volatile: a compiler would see that nobody wants it */
    free(block);
    (void)module;
    Py_RETURN_NONE;
}
