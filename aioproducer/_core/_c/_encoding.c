/* The sizes of records, and their bytes: the twins of `python_sizes` and `python_running_totals` in aioproducer/_core/records/sizes.py,
   and of `python_records_section` in aioproducer/_core/records/interleave.py.
*/
#include "_records.h"

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

/* ---- running_totals(sizes) ---- */

/* Return the totals as an array: no object per record. */
PyObject *aioproducer_running_totals(PyObject *module, PyObject *sizes)
{
    (void)module;
    PyObject *column = tuple_of(sizes, -1), *totals = NULL;
    Py_ssize_t count = column == NULL ? 0 : PyTuple_Size(column);
    PyObject *bytes = column == NULL ? NULL : PyBytes_FromStringAndSize(NULL, (count + 1) * (Py_ssize_t)sizeof(int64_t));
    int64_t total = 0;
    for (Py_ssize_t index = 0; bytes != NULL && index <= count; index++) {
        memcpy(PyBytes_AsString(bytes) + index * (Py_ssize_t)sizeof total, &total, sizeof total);
        Py_ssize_t size = index < count ? PyLong_AsSsize_t(PyTuple_GetItem(column, index)) : 0;
        if (size == -1 && PyErr_Occurred())
            Py_CLEAR(bytes);
        total = sum((Py_ssize_t)total, size);
    }
    PyObject *arrays = bytes == NULL ? NULL : PyImport_ImportModule("array");
    if (arrays != NULL)
        totals = PyObject_CallMethod(arrays, "array", "sO", "q", bytes);
    Py_XDECREF(arrays);
    Py_XDECREF(bytes);
    Py_XDECREF(column);
    return totals;
}

/* ---- records_section(values, keys, headers, timestamps, room) ---- */

/* The timestamp delta is computed once per object: records of one loop iteration share their timestamp. */
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

static int look_at_body(const Columns *columns, Timestamps *timestamps, PyObject *own, Py_ssize_t index, Body *body)
{
    Measures record;
    if (look_at(timestamps, own) < 0 || measure(columns, index, &record) < 0)
        return -1;
    body->delta = timestamps->delta;
    body->size = sum(record.fields, 1 + varint_size(body->delta) + varint_size(index) + varint_size(record.headers));
    return 0;
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
        at = put_record(at, columns, index, index, bodies[index]);
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
    void *volatile block = malloc(bytes); /* volatile: a compiler would remove an unused block */
    free(block);
    (void)module;
    Py_RETURN_NONE;
}
