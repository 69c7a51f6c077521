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

/* Of aioproducer/_core/records/columns.py */
#define SMALL_PAYLOAD 8000
#define RECORD_OVERHEAD 14
#define HEADER_OVERHEAD 3
#define LARGE_RECORD_OVERHEAD 36
#define LARGE_HEADER_OVERHEAD 5

/* Fields of the append path, in base classes of the classes in Python, which _append.c reads and changes. All base classes share one layout, so a wrong class leads to a wrong value and never to a wrong pointer. */
typedef struct {
    PyObject_HEAD
    PyObject *objects[4];
    long long numbers[3];
    char flag;
} Fields;

enum { WAITERS };                                     /* objects of MemoryFields */
enum { FREE };                                        /* numbers of MemoryFields */
enum { KNOWN_MS };                                    /* numbers of ClockFields */
enum { APPEND_LOCK, BY_PARTITION, LEADERS, STICKY };  /* objects of TopicFields */
enum { OPEN };                                        /* objects of QueueFields */
enum { COLUMNS, KIND, LAST_WAITERS };                 /* objects of BatchFields */
enum { SIZE, HELD, LIMIT };                           /* numbers of BatchFields */

/* _accelerator.c */
int aioproducer_add_fields(PyObject *module);
int aioproducer_add_type(PyObject *module, PyType_Spec *specification);
int aioproducer_has_fields(PyTypeObject *type);
int aioproducer_is_fields(PyObject *object);
/* _append.c */
int aioproducer_add_append_types(PyObject *module);

/* _awaiting.c */
PyObject *aioproducer_acknowledgements(PyObject *module, PyObject *base);
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
int aioproducer_is_column(PyObject *object);
PyObject *aioproducer_split_columns(PyObject *module, PyObject *args);

/* _rows.c: columns */
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
Py_ssize_t aioproducer_partition_of(PyObject *key, Py_ssize_t partition_count);
PyObject *aioproducer_murmur2(PyObject *module, PyObject *data);
PyObject *aioproducer_new_metadata(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *aioproducer_uniform_headers(PyObject *module, PyObject *headers);

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

/* Raise StopIteration with *result*, whose reference is stolen, and return NULL. PyErr_SetObject would pass the fields of a tuple
   as arguments. */
static inline PyObject *stop_with(PyObject *result)
{
    PyObject *stop = PyObject_CallFunctionObjArgs(PyExc_StopIteration, result, NULL);
    if (stop != NULL)
        PyErr_SetObject(PyExc_StopIteration, stop);
    Py_XDECREF(stop);
    Py_DECREF(result);
    return NULL;
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
