/* Columns of rows in groups: the twin of `python_split_columns` in aioproducer/_core/batching/bulk.py. */
#include "_records.h"

#define SEEN 64

/* Find the group of each row by its position in the dict *groups*. Return the number of rows per group, or NULL. */
static Py_ssize_t *count_groups(PyObject *chosen, PyObject *groups, Py_ssize_t *group_of)
{
    Py_ssize_t *counts = PyMem_Calloc((size_t)PyTuple_Size(chosen) + 1, sizeof *counts);
    PyObject *seen[SEEN] = {NULL}; /* objects that were looked up: small integers are the same objects again and again */
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
                    group = number; /* the dict has it */
                else
                    PyErr_SetString(PyExc_ValueError, "a choice is equal to another one now and then");
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
    PyErr_Clear(); /* of an iterator, which has no size */
    if (column_init(&column, items, rows) < 0)
        return NULL;
    parts = (column.fields == NULL ? tuple_parts : aioproducer_column_parts)(column.items, group_of, counts, groups);
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

/* ---- new_tuple(kind, fields) ---- */

/* `tuple.__new__` makes a tuple of the fields first, and copies it. Before Python 3.14 the zeros of the allocation are no hash. */
PyObject *aioproducer_new_tuple(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (!has_arguments("new_tuple", count, 2))
        return NULL;
    if (!PyType_Check(args[0]) || !PyType_IsSubtype((PyTypeObject *)args[0], &PyTuple_Type) || !PyTuple_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "new_tuple() takes a class of tuples, and a tuple");
        return NULL;
    }
    PyObject *made = PyType_GenericAlloc((PyTypeObject *)args[0], PyTuple_Size(args[1]));
    for (Py_ssize_t at = 0; made != NULL && at < PyTuple_Size(args[1]); at++)
        if (PyTuple_SetItem(made, at, Py_NewRef(PyTuple_GetItem(args[1], at))) < 0)
            Py_CLEAR(made);
    return made;
}
