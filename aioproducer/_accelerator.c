/* The loops over records of the bulk path, in C: each function does what the Python function of its name does.

   aioproducer/acceleration.py imports it, if it was built and is wanted. The Python functions say what is meant, and
   tests/property/test_acceleration.py compares the two. They are called with what was checked before; anything else
   raises an exception all the same: no type and no size is taken for granted here.

   - Only the limited API of Python 3.11, so one build serves all later ones.
   - No state besides the module. Columns are copied to tuples first: what is in a tuple stays there, so references
     borrowed from it are good, whoever changes the lists meanwhile (bytes, str and tuples do not change).
   - Sizes are Py_ssize_t, and added by `sum`, which does not overflow.
*/
#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* Of aioproducer/records/sizes.py */
#define SMALL_PAYLOAD 8000
#define RECORD_OVERHEAD 14
#define HEADER_OVERHEAD 3
#define LARGE_RECORD_OVERHEAD 36
#define LARGE_HEADER_OVERHEAD 5

/* ---- Sizes, varints and fields ---- */

/* Return the sum, or PY_SSIZE_T_MAX if it is more: memory for that many bytes is refused in the end. */
static Py_ssize_t sum(Py_ssize_t left, Py_ssize_t right)
{
    return left > PY_SSIZE_T_MAX - right ? PY_SSIZE_T_MAX : left + right;
}

static uint64_t zigzag(int64_t number)
{
    return number < 0 ? ~((uint64_t)number << 1) : (uint64_t)number << 1;
}

static int varint_size(int64_t number)
{
    int size = 1;
    for (uint64_t rest = zigzag(number); rest > 0x7F; rest >>= 7)
        size++;
    return size;
}

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

/* Return *column* as a tuple, of *count* items unless that is -1. */
static PyObject *tuple_of(PyObject *column, Py_ssize_t count)
{
    PyObject *tuple = PySequence_Tuple(column);
    if (tuple != NULL && count >= 0 && PyTuple_Size(tuple) != count) {
        PyErr_SetString(PyExc_ValueError, "columns are not of equal length");
        Py_CLEAR(tuple);
    }
    return tuple;
}

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

static PyObject *sizes(PyObject *module, PyObject *args)
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

/* Return how many milliseconds later than the first record the one at *index* is; -1 may be an error. */
static int64_t delta_of(PyObject *timestamps, Py_ssize_t index)
{
    PyObject *first = PyTuple_GetItem(timestamps, 0), *own = PyTuple_GetItem(timestamps, index);
    if (first == own)
        return 0;
    int64_t from = PyLong_AsLongLong(first), to = PyLong_AsLongLong(own);
    if ((from == -1 || to == -1) && PyErr_Occurred())
        return -1;
    if (from < 0 ? to <= INT64_MAX + from : to >= INT64_MIN + from)
        return to - from;
    PyErr_SetString(PyExc_ValueError, "the timestamps are too far apart for a varlong");
    return -1;
}

/* Return the size of the record at *index* behind its length; -1 is an error. */
static Py_ssize_t body_size(const Columns *columns, PyObject *timestamps, Py_ssize_t index)
{
    Measures record;
    int64_t delta = delta_of(timestamps, index);
    if ((delta == -1 && PyErr_Occurred()) || measure(columns, index, &record) < 0)
        return -1;
    return sum(record.fields, 1 + varint_size(delta) + varint_size(index) + varint_size(record.headers));
}

/* Write the record at *index* and return where it ends. Nothing can fail: `body_size` has looked at all of it. */
static char *put_record(char *at, const Columns *columns, PyObject *timestamps, Py_ssize_t index, Py_ssize_t size)
{
    Field key = null_field, name = null_field, value = null_field;
    Py_ssize_t headers = header_count(columns, index);
    (void)key_and_value(columns, index, &key, &value);
    at = put_varint(at, size);
    *at++ = 0; /* attributes */
    at = put_varint(at, delta_of(timestamps, index));
    at = put_varint(at, index);
    at = put_field(put_field(at, key), value);
    at = put_varint(at, headers);
    for (Py_ssize_t number = 0; number < headers; number++) {
        (void)header_at(columns, index, number, &name, &value);
        at = put_field(put_field(at, name), value);
    }
    return at;
}

static PyObject *section_of(const Columns *columns, PyObject *timestamps, Py_ssize_t room, Py_ssize_t *bodies)
{
    Py_ssize_t total = room;
    for (Py_ssize_t index = 0; index < columns->count; index++) {
        bodies[index] = body_size(columns, timestamps, index);
        if (bodies[index] < 0)
            return NULL;
        total = sum(total, sum(varint_size(bodies[index]), bodies[index]));
    }
    PyObject *section = total == PY_SSIZE_T_MAX ? PyErr_NoMemory() : PyByteArray_FromStringAndSize(NULL, total);
    if (section == NULL)
        return NULL;
    char *at = PyByteArray_AsString(section);
    memset(at, 0, (size_t)room);
    at += room;
    for (Py_ssize_t index = 0; index < columns->count; index++)
        at = put_record(at, columns, timestamps, index, bodies[index]);
    return section;
}

static PyObject *records_section(PyObject *module, PyObject *args)
{
    PyObject *values, *keys, *headers, *timestamps, *section = NULL;
    Py_ssize_t room;
    Columns columns;
    if (!PyArg_ParseTuple(args, "OOOOn:records_section", &values, &keys, &headers, &timestamps, &room) ||
        columns_init(&columns, values, keys, headers) < 0)
        return NULL;
    Py_ssize_t *bodies = PyMem_Calloc((size_t)columns.count, sizeof *bodies);
    timestamps = bodies == NULL ? PyErr_NoMemory() : tuple_of(timestamps, columns.count);
    if (timestamps != NULL)
        section = section_of(&columns, timestamps, room < 0 ? 0 : room, bodies);
    Py_XDECREF(timestamps);
    PyMem_Free(bodies);
    columns_clear(&columns);
    return section;
}

/* ---- key_partitions(keys, partition_count) ---- */

#define MULTIPLIER 0x5BD1E995u

/* Kafka's murmur2: see aioproducer/partitioning/murmur2.py. */
static uint32_t murmur2(const unsigned char *data, size_t length)
{
    uint32_t h = 0x9747B28Cu ^ (uint32_t)length;
    for (; length >= 4; data += 4, length -= 4) {
        uint32_t k = data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
        k *= MULTIPLIER;
        h = h * MULTIPLIER ^ (k ^ k >> 24) * MULTIPLIER;
    }
    if (length > 0) {
        for (size_t place = 0; place < length; place++)
            h ^= (uint32_t)data[place] << 8 * place;
        h *= MULTIPLIER;
    }
    h = (h ^ h >> 13) * MULTIPLIER;
    return h ^ h >> 15;
}

static PyObject *key_partitions(PyObject *module, PyObject *args)
{
    PyObject *keys;
    int partition_count;
    if (!PyArg_ParseTuple(args, "Oi:key_partitions", &keys, &partition_count))
        return NULL;
    if (partition_count < 1) {
        PyErr_SetString(PyExc_ZeroDivisionError, "a topic has at least one partition");
        return NULL;
    }
    keys = tuple_of(keys, -1);
    PyObject *chosen = keys == NULL ? NULL : PyList_New(PyTuple_Size(keys));
    for (Py_ssize_t index = 0; chosen != NULL && index < PyTuple_Size(keys); index++) {
        char *data;
        Py_ssize_t size;
        PyObject *partition = NULL;
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(keys, index), &data, &size) == 0)
            partition = PyLong_FromLong(
                (long)((murmur2((unsigned char *)data, (size_t)size) & 0x7FFFFFFF) % (uint32_t)partition_count));
        if (partition == NULL || PyList_SetItem(chosen, index, partition) < 0)
            Py_CLEAR(chosen);
    }
    Py_XDECREF(keys);
    return chosen;
}

/* ---- The module ---- */

static PyMethodDef functions[] = {
    {"key_partitions", key_partitions, METH_VARARGS, NULL},
    {"records_section", records_section, METH_VARARGS, NULL},
    {"sizes", sizes, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "aioproducer._accelerator",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__accelerator(void)
{
    return PyModuleDef_Init(&definition);
}
