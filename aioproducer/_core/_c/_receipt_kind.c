/* The kind of the receipts of one event loop (_receipts.c, _receipt.c), and the memory of receipts. */
#include "_receipts.h"

/* ---- Memory of receipts ---- */

/* Freed receipts are reused, because PyObject_GC_New counts each object. Receipts that the garbage collector never visits would
   start collections. Sanitizers need each free, and without a GIL threads would share the list. */
#if defined(Py_GIL_DISABLED) || defined(__SANITIZE_ADDRESS__)
#define MOST_SPARES 0
#else
#define MOST_SPARES 16384 /* 1.8 MB */
#endif

static Receipt *spares; /* linked by `of` */
static int spare_count;
static int kinds; /* spares exist only beside a kind */

/* Return a receipt with cleared fields. */
Receipt *aioproducer_allocate_receipt(PyObject *shared)
{
    Receipt *made = spares;
    if (made == NULL)
        return (Receipt *)aioproducer_allocate(shared, RECEIPT_TYPE, sizeof(Receipt));
    spares = (Receipt *)made->of;
    spare_count--;
    (void)PyObject_Init((PyObject *)made, (PyTypeObject *)shared_item(shared, RECEIPT_TYPE));
    memset((char *)made + sizeof(PyObject), 0, sizeof(Receipt) - sizeof(PyObject));
    return made;
}

/* Return 1 if freed objects may be kept. */
int aioproducer_keeps_spares(void)
{
    return MOST_SPARES != 0 && kinds != 0;
}

/* Free *receipt*, which is untracked and refers to no object. */
void aioproducer_free_receipt(Receipt *receipt)
{
    if (!aioproducer_keeps_spares() || spare_count >= MOST_SPARES) {
        PyObject_GC_Del(receipt);
        return;
    }
    receipt->of = (Outcome *)spares;
    spares = receipt;
    spare_count++;
}

/* Free the spares. PyObject_GC_Del reads their class. */
static void free_spares(PyObject *shared)
{
    PyObject *type = shared_item(shared, RECEIPT_TYPE);
    aioproducer_free_spare_iterator(shared_item(shared, ITERATOR_TYPE));
    while (spares != NULL) {
        Receipt *spare = spares;
        spares = (Receipt *)spare->of;
        Py_SET_TYPE((PyObject *)spare, (PyTypeObject *)type);
        PyObject_GC_Del(spare);
    }
    spare_count = 0;
}

/* ---- Kind ---- */

static PyObject *kind_stretch(PyObject *self, PyObject *unused)
{
    (void)unused;
    return (PyObject *)aioproducer_new_receipts((Kind *)self);
}

/* Return a receipt that a stretch adds later. */
static PyObject *kind_waiter(PyObject *self, PyObject *unused)
{
    Outcome *of = aioproducer_new_outcome(((Kind *)self)->shared);
    PyObject *receipt = of == NULL ? NULL : aioproducer_new_receipt(of);
    (void)unused;
    Py_XDECREF((PyObject *)of);
    return receipt;
}

/* Fail this receipt only, at its call's own deadline. */
static PyObject *kind_expire(PyObject *self, PyObject *args)
{
    PyObject *waiter, *failure;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO:expire", &waiter, &failure))
        return NULL;
    if (!aioproducer_is_receipt(waiter)) {
        PyErr_SetString(PyExc_TypeError, "a waiter must be a receipt");
        return NULL;
    }
    Receipt *receipt = (Receipt *)waiter;
    PyObject *error = aioproducer_receipt_is_done(receipt) ? Py_NewRef(Py_None) : PyObject_CallMethod(failure, "error", NULL);
    int failed = error == NULL;
    if (!failed && !aioproducer_receipt_is_done(receipt)) {
        Receipts *of = aioproducer_outcome_of(receipt)->receipts;
        failed = (of != NULL && aioproducer_note_expired(of, receipt->index) < 0) ||
                 aioproducer_receipt_settle(receipt, EXCEPTION, error) < 0;
    }
    Py_XDECREF(error);
    return failed ? NULL : Py_NewRef(Py_None);
}

static int kind_traverse(PyObject *self, visitproc visit, void *arg)
{
    Kind *own = (Kind *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(own->shared);
    Py_VISIT(own->waker);
    return 0;
}

static void kind_dealloc(PyObject *self)
{
    Kind *own = (Kind *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (--kinds == 0)
        free_spares(own->shared);
    Py_XDECREF(own->shared);
    Py_XDECREF(own->waker);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyMethodDef kind_methods[] = {
    {"expire", kind_expire, METH_VARARGS, NULL},
    {"stretch", kind_stretch, METH_NOARGS, NULL},
    {"waiter", kind_waiter, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot kind_slots[] = {
    {Py_tp_traverse, kind_traverse},
    {Py_tp_dealloc, kind_dealloc},
    {Py_tp_methods, kind_methods},
    {0, NULL},
};

static PyType_Spec kind_spec = {
    .name = "aioproducer._core.batching.receipts.Kind",
    .basicsize = sizeof(Kind),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = kind_slots,
};

/* Return the types, in the order of `enum shared`; the module keeps them. */
static PyObject *types_of(PyObject *module)
{
    PyType_Spec *const specs[] = {&kind_spec, &aioproducer_receipts_spec, &aioproducer_outcome_spec, &aioproducer_receipt_spec,
                                  &aioproducer_receipt_iterator_spec, &aioproducer_runner_spec};
    const Py_ssize_t count = sizeof specs / sizeof *specs;
    if (PyObject_HasAttrString(module, "_receipt_types"))
        return PyObject_GetAttrString(module, "_receipt_types");
    PyObject *types = PyTuple_New(count);
    for (Py_ssize_t at = 0; types != NULL && at < count; at++) {
        PyObject *type = PyType_FromSpec(specs[at]);
        if (type == NULL || PyTuple_SetItem(types, at, type) < 0)
            Py_CLEAR(types);
    }
    if (types != NULL && PyObject_SetAttrString(module, "_receipt_types", types) < 0)
        Py_CLEAR(types);
    return types;
}

/* ---- receipts(waker, tools) ---- */

PyObject *aioproducer_receipts(PyObject *module, PyObject *args)
{
    PyObject *waker, *tools;
    if (!PyArg_ParseTuple(args, "OO!:receipts", &waker, &PyTuple_Type, &tools))
        return NULL;
    if (PyTuple_Size(tools) != GIVEN) {
        PyErr_SetString(PyExc_ValueError, "receipts() takes a tuple of another length");
        return NULL;
    }
    PyObject *types = types_of(module), *typed = types == NULL ? NULL : PySequence_Concat(tools, types);
    PyObject *last = typed == NULL ? NULL : Py_BuildValue("(N)", aioproducer_last_runner());
    PyObject *shared = last == NULL ? NULL : PySequence_Concat(typed, last);
    Py_XDECREF(last);
    Py_XDECREF(typed);
    Py_XDECREF(types);
    Kind *kind = shared == NULL ? NULL : (Kind *)aioproducer_allocate(shared, KIND_TYPE, sizeof(Kind));
    if (kind == NULL) {
        Py_XDECREF(shared);
        return NULL;
    }
    kinds++;
    kind->shared = shared;
    kind->waker = Py_NewRef(waker);
    PyObject_GC_Track((PyObject *)kind);
    return (PyObject *)kind;
}
