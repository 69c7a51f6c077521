/* Declarations shared by the C files of RecordBuffer (_buffer.c). */
#ifndef AIOPRODUCER_BUFFER_H
#define AIOPRODUCER_BUFFER_H

#include "_records.h"

#define HEADER 61
#define LENGTH_PREFIX 12 /* base offset and length: not counted by the length, which is an int32 */
#define MARKED 64        /* interval between two records with a mark */
#define MOST_RUNS 16

/* Consecutive records with the same timestamp. */
typedef struct {
    Py_ssize_t start; /* index of the first record */
    int64_t ms;
} Run;

typedef struct {
    PyObject_HEAD
    char *data;
    Py_ssize_t size;     /* bytes of header and records */
    Py_ssize_t capacity; /* bytes of data; 0 before the first record */
    Py_ssize_t count;
    Py_ssize_t views; /* number of exported views */
    int64_t first_ms;
    int64_t min_ms;
    int64_t max_ms;
    PyObject *last_time; /* int of the last appended timestamp, or NULL; the next record mostly has the same object */
    int64_t last_ms;
    Run runs[MOST_RUNS];
    int run_count; /* MOST_RUNS + 1: more runs than `runs` holds */
    int has_keys;
    int has_headers;
    Py_ssize_t *marks; /* positions of records 0, 64, 128, …; set on request, so look-ups of late records are fast */
    Py_ssize_t marked;
} Buffer;

static inline Py_ssize_t held(const Buffer *own)
{
    return own->capacity < HEADER ? HEADER : own->capacity;
}

static inline int refuse_views(const Buffer *own)
{
    if (own->views == 0)
        return 0;
    PyErr_SetString(PyExc_BufferError, "RecordBuffer: a view of its memory exists; release the view before it changes");
    return -1;
}

/* ---- Timestamps ---- */

/* Set *delta* to the difference from the first timestamp; return -1 if the difference exceeds a varlong. */
static inline int delta_of(int64_t first_ms, int64_t timestamp_ms, int64_t *delta)
{
    if (first_ms < 0 ? timestamp_ms > INT64_MAX + first_ms : timestamp_ms < INT64_MIN + first_ms)
        return -1;
    *delta = timestamp_ms - first_ms;
    return 0;
}

static inline int delta_or_error(int64_t first_ms, int64_t timestamp_ms, int64_t *delta)
{
    if (delta_of(first_ms, timestamp_ms, delta) == 0)
        return 0;
    PyErr_SetString(PyExc_ValueError, "the timestamps are too far apart for a varlong");
    return -1;
}

static inline void note_run(Buffer *own, int64_t timestamp_ms)
{
    if (own->run_count < MOST_RUNS)
        own->runs[own->run_count] = (Run){own->count, timestamp_ms};
    own->run_count += own->run_count <= MOST_RUNS;
}

/* Note the timestamp of the next record. */
static inline void note(Buffer *own, int64_t timestamp_ms)
{
    if (own->count == 0)
        own->run_count = 0;
    if (own->run_count == 0 || (own->run_count <= MOST_RUNS && own->runs[own->run_count - 1].ms != timestamp_ms))
        note_run(own, timestamp_ms);
    if (own->count == 0)
        own->first_ms = own->min_ms = own->max_ms = timestamp_ms;
    else if (timestamp_ms > own->max_ms)
        own->max_ms = timestamp_ms;
    else if (timestamp_ms < own->min_ms)
        own->min_ms = timestamp_ms;
    own->count++;
}

/* _buffer.c */
int aioproducer_buffer_resize(Buffer *own, Py_ssize_t capacity);
int aioproducer_buffer_room(Buffer *own, Py_ssize_t more, Py_ssize_t limit, Py_ssize_t free);

/* _buffer_read.c */
extern PyGetSetDef aioproducer_buffer_parts[];
PyObject *aioproducer_buffer_encode(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *aioproducer_buffer_sizes(PyObject *self, PyObject *unused);
PyObject *aioproducer_buffer_take(PyObject *self, PyObject *indices);
PyObject *aioproducer_buffer_truncate(PyObject *self, PyObject *count);

#endif
