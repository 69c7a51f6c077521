/* The callbacks of a receipt (_receipt.c), and the iterator that a task awaits. */
#include "_receipts.h"

/* ---- Callbacks ---- */

/* Untrack the receipt after its last callback was taken, unless another of its objects may refer back to the receipt. */
static void untrack(Receipt *own)
{
    if (own->is_tracked && own->more == NULL && own->value == NULL && own->dict == NULL) {
        own->is_tracked = 0;
        PyObject_GC_UnTrack((PyObject *)own);
    }
}

/* Remove the next callback and its context from the receipt. */
int aioproducer_receipt_take(Receipt *own, Due *due)
{
    if (own->callback == NULL && (own->more == NULL || PyList_Size(own->more) == 0))
        return 0;
    due->receipt = (Receipt *)Py_NewRef((PyObject *)own);
    if (own->callback != NULL) {
        due->callback = own->callback;
        due->context = own->context;
        own->callback = own->context = NULL;
        untrack(own);
        return 1;
    }
    PyObject *pair = PyList_GetItem(own->more, 0), *context = PyTuple_GetItem(pair, 1);
    due->callback = Py_NewRef(PyTuple_GetItem(pair, 0));
    due->context = context == Py_None ? NULL : Py_NewRef(context);
    if (PyList_SetSlice(own->more, 0, 1, NULL) == 0)
        return 1;
    aioproducer_due_clear(due);
    return -1;
}

/* Set the receipt's own outcome, and schedule its callbacks. */
int aioproducer_receipt_settle(Receipt *own, enum own outcome, PyObject *value)
{
    PyObject *before = own->value;
    Due due = {0};
    int taken;
    own->own = outcome;
    own->value = Py_XNewRef(value);
    Py_XDECREF(before);
    if (value != NULL)
        aioproducer_receipt_track(own);
    while ((taken = aioproducer_receipt_take(own, &due)) > 0) {
        int failed = aioproducer_schedule(own, due.callback, due.context == NULL ? Py_None : due.context) < 0;
        aioproducer_due_clear(&due);
        if (failed)
            return -1;
    }
    return taken;
}

/* Return 1 if the receipt has a callback. Further callbacks are appended to `more`. */
static int has_callbacks(Receipt *own)
{
    return own->callback != NULL || own->more != NULL;
}

PyObject *aioproducer_add_done_callback(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Receipt *own = (Receipt *)self;
    Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);
    if (count != 1 || named > 1 ||
        (named == 1 && PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, 0), "context") != 0)) {
        PyErr_SetString(PyExc_TypeError, "add_done_callback() takes a callback, and its context=");
        return NULL;
    }
    PyObject *callback = args[0], *given = named == 1 && args[1] != Py_None ? args[1] : NULL, *more = NULL, *pair = NULL;
    if (aioproducer_receipt_is_done(own))
        return aioproducer_schedule(own, callback, given) < 0 ? NULL : Py_NewRef(Py_None);
    PyObject *context = given == NULL ? aioproducer_present_context(own) : Py_NewRef(given);
    /* All allocations come first: a finalizer may add callbacks or settle the receipt. */
    int failed = context == NULL || aioproducer_listen(own) < 0;
    if (!failed && has_callbacks(own))
        failed = (pair = PyTuple_Pack(2, callback, context)) == NULL || (own->more == NULL && (more = PyList_New(0)) == NULL);
    if (!failed && aioproducer_receipt_is_done(own))
        failed = aioproducer_schedule(own, callback, context) < 0;
    else if (!failed && pair == NULL) {
        own->callback = Py_NewRef(callback);
        own->context = context == Py_None ? NULL : Py_NewRef(context);
    } else if (!failed) {
        if (own->more == NULL)
            own->more = Py_NewRef(more);
        failed = PyList_Append(own->more, pair) < 0;
    }
    Py_XDECREF(more);
    Py_XDECREF(pair);
    Py_XDECREF(context);
    return failed ? NULL : Py_NewRef(Py_None);
}

/* Return a list of the callbacks, each with its context, or None for an empty one. */
static PyObject *pairs_of(Receipt *own)
{
    PyObject *all = own->more == NULL ? PyList_New(0) : PyList_GetSlice(own->more, 0, PyList_Size(own->more));
    if (all != NULL && own->callback != NULL) {
        PyObject *pair = PyTuple_Pack(2, own->callback, own->context == NULL ? Py_None : own->context);
        if (pair == NULL || PyList_Insert(all, 0, pair) < 0)
            Py_CLEAR(all);
        Py_XDECREF(pair);
    }
    return all;
}

/* Return a list of the callbacks, each with its context. */
PyObject *aioproducer_receipt_callbacks(Receipt *own)
{
    PyObject *all = pairs_of(own);
    for (Py_ssize_t at = 0; all != NULL && at < PyList_Size(all); at++) {
        PyObject *before = PyList_GetItem(all, at);
        if (PyTuple_GetItem(before, 1) != Py_None)
            continue;
        PyObject *context = PyObject_CallNoArgs(tool(own, CONTEXT));
        PyObject *pair = context == NULL ? NULL : PyTuple_Pack(2, PyTuple_GetItem(before, 0), context);
        Py_XDECREF(context);
        if (pair == NULL || PyList_SetItem(all, at, pair) < 0)
            Py_CLEAR(all);
    }
    return all;
}

PyObject *aioproducer_remove_done_callback(PyObject *self, PyObject *callback)
{
    Receipt *own = (Receipt *)self;
    if (aioproducer_receipt_is_done(own))
        return PyLong_FromLong(0); /* the callbacks are scheduled already */
    PyObject *all = pairs_of(own), *kept = all == NULL ? NULL : PyList_New(0);
    long removed = 0;
    for (Py_ssize_t at = 0; kept != NULL && at < PyList_Size(all); at++) {
        PyObject *pair = PyList_GetItem(all, at);
        int same = PyObject_RichCompareBool(PyTuple_GetItem(pair, 0), callback, Py_EQ);
        if (same < 0 || (same == 0 && PyList_Append(kept, pair) < 0))
            Py_CLEAR(kept);
        removed += same;
    }
    Py_XDECREF(all);
    if (kept == NULL)
        return NULL;
    if (removed == 0 || aioproducer_receipt_is_done(own)) { /* an `__eq__` may have cancelled the receipt */
        Py_DECREF(kept);
        return PyLong_FromLong(removed);
    }
    PyObject *first = own->callback, *context = own->context, *more = own->more;
    own->callback = own->context = NULL;
    own->more = kept;
    Py_XDECREF(first);
    Py_XDECREF(context);
    Py_XDECREF(more);
    return PyLong_FromLong(removed);
}

/* ---- Awaiting ---- */

typedef struct {
    PyObject_HEAD
    Receipt *receipt; /* NULL at the end */
} Iterator;

/* One freed iterator, which the next await reuses. A task that awaits many Futures has one iterator at a time. */
static Iterator *spare;

PyObject *aioproducer_receipt_iterator(PyObject *receipt)
{
    PyTypeObject *type = (PyTypeObject *)tool((Receipt *)receipt, ITERATOR_TYPE);
    Iterator *made = spare;
    spare = NULL;
    if (made == NULL)
        made = PyObject_GC_New(Iterator, type);
    else
        (void)PyObject_Init((PyObject *)made, type);
    if (made != NULL) {
        made->receipt = (Receipt *)Py_NewRef(receipt);
        if (!aioproducer_receipt_is_done(made->receipt)) /* else the iterator ends at once and is part of no cycle */
            PyObject_GC_Track((PyObject *)made);
    }
    return (PyObject *)made;
}

static int iterator_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT((PyObject *)((Iterator *)self)->receipt);
    return 0;
}

static int iterator_clear(PyObject *self)
{
    PyObject *receipt = (PyObject *)((Iterator *)self)->receipt;
    ((Iterator *)self)->receipt = NULL;
    Py_XDECREF(receipt);
    return 0;
}

static void iterator_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)iterator_clear(self);
    if (spare == NULL && aioproducer_keeps_spares())
        spare = (Iterator *)self;
    else
        PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* Free the spare iterator; *type* is the class of iterators, which PyObject_GC_Del reads. */
void aioproducer_free_spare_iterator(PyObject *type)
{
    Iterator *freed = spare;
    spare = NULL;
    if (freed != NULL) {
        Py_SET_TYPE((PyObject *)freed, (PyTypeObject *)type);
        PyObject_GC_Del(freed);
    }
}

static PySendResult iterator_send(PyObject *self, PyObject *value, PyObject **result)
{
    Receipt *receipt = ((Iterator *)self)->receipt;
    (void)value;
    *result = NULL;
    if (receipt == NULL) {
        *result = Py_NewRef(Py_None);
        return PYGEN_RETURN;
    }
    if (aioproducer_receipt_is_done(receipt)) {
        ((Iterator *)self)->receipt = NULL; /* a finalizer may close the iterator */
        *result = aioproducer_receipt_result((PyObject *)receipt, NULL);
        Py_DECREF((PyObject *)receipt);
        return *result == NULL ? PYGEN_ERROR : PYGEN_RETURN;
    }
    if (receipt->is_blocking) {
        PyErr_SetString(PyExc_RuntimeError, "await wasn't used with future");
        return PYGEN_ERROR;
    }
    receipt->is_blocking = 1;
    *result = Py_NewRef((PyObject *)receipt);
    return PYGEN_NEXT;
}

static PyObject *next_of(PyObject *self, PyObject *value)
{
    PyObject *result;
    return iterator_send(self, value, &result) == PYGEN_RETURN ? stop_with(result) : result;
}

static PyObject *iterator_next(PyObject *self)
{
    return next_of(self, Py_None);
}

static PyObject *iterator_throw(PyObject *self, PyObject *args)
{
    PyObject *type, *value = Py_None, *traceback = Py_None;
    if (!PyArg_ParseTuple(args, "O|OO:throw", &type, &value, &traceback))
        return NULL;
    (void)iterator_clear(self);
    if (PyExceptionInstance_Check(type))
        PyErr_SetObject((PyObject *)Py_TYPE(type), type);
    else if (PyExceptionClass_Check(type))
        PyErr_SetObject(type, value);
    else
        PyErr_SetString(PyExc_TypeError, "exceptions must be classes deriving BaseException or instances of such a class");
    return NULL;
}

static PyObject *iterator_close(PyObject *self, PyObject *unused)
{
    (void)unused;
    (void)iterator_clear(self);
    Py_RETURN_NONE;
}

static PyMethodDef iterator_methods[] = {
    {"close", iterator_close, METH_NOARGS, NULL},
    {"send", next_of, METH_O, NULL},
    {"throw", iterator_throw, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot iterator_slots[] = {
    {Py_tp_traverse, iterator_traverse},
    {Py_tp_clear, iterator_clear},
    {Py_tp_dealloc, iterator_dealloc},
    {Py_am_send, iterator_send},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, iterator_next},
    {Py_tp_methods, iterator_methods},
    {0, NULL},
};

PyType_Spec aioproducer_receipt_iterator_spec = {
    .name = "aioproducer._core.batching.receipts.ReceiptIterator",
    .basicsize = sizeof(Iterator),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = iterator_slots,
};
