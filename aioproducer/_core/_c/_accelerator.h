/* Declarations shared by the C files of the accelerator (_accelerator.c). */
#ifndef AIOPRODUCER_ACCELERATOR_H
#define AIOPRODUCER_ACCELERATOR_H

#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Of aioproducer/_core/records/sizes.py */
#define SMALL_PAYLOAD 8000
#define RECORD_OVERHEAD 14
#define HEADER_OVERHEAD 3
#define LARGE_RECORD_OVERHEAD 36
#define LARGE_HEADER_OVERHEAD 5

/* _append.c */
int aioproducer_add_append_types(PyObject *module);

/* _append_fields.c */
PyObject *aioproducer_untracking(PyObject *module, PyObject *create);

/* _awaiting.c */
PyObject *aioproducer_acknowledgements(PyObject *module, PyObject *base);
PyObject *aioproducer_factory_of(PyObject *module, PyObject *args);
PyObject *aioproducer_running_loop_without_getpid(PyObject *module, PyObject *args);
int aioproducer_runs_here(PyObject *known);
PyObject *aioproducer_known_loop(PyObject *function);
PyObject *aioproducer_set_outcomes(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *aioproducer_wake_each(PyObject *module, PyObject *const *args, Py_ssize_t count);

/* _buffer.c */
int aioproducer_add_buffer(PyObject *module);
int aioproducer_buffer_put(PyObject *buffer, PyObject *value, PyObject *key, PyObject *headers, long long timestamp_ms,
                           Py_ssize_t most, Py_ssize_t room, Py_ssize_t free, Py_ssize_t *size, Py_ssize_t *more_held);
int aioproducer_is_buffer(PyObject *object);

/* _column.c */
int aioproducer_add_column(PyObject *module);
PyObject *aioproducer_column_parts(PyObject *column, const Py_ssize_t *group_of, const Py_ssize_t *counts, Py_ssize_t groups);
int aioproducer_is_column(PyObject *object);

/* _encoding.c */
PyObject *aioproducer_keep_freed_memory(PyObject *module, PyObject *size);
PyObject *aioproducer_records_section(PyObject *module, PyObject *args);
PyObject *aioproducer_running_totals(PyObject *module, PyObject *sizes);
PyObject *aioproducer_sizes(PyObject *module, PyObject *args);

/* _produce.c */
PyObject *aioproducer_produce_writer(PyObject *module, PyObject *by_name);
PyObject *aioproducer_read_base_offsets(PyObject *module, PyObject *const *args, Py_ssize_t count);

/* _receipt_kind.c */
PyObject *aioproducer_receipts(PyObject *module, PyObject *args);

/* _receipts.c */
PyObject *aioproducer_receipts_make(PyObject *receipts);
int aioproducer_is_receipts(PyObject *object);
int aioproducer_receipts_wake(PyObject *receipts);
void aioproducer_receipts_publish(PyObject *receipts, PyObject *receipt);

/* _rows.c */
#define METADATA_FIELDS 5
PyObject *aioproducer_metadata_of(PyTypeObject *kind, PyObject *const fields[METADATA_FIELDS]);
PyObject *aioproducer_key_partitions(PyObject *module, PyObject *args);
PyObject *aioproducer_measured_headers(PyObject *module, PyObject *headers);
Py_ssize_t aioproducer_partition_of(PyObject *key, Py_ssize_t partition_count);
PyObject *aioproducer_murmur2(PyObject *module, PyObject *data);
PyObject *aioproducer_new_metadata(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *aioproducer_new_tuple(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *aioproducer_uniform_headers(PyObject *module, PyObject *headers);

/* _split.c */
PyObject *aioproducer_split_columns(PyObject *module, PyObject *args);

/* Return the sum, at most PY_SSIZE_T_MAX: an allocation of that many bytes fails later. */
static inline Py_ssize_t sum(Py_ssize_t left, Py_ssize_t right)
{
    return left > PY_SSIZE_T_MAX - right ? PY_SSIZE_T_MAX : left + right;
}

static inline uint64_t zigzag(int64_t number)
{
    return number < 0 ? ~((uint64_t)number << 1) : (uint64_t)number << 1;
}

static inline int varint_size(int64_t number)
{
    int size = 1;
    for (uint64_t rest = zigzag(number); rest > 0x7F; rest >>= 7)
        size++;
    return size;
}

/* Return 1 if a function has the *wanted* number of arguments, else 0 with an exception. */
static inline int has_arguments(const char *name, Py_ssize_t count, Py_ssize_t wanted)
{
    if (count != wanted)
        PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments", name, wanted);
    return count == wanted;
}

/* Return *column* as a tuple; *count* is the required number of items, or -1. */
static inline PyObject *tuple_of(PyObject *column, Py_ssize_t count)
{
    PyObject *tuple = PySequence_Tuple(column);
    if (tuple != NULL && count >= 0 && PyTuple_Size(tuple) != count) {
        PyErr_SetString(PyExc_ValueError, "columns are not of equal length");
        Py_CLEAR(tuple);
    }
    return tuple;
}

#endif
