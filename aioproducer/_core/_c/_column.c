/* BytesColumn: a column of bytes or None in the memory of another object, such as an Arrow array.

   A column has no object per row. Its fields, each a pointer and a size, are checked at its creation and never change.
   `sizes`, `key_partitions`, `split_columns` and `RecordBuffer.extend` read the fields. For other code the column is a sequence.
*/
#include "_records.h"

static void column_dealloc(PyObject *self);

int aioproducer_is_column(PyObject *object)
{
    return PyType_GetSlot(Py_TYPE(object), Py_tp_dealloc) == (void *)column_dealloc;
}

/* Return a column of *type* with the fields at *fields*, or with room for *count* fields if *fields* is NULL. */
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
    if (step == 1) /* shares the fields of the column that allocated them */
        return (PyObject *)column_alloc(Py_TYPE(self), own->allocated != NULL ? self : own->owner, own->fields + start, count);
    BytesColumn *made = column_of_part(self, count);
    for (Py_ssize_t index = 0; made != NULL && index < count; index++)
        made->fields[index] = own->fields[start + index * step];
    return (PyObject *)made;
}

/* Return the parts of *column*, one BytesColumn for each group. */
static PyObject *column_parts(PyObject *column, const Py_ssize_t *group_of, const Py_ssize_t *counts, Py_ssize_t groups)
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
    if (item != Py_None && !PyBytes_CheckExact(item)) { /* *item* may have an `__eq__` */
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
    return aioproducer_add_type(module, &specification);
}

/* ---- split_columns(columns, chosen): the twin of `python_split_columns` in batching/bulk.py ---- */

#define SEEN 64

/* Find the group of each row by its position in the dict *groups*. Return the number of rows per group, or NULL. */
static Py_ssize_t *count_groups(PyObject *chosen, PyObject *groups, Py_ssize_t *group_of)
{
    Py_ssize_t *counts = PyMem_Calloc((size_t)PyTuple_Size(chosen) + 1, sizeof *counts);
    PyObject *seen[SEEN] = {NULL}; /* objects of recent lookups: equal small integers are one object */
    Py_ssize_t found[SEEN];
    for (Py_ssize_t row = 0; counts != NULL && row < PyTuple_Size(chosen); row++) {
        PyObject *choice = PyTuple_GetItem(chosen, row), *group;
        size_t place = (uintptr_t)choice / 32 % SEEN;
        if (seen[place] == choice) {
            counts[group_of[row] = found[place]]++;
            continue;
        }
        group = PyDict_GetItemWithError(groups, choice);
        if (group == NULL && !PyErr_Occurred()) {
            Py_ssize_t known = PyDict_Size(groups);
            PyObject *number = PyLong_FromSsize_t(known);
            if (number != NULL && PyDict_SetItem(groups, choice, number) == 0) {
                if (PyDict_Size(groups) == known + 1)
                    group = number; /* the dict holds a reference */
                else
                    PyErr_SetString(PyExc_ValueError, "split_columns: __eq__ of a choice returns inconsistent results");
            }
            Py_XDECREF(number);
        }
        if (group == NULL) {
            PyMem_Free(counts);
            return NULL;
        }
        seen[place] = choice;
        counts[group_of[row] = found[place] = PyLong_AsSsize_t(group)]++;
    }
    return counts == NULL ? (Py_ssize_t *)PyErr_NoMemory() : counts;
}

/* Return the parts of a tuple, one tuple for each group. */
static PyObject *tuple_parts(PyObject *column, const Py_ssize_t *group_of, const Py_ssize_t *counts, Py_ssize_t groups)
{
    PyObject *parts = PyTuple_New(groups);
    Py_ssize_t *taken = PyMem_Calloc((size_t)groups + 1, sizeof *taken);
    if (taken == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t group = 0; parts != NULL && taken != NULL && group < groups; group++) {
        PyObject *part = PyTuple_New(counts[group]);
        if (part == NULL || PyTuple_SetItem(parts, group, part) < 0)
            Py_CLEAR(parts);
    }
    for (Py_ssize_t row = 0; parts != NULL && taken != NULL && row < PyTuple_Size(column); row++) {
        PyObject *part = PyTuple_GetItem(parts, group_of[row]);
        if (part == NULL || PyTuple_SetItem(part, taken[group_of[row]]++, Py_NewRef(PyTuple_GetItem(column, row))) < 0)
            Py_CLEAR(parts);
    }
    if (taken == NULL)
        Py_CLEAR(parts);
    PyMem_Free(taken);
    return parts;
}

/* Set *first* to the first number of *column* and return 1 if it is a range of consecutive numbers of 64 bits, else 0. */
static int is_consecutive(PyObject *column, int64_t *first)
{
    if (Py_TYPE(column) != &PyRange_Type)
        return 0;
    PyObject *start = PyObject_GetAttrString(column, "start"), *step = PyObject_GetAttrString(column, "step");
    int64_t by = step == NULL ? 0 : PyLong_AsLongLong(step);
    *first = start == NULL ? 0 : PyLong_AsLongLong(start);
    Py_XDECREF(step);
    Py_XDECREF(start);
    return !PyErr_Occurred() && by == 1;
}

/* Return the parts of consecutive numbers from *number* on, one array for each group: no object per row. */
static PyObject *parts_of_range(int64_t number, Py_ssize_t rows, const Py_ssize_t *group_of, const Py_ssize_t *counts,
                                Py_ssize_t groups)
{
    PyObject *module = PyImport_ImportModule("array"), *parts = module == NULL ? NULL : PyTuple_New(groups);
    char **at = PyMem_Calloc((size_t)groups + 1, sizeof *at);
    if (at == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t group = 0; parts != NULL && at != NULL && group < groups; group++) {
        PyObject *numbers = PyBytes_FromStringAndSize(NULL, counts[group] * (Py_ssize_t)sizeof number);
        at[group] = numbers == NULL ? NULL : PyBytes_AsString(numbers);
        if (numbers == NULL || PyTuple_SetItem(parts, group, numbers) < 0)
            Py_CLEAR(parts);
    }
    for (Py_ssize_t row = 0; parts != NULL && at != NULL && row < rows; row++, number++) {
        memcpy(at[group_of[row]], &number, sizeof number);
        at[group_of[row]] += sizeof number;
    }
    PyObject *arrays = parts == NULL || at == NULL ? NULL : PyTuple_New(groups);
    for (Py_ssize_t group = 0; arrays != NULL && group < groups; group++) {
        PyObject *numbers = PyObject_CallMethod(module, "array", "sO", "q", PyTuple_GetItem(parts, group));
        if (numbers == NULL || PyTuple_SetItem(arrays, group, numbers) < 0)
            Py_CLEAR(arrays);
    }
    PyMem_Free(at);
    Py_XDECREF(parts);
    Py_XDECREF(module);
    return arrays;
}

/* Return the parts of a column of *rows* items, one sequence for each group. */
static PyObject *parts_of(PyObject *items, Py_ssize_t rows, const Py_ssize_t *group_of, const Py_ssize_t *counts,
                          Py_ssize_t groups)
{
    Column column;
    PyObject *parts;
    int64_t first;
    if (PyObject_Size(items) == rows && is_consecutive(items, &first))
        return parts_of_range(first, rows, group_of, counts, groups);
    PyErr_Clear(); /* an iterator has no size */
    if (column_init(&column, items, rows) < 0)
        return NULL;
    parts = (column.fields == NULL ? tuple_parts : column_parts)(column.items, group_of, counts, groups);
    Py_DECREF(column.items);
    return parts;
}

/* Put the parts of each of *columns* into the lists of the groups. */
static int split_each(PyObject *columns, Py_ssize_t rows, PyObject *lists, const Py_ssize_t *group_of,
                      const Py_ssize_t *counts)
{
    for (Py_ssize_t at = 0; at < PyTuple_Size(columns); at++) {
        PyObject *parts = parts_of(PyTuple_GetItem(columns, at), rows, group_of, counts, PyList_Size(lists));
        int put = parts != NULL;
        for (Py_ssize_t group = 0; put && group < PyList_Size(lists); group++)
            put = PyList_Append(PyList_GetItem(lists, group), PyTuple_GetItem(parts, group)) == 0;
        Py_XDECREF(parts);
        if (!put)
            return -1;
    }
    return 0;
}

PyObject *aioproducer_split_columns(PyObject *module, PyObject *args)
{
    PyObject *columns, *chosen, *groups = NULL, *lists = NULL, *choice, *group, *all = NULL;
    Py_ssize_t *group_of = NULL, *counts = NULL, position = 0;
    if (!PyArg_ParseTuple(args, "OO:split_columns", &columns, &chosen))
        return NULL;
    columns = tuple_of(columns, -1);
    chosen = columns == NULL ? NULL : tuple_of(chosen, -1);
    groups = chosen == NULL ? NULL : PyDict_New();
    group_of = groups == NULL ? NULL : PyMem_Calloc((size_t)PyTuple_Size(chosen) + 1, sizeof *group_of);
    counts = group_of == NULL ? NULL : count_groups(chosen, groups, group_of);
    lists = counts == NULL ? NULL : PyList_New(0);
    for (Py_ssize_t at = 0; lists != NULL && at < PyDict_Size(groups); at++) {
        PyObject *list = PyList_New(0);
        if (list == NULL || PyList_Append(lists, list) < 0)
            Py_CLEAR(lists);
        Py_XDECREF(list);
    }
    if (lists != NULL && split_each(columns, PyTuple_Size(chosen), lists, group_of, counts) == 0)
        all = PyDict_New();
    while (all != NULL && PyDict_Next(groups, &position, &choice, &group))
        if (PyDict_SetItem(all, choice, PyList_GetItem(lists, PyLong_AsSsize_t(group))) < 0)
            Py_CLEAR(all);
    if (all == NULL && !PyErr_Occurred())
        PyErr_NoMemory();
    PyMem_Free(counts);
    PyMem_Free(group_of);
    Py_XDECREF(lists);
    Py_XDECREF(groups);
    Py_XDECREF(chosen);
    Py_XDECREF(columns);
    return all;
}
