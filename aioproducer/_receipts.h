/* The types that _receipts.c and _receipt.c share. */
#ifndef AIOPRODUCER_RECEIPTS_H
#define AIOPRODUCER_RECEIPTS_H

#include "_accelerator.h"
#include <stddef.h>
#include <structmember.h>

enum state { PENDING, DELIVERED, FAILED };

/* The outcome that a receipt has for itself: it was cancelled, its call expired, or a program set it. */
enum own { NO_OUTCOME, CANCELLED, RESULT, EXCEPTION };

/* Items of a tuple that all receipts of an event loop share. It refers to the loop weakly: the collector does not see the
   references of untracked receipts, so none of these may lead to a task. */
enum shared {
    LOOP, /* returns the event loop, or None once that is gone */
    FUTURE,
    METADATA,
    CANCELLED_ERROR,
    INVALID_STATE,
    COPY_CONTEXT,
    REPRESENT,
    REPORT, /* passes the exception of a callback to the loop's handler */
    STACK,  /* returns the stack of the caller; None unless the loop is in debug mode */
    GIVEN,
    KIND_TYPE = GIVEN,
    RECEIPTS_TYPE,
    OUTCOME_TYPE,
    RECEIPT_TYPE,
    ITERATOR_TYPE,
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
    Receipts *receipts; /* borrowed; NULL once that is gone, or without one */
    PyObject *shared;
    PyObject *told; /* the `Delivered`, or the `Failure` */
    Place *moved;   /* by index, the place of a record that another stretch has taken */
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
    PyObject *listeners; /* a list of the receipts with callbacks, or NULL */
    Py_ssize_t woken;    /* the number of listeners without a callback left */
    Py_ssize_t count;
    Py_ssize_t expired_count;
    Py_ssize_t expired_size;
    char *expired; /* by index, 1 if the call of the record has expired */
};

typedef struct {
    PyObject_HEAD
    Outcome *of;
    PyObject *callback; /* the first one, and its context */
    PyObject *context;
    PyObject *more;  /* a list of (callback, context), or NULL */
    PyObject *value; /* the metadata, result or exception, once made; the message of a cancelled receipt */
    PyObject *source;
    PyObject *dict;
    PyObject *weakrefs;
    uint32_t index;
    char own;
    char is_blocking;
    char is_listed; /* among the listeners */
    char is_tracked;
} Receipt;

extern PyType_Spec aioproducer_outcome_spec, aioproducer_receipts_spec, aioproducer_receipt_spec,
    aioproducer_receipt_iterator_spec;

/* Return the item *which* of *shared*, borrowed. */
static inline PyObject *shared_item(PyObject *shared, enum shared which)
{
    return PyTuple_GetItem(shared, which);
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
int aioproducer_receipt_run_one(Receipt *receipt, PyObject *run);
int aioproducer_receipt_settle(Receipt *receipt, enum own own, PyObject *value);
PyObject *aioproducer_remove_done_callback(PyObject *self, PyObject *callback);

/* _receipts.c */
int aioproducer_listen(Receipt *receipt);
int aioproducer_note_expired(Receipts *receipts, Py_ssize_t index);
PyObject *aioproducer_allocate(PyObject *shared, enum shared which, size_t size);
Outcome *aioproducer_new_outcome(PyObject *shared);
PyObject *aioproducer_new_receipt(Outcome *of);
Receipts *aioproducer_new_receipts(Kind *kind);

#endif
