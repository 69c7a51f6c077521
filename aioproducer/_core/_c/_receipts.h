/* Types shared by the C files of receipts (_receipts.c). */
#ifndef AIOPRODUCER_RECEIPTS_H
#define AIOPRODUCER_RECEIPTS_H

#include "_accelerator.h"
#include <stddef.h>
#include <structmember.h>

enum state { PENDING, DELIVERED, FAILED };

/* Outcome of a receipt alone: cancelled, expired with its call, or set by the program. */
enum own { NO_OUTCOME, CANCELLED, RESULT, EXCEPTION };

/* Items of a tuple shared by all receipts of an event loop. The garbage collector does not see references of untracked receipts,
   so no item may lead to a task: the tuple refers to the loop weakly. */
enum shared {
    LOOP, /* returns the event loop, or None after the loop was freed */
    FUTURE,
    METADATA,
    CANCELLED_ERROR,
    INVALID_STATE,
    COPY_CONTEXT,
    CONTEXT, /* the type of contexts */
    REPRESENT,
    READY,  /* returns the queue of the loop's handles; None without one or in debug mode */
    REPORT, /* passes the exception of a callback to the loop's handler */
    STACK,  /* returns the stack of the caller; None unless the loop is in debug mode */
    GIVEN,
    KIND_TYPE = GIVEN,
    RECEIPTS_TYPE,
    OUTCOME_TYPE,
    RECEIPT_TYPE,
    ITERATOR_TYPE,
    RUNNER_TYPE,
    LAST, /* capsule of the place of the last Runner */
};

typedef struct Outcome Outcome;
typedef struct Receipts Receipts;

typedef struct {
    Outcome *of;
    uint32_t index;
} Place;

/* The outcome of a stretch of records. */
struct Outcome {
    PyObject_HEAD
    Receipts *receipts; /* borrowed; NULL without a stretch, or after it was freed */
    PyObject *shared;
    PyObject *told; /* a `Delivered` or a `Failure` */
    Place *moved;   /* by index, the place of a record in another stretch */
    Py_ssize_t moved_count;
    char state;
};

typedef struct {
    PyObject_HEAD
    PyObject *shared;
    PyObject *waker;
} Kind;

struct Receipts {
    PyObject_HEAD
    Kind *kind;
    Outcome *outcome;
    PyObject *listeners; /* list of the receipts with callbacks, or NULL */
    Py_ssize_t woken;    /* number of listeners whose callbacks have run */
    Py_ssize_t count;
    Py_ssize_t expired_count;
    Py_ssize_t expired_size;
    char *expired; /* by index: 1 if the call of the record has expired */
};

typedef struct {
    PyObject_HEAD
    Outcome *of;
    PyObject *callback; /* first callback */
    PyObject *context;  /* its context; NULL for an empty one */
    PyObject *more;     /* list of (callback, context), or NULL; None is an empty context */
    PyObject *value; /* metadata, result or exception, once created; message of a cancelled receipt */
    PyObject *source;
    PyObject *dict;
    PyObject *weakrefs;
    uint32_t index;
    char own;
    char is_blocking;
    char is_listed; /* 1 if the receipt is in `listeners` */
    char is_tracked;
} Receipt;

/* A callback to run; *context* is NULL for an empty one. */
typedef struct {
    Receipt *receipt;
    PyObject *callback, *context;
} Due;

typedef struct Runner Runner;

/* Take the next callback from an object and return 1; return 0 without one, -1 with an exception. */
typedef int aioproducer_take(PyObject *from, Due *due);

extern PyType_Spec aioproducer_outcome_spec, aioproducer_receipts_spec, aioproducer_receipt_spec,
    aioproducer_receipt_iterator_spec, aioproducer_runner_spec;

/* Return the item *which* of *shared*, borrowed. */
static inline PyObject *shared_item(PyObject *shared, enum shared which)
{
    return PyTuple_GetItem(shared, which);
}

/* Track *object*, which may be part of a cycle from now on; ignore NULL. */
static inline void track(void *object)
{
    if (object != NULL && !PyObject_GC_IsTracked((PyObject *)object))
        PyObject_GC_Track((PyObject *)object);
}

static inline PyObject *tool(Receipt *receipt, enum shared which)
{
    return shared_item(receipt->of->shared, which);
}

/* _receipt.c */
int aioproducer_is_receipt(PyObject *object);
Outcome *aioproducer_outcome_of(Receipt *receipt);
int aioproducer_receipt_is_done(Receipt *receipt);
void aioproducer_receipt_track(Receipt *receipt);
PyObject *aioproducer_receipt_result(PyObject *receipt, PyObject *unused);

/* _receipt_callbacks.c */
PyObject *aioproducer_add_done_callback(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *aioproducer_receipt_callbacks(Receipt *receipt);
PyObject *aioproducer_receipt_iterator(PyObject *receipt);
void aioproducer_free_spare_iterator(PyObject *type);
int aioproducer_receipt_take(Receipt *receipt, Due *due);
int aioproducer_receipt_settle(Receipt *receipt, enum own own, PyObject *value);
PyObject *aioproducer_remove_done_callback(PyObject *self, PyObject *callback);

/* _receipt_kind.c */
Receipt *aioproducer_allocate_receipt(PyObject *shared);
void aioproducer_free_receipt(Receipt *receipt);
int aioproducer_keeps_spares(void);

/* _receipt_runs.c */
void aioproducer_due_clear(Due *due);
PyObject *aioproducer_last_runner(void);
PyObject *aioproducer_present_context(Receipt *receipt);
int aioproducer_run_callbacks(aioproducer_take *take, PyObject *from);
int aioproducer_schedule(Receipt *receipt, PyObject *callback, PyObject *context);

/* _receipts.c */
int aioproducer_listen(Receipt *receipt);
int aioproducer_note_expired(Receipts *receipts, Py_ssize_t index);
PyObject *aioproducer_allocate(PyObject *shared, enum shared which, size_t size);
Outcome *aioproducer_new_outcome(PyObject *shared);
PyObject *aioproducer_new_receipt(Outcome *of);
Receipts *aioproducer_new_receipts(Kind *kind);

#endif
