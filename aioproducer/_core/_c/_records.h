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

/* A column of bytes or None in the memory of another object (_column.c): no object per row. */
typedef struct {
    PyObject_HEAD
    PyObject *owner; /* the column that holds the memory; NULL: this one */
    Py_buffer data;  /* of the bytes, without an owner */
    Field *fields;   /* allocated by this column, or part of the owner's */
    Field *allocated;
    Py_ssize_t count;
} BytesColumn;

/* ---- Columns of records ---- */

/* A column as a tuple or a BytesColumn; items is NULL for a missing column. */
typedef struct {
    PyObject *items;
    const Field *fields; /* of a BytesColumn, else NULL */
} Column;

/* A header of all records. */
typedef struct {
    Field name;
    Field value;   /* of all records, ... */
    Column values; /* ... or their values */
} HeaderColumn;

typedef struct {
    Column values;
    Column keys;
    PyObject *headers;      /* pairs of each record as a tuple, or NULL, ... */
    HeaderColumn *by_place; /* ... or each header of all records, or NULL ... */
    Py_ssize_t places;
    PyObject *parts; /* ... and the list that holds their names and values */
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
            columns->places++; /* of this one as well the values are released */
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
