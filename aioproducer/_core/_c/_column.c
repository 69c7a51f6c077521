/* BytesColumn: a column of bytes or None in the memory of another object, such as an Arrow array.

   It has no object per row. Each field, a pointer and a size, is checked once, where the column is made; it never changes.
   `sizes`, `key_partitions`, `split_columns` and `RecordBuffer.extend` read the fields. For others it is a sequence.
*/
#include "_records.h"

static void column_dealloc(PyObject *self);

int aioproducer_is_column(PyObject *object)
{
    return PyType_GetSlot(Py_TYPE(object), Py_tp_dealloc) == (void *)column_dealloc;
}

/* Return a column of *type* with the fields at *fields*, or with room for *count* fields if that is NULL. */
static BytesColumn *column_alloc(PyTypeObject *type, PyObject *owner, Field *fields, Py_ssize_t count)
{
    BytesColumn *made = (BytesColumn *)PyType_GenericAlloc(type, 0);
    if (made == NULL)
        return NULL;
    made->owner = Py_XNewRef(owner);
    made->count = count;
    made->fields = fields;
    if (fields == NULL)
        made->fields = made->allocated = PyMem_Malloc(((size_t)count + 1) * sizeof *fields);
    if (made->fields != NULL)
        return made;
    Py_DECREF(made);
    return (BytesColumn *)PyErr_NoMemory();
}

static void column_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    BytesColumn *own = (BytesColumn *)self;
    PyMem_Free(own->allocated);
    if (own->data.obj != NULL)
        PyBuffer_Release(&own->data);
    Py_XDECREF(own->owner);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* ---- BytesColumn(validity, offsets, data, is_large, start, count) ---- */

/* The layout of Arrow's binary, string, large binary and large string arrays. */
typedef struct {
    Py_buffer validity; /* a bit per row; without a buffer there are no nulls */
    Py_buffer offsets;  /* int32, or int64 of large arrays */
    int is_large;
    Py_ssize_t start;
} Layout;

static int64_t offset_at(const Layout *layout, Py_ssize_t row)
{
    const char *at = (char *)layout->offsets.buf + row * (layout->is_large ? 8 : 4);
    int32_t small;
    int64_t large;
    if (layout->is_large)
        memcpy(&large, at, sizeof large);
    else {
        memcpy(&small, at, sizeof small);
        large = small;
    }
    return large;
}

static int is_null(const Layout *layout, Py_ssize_t row)
{
    return layout->validity.obj != NULL && !(((unsigned char *)layout->validity.buf)[row / 8] >> row % 8 & 1);
}

static int read_fields(BytesColumn *own, const Layout *layout)
{
    Py_ssize_t width = layout->is_large ? 8 : 4, end = layout->start + own->count;
    int has_nulls = layout->validity.obj != NULL;
    if (own->count > 0 && (end >= layout->offsets.len / width || (has_nulls && (end - 1) / 8 >= layout->validity.len))) {
        PyErr_SetString(PyExc_ValueError, "BytesColumn: the buffers are too short for the rows");
        return -1;
    }
    for (Py_ssize_t index = 0; index < own->count; index++) {
        Py_ssize_t row = layout->start + index;
        if (is_null(layout, row)) {
            own->fields[index] = null_field;
            continue;
        }
        int64_t from = offset_at(layout, row), to = offset_at(layout, row + 1);
        if (from < 0 || to < from || to > own->data.len) {
            PyErr_Format(PyExc_ValueError, "BytesColumn: the offsets of row %zd are outside of the data", row);
            return -1;
        }
        own->fields[index] = (Field){(char *)own->data.buf + from, (Py_ssize_t)(to - from)};
    }
    return 0;
}

static PyObject *column_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    PyObject *validity, *offsets, *data;
    Layout layout = {.is_large = 0};
    Py_ssize_t count;
    if (names != NULL && PyDict_Size(names) > 0) {
        PyErr_SetString(PyExc_TypeError, "BytesColumn() takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "OOOpnn:BytesColumn", &validity, &offsets, &data, &layout.is_large, &layout.start, &count))
        return NULL;
    if (layout.start < 0 || count < 0 || count > PY_SSIZE_T_MAX / 2 / (Py_ssize_t)sizeof(Field) ||
        layout.start > PY_SSIZE_T_MAX / 2) {
        PyErr_SetString(PyExc_ValueError, "BytesColumn: start and count must be positive");
        return NULL;
    }
    BytesColumn *made = column_alloc(type, NULL, NULL, count);
    if (made != NULL &&
        ((data != Py_None && PyObject_GetBuffer(data, &made->data, PyBUF_SIMPLE) < 0) ||
         (offsets != Py_None && PyObject_GetBuffer(offsets, &layout.offsets, PyBUF_SIMPLE) < 0) ||
         (validity != Py_None && PyObject_GetBuffer(validity, &layout.validity, PyBUF_SIMPLE) < 0) ||
         read_fields(made, &layout) < 0))
        Py_CLEAR(made);
    if (layout.offsets.obj != NULL)
        PyBuffer_Release(&layout.offsets);
    if (layout.validity.obj != NULL)
        PyBuffer_Release(&layout.validity);
    return (PyObject *)made;
}

/* ---- Parts ---- */

/* Return an empty column with room for *count* fields of the memory of *own*. */
static BytesColumn *column_of_part(PyObject *own, Py_ssize_t count)
{
    PyObject *owner = own;
    while (((BytesColumn *)owner)->owner != NULL)
        owner = ((BytesColumn *)owner)->owner;
    return column_alloc(Py_TYPE(own), owner, NULL, count);
}

/* Return *count* rows from *start* on, each *step* rows behind the one before it. */
static PyObject *column_slice(PyObject *self, Py_ssize_t start, Py_ssize_t step, Py_ssize_t count)
{
    BytesColumn *own = (BytesColumn *)self;
    if (step == 1) /* shares the fields, which the column that has allocated them holds */
        return (PyObject *)column_alloc(Py_TYPE(self), own->allocated != NULL ? self : own->owner, own->fields + start, count);
    BytesColumn *made = column_of_part(self, count);
    for (Py_ssize_t index = 0; made != NULL && index < count; index++)
        made->fields[index] = own->fields[start + index * step];
    return (PyObject *)made;
}

/* Return the parts of *column* for `split_columns`, one for each group. */
PyObject *aioproducer_column_parts(PyObject *column, const Py_ssize_t *group_of, const Py_ssize_t *counts, Py_ssize_t groups)
{
    BytesColumn *own = (BytesColumn *)column;
    PyObject *parts = PyTuple_New(groups);
    Field **at = PyMem_Calloc((size_t)groups + 1, sizeof *at);
    if (at == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t group = 0; parts != NULL && at != NULL && group < groups; group++) {
        BytesColumn *made = column_of_part(column, counts[group]);
        at[group] = made == NULL ? NULL : made->fields;
        if (made == NULL || PyTuple_SetItem(parts, group, (PyObject *)made) < 0)
            Py_CLEAR(parts);
    }
    for (Py_ssize_t row = 0; parts != NULL && at != NULL && row < own->count; row++)
        *at[group_of[row]]++ = own->fields[row];
    if (at == NULL)
        Py_CLEAR(parts);
    PyMem_Free(at);
    return parts;
}

/* ---- A sequence of bytes or None ---- */

static Py_ssize_t column_len(PyObject *self)
{
    return ((BytesColumn *)self)->count;
}

static PyObject *column_item(PyObject *self, Py_ssize_t index)
{
    BytesColumn *own = (BytesColumn *)self;
    if (index < 0 || index >= own->count) {
        PyErr_SetString(PyExc_IndexError, "BytesColumn index out of range");
        return NULL;
    }
    Field field = own->fields[index];
    return field.size < 0 ? Py_NewRef(Py_None) : PyBytes_FromStringAndSize(field.data, field.size);
}

static PyObject *column_subscript(PyObject *self, PyObject *place)
{
    Py_ssize_t count = ((BytesColumn *)self)->count, start, stop, step;
    if (PySlice_Check(place)) {
        if (PySlice_Unpack(place, &start, &stop, &step) < 0)
            return NULL;
        count = PySlice_AdjustIndices(count, &start, &stop, step);
        return column_slice(self, start, step, count);
    }
    start = PyNumber_AsSsize_t(place, PyExc_IndexError);
    if (start == -1 && PyErr_Occurred())
        return NULL;
    return column_item(self, start < 0 ? start + count : start);
}

/* Return the number of rows, at most *most*, that are equal to *item*; -1 with an exception. */
static Py_ssize_t count_equal(BytesColumn *own, PyObject *item, Py_ssize_t most)
{
    Field field, same = null_field;
    Py_ssize_t found = 0;
    if (item != Py_None && !PyBytes_CheckExact(item)) { /* it may have an `__eq__` */
        PyObject *listed = PySequence_List((PyObject *)own);
        found = listed == NULL ? -1 : most == 1 ? PySequence_Contains(listed, item) : PySequence_Count(listed, item);
        Py_XDECREF(listed);
        return found;
    }
    if (field_of(item, &same) < 0)
        return -1;
    for (Py_ssize_t index = 0; found < most && index < own->count; index++) {
        field = own->fields[index];
        found += field.size == same.size && (same.size <= 0 || memcmp(field.data, same.data, (size_t)same.size) == 0);
    }
    return found;
}

static int column_contains(PyObject *self, PyObject *item)
{
    return (int)count_equal((BytesColumn *)self, item, 1);
}

static PyObject *column_count(PyObject *self, PyObject *item)
{
    Py_ssize_t found = count_equal((BytesColumn *)self, item, PY_SSIZE_T_MAX);
    return found < 0 ? NULL : PyLong_FromSsize_t(found);
}

static PyObject *column_index(PyObject *self, PyObject *item)
{
    PyObject *listed = PySequence_List(self);
    Py_ssize_t found = listed == NULL ? -1 : PySequence_Index(listed, item);
    Py_XDECREF(listed);
    return found < 0 ? NULL : PyLong_FromSsize_t(found);
}

static PyMethodDef methods[] = {
    {"count", column_count, METH_O, NULL},
    {"index", column_index, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, column_new},
    {Py_tp_dealloc, column_dealloc},
    {Py_tp_iter, PySeqIter_New},
    {Py_tp_methods, methods},
    {Py_sq_length, column_len},
    {Py_sq_item, column_item},
    {Py_sq_contains, column_contains},
    {Py_mp_length, column_len},
    {Py_mp_subscript, column_subscript},
    {0, NULL},
};

static PyType_Spec specification = {
    .name = "aioproducer._core._accelerator.BytesColumn",
    .basicsize = sizeof(BytesColumn),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

int aioproducer_add_column(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&specification);
    int added = type == NULL ? -1 : PyModule_AddObjectRef(module, "BytesColumn", type);
    Py_XDECREF(type);
    return added;
}
