/* Futures of single records: a stretch of a batch keeps the outcome of all its records once, and each record's Future
   (_receipt.c) is a pointer to that outcome and an index. The twin without the accelerator is a list of asyncio Futures:
   `python_receipts` in aioproducer/_core/batching/receipts.py.

   - Outcome: outcome of a stretch. It refers to no callback and no task, because untracked receipts refer to it.
   - Receipts: the stretch, which has a list of the receipts with callbacks.
   - Kind: creates stretches and receipts for one event loop.
*/
#include "_receipts.h"

static void receipts_dealloc(PyObject *self);

int aioproducer_is_receipts(PyObject *object)
{
    return PyType_GetSlot(Py_TYPE(object), Py_tp_dealloc) == (void *)receipts_dealloc;
}

/* Return a new object of the type at *which*, with cleared fields. */
PyObject *aioproducer_allocate(PyObject *shared, enum shared which, size_t size)
{
    PyObject *made = (PyObject *)PyObject_GC_New(PyObject, (PyTypeObject *)shared_item(shared, which));
    if (made != NULL)
        memset((char *)made + sizeof(PyObject), 0, size - sizeof(PyObject));
    return made;
}

/* ---- Outcome: untracked until a failure, whose cause may refer to frames, or until a split ---- */

Outcome *aioproducer_new_outcome(PyObject *shared)
{
    Outcome *made = (Outcome *)aioproducer_allocate(shared, OUTCOME_TYPE, sizeof(Outcome));
    if (made != NULL)
        made->shared = Py_NewRef(shared);
    return made;
}

static int outcome_traverse(PyObject *self, visitproc visit, void *arg)
{
    Outcome *own = (Outcome *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(own->shared);
    Py_VISIT(own->told);
    for (Py_ssize_t at = 0; at < own->moved_count; at++)
        Py_VISIT((PyObject *)own->moved[at].of);
    return 0;
}

static int outcome_clear(PyObject *self)
{
    Outcome *own = (Outcome *)self;
    own->state = PENDING;
    Py_CLEAR(own->told);
    return 0;
}

static void outcome_dealloc(PyObject *self)
{
    Outcome *own = (Outcome *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)outcome_clear(self);
    for (Py_ssize_t at = 0; at < own->moved_count; at++)
        Py_XDECREF((PyObject *)own->moved[at].of);
    PyMem_Free(own->moved);
    Py_XDECREF(own->shared);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyType_Slot outcome_slots[] = {
    {Py_tp_traverse, outcome_traverse},
    {Py_tp_clear, outcome_clear},
    {Py_tp_dealloc, outcome_dealloc},
    {0, NULL},
};

PyType_Spec aioproducer_outcome_spec = {
    .name = "aioproducer._core.batching.receipts.Outcome",
    .basicsize = sizeof(Outcome),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = outcome_slots,
};

/* ---- Receipts: adding; untracked until the first listener or a failure ---- */

Receipts *aioproducer_new_receipts(Kind *kind)
{
    Receipts *made = (Receipts *)aioproducer_allocate(kind->shared, RECEIPTS_TYPE, sizeof(Receipts));
    if (made == NULL)
        return NULL;
    made->kind = (Kind *)Py_NewRef((PyObject *)kind);
    if ((made->outcome = aioproducer_new_outcome(kind->shared)) == NULL)
        Py_CLEAR(made);
    else
        made->outcome->receipts = made;
    return made;
}

PyObject *aioproducer_new_receipt(Outcome *of)
{
    PyObject *stack = shared_item(of->shared, STACK), *source = NULL;
    if (stack != Py_None && (source = PyObject_CallNoArgs(stack)) == NULL)
        return NULL;
    Receipt *made = aioproducer_allocate_receipt(of->shared);
    if (made == NULL) {
        Py_XDECREF(source);
        return NULL;
    }
    made->of = (Outcome *)Py_NewRef((PyObject *)of);
    made->source = source;
    return (PyObject *)made;
}

/* Return a receipt that has no record yet. */
PyObject *aioproducer_receipts_make(PyObject *receipts)
{
    return aioproducer_new_receipt(((Receipts *)receipts)->outcome);
}

/* Add *receipt*, which no other object refers to, for the record just appended. Runs no Python code. */
void aioproducer_receipts_publish(PyObject *receipts, PyObject *receipt)
{
    Receipts *own = (Receipts *)receipts;
    Receipt *added = (Receipt *)receipt;
    if (added->of != own->outcome) {
        Outcome *before = added->of;
        added->of = (Outcome *)Py_NewRef((PyObject *)own->outcome);
        Py_DECREF((PyObject *)before);
    }
    added->index = (uint32_t)own->count++;
}

static int check_receipt(PyObject *object)
{
    if (aioproducer_is_receipt(object))
        return 0;
    PyErr_SetString(PyExc_TypeError, "a waiter must be a receipt");
    return -1;
}

static PyObject *receipts_append(PyObject *self, PyObject *receipt)
{
    if (check_receipt(receipt) < 0)
        return NULL;
    aioproducer_receipts_publish(self, receipt);
    ((Receipt *)receipt)->is_listed = 0;
    if (((Receipt *)receipt)->callback != NULL && aioproducer_listen((Receipt *)receipt) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* Add *receipt*, which gets a callback, to the listeners of its stretch.

   The list comes first: an allocation may start the garbage collector, and a finalizer may settle or end the stretch. */
int aioproducer_listen(Receipt *receipt)
{
    Receipts *of = aioproducer_outcome_of(receipt)->receipts;
    PyObject *made = NULL;
    int failed = 0;
    if (!receipt->is_listed && of != NULL && of->listeners == NULL) {
        if ((made = PyList_New(0)) == NULL)
            return -1;
        of = aioproducer_outcome_of(receipt)->receipts;
    }
    if (!receipt->is_listed && of != NULL) {
        if (of->listeners == NULL)
            of->listeners = Py_NewRef(made);
        failed = PyList_Append(of->listeners, (PyObject *)receipt) < 0;
        receipt->is_listed = !failed;
        track(of);
    }
    aioproducer_receipt_track(receipt);
    Py_XDECREF(made);
    return failed ? -1 : 0;
}

/* ---- Receipts: settling ---- */

static int compare_indices(const void *left, const void *right)
{
    const Receipt *one = *(Receipt *const *)left, *other = *(Receipt *const *)right;
    return one->index < other->index ? -1 : one->index > other->index;
}

/* Sort the listeners by record, because asyncio's Futures would be resolved in that order. */
static int sort_listeners(PyObject *listeners)
{
    Py_ssize_t count = PyList_Size(listeners), at;
    for (at = 1; at < count; at++)
        if (((Receipt *)PyList_GetItem(listeners, at - 1))->index > ((Receipt *)PyList_GetItem(listeners, at))->index)
            break;
    if (at >= count)
        return 0;
    PyObject **sorted = PyMem_Malloc(count * sizeof(PyObject *));
    if (sorted == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (at = 0; at < count; at++)
        sorted[at] = Py_NewRef(PyList_GetItem(listeners, at));
    qsort(sorted, count, sizeof(PyObject *), compare_indices);
    for (at = 0; at < count; at++)
        PyList_SetItem(listeners, at, sorted[at]); /* steals the reference */
    PyMem_Free(sorted);
    return 0;
}

/* Set the outcome. A failure also applies to the parts of a split batch, because an internal error may have lost the parts. */
static void note_outcome(Outcome *of, char state, PyObject *told)
{
    of->told = Py_NewRef(told);
    of->state = state;
    if (state == FAILED) {
        track(of);
        track(of->receipts);
    }
    for (Py_ssize_t at = 0; state == FAILED && at < of->moved_count; at++)
        if (of->moved[at].of != NULL && of->moved[at].of->state == PENDING)
            note_outcome(of->moved[at].of, state, told);
}

/* Note the first outcome, and schedule the callbacks, including those left by an interrupt. */
static PyObject *settle(Receipts *own, char state, PyObject *told)
{
    if (own->outcome->state == PENDING) {
        note_outcome(own->outcome, state, told);
        if (own->listeners != NULL && sort_listeners(own->listeners) < 0)
            return NULL;
    }
    return own->listeners == NULL ? Py_NewRef(Py_None) : PyObject_CallMethod(own->kind->waker, "wake", "O", own);
}

static PyObject *receipts_resolve(PyObject *self, PyObject *delivered)
{
    if (!PyTuple_Check(delivered) || PyTuple_Size(delivered) != METADATA_FIELDS) {
        PyErr_SetString(PyExc_TypeError, "resolve() takes a Delivered");
        return NULL;
    }
    return settle((Receipts *)self, DELIVERED, delivered);
}

static PyObject *receipts_fail(PyObject *self, PyObject *failure)
{
    return settle((Receipts *)self, FAILED, failure);
}

/* Take the next callback of a done listener. */
static int take_from_listeners(PyObject *receipts, Due *due)
{
    Receipts *own = (Receipts *)receipts;
    while (own->listeners != NULL && own->woken < PyList_Size(own->listeners)) {
        Receipt *receipt = (Receipt *)PyList_GetItem(own->listeners, own->woken);
        /* A record that is not done has moved to another stretch. */
        int taken = aioproducer_receipt_is_done(receipt) ? aioproducer_receipt_take(receipt, due) : 0;
        if (taken != 0)
            return taken;
        PyList_SetItem(own->listeners, own->woken++, Py_NewRef(Py_None)); /* released now, not after the last receipt */
    }
    own->woken = 0;
    Py_CLEAR(own->listeners);
    return 0;
}

/* Run the callbacks of all listeners; return -1 after an interrupt, which leaves the rest to another call. */
int aioproducer_receipts_wake(PyObject *receipts)
{
    return aioproducer_run_callbacks(take_from_listeners, receipts);
}

/* ---- Receipts: parts ---- */

static int make_places(Outcome *of, Py_ssize_t count)
{
    if (of->moved_count >= count)
        return 0;
    Place *places = PyMem_Realloc(of->moved, count * sizeof(Place));
    if (places == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memset(places + of->moved_count, 0, (count - of->moved_count) * sizeof(Place));
    of->moved = places;
    of->moved_count = count;
    track(of);
    return 0;
}

int aioproducer_note_expired(Receipts *own, Py_ssize_t index)
{
    if (index >= own->expired_size) {
        char *noted = index < own->count ? PyMem_Realloc(own->expired, own->count) : NULL;
        if (noted == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        memset(noted + own->expired_size, 0, own->count - own->expired_size);
        own->expired = noted;
        own->expired_size = own->count;
    }
    own->expired_count += !own->expired[index];
    own->expired[index] = 1;
    return 0;
}

/* Add listeners whose records have moved to the listeners of *taken*. */
static int move_listeners(Receipts *own, Receipts *taken)
{
    for (Py_ssize_t at = 0; own->listeners != NULL && at < PyList_Size(own->listeners); at++) {
        PyObject *listener = Py_NewRef(PyList_GetItem(own->listeners, at));
        int failed = 0;
        if (aioproducer_is_receipt(listener) && aioproducer_outcome_of((Receipt *)listener) == taken->outcome) {
            ((Receipt *)listener)->is_listed = 0;
            failed = aioproducer_listen((Receipt *)listener) < 0;
        }
        Py_DECREF(listener);
        if (failed)
            return -1;
    }
    return 0;
}

static int move(Receipts *own, Receipts *taken, PyObject *indices)
{
    taken->count = PyTuple_Size(indices);
    if (own->outcome->state != PENDING) /* the records already have their outcome */
        return 0;
    if (make_places(own->outcome, own->count) < 0)
        return -1;
    for (Py_ssize_t at = 0; at < taken->count; at++) {
        Py_ssize_t index = PyLong_AsSsize_t(PyTuple_GetItem(indices, at));
        if (index < 0 || index >= own->count) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_IndexError, "take() got an index without a record");
            return -1;
        }
        if (index < own->expired_size && own->expired[index] && aioproducer_note_expired(taken, at) < 0)
            return -1;
        Place *place = &own->outcome->moved[index];
        Outcome *before = place->of;
        place->of = (Outcome *)Py_NewRef((PyObject *)taken->outcome);
        place->index = (uint32_t)at;
        Py_XDECREF((PyObject *)before);
    }
    return move_listeners(own, taken);
}

static PyObject *receipts_take(PyObject *self, PyObject *indices)
{
    Receipts *own = (Receipts *)self, *taken = NULL;
    indices = PySequence_Tuple(indices);
    if (indices != NULL && (taken = aioproducer_new_receipts(own->kind)) != NULL && move(own, taken, indices) < 0)
        Py_CLEAR(taken);
    Py_XDECREF(indices);
    return (PyObject *)taken;
}

static PyObject *receipts_indices_of(PyObject *self, PyObject *waiter)
{
    Receipt *receipt = (Receipt *)waiter;
    if (!aioproducer_is_receipt(waiter) || aioproducer_outcome_of(receipt) != ((Receipts *)self)->outcome)
        return PyTuple_New(0);
    return Py_BuildValue("(k)", (unsigned long)receipt->index);
}

static PyObject *receipts_all_waiters_expired(PyObject *self, void *unused)
{
    Receipts *own = (Receipts *)self;
    (void)unused;
    return PyBool_FromLong(own->outcome->state != PENDING || own->expired_count == own->count);
}

static Py_ssize_t receipts_length(PyObject *self)
{
    return ((Receipts *)self)->count;
}

/* ---- Receipts: the type ---- */

static int receipts_traverse(PyObject *self, visitproc visit, void *arg)
{
    Receipts *own = (Receipts *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT((PyObject *)own->kind);
    Py_VISIT((PyObject *)own->outcome);
    Py_VISIT(own->listeners);
    return 0;
}

static int receipts_clear(PyObject *self)
{
    Py_CLEAR(((Receipts *)self)->listeners);
    return 0;
}

static void receipts_dealloc(PyObject *self)
{
    Receipts *own = (Receipts *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (own->outcome != NULL)
        own->outcome->receipts = NULL;
    (void)receipts_clear(self);
    Py_XDECREF((PyObject *)own->outcome);
    Py_XDECREF((PyObject *)own->kind);
    PyMem_Free(own->expired);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyMethodDef receipts_methods[] = {
    {"append", receipts_append, METH_O, NULL},
    {"fail", receipts_fail, METH_O, NULL},
    {"indices_of", receipts_indices_of, METH_O, NULL},
    {"resolve", receipts_resolve, METH_O, NULL},
    {"take", receipts_take, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef receipts_attributes[] = {
    {"all_waiters_expired", receipts_all_waiters_expired, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot receipts_slots[] = {
    {Py_tp_traverse, receipts_traverse},
    {Py_tp_clear, receipts_clear},
    {Py_tp_dealloc, receipts_dealloc},
    {Py_sq_length, receipts_length},
    {Py_tp_getset, receipts_attributes},
    {Py_tp_methods, receipts_methods},
    {0, NULL},
};

PyType_Spec aioproducer_receipts_spec = {
    .name = "aioproducer._core.batching.receipts.Receipts",
    .basicsize = sizeof(Receipts),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = receipts_slots,
};
