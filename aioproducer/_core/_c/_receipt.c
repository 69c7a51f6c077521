/* The Future of one record: a reference to the outcome of its stretch, and an index (_receipts.c).

   A receipt behaves like an asyncio.Future. The garbage collector visits a receipt only after its first callback, exception or
   attribute. Before, a receipt is part of no cycle, so a million receipts cost the collector nothing.
   A receipt belongs to one event loop, and so to one thread.
*/
#include "_receipts.h"

static void receipt_dealloc(PyObject *self);

int aioproducer_is_receipt(PyObject *object)
{
    return PyType_GetSlot(Py_TYPE(object), Py_tp_dealloc) == (void *)receipt_dealloc;
}

/* Return the outcome of the record's present stretch, also if the record has moved to another stretch. */
Outcome *aioproducer_outcome_of(Receipt *receipt)
{
    Outcome *of = receipt->of;
    while (of->moved != NULL && receipt->index < of->moved_count && of->moved[receipt->index].of != NULL) {
        Place place = of->moved[receipt->index];
        receipt->of = (Outcome *)Py_NewRef((PyObject *)place.of);
        receipt->index = place.index;
        Py_DECREF((PyObject *)of);
        of = receipt->of;
    }
    return of;
}

int aioproducer_receipt_is_done(Receipt *receipt)
{
    return receipt->own != NO_OUTCOME || aioproducer_outcome_of(receipt)->state != PENDING;
}

void aioproducer_receipt_track(Receipt *receipt)
{
    if (!receipt->is_tracked) {
        receipt->is_tracked = 1;
        PyObject_GC_Track((PyObject *)receipt);
    }
}

/* ---- The outcome ---- */

/* Return 0 if the receipt is done and not cancelled; otherwise -1 with an exception, that of a pending receipt with *message*. */
static int check_done(Receipt *own, const char *message)
{
    if (own->own == CANCELLED) {
        PyObject *error = PyObject_CallFunctionObjArgs(tool(own, CANCELLED_ERROR), own->value, NULL);
        if (error != NULL)
            PyErr_SetObject(tool(own, CANCELLED_ERROR), error);
        Py_XDECREF(error);
    } else if (aioproducer_receipt_is_done(own))
        return 0;
    else
        PyErr_SetString(tool(own, INVALID_STATE), message);
    return -1;
}

static PyObject *metadata_of(Outcome *of, uint32_t index)
{
    PyObject *fields[5] = {NULL}, *metadata = NULL;
    long long base = PyLong_AsLongLong(PyTuple_GetItem(of->told, 2));
    if (base == -1 && PyErr_Occurred())
        return NULL;
    PyObject *offset = PyLong_FromLongLong(base < 0 ? -1 : base + index);
    PyObject *timestamp = offset == NULL ? NULL : PySequence_GetItem(PyTuple_GetItem(of->told, 3), index);
    if (timestamp != NULL) {
        fields[0] = PyTuple_GetItem(of->told, 0);
        fields[1] = PyTuple_GetItem(of->told, 1);
        fields[2] = offset;
        fields[3] = timestamp;
        fields[4] = PyTuple_GetItem(of->told, 4);
        metadata = aioproducer_metadata_of((PyTypeObject *)shared_item(of->shared, METADATA), fields);
    }
    Py_XDECREF(timestamp);
    Py_XDECREF(offset);
    return metadata;
}

/* Return the metadata, result or exception of a receipt that is done and not cancelled; borrowed. */
static PyObject *value_of(Receipt *own)
{
    Outcome *of = aioproducer_outcome_of(own);
    if (own->value != NULL || own->own != NO_OUTCOME)
        return own->value == NULL ? Py_None : own->value;
    PyObject *value = of->state == DELIVERED ? metadata_of(of, own->index) : PyObject_CallMethod(of->told, "error", NULL);
    if (value == NULL)
        return NULL;
    if (own->value == NULL)
        own->value = Py_NewRef(value);
    Py_DECREF(value);
    if (of->state == FAILED)
        aioproducer_receipt_track(own); /* the traceback of the exception may lead to the receipt */
    return own->value;
}

static int has_failed(Receipt *own)
{
    return own->own == EXCEPTION || (own->own == NO_OUTCOME && aioproducer_outcome_of(own)->state == FAILED);
}

PyObject *aioproducer_receipt_result(PyObject *self, PyObject *unused)
{
    Receipt *own = (Receipt *)self;
    (void)unused;
    if (check_done(own, "Result is not set.") < 0)
        return NULL;
    PyObject *value = value_of(own);
    if (value == NULL || !has_failed(own))
        return Py_XNewRef(value);
    Py_INCREF(value);
    if (PyException_SetTraceback(value, Py_None) == 0)
        PyErr_SetObject((PyObject *)Py_TYPE(value), value);
    Py_DECREF(value);
    return NULL;
}

static PyObject *exception(PyObject *self, PyObject *unused)
{
    Receipt *own = (Receipt *)self;
    (void)unused;
    if (check_done(own, "Exception is not set.") < 0)
        return NULL;
    return has_failed(own) ? Py_XNewRef(value_of(own)) : Py_NewRef(Py_None);
}

static PyObject *cancel(PyObject *self, PyObject *args, PyObject *names)
{
    static char *keywords[] = {"msg", NULL};
    Receipt *own = (Receipt *)self;
    PyObject *message = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, names, "|O:cancel", keywords, &message))
        return NULL;
    if (aioproducer_receipt_is_done(own))
        Py_RETURN_FALSE;
    if (aioproducer_receipt_settle(own, CANCELLED, message == Py_None ? NULL : message) < 0)
        return NULL;
    Py_RETURN_TRUE;
}

static int check_pending(Receipt *own)
{
    if (!aioproducer_receipt_is_done(own))
        return 0;
    PyErr_SetString(tool(own, INVALID_STATE), "invalid state");
    return -1;
}

static PyObject *set_result(PyObject *self, PyObject *value)
{
    Receipt *own = (Receipt *)self;
    return check_pending(own) < 0 || aioproducer_receipt_settle(own, RESULT, value) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *set_exception(PyObject *self, PyObject *value)
{
    Receipt *own = (Receipt *)self;
    if (check_pending(own) < 0)
        return NULL;
    PyObject *error = PyExceptionClass_Check(value) ? PyObject_CallNoArgs(value) : Py_NewRef(value);
    if (error != NULL && !PyExceptionInstance_Check(error)) {
        PyErr_SetString(PyExc_TypeError, "invalid exception object");
        Py_CLEAR(error);
    } else if (error != NULL && Py_IS_TYPE(error, (PyTypeObject *)PyExc_StopIteration)) {
        PyErr_SetString(PyExc_TypeError, "StopIteration interacts badly with generators and cannot be raised into a Future");
        Py_CLEAR(error);
    }
    int failed = error == NULL || check_pending(own) < 0 || aioproducer_receipt_settle(own, EXCEPTION, error) < 0;
    Py_XDECREF(error);
    return failed ? NULL : Py_NewRef(Py_None);
}

static PyObject *done(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(aioproducer_receipt_is_done((Receipt *)self));
}

static PyObject *cancelled(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(((Receipt *)self)->own == CANCELLED);
}

static PyObject *get_loop(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyObject_CallNoArgs(tool((Receipt *)self, LOOP));
}

static PyObject *make_cancelled_error(PyObject *self, PyObject *unused)
{
    Receipt *own = (Receipt *)self;
    (void)unused;
    return PyObject_CallFunctionObjArgs(tool(own, CANCELLED_ERROR), own->own == CANCELLED ? own->value : NULL, NULL);
}

static PyObject *represent(PyObject *self)
{
    return PyObject_CallFunctionObjArgs(tool((Receipt *)self, REPRESENT), self, NULL);
}

/* ---- Attributes ---- */

static PyObject *get_class(PyObject *self, void *unused)
{
    (void)unused;
    return Py_NewRef(tool((Receipt *)self, FUTURE));
}

/* Track the receipt: an attribute of the program may refer back to it. */
static int set_attribute(PyObject *self, PyObject *name, PyObject *value)
{
    int failed = PyObject_GenericSetAttr(self, name, value);
    if (((Receipt *)self)->dict != NULL)
        aioproducer_receipt_track((Receipt *)self);
    return failed;
}

static PyObject *get_state(PyObject *self, void *unused)
{
    Receipt *own = (Receipt *)self;
    (void)unused;
    return PyUnicode_FromString(own->own == CANCELLED                  ? "CANCELLED"
                                : aioproducer_receipt_is_done(own) ? "FINISHED"
                                                                       : "PENDING");
}

static PyObject *get_loop_attribute(PyObject *self, void *unused)
{
    return get_loop(self, unused);
}

static PyObject *get_callbacks(PyObject *self, void *unused)
{
    Receipt *own = (Receipt *)self;
    (void)unused;
    if (own->callback == NULL && (own->more == NULL || PyList_Size(own->more) == 0))
        Py_RETURN_NONE;
    return aioproducer_receipt_callbacks(own);
}

static PyObject *get_result(PyObject *self, void *unused)
{
    Receipt *own = (Receipt *)self;
    (void)unused;
    if (own->own == CANCELLED || !aioproducer_receipt_is_done(own) || has_failed(own))
        Py_RETURN_NONE;
    return Py_XNewRef(value_of(own));
}

static PyObject *get_exception(PyObject *self, void *unused)
{
    Receipt *own = (Receipt *)self;
    (void)unused;
    return has_failed(own) ? Py_XNewRef(value_of(own)) : Py_NewRef(Py_None);
}

static PyObject *get_log_traceback(PyObject *self, void *unused)
{
    (void)self;
    (void)unused;
    Py_RETURN_FALSE; /* the producer logs the failure of a batch once */
}

static int set_log_traceback(PyObject *self, PyObject *value, void *unused)
{
    int is_true = value == NULL ? 1 : PyObject_IsTrue(value);
    (void)self;
    (void)unused;
    if (is_true > 0)
        PyErr_SetString(PyExc_ValueError, "_log_traceback can only be set to False");
    return is_true == 0 ? 0 : -1;
}

static PyObject *get_cancel_message(PyObject *self, void *unused)
{
    Receipt *own = (Receipt *)self;
    (void)unused;
    return Py_NewRef(own->own == CANCELLED && own->value != NULL ? own->value : Py_None);
}

static PyObject *get_source(PyObject *self, void *unused)
{
    Receipt *own = (Receipt *)self;
    (void)unused;
    return Py_NewRef(own->source == NULL ? Py_None : own->source);
}

static PyGetSetDef attributes[] = {
    {"__class__", get_class, NULL, NULL, NULL},
    {"_callbacks", get_callbacks, NULL, NULL, NULL},
    {"_cancel_message", get_cancel_message, NULL, NULL, NULL},
    {"_exception", get_exception, NULL, NULL, NULL},
    {"_log_traceback", get_log_traceback, set_log_traceback, NULL, NULL},
    {"_loop", get_loop_attribute, NULL, NULL, NULL},
    {"_result", get_result, NULL, NULL, NULL},
    {"_source_traceback", get_source, NULL, NULL, NULL},
    {"_state", get_state, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(Receipt, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Receipt, weakrefs), READONLY, NULL},
    {"_asyncio_future_blocking", T_BOOL, offsetof(Receipt, is_blocking), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef methods[] = {
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, NULL},
    {"_make_cancelled_error", make_cancelled_error, METH_NOARGS, NULL},
    {"add_done_callback", (PyCFunction)(void (*)(void))aioproducer_add_done_callback, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"cancel", (PyCFunction)(void (*)(void))cancel, METH_VARARGS | METH_KEYWORDS, NULL},
    {"cancelled", cancelled, METH_NOARGS, NULL},
    {"done", done, METH_NOARGS, NULL},
    {"exception", exception, METH_NOARGS, NULL},
    {"get_loop", get_loop, METH_NOARGS, NULL},
    {"remove_done_callback", aioproducer_remove_done_callback, METH_O, NULL},
    {"result", aioproducer_receipt_result, METH_NOARGS, NULL},
    {"set_exception", set_exception, METH_O, NULL},
    {"set_result", set_result, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

/* ---- The type ---- */

static int receipt_traverse(PyObject *self, visitproc visit, void *arg)
{
    Receipt *own = (Receipt *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT((PyObject *)own->of);
    Py_VISIT(own->callback);
    Py_VISIT(own->context);
    Py_VISIT(own->more);
    Py_VISIT(own->value);
    Py_VISIT(own->source);
    Py_VISIT(own->dict);
    return 0;
}

static int receipt_clear(PyObject *self)
{
    Receipt *own = (Receipt *)self;
    Py_CLEAR(own->callback);
    Py_CLEAR(own->context);
    Py_CLEAR(own->more);
    Py_CLEAR(own->value);
    Py_CLEAR(own->source);
    Py_CLEAR(own->dict);
    return 0;
}

static void receipt_dealloc(PyObject *self)
{
    Receipt *own = (Receipt *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (own->is_tracked)
        PyObject_GC_UnTrack(self);
    if (own->weakrefs != NULL)
        PyObject_ClearWeakRefs(self);
    (void)receipt_clear(self);
    Py_DECREF((PyObject *)own->of);
    aioproducer_free_receipt(own);
    Py_DECREF(type);
}

static PyType_Slot slots[] = {
    {Py_tp_traverse, receipt_traverse},
    {Py_tp_clear, receipt_clear},
    {Py_tp_dealloc, receipt_dealloc},
    {Py_tp_repr, represent},
    {Py_tp_setattro, set_attribute},
    {Py_tp_iter, aioproducer_receipt_iterator},
    {Py_am_await, aioproducer_receipt_iterator},
    {Py_tp_members, members},
    {Py_tp_getset, attributes},
    {Py_tp_methods, methods},
    {0, NULL},
};

PyType_Spec aioproducer_receipt_spec = {
    .name = "aioproducer._core.batching.receipts.Receipt",
    .basicsize = sizeof(Receipt),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};
