/* Acknowledgements: the twins of `python_acknowledgements`, `python_set_outcomes` and `python_wake_each` in
   aioproducer/_core/batching/waiters.py; and the running event loop: the twin of `python_running_loop_without_getpid` in
   aioproducer/_core/clock.py.

   In Python, a generator and two frames cost a sixth of the time of a record. An acknowledgement belongs to one event loop, and
   so to one thread. Decrefs come last, because destructors may run arbitrary code.
*/
#include "_accelerator.h"
#include <stddef.h>
#include <structmember.h>

enum stage { CALLED, AWAITED, OVER };

typedef struct {
    PyObject_HEAD
    PyObject *wakeup;  /* NULL before the await; None while no task waits */
    PyObject *context; /* context of the task */
    PyObject *outcome; /* NULL without an outcome */
    char is_blocking;  /* `_asyncio_future_blocking` */
    char stage;        /* stage of the `await` */
} Acknowledgement;

static void set_attribute(PyObject **attribute, PyObject *value)
{
    PyObject *before = *attribute;
    *attribute = Py_NewRef(value);
    Py_XDECREF(before);
}

/* Return a new reference to *attribute*, or NULL with the AttributeError for *name*. */
static PyObject *get_attribute(PyObject *self, PyObject *attribute, const char *name)
{
    return attribute != NULL ? Py_NewRef(attribute) : PyObject_GetAttrString(self, name);
}

/* ---- The type ---- */

static int acknowledgement_traverse(PyObject *self, visitproc visit, void *arg)
{
    Acknowledgement *own = (Acknowledgement *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(own->wakeup);
    Py_VISIT(own->context);
    Py_VISIT(own->outcome);
    return 0;
}

static int acknowledgement_clear(PyObject *self)
{
    Acknowledgement *own = (Acknowledgement *)self;
    Py_CLEAR(own->wakeup);
    Py_CLEAR(own->context);
    Py_CLEAR(own->outcome);
    return 0;
}

static void acknowledgement_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)acknowledgement_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* An acknowledgement is its own iterator, because one task awaits it once. */
static PyObject *acknowledgement_await(PyObject *self)
{
    ((Acknowledgement *)self)->stage = CALLED;
    return Py_NewRef(self);
}

/* Yield the acknowledgement to the task; later return the outcome. Failures are raised by `result`, which the task calls. */
static PySendResult acknowledgement_send(PyObject *self, PyObject *value, PyObject **result)
{
    Acknowledgement *own = (Acknowledgement *)self;
    (void)value;
    if (own->stage == CALLED) {
        own->stage = AWAITED;
        own->is_blocking = 1;
        set_attribute(&own->wakeup, Py_None);
        *result = Py_NewRef(self);
        return PYGEN_NEXT;
    }
    *result = own->stage == OVER ? Py_NewRef(Py_None) : get_attribute(self, own->outcome, "outcome");
    own->stage = OVER;
    return *result == NULL ? PYGEN_ERROR : PYGEN_RETURN;
}

static PyObject *acknowledgement_next(PyObject *self)
{
    PyObject *result;
    return acknowledgement_send(self, Py_None, &result) == PYGEN_RETURN ? stop_with(result) : result;
}

static PyObject *add_done_callback(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Acknowledgement *own = (Acknowledgement *)self;
    if (count != 1 || names == NULL || PyTuple_Size(names) != 1 ||
        PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, 0), "context") != 0) {
        PyErr_SetString(PyExc_TypeError, "add_done_callback() takes a callable and the keyword context");
        return NULL;
    }
    set_attribute(&own->context, args[1]);
    set_attribute(&own->wakeup, args[0]);
    Py_RETURN_NONE;
}

static PyMemberDef members[] = {
    {"_asyncio_future_blocking", T_BOOL, offsetof(Acknowledgement, is_blocking), 0, NULL},
    {"context", T_OBJECT_EX, offsetof(Acknowledgement, context), 0, NULL},
    {"outcome", T_OBJECT_EX, offsetof(Acknowledgement, outcome), 0, NULL},
    {"wakeup", T_OBJECT_EX, offsetof(Acknowledgement, wakeup), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef methods[] = {
    {"add_done_callback", (PyCFunction)(void (*)(void))add_done_callback, METH_FASTCALL | METH_KEYWORDS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_traverse, acknowledgement_traverse},
    {Py_tp_clear, acknowledgement_clear},
    {Py_tp_dealloc, acknowledgement_dealloc},
    {Py_am_await, acknowledgement_await},
    {Py_am_send, acknowledgement_send},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, acknowledgement_next},
    {Py_tp_members, members},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec specification = {
    .name = "aioproducer._core.batching.waiters.Acknowledgement",
    .basicsize = sizeof(Acknowledgement),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = slots,
};

/* ---- acknowledgements(base) ---- */

/* Return a new type for each event loop, whose attributes belong to the loop. A subclass in Python would cost time per record. */
PyObject *aioproducer_acknowledgements(PyObject *module, PyObject *base)
{
    PyObject *bases = PyTuple_Pack(1, base);
    PyObject *type = bases == NULL ? NULL : PyType_FromSpecWithBases(&specification, bases);
    Py_XDECREF(bases);
    return type;
}

/* Return *waiter* as an Acknowledgement, or NULL with an exception. */
static Acknowledgement *acknowledgement_of(PyObject *waiter)
{
    if (PyType_GetSlot(Py_TYPE(waiter), Py_tp_dealloc) == (void *)acknowledgement_dealloc)
        return (Acknowledgement *)waiter;
    PyErr_SetString(PyExc_TypeError, "an acknowledgement must be of a type that acknowledgements() has made");
    return NULL;
}

/* ---- set_outcomes(waiters, outcomes) ---- */

static int set_outcome(PyObject *waiter, PyObject *outcome)
{
    Acknowledgement *own = acknowledgement_of(waiter);
    if (own == NULL)
        return -1;
    if (own->wakeup == NULL)
        set_attribute(&own->wakeup, Py_None); /* no task waits any more */
    else if (own->wakeup != Py_None)
        set_attribute(&own->outcome, outcome);
    return 0;
}

PyObject *aioproducer_set_outcomes(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    PyObject *waiters, *outcomes, *outcome;
    if (!has_arguments("set_outcomes", count, 2) || (waiters = tuple_of(args[0], -1)) == NULL)
        return NULL;
    outcomes = PyObject_GetIter(args[1]);
    for (Py_ssize_t at = 0; outcomes != NULL && at < PyTuple_Size(waiters); at++) {
        if ((outcome = PyIter_Next(outcomes)) == NULL)
            break;
        int failed = set_outcome(PyTuple_GetItem(waiters, at), outcome) < 0;
        Py_DECREF(outcome);
        if (failed)
            break;
    }
    Py_XDECREF(outcomes);
    Py_DECREF(waiters);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* ---- wake_each(waiters, wake_signal) ---- */

static int wake_task(PyObject *waiter, PyObject *wake_signal, PyObject *run)
{
    Acknowledgement *own = acknowledgement_of(waiter);
    if (own == NULL)
        return -1;
    if (own->wakeup == Py_None)
        return 0;
    PyObject *context = NULL, *done = NULL, *wakeup = get_attribute(waiter, own->wakeup, "wakeup");
    if (wakeup != NULL && (context = get_attribute(waiter, own->context, "context")) != NULL) {
        set_attribute(&own->wakeup, Py_None);
        done = PyObject_CallMethodObjArgs(context, run, wakeup, wake_signal == Py_None ? waiter : wake_signal, NULL);
    }
    Py_XDECREF(done);
    Py_XDECREF(context);
    Py_XDECREF(wakeup);
    return done == NULL ? -1 : 0;
}

PyObject *aioproducer_wake_each(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (!has_arguments("wake_each", count, 2))
        return NULL;
    if (aioproducer_is_receipts(args[0]))
        return aioproducer_receipts_wake(args[0]) < 0 ? NULL : Py_NewRef(Py_None);
    PyObject *waiter, *run = PyUnicode_InternFromString("run");
    PyObject *waiters = run == NULL ? NULL : PyObject_GetIter(args[0]);
    while (waiters != NULL && (waiter = PyIter_Next(waiters)) != NULL) {
        int failed = wake_task(waiter, args[1], run) < 0;
        Py_DECREF(waiter);
        if (failed)
            break;
    }
    (void)module;
    Py_XDECREF(waiters);
    Py_XDECREF(run);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* ---- running_loop_without_getpid(loop, process, ask) ---- */

/* First fields of the value that asyncio in C keeps per thread before Python 3.12; the process id follows. */
typedef struct {
    PyObject_HEAD
    PyObject *loop; /* the running event loop, or None */
} Holder;

enum { LOOP, PROCESS, PRESENT, KEY, HOLDER, ASK };

/* Return the value of this thread; NULL without an exception if the thread has no value. */
static PyObject *holder_here(PyObject *key)
{
    PyObject *of_thread = PyThreadState_GetDict();
    return of_thread == NULL ? NULL : PyDict_GetItemWithError(of_thread, key);
}

/* Return 1 if the loop of *known* runs in this thread and process. A fork replaces the item of the list PROCESS. */
int aioproducer_runs_here(PyObject *known)
{
    PyObject *holder = holder_here(PyTuple_GetItem(known, KEY));
    return holder != NULL && (PyObject *)Py_TYPE(holder) == PyTuple_GetItem(known, HOLDER) &&
           ((Holder *)holder)->loop == PyTuple_GetItem(known, LOOP) &&
           PyList_GetItem(PyTuple_GetItem(known, PROCESS), 0) == PyTuple_GetItem(known, PRESENT);
}

/* Return the loop if it runs in this thread and process; otherwise call *ask*. */
static PyObject *running_loop(PyObject *known, PyObject *unused)
{
    (void)unused;
    if (aioproducer_runs_here(known))
        return Py_NewRef(PyTuple_GetItem(known, LOOP));
    return PyErr_Occurred() ? NULL : PyObject_CallNoArgs(PyTuple_GetItem(known, ASK));
}

/* Return the argument *known* of `running_loop` that *function* binds, borrowed; NULL for another function. */
PyObject *aioproducer_known_loop(PyObject *function)
{
    return PyCFunction_CheckExact(function) && PyCFunction_GetFunction(function) == running_loop ? PyCFunction_GetSelf(function) : NULL;
}

static PyMethodDef running_loop_method = {"running_loop", running_loop, METH_NOARGS, NULL};

/* Return the type of this thread's value; None if *loop* does not run here, or if the value has other fields. */
static PyObject *holder_type(PyObject *key, PyObject *loop)
{
    PyObject *holder = holder_here(key), *type = holder == NULL ? Py_None : (PyObject *)Py_TYPE(holder);
    PyObject *size = holder == NULL ? NULL : PyObject_GetAttrString(type, "__basicsize__");
    if (PyErr_Occurred())
        return NULL;
    int is_it = size != NULL && PyLong_AsSize_t(size) >= sizeof(Holder) && ((Holder *)holder)->loop == loop;
    Py_XDECREF(size);
    return Py_NewRef(is_it ? type : Py_None);
}

PyObject *aioproducer_running_loop_without_getpid(PyObject *module, PyObject *args)
{
    PyObject *loop, *process, *ask;
    if (!PyArg_ParseTuple(args, "OO!O:running_loop_without_getpid", &loop, &PyList_Type, &process, &ask))
        return NULL;
    PyObject *present = PyList_GetItem(process, 0), *key = PyUnicode_InternFromString("__asyncio_running_event_loop__");
    PyObject *type = present == NULL || key == NULL ? NULL : holder_type(key, loop);
    PyObject *known = type == NULL ? NULL : PyTuple_Pack(6, loop, process, present, key, type, ask);
    PyObject *function = known == NULL ? NULL : PyCFunction_NewEx(&running_loop_method, known, NULL);
    (void)module;
    Py_XDECREF(known);
    Py_XDECREF(type);
    Py_XDECREF(key);
    return function;
}
