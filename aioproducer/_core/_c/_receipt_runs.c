/* Running the callbacks of receipts (_receipt_callbacks.c), each in its context.

   If the last handle of the event loop's queue is that of a Runner, the callback of a done receipt joins this Runner. So one
   handle runs the callbacks of consecutive `add_done_callback` calls. A loop without a `_ready` queue, or in debug mode, gets a
   handle per callback, as from an asyncio.Future.
*/
#include "_receipts.h"

/* ---- Running callbacks in order ---- */

/* Return a copy of the current context, or None if the current context is empty. An empty context is created when the callback
   runs; created earlier, it would cost the garbage collector time. */
PyObject *aioproducer_present_context(Receipt *receipt)
{
    PyObject *context = PyObject_CallNoArgs(tool(receipt, COPY_CONTEXT));
    Py_ssize_t size = context == NULL ? 0 : PyObject_Size(context);
    if (context != NULL && size <= 0) {
        Py_DECREF(context);
        context = size == 0 ? Py_NewRef(Py_None) : NULL;
    }
    return context;
}

/* Callbacks that are running. `due` has the next callback once it is taken. */
typedef struct {
    aioproducer_take *take;
    PyObject *from;
    Due due;
    PyObject *empty; /* an empty context, or NULL */
} Run;

void aioproducer_due_clear(Due *due)
{
    Due before = *due;
    memset(due, 0, sizeof(Due));
    Py_XDECREF((PyObject *)before.receipt);
    Py_XDECREF(before.callback);
    Py_XDECREF(before.context);
}

/* Run callbacks without a context of their own until one raises or changes the current context, which is empty. */
static PyObject *run_in_empty(PyObject *capsule, PyObject *unused)
{
    Run *run = PyCapsule_GetPointer(capsule, NULL);
    int taken = 1;
    (void)unused;
    while (taken > 0 && run->due.context == NULL) {
        PyObject *done = PyObject_CallFunctionObjArgs(run->due.callback, (PyObject *)run->due.receipt, NULL);
        if (done == NULL)
            return NULL;
        Py_DECREF(done);
        aioproducer_due_clear(&run->due);
        if (PyObject_Size(run->empty) != 0)
            break;
        taken = run->take(run->from, &run->due);
    }
    return taken < 0 ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef run_in_empty_method = {"run_in_empty", run_in_empty, METH_NOARGS, NULL};

/* Pass the exception of a callback to the event loop's handler; raise KeyboardInterrupt and SystemExit. */
static int report(Due *due, PyObject *context)
{
    PyObject *type, *error, *traceback;
    if (due->callback == NULL || PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) || PyErr_ExceptionMatches(PyExc_SystemExit))
        return -1;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback != NULL)
        PyException_SetTraceback(error, traceback);
    PyObject *done =
        PyObject_CallFunctionObjArgs(tool(due->receipt, REPORT), due->callback, (PyObject *)due->receipt, context, error, NULL);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* Run the taken callback. If its context is empty, also run the callbacks after it that have an empty context. */
static int run_taken(Run *run, PyObject *name, PyObject *step)
{
    PyObject *own = run->due.context, *context = own;
    if (own == NULL && run->empty == NULL) {
        run->empty = PyObject_CallNoArgs(tool(run->due.receipt, CONTEXT));
        if (run->empty == NULL)
            return -1;
    }
    if (own == NULL)
        context = run->empty;
    PyObject *done = own == NULL ? PyObject_CallMethodObjArgs(context, name, step, NULL)
                                 : PyObject_CallMethodObjArgs(context, name, run->due.callback, (PyObject *)run->due.receipt, NULL);
    int failed = done == NULL && report(&run->due, context) < 0;
    if (done == NULL || own != NULL)
        aioproducer_due_clear(&run->due);
    if (own == NULL && (done == NULL || PyObject_Size(context) != 0)) /* the next callback must not see the context variables */
        Py_CLEAR(run->empty);
    Py_XDECREF(done);
    return failed ? -1 : 0;
}

/* Run the callbacks that *take* returns; return -1 after an interrupt, which leaves the rest to another call. */
int aioproducer_run_callbacks(aioproducer_take *take, PyObject *from)
{
    Run run = {.take = take, .from = from};
    PyObject *name = PyUnicode_InternFromString("run"), *capsule = PyCapsule_New(&run, NULL, NULL);
    PyObject *step = name == NULL || capsule == NULL ? NULL : PyCFunction_NewEx(&run_in_empty_method, capsule, NULL);
    int failed = step == NULL;
    while (!failed) {
        int taken = run.due.callback != NULL ? 1 : take(from, &run.due);
        if (taken == 0)
            break;
        failed = taken < 0 || run_taken(&run, name, step) < 0;
    }
    aioproducer_due_clear(&run.due);
    Py_XDECREF(run.empty);
    Py_XDECREF(step);
    Py_XDECREF(capsule);
    Py_XDECREF(name);
    return failed ? -1 : 0;
}

/* ---- Runner: callbacks of one handle ---- */

struct Runner {
    PyObject_HEAD
    Runner **last;    /* of the event loop; valid as long as `shared` */
    PyObject *shared; /* of a receipt */
    PyObject *ready;  /* the loop's queue of handles, until the last callback has run */
    PyObject *handle; /* borrowed from the queue; only compared */
    Due *dues;
    Py_ssize_t next, count, size;
};

static int runner_add(Runner *own, Receipt *receipt, PyObject *callback, PyObject *context)
{
    if (own->count >= own->size) {
        Py_ssize_t size = own->size == 0 ? 4 : 2 * own->size;
        Due *dues = PyMem_Realloc(own->dues, size * sizeof(Due));
        if (dues == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        own->dues = dues;
        own->size = size;
    }
    Due *due = &own->dues[own->count++];
    due->receipt = (Receipt *)Py_NewRef((PyObject *)receipt);
    due->callback = Py_NewRef(callback);
    due->context = context == Py_None ? NULL : Py_NewRef(context);
    return 0;
}

static int runner_take(PyObject *runner, Due *due)
{
    Runner *own = (Runner *)runner;
    if (own->next >= own->count)
        return 0;
    *due = own->dues[own->next];
    memset(&own->dues[own->next++], 0, sizeof(Due));
    return 1;
}

/* Accept no more callbacks. */
static void close_runner(Runner *own)
{
    if (own->last != NULL && *own->last == own)
        *own->last = NULL;
}

/* Schedule *callback* with *receipt*, which may be NULL, in *context*, or in a copy of the current context. */
static PyObject *call_soon(PyObject *shared, PyObject *callback, PyObject *receipt, PyObject *context)
{
    PyObject *loop = PyObject_CallNoArgs(shared_item(shared, LOOP)), *handle = NULL;
    PyObject *name = loop == NULL ? NULL : PyUnicode_InternFromString("call_soon");
    if (loop == Py_None)
        PyErr_SetString(PyExc_RuntimeError, "Event loop is closed");
    else if (name != NULL && context == NULL)
        handle = PyObject_CallMethodObjArgs(loop, name, callback, receipt, NULL);
    else if (name != NULL) {
        PyObject *method = PyObject_GetAttr(loop, name);
        PyObject *args = method == NULL ? NULL : PyTuple_Pack(2, callback, receipt);
        PyObject *names = args == NULL ? NULL : Py_BuildValue("{sO}", "context", context);
        handle = names == NULL ? NULL : PyObject_Call(method, args, names);
        Py_XDECREF(names);
        Py_XDECREF(args);
        Py_XDECREF(method);
    }
    Py_XDECREF(name);
    Py_XDECREF(loop);
    return handle;
}

/* Return 1 if *handle* is at the index *at* of the queue *ready*. */
static int is_at(PyObject *ready, Py_ssize_t at, PyObject *handle)
{
    PyObject *found = PySequence_GetItem(ready, at);
    int is_same = found != NULL && found == handle;
    if (found == NULL)
        PyErr_Clear();
    Py_XDECREF(found);
    return is_same;
}

/* Put a handle for the callbacks after the first one at the front of the queue, and return the handle. The event loop runs
   these callbacks if a callback runs the loop again, or after an interrupt. NULL without an exception: at most one callback. */
static PyObject *schedule_rest(Runner *own)
{
    PyObject *handle = own->count - own->next < 2 ? NULL : call_soon(own->shared, (PyObject *)own, NULL, NULL);
    if (handle != NULL && own->ready != NULL && is_at(own->ready, -1, handle)) {
        PyObject *moved = PyObject_CallMethod(own->ready, "rotate", NULL);
        if (moved == NULL)
            Py_CLEAR(handle);
        Py_XDECREF(moved);
    }
    return handle;
}

/* Remove the handle of `schedule_rest` from the queue, because all callbacks have run. */
static void take_back_rest(Runner *own, PyObject *handle)
{
    PyObject *type, *error, *traceback, *done = NULL, *ready = own->ready;
    own->ready = NULL;
    PyErr_Fetch(&type, &error, &traceback);
    if (handle != NULL && ready != NULL && is_at(ready, 0, handle))
        done = PyObject_CallMethod(ready, "popleft", NULL);
    else if (handle != NULL)
        done = PyObject_CallMethod(handle, "cancel", NULL);
    if (PyErr_Occurred())
        PyErr_Clear();
    PyErr_Restore(type, error, traceback);
    Py_XDECREF(done);
    Py_XDECREF(ready);
}

static PyObject *runner_call(PyObject *self, PyObject *args, PyObject *names)
{
    Runner *own = (Runner *)self;
    PyObject *type, *error, *traceback;
    (void)args;
    (void)names;
    close_runner(own);
    PyObject *rest = schedule_rest(own);
    int failed = PyErr_Occurred() != NULL || aioproducer_run_callbacks(runner_take, self) < 0;
    if (own->next >= own->count)
        take_back_rest(own, rest);
    else if (rest == NULL) { /* `schedule_rest` was interrupted */
        PyErr_Fetch(&type, &error, &traceback);
        rest = call_soon(own->shared, self, NULL, NULL);
        if (rest == NULL)
            PyErr_Clear();
        PyErr_Restore(type, error, traceback);
    }
    Py_XDECREF(rest);
    return failed ? NULL : Py_NewRef(Py_None);
}

static int runner_traverse(PyObject *self, visitproc visit, void *arg)
{
    Runner *own = (Runner *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(own->shared);
    Py_VISIT(own->ready);
    for (Py_ssize_t at = own->next; at < own->count; at++) {
        Py_VISIT((PyObject *)own->dues[at].receipt);
        Py_VISIT(own->dues[at].callback);
        Py_VISIT(own->dues[at].context);
    }
    return 0;
}

static int runner_clear(PyObject *self)
{
    Runner *own = (Runner *)self;
    Due due;
    close_runner(own);
    Py_CLEAR(own->ready);
    while (runner_take(self, &due))
        aioproducer_due_clear(&due);
    return 0;
}

static void runner_dealloc(PyObject *self)
{
    Runner *own = (Runner *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)runner_clear(self);
    PyMem_Free(own->dues);
    Py_XDECREF(own->shared);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyType_Slot slots[] = {
    {Py_tp_call, runner_call},
    {Py_tp_traverse, runner_traverse},
    {Py_tp_clear, runner_clear},
    {Py_tp_dealloc, runner_dealloc},
    {0, NULL},
};

PyType_Spec aioproducer_runner_spec = {
    .name = "aioproducer._core.batching.receipts.Runner",
    .basicsize = sizeof(Runner),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};

static void free_last(PyObject *capsule)
{
    PyMem_Free(PyCapsule_GetPointer(capsule, NULL));
}

/* Return the place of the last Runner of an event loop: a borrowed reference, which the garbage collector may ignore. */
PyObject *aioproducer_last_runner(void)
{
    Runner **last = PyMem_Calloc(1, sizeof(Runner *));
    PyObject *capsule = last == NULL ? PyErr_NoMemory() : PyCapsule_New(last, NULL, free_last);
    if (capsule == NULL)
        PyMem_Free(last);
    return capsule;
}

/* ---- Scheduling ---- */

static Runner **last_of(Receipt *receipt)
{
    return PyCapsule_GetPointer(tool(receipt, LAST), NULL);
}

/* Return 1 if the handle of *runner* is the last one of the queue, so a callback may join *runner*. */
static int is_last(Runner *runner)
{
    return is_at(runner->ready, -1, runner->handle);
}

/* Return the queue of handles; None for a loop without a queue or in debug mode; NULL with an exception. */
static PyObject *ready_of(PyObject *shared)
{
    PyObject *loop = PyObject_CallNoArgs(shared_item(shared, LOOP));
    PyObject *ready = loop == NULL ? NULL : PyObject_CallFunctionObjArgs(shared_item(shared, READY), loop, NULL);
    Py_XDECREF(loop);
    return ready;
}

static int start_runner(Receipt *receipt, PyObject *callback, PyObject *context, PyObject *ready)
{
    PyObject *shared = receipt->of->shared, *handle = NULL;
    Runner *own = (Runner *)aioproducer_allocate(shared, RUNNER_TYPE, sizeof(Runner));
    if (own == NULL)
        return -1;
    own->shared = Py_NewRef(shared);
    PyObject_GC_Track((PyObject *)own);
    if (runner_add(own, receipt, callback, context) == 0 &&
        (handle = call_soon(shared, (PyObject *)own, NULL, NULL)) != NULL) {
        own->last = PyCapsule_GetPointer(shared_item(shared, LAST), NULL);
        own->ready = Py_NewRef(ready);
        own->handle = handle;
        *own->last = own;
    }
    Py_XDECREF(handle);
    Py_DECREF((PyObject *)own);
    return handle == NULL ? -1 : 0;
}

static int schedule_alone(Receipt *receipt, PyObject *callback, PyObject *context)
{
    PyObject *own = context == Py_None ? PyObject_CallNoArgs(tool(receipt, CONTEXT)) : Py_XNewRef(context), *handle = NULL;
    if (own != NULL || context == NULL)
        handle = call_soon(receipt->of->shared, callback, (PyObject *)receipt, own);
    Py_XDECREF(own);
    Py_XDECREF(handle);
    return handle == NULL ? -1 : 0;
}

static int schedule_together(Receipt *receipt, PyObject *callback, PyObject *context, PyObject *ready)
{
    PyObject *own = context == NULL ? aioproducer_present_context(receipt) : Py_NewRef(context);
    if (own == NULL)
        return -1;
    Runner *last = *last_of(receipt);
    int failed = last != NULL && is_last(last) ? runner_add(last, receipt, callback, own) < 0
                                               : start_runner(receipt, callback, own, ready) < 0;
    Py_DECREF(own);
    return failed ? -1 : 0;
}

/* Schedule *callback* of a done receipt in *context*: None is an empty one, NULL a copy of the current context. */
int aioproducer_schedule(Receipt *receipt, PyObject *callback, PyObject *context)
{
    Runner *last = *last_of(receipt);
    PyObject *ready = last != NULL ? Py_NewRef(last->ready) : ready_of(receipt->of->shared);
    if (ready == NULL)
        return -1;
    int failed = ready == Py_None ? schedule_alone(receipt, callback, context)
                                  : schedule_together(receipt, callback, context, ready);
    Py_DECREF(ready);
    return failed ? -1 : 0;
}
