/* RecordBuffer: encoded records of a batch, the counterpart of `RecordColumns` in aioproducer/_core/records/record_batch.py.

   A record is encoded when it is appended. The first 61 bytes are reserved for the header, which `encode_batch` writes in place.
   `timestamps`, `values`, `keys` and `headers` are decoded on request. A buffer refers only to the int of the last timestamp, so
   the garbage collector does not visit buffers. While a view of its memory exists, a buffer refuses changes.
*/
#include "_records.h"

/* ---- Room ---- */

/* Set the capacity; return -1 without any change if no memory is available. */
int aioproducer_buffer_resize(Buffer *own, Py_ssize_t capacity)
{
    char *data = PyMem_Realloc(own->data, (size_t)capacity);
    if (data == NULL)
        return -1;
    if (own->capacity == 0)
        memset(data, 0, HEADER);
    own->data = data;
    own->capacity = capacity;
    return 0;
}

/* Make room for *more* bytes and return 1; return 0 without memory, -1 if the batch would be too large for Kafka.

   The capacity doubles. Near the *limit* of the batch, or with much *free* memory, the capacity becomes the limit. Spare capacity
   is at most half of the *free* memory, so other batches can grow. With less, more steps copy the data. */
static int make_room(Buffer *own, Py_ssize_t more, Py_ssize_t limit, Py_ssize_t free)
{
    Py_ssize_t need = sum(own->size, more), wanted, most;
    if (need > (Py_ssize_t)INT32_MAX + LENGTH_PREFIX)
        return -1;
    if (need <= own->capacity)
        return 1;
    wanted = own->capacity == 0 ? need : own->capacity * 2 > need ? own->capacity * 2 : need;
    if (own->capacity == 0 ? need > limit - limit / 8
                           : wanted > limit / 2 || (wanted > limit / 8 && limit < free / 1024))
        wanted = limit;
    most = need + (free < need - held(own) ? 0 : free - (need - held(own))) / 2;
    wanted = wanted < most ? wanted : most;
    if (wanted > need && aioproducer_buffer_resize(own, wanted) == 0)
        return 1;
    return aioproducer_buffer_resize(own, need) == 0;
}

int aioproducer_buffer_room(Buffer *own, Py_ssize_t more, Py_ssize_t limit, Py_ssize_t free)
{
    int made = refuse_views(own) < 0 ? -2 : make_room(own, more, limit, free);
    if (made == 0)
        PyErr_NoMemory();
    if (made == -1)
        PyErr_SetString(PyExc_ValueError, "RecordBuffer: a batch has at most 2**31 - 1 bytes; append fewer");
    return made == 1 ? 0 : -1;
}

/* ---- One record to append ---- */

/* Headers of one record: a tuple, or a list or dict of the caller. */
typedef struct {
    PyObject *headers; /* NULL for none */
    Py_ssize_t count;
    Py_ssize_t place;
    Py_ssize_t position; /* in a dict */
    int is_exact;        /* 1: refuse a subclass of bytes, which may have a `__bytes__` */
} Headers;

static Headers headers_of(PyObject *headers)
{
    Headers of = {headers, 0, 0, 0, 0};
    if (headers == NULL)
        return of;
    if (PyTuple_CheckExact(headers))
        of.count = PyTuple_Size(headers);
    else if (LISTS_STAY && PyList_CheckExact(headers))
        of.count = PyList_Size(headers);
    else if (LISTS_STAY && PyDict_CheckExact(headers))
        of.count = PyDict_Size(headers);
    else
        of.count = -1;
    return of;
}

/* Read the next header and return 1; return 0, perhaps with an exception, if the header cannot be encoded. */
static int next_header(Headers *of, Field *name, Field *value)
{
    PyObject *pair, *text, *data;
    if (PyDict_CheckExact(of->headers)) {
        if (!PyDict_Next(of->headers, &of->position, &text, &data))
            return 0;
    } else {
        pair = PyTuple_CheckExact(of->headers) ? PyTuple_GetItem(of->headers, of->place)
                                               : PyList_GetItem(of->headers, of->place);
        if (pair == NULL || !PyTuple_CheckExact(pair) || PyTuple_Size(pair) != 2)
            return 0;
        text = PyTuple_GetItem(pair, 0);
        data = PyTuple_GetItem(pair, 1);
    }
    of->place++;
    if (!PyUnicode_Check(text) || (data != Py_None && (of->is_exact ? !PyBytes_CheckExact(data) : !PyBytes_Check(data))))
        return 0;
    name->data = (char *)PyUnicode_AsUTF8AndSize(text, &name->size); /* kept by the str */
    return name->data != NULL && field_of(data, value) == 0;
}

#define KEPT 4 /* number of headers that are read once; further headers are read twice, for their size and their bytes */

/* A measured record. */
typedef struct {
    Field key;
    Field value;
    Headers headers;   /* behind those kept */
    Py_ssize_t fields; /* bytes behind the offset delta */
    int64_t timestamp_ms;
    int kept_count;
    Field kept[KEPT][2]; /* names and values */
} Record;

static inline void record_init(Record *record, PyObject *headers, int64_t timestamp_ms)
{
    record->headers = headers_of(headers);
    record->timestamp_ms = timestamp_ms;
    record->kept_count = 0;
}

/* Measure the headers; return 0 if they cannot be encoded. */
static int measure_some_headers(Record *record)
{
    Headers of = record->headers;
    Field name, value;
    record->fields = sum(record->fields, varint_size(of.count));
    while (of.place < of.count) {
        if (!next_header(&of, &name, &value))
            return 0;
        record->fields = sum(record->fields, sum(field_size(name), field_size(value)));
        if (record->kept_count < KEPT) {
            record->kept[record->kept_count][0] = name;
            record->kept[record->kept_count++][1] = value;
            record->headers = of;
        }
    }
    return 1;
}

static inline int measure_headers(Record *record)
{
    if (record->headers.count > 0)
        return measure_some_headers(record);
    record->fields = sum(record->fields, 1);
    return record->headers.count == 0;
}

/* Write the record behind the others; room for *body* bytes was made. */
static inline void write_record(Buffer *own, Record *record, Py_ssize_t body, int64_t delta)
{
    Field name, value;
    char *at = put_varint(own->data + own->size, body);
    *at++ = 0; /* attributes */
    at = put_varint(at, delta);
    at = put_varint(at, own->count);
    at = put_field(put_field(at, record->key), record->value);
    at = put_varint(at, record->headers.count);
    for (int index = 0; index < record->kept_count; index++)
        at = put_field(put_field(at, record->kept[index][0]), record->kept[index][1]);
    while (record->headers.place < record->headers.count && next_header(&record->headers, &name, &value))
        at = put_field(put_field(at, name), value);
    own->size = at - own->data;
    own->has_keys |= record->key.size >= 0;
    own->has_headers |= record->headers.count > 0;
    note(own, record->timestamp_ms);
}

static Py_ssize_t body_of(const Buffer *own, const Record *record, int64_t delta)
{
    return sum(record->fields, 1 + varint_size(delta) + varint_size(own->count));
}

/* ---- C API ---- */

static void buffer_dealloc(PyObject *self);

int aioproducer_is_buffer(PyObject *object)
{
    return PyType_GetSlot(Py_TYPE(object), Py_tp_dealloc) == (void *)buffer_dealloc;
}

static int plain_field(PyObject *data, Field *field)
{
    *field = null_field;
    return data == NULL || data == Py_None || (PyBytes_CheckExact(data) && field_of(data, field) == 0);
}

/* Append a record, set *size* and *more_held* to the growth in bytes, and return 1; return 0 without any change.

   No Python code runs, so an append is atomic. The exception for a header name without a UTF-8 form is dropped before any
   change. *most* is the upper bound of a record's size, *room* the number of bytes up to the batch's limit,
   *free* the free memory in bytes. */
int aioproducer_buffer_put(PyObject *buffer, PyObject *value, PyObject *key, PyObject *headers, long long timestamp_ms,
                           Py_ssize_t most, Py_ssize_t room, Py_ssize_t free, Py_ssize_t *size, Py_ssize_t *more_held)
{
    Buffer *own = (Buffer *)buffer;
    Py_ssize_t before = held(own), body, total, bound, grown;
    int64_t delta = 0;
    Record record;
    record_init(&record, headers, timestamp_ms);
    record.headers.is_exact = 1;
    if (own->views > 0 || !plain_field(key, &record.key) || !plain_field(value, &record.value) ||
        (own->count > 0 && delta_of(own->first_ms, timestamp_ms, &delta) < 0))
        return 0;
    record.fields = sum(field_size(record.key), field_size(record.value));
    if (!measure_headers(&record)) {
        if (PyErr_Occurred())
            PyErr_Clear();
        return 0;
    }
    body = body_of(own, &record, delta);
    total = sum(body, varint_size(body));
    bound = sum(total, RECORD_OVERHEAD + HEADER_OVERHEAD * record.headers.count); /* of the bound in records/columns.py */
    grown = sum(own->size, total) - before;
    if (record.fields >= SMALL_PAYLOAD || bound > most || total > room || (grown > 0 && grown > free) ||
        make_room(own, total, sum(own->size, room), free) != 1)
        return 0;
    write_record(own, &record, body, delta);
    *size = total;
    *more_held = held(own) - before;
    return 1;
}

/* ---- put(value, key, headers, timestamp_ms, room, free) ---- */

/* Return True if `aioproducer_buffer_put` appended the record; for tests. */
static PyObject *put(PyObject *self, PyObject *args)
{
    PyObject *value, *key, *headers;
    long long timestamp_ms;
    Py_ssize_t room, free, size, more_held;
    if (!PyArg_ParseTuple(args, "OOOLnn:put", &value, &key, &headers, &timestamp_ms, &room, &free))
        return NULL;
    return PyBool_FromLong(aioproducer_buffer_put(self, value, key, headers == Py_None ? NULL : headers, timestamp_ms,
                                                  PY_SSIZE_T_MAX, room, free, &size, &more_held));
}

/* ---- append(value, key, headers, timestamp_ms, limit, free), extend(values, keys, headers, timestamps, limit, free) ---- */

/* Read the optional *limit* of the batch and the *free* memory, which is negative after an overdraft. */
static int read_limits(const char *name, PyObject *const *args, Py_ssize_t count, Py_ssize_t *limit, Py_ssize_t *free)
{
    if (count != 4 && count != 6) {
        PyErr_Format(PyExc_TypeError, "%s() takes 4 or 6 arguments (%zd given)", name, count);
        return -1;
    }
    *limit = *free = PY_SSIZE_T_MAX;
    if (count == 6) {
        *limit = PyLong_AsSsize_t(args[4]);
        *free = PyErr_Occurred() ? -1 : PyLong_AsSsize_t(args[5]);
    }
    return PyErr_Occurred() ? -1 : 0;
}

static int read_time(PyObject *timestamp, int64_t *timestamp_ms)
{
    if (!PyLong_Check(timestamp)) { /* an `__index__` could change the buffer */
        PyErr_SetString(PyExc_TypeError, "a timestamp must be an int");
        return -1;
    }
    *timestamp_ms = PyLong_AsLongLong(timestamp);
    return *timestamp_ms == -1 && PyErr_Occurred() ? -1 : 0;
}

static PyObject *append(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Buffer *own = (Buffer *)self;
    Py_ssize_t limit, free, body;
    int64_t delta = 0;
    Record record;
    if (read_limits("append", args, count, &limit, &free) < 0)
        return NULL;
    record_init(&record, args[2], 0);
    if (args[3] == own->last_time)
        record.timestamp_ms = own->last_ms;
    else if (read_time(args[3], &record.timestamp_ms) < 0)
        return NULL;
    if (field_of(args[1], &record.key) < 0 || field_of(args[0], &record.value) < 0 ||
        (own->count > 0 && delta_or_error(own->first_ms, record.timestamp_ms, &delta) < 0))
        return NULL;
    record.fields = sum(field_size(record.key), field_size(record.value));
    if (!measure_headers(&record)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "headers must be a tuple of pairs of a str and bytes or None");
        return NULL;
    }
    body = body_of(own, &record, delta);
    if (aioproducer_buffer_room(own, sum(body, varint_size(body)), limit, free) < 0)
        return NULL;
    write_record(own, &record, body, delta);
    if (args[3] != own->last_time && PyLong_CheckExact(args[3])) { /* releasing an int runs no code */
        Py_XDECREF(own->last_time);
        own->last_time = Py_NewRef(args[3]);
        own->last_ms = record.timestamp_ms;
    }
    return PyLong_FromSsize_t(own->size);
}

/* Timestamps of records to append. Records of one loop iteration share an object, which is read once. */
typedef struct {
    PyObject *each; /* a tuple, or NULL for one timestamp of all records */
    PyObject *last; /* the last object read */
    int64_t last_ms;
    int64_t first_ms; /* of the batch */
} Times;

static int time_at(Times *times, Py_ssize_t index, int64_t *delta)
{
    PyObject *own = times->each == NULL ? times->last : PyTuple_GetItem(times->each, index);
    if (own != times->last) {
        if (read_time(own, &times->last_ms) < 0)
            return -1;
        times->last = own;
    }
    return delta_or_error(times->first_ms, times->last_ms, delta);
}

static int times_init(Times *times, const Buffer *own, PyObject *timestamps, Py_ssize_t count)
{
    PyObject *first = timestamps;
    *times = (Times){NULL, NULL, 0, 0};
    if (!PyLong_Check(timestamps)) {
        if ((times->each = tuple_of(timestamps, count)) == NULL)
            return -1;
        if (count == 0)
            return 0;
        first = PyTuple_GetItem(times->each, 0);
    }
    times->last = first;
    if (read_time(first, &times->last_ms) < 0)
        return -1;
    times->first_ms = own->count > 0 ? own->first_ms : times->last_ms;
    return 0;
}

/* Measure each record, in *bodies*, and return the size of all; -1 with an exception. */
static Py_ssize_t measure_all(const Buffer *own, const Columns *columns, Times *times, Body *bodies)
{
    Py_ssize_t total = 0;
    for (Py_ssize_t index = 0; index < columns->count; index++) {
        Measures record;
        Body *body = &bodies[index];
        if (time_at(times, index, &body->delta) < 0 || measure(columns, index, &record) < 0)
            return -1;
        body->size = sum(record.fields, 1 + varint_size(body->delta) + varint_size(own->count + index) +
                                            varint_size(record.headers));
        total = sum(total, sum(varint_size(body->size), body->size));
    }
    return total;
}

static int extend_with(Buffer *own, const Columns *columns, Times *times, Py_ssize_t limit, Py_ssize_t free)
{
    Body *bodies = PyMem_Malloc(((size_t)columns->count + 1) * sizeof *bodies);
    Py_ssize_t total = bodies == NULL ? -1 : measure_all(own, columns, times, bodies);
    int made = total < 0 ? -1 : aioproducer_buffer_room(own, total, limit, free);
    if (bodies == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t index = 0; made == 0 && index < columns->count; index++) {
        own->size = put_record(own->data + own->size, columns, index, own->count, bodies[index]) - own->data;
        if (index == 0 || bodies[index].delta != bodies[index - 1].delta)
            note(own, times->first_ms + bodies[index].delta);
        else
            own->count++;
    }
    if (made == 0) {
        own->has_keys |= columns->keys.items != NULL;
        own->has_headers |= columns->headers != NULL || columns->parts != NULL;
    }
    PyMem_Free(bodies);
    return made;
}

static PyObject *extend(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Buffer *own = (Buffer *)self;
    Py_ssize_t limit, free;
    Columns columns;
    Times times;
    int extended;
    if (read_limits("extend", args, count, &limit, &free) < 0 || columns_init(&columns, args[0], args[1], args[2]) < 0)
        return NULL;
    extended = times_init(&times, own, args[3], columns.count);
    if (extended == 0 && columns.count > 0)
        extended = extend_with(own, &columns, &times, limit, free);
    Py_XDECREF(times.each);
    columns_clear(&columns);
    return extended < 0 ? NULL : PyLong_FromSsize_t(own->size);
}

/* ---- trim() ---- */

/* Release spare capacity of more than a quarter, and return the held bytes. */
static PyObject *trim(PyObject *self, PyObject *unused)
{
    Buffer *own = (Buffer *)self;
    if (own->views == 0 && own->capacity - own->size > own->capacity / 4)
        (void)aioproducer_buffer_resize(own, own->size);
    return PyLong_FromSsize_t(held(own));
}

/* ---- The type ---- */

static PyObject *buffer_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    PyObject *self;
    if (!PyArg_ParseTuple(args, ":RecordBuffer"))
        return NULL;
    if (names != NULL && PyDict_Size(names) > 0) {
        PyErr_SetString(PyExc_TypeError, "RecordBuffer() takes no arguments");
        return NULL;
    }
    if ((self = PyType_GenericAlloc(type, 0)) != NULL)
        ((Buffer *)self)->size = HEADER;
    return self;
}

static void buffer_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyMem_Free(((Buffer *)self)->data);
    PyMem_Free(((Buffer *)self)->marks);
    Py_XDECREF(((Buffer *)self)->last_time);
    PyObject_Free(self);
    Py_DECREF(type);
}

static Py_ssize_t buffer_length(PyObject *self)
{
    return ((Buffer *)self)->count;
}

/* Export header and records, for `encode_batch` to write the header. */
static int buffer_export(PyObject *self, Py_buffer *view, int flags)
{
    Buffer *own = (Buffer *)self;
    if (own->count == 0) {
        PyErr_SetString(PyExc_BufferError, "RecordBuffer: there are no records; append one");
        return -1;
    }
    if (PyBuffer_FillInfo(view, self, own->data, own->size, 0, flags) < 0)
        return -1;
    own->views++;
    return 0;
}

static void buffer_release(PyObject *self, Py_buffer *view)
{
    (void)view;
    ((Buffer *)self)->views--;
}

static PyMethodDef methods[] = {
    {"append", (PyCFunction)(void (*)(void))append, METH_FASTCALL, NULL},
    {"encode", (PyCFunction)(void (*)(void))aioproducer_buffer_encode, METH_FASTCALL, NULL},
    {"extend", (PyCFunction)(void (*)(void))extend, METH_FASTCALL, NULL},
    {"put", put, METH_VARARGS, NULL},
    {"sizes", aioproducer_buffer_sizes, METH_NOARGS, NULL},
    {"take", aioproducer_buffer_take, METH_O, NULL},
    {"trim", trim, METH_NOARGS, NULL},
    {"truncate", aioproducer_buffer_truncate, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, buffer_new},
    {Py_tp_dealloc, buffer_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, aioproducer_buffer_parts},
    {Py_sq_length, buffer_length},
    {Py_bf_getbuffer, buffer_export},
    {Py_bf_releasebuffer, buffer_release},
    {0, NULL},
};

static PyType_Spec specification = {
    .name = "aioproducer._core._accelerator.RecordBuffer",
    .basicsize = sizeof(Buffer),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

int aioproducer_add_buffer(PyObject *module)
{
    return aioproducer_add_type(module, &specification);
}
