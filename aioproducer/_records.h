/* Records of columns in C: their fields, varints and sizes, for _encoding.c and _buffer.c. */
#ifndef AIOPRODUCER_RECORDS_H
#define AIOPRODUCER_RECORDS_H

#include "_accelerator.h"

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

/* ---- Columns of records ---- */

/* Columns as tuples; NULL for a missing column. */
typedef struct {
    PyObject *values;
    PyObject *keys;
    PyObject *headers;        /* pairs of each record, ... */
    PyObject *header_columns; /* ... or of each header: its name, the value of all, their values or None */
    Py_ssize_t count;
} Columns;

/* Return the columns of HeaderColumns, with tuples in place of their lists of values. */
static inline PyObject *header_columns_of(PyObject *headers, Py_ssize_t count)
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

static inline void columns_clear(Columns *columns)
{
    Py_CLEAR(columns->values);
    Py_CLEAR(columns->keys);
    Py_CLEAR(columns->headers);
    Py_CLEAR(columns->header_columns);
}

static inline int columns_init(Columns *columns, PyObject *values, PyObject *keys, PyObject *headers)
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

static inline int field_of(PyObject *data, Field *field)
{
    *field = null_field;
    return data == Py_None ? 0 : PyBytes_AsStringAndSize(data, &field->data, &field->size);
}

static inline int key_and_value(const Columns *columns, Py_ssize_t index, Field *key, Field *value)
{
    PyObject *own = columns->keys == NULL ? Py_None : PyTuple_GetItem(columns->keys, index);
    return field_of(own, key) < 0 ? -1 : field_of(PyTuple_GetItem(columns->values, index), value);
}

static inline Py_ssize_t header_count(const Columns *columns, Py_ssize_t index)
{
    if (columns->header_columns != NULL)
        return PyTuple_Size(columns->header_columns);
    return columns->headers == NULL ? 0 : PyTuple_Size(PyTuple_GetItem(columns->headers, index));
}

/* Look up header *number* of the record at *index*. */
static inline int header_at(const Columns *columns, Py_ssize_t index, Py_ssize_t number, Field *name, Field *value)
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

/* Size of a record. */
typedef struct {
    Py_ssize_t headers; /* number of headers */
    Py_ssize_t fields;  /* its encoded key, value and headers, in bytes, without the number of headers */
    Py_ssize_t payload; /* payload by the count of records/sizes.py */
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

#endif
