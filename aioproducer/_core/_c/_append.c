/* The fast path of an append: the twin of `FastAppend` in aioproducer/_core/intake/fast_append.py.

   `append` runs no Python code between its first and its last change. So no signal handler can interrupt an append.
*/
#include "_accelerator.h"

enum {
    TOPICS, MEMORY, CLOCK, NOW_MS, OPEN_FOR, RECOVER, RUNNING_LOOP, LOOP, TOPIC_TYPE, QUEUE_TYPE, BATCH_TYPE, NO_HEADERS,
    GIVEN,
    GENERAL = GIVEN,
    KNOWN_LOOP,  /* argument that RUNNING_LOOP binds, if it is the function of _awaiting.c, or NULL */
    BUFFER_TYPE, /* classes of the objects seen first, or NULL; a check of another class takes longer */
    LOCK_TYPE,
    RECEIPTS_TYPE,
    OBJECTS
};

typedef struct {
    PyObject_HEAD
    PyObject *objects[OBJECTS];
    Py_ssize_t largest_payload; /* in bytes; below 0: every record takes the general path */
    int sticks;                 /* 1 if records without a key go to the sticky partition */
    int hashes;                 /* 1 if Kafka's default partitioner chooses the partition of a key */
} FastAppend;

static int fast_traverse(PyObject *self, visitproc visit, void *arg)
{
    FastAppend *own = (FastAppend *)self;
    Py_VISIT(Py_TYPE(self));
    for (int at = 0; at < OBJECTS; at++)
        Py_VISIT(own->objects[at]);
    return 0;
}

static int fast_clear(PyObject *self)
{
    FastAppend *own = (FastAppend *)self;
    own->largest_payload = -1; /* a finalizer may still call `append` */
    for (int at = 0; at < OBJECTS; at++)
        Py_CLEAR(own->objects[at]);
    return 0;
}

static void fast_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)fast_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyObject *fast_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    PyObject *of[OBJECTS], *front;
    Py_ssize_t largest_payload;
    int sticks, hashes;
    if (names != NULL && PyDict_Size(names) > 0) {
        PyErr_SetString(PyExc_TypeError, "FastAppend() takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "OO!OOOOOOOO!O!O!Onpp:FastAppend", &front, &PyDict_Type, &of[TOPICS], &of[MEMORY], &of[CLOCK],
                          &of[NOW_MS], &of[OPEN_FOR], &of[RECOVER], &of[RUNNING_LOOP], &of[LOOP], &PyType_Type,
                          &of[TOPIC_TYPE], &PyType_Type, &of[QUEUE_TYPE], &PyType_Type, &of[BATCH_TYPE], &of[NO_HEADERS],
                          &largest_payload, &sticks, &hashes))
        return NULL;
    if (!aioproducer_is_fields(of[MEMORY]) || !aioproducer_is_fields(of[CLOCK]) ||
        !aioproducer_has_fields((PyTypeObject *)of[TOPIC_TYPE]) || !aioproducer_has_fields((PyTypeObject *)of[QUEUE_TYPE]) ||
        !aioproducer_has_fields((PyTypeObject *)of[BATCH_TYPE])) {
        PyErr_SetString(PyExc_TypeError, "FastAppend() takes objects and classes with fields in C");
        return NULL;
    }
    FastAppend *own = (FastAppend *)PyType_GenericNew(type, args, NULL);
    if (own == NULL)
        return NULL;
    for (int at = 0; at < GIVEN; at++)
        own->objects[at] = Py_NewRef(of[at]);
    own->objects[GENERAL] = PyObject_GetAttrString(front, "append");
    own->objects[KNOWN_LOOP] = Py_XNewRef(aioproducer_known_loop(of[RUNNING_LOOP]));
    if (own->objects[GENERAL] == NULL)
        Py_CLEAR(own);
    else {
        own->largest_payload = largest_payload;
        own->sticks = sticks;
        own->hashes = hashes;
    }
    return (PyObject *)own;
}

/* The arguments of a call: borrowed references, NULL for a missing part. */
typedef struct {
    PyObject *kind;
    PyObject *topic;
    PyObject *value;
    PyObject *key;
    PyObject *partition;
    PyObject *headers;
    PyObject *timestamp_ms;
} Arguments;

static PyObject *or_null(PyObject *argument)
{
    return argument == Py_None ? NULL : argument;
}

/* Return the object at *at* of *own* if the object is an instance of *type*, else NULL. */
static Fields *field(Fields *own, int at, PyObject *type)
{
    PyObject *object = own->objects[at];
    return object != NULL && (PyObject *)Py_TYPE(object) == type ? (Fields *)object : NULL;
}

/* Return 1 if *check* accepts the class of *object*, and keep the first such class in *at*. */
static int is_known(FastAppend *own, int at, PyObject *object, int (*check)(PyObject *))
{
    PyObject *type = (PyObject *)Py_TYPE(object);
    if (type == own->objects[at])
        return 1;
    if (!check(object))
        return 0;
    if (own->objects[at] == NULL)
        own->objects[at] = Py_NewRef(type);
    return 1;
}

/* Return the topic of the record if calls may append to the topic now. NULL without an exception: the general path. */
static Fields *topic_of(FastAppend *own, const Arguments *of)
{
    PyObject *found = PyDict_GetItemWithError(own->objects[TOPICS], of->topic), *lock, *leaders;
    if (found == NULL || (PyObject *)Py_TYPE(found) != own->objects[TOPIC_TYPE])
        return NULL;
    lock = ((Fields *)found)->objects[APPEND_LOCK];
    leaders = ((Fields *)found)->objects[LEADERS];
    if (leaders == NULL || PyObject_Size(leaders) <= 0 || lock == NULL ||
        !is_known(own, LOCK_TYPE, lock, aioproducer_is_fields) || ((Fields *)lock)->flag)
        return NULL;
    return (Fields *)found;
}

/* Return the queue of the record. NULL without an exception: no queue yet, or the record takes the general path. */
static Fields *queue_of(FastAppend *own, Fields *topic, const Arguments *of)
{
    Py_ssize_t count = PyObject_Size(topic->objects[LEADERS]);
    PyObject *found;
    if (of->partition == NULL && of->key == NULL)
        return own->sticks ? field(topic, STICKY, own->objects[QUEUE_TYPE]) : NULL;
    PyObject *by_partition = topic->objects[BY_PARTITION];
    if (by_partition == NULL || !PyDict_Check(by_partition))
        return NULL;
    if (of->partition != NULL) {
        if (!PyLong_CheckExact(of->partition))
            return NULL;
        Py_ssize_t partition = PyLong_AsSsize_t(of->partition);
        if (partition < 0 || partition >= count) {
            PyErr_Clear(); /* an int beyond 64 bits */
            return NULL;
        }
        found = PyDict_GetItemWithError(by_partition, of->partition);
    } else {
        if (!own->hashes)
            return NULL;
        PyObject *partition = PyLong_FromSsize_t(aioproducer_partition_of(of->key, count));
        found = partition == NULL ? NULL : PyDict_GetItemWithError(by_partition, partition);
        Py_XDECREF(partition);
    }
    return found != NULL && (PyObject *)Py_TYPE(found) == own->objects[QUEUE_TYPE] ? (Fields *)found : NULL;
}

/* Return 1 if the call runs on the producer's event loop, 0 if not, -1 with an exception. */
static int on_loop(FastAppend *own)
{
    if (own->objects[KNOWN_LOOP] != NULL && aioproducer_runs_here(own->objects[KNOWN_LOOP]))
        return 1;
    PyObject *here = PyErr_Occurred() ? NULL : PyObject_CallNoArgs(own->objects[RUNNING_LOOP]);
    int is_here = here == own->objects[LOOP];
    Py_XDECREF(here);
    if (here != NULL)
        return is_here;
    if (!PyErr_ExceptionMatches(PyExc_RuntimeError)) /* no event loop runs in this thread */
        return -1;
    PyErr_Clear();
    return 0;
}

/* Return the open batch for the record. NULL without an exception: the record takes the general path. Runs no Python code. */
static Fields *open_batch(FastAppend *own, const Arguments *of)
{
    Fields *memory = (Fields *)own->objects[MEMORY], *topic, *queue;
    if (memory->objects[WAITERS] == NULL || PyObject_Size(memory->objects[WAITERS]) != 0)
        return NULL;
    topic = topic_of(own, of);
    queue = topic == NULL ? NULL : queue_of(own, topic, of);
    return queue == NULL ? NULL : field(queue, OPEN, own->objects[BATCH_TYPE]);
}

/* Set *ms* to the timestamp of the record and return 1; return 0 for the general path, and with an exception. */
static int timestamp_of(FastAppend *own, const Arguments *of, long long *ms)
{
    Fields *clock = (Fields *)own->objects[CLOCK];
    if (of->timestamp_ms != NULL) {
        *ms = PyLong_CheckExact(of->timestamp_ms) ? PyLong_AsLongLong(of->timestamp_ms) : -1;
        PyErr_Clear(); /* an int beyond 64 bits */
        return *ms >= 0;
    }
    *ms = clock->numbers[KNOWN_MS];
    if (*ms == 0) {
        if (open_batch(own, of) == NULL) /* the general path reads the clock for the first record of a batch */
            return 0;
        PyObject *now = PyObject_CallNoArgs(own->objects[NOW_MS]); /* runs Python code, which may end the batch found */
        *ms = now == NULL ? -1 : PyLong_AsLongLong(now);
        Py_XDECREF(now);
    }
    return *ms >= 0;
}

/* Remove *waiter*, whose record was not appended, from the list of waiters. */
static void take_back(PyObject *waiters, PyObject *waiter)
{
    for (Py_ssize_t at = PyList_Size(waiters) - 1; at >= 0; at--)
        if (PyList_GetItem(waiters, at) == waiter) {
            (void)PyList_SetSlice(waiters, at, at + 1, NULL);
            return;
        }
}

/* Append as `append_to` does; the caller holds references to *batch* and *last*. */
static PyObject *append_to_living(FastAppend *own, Fields *batch, PyObject *last, const Arguments *of, long long ms)
{
    Fields *memory = (Fields *)own->objects[MEMORY];
    PyObject *columns = batch->objects[COLUMNS];
    Py_ssize_t size = 0, more_held = 0;
    if (columns == NULL || batch->objects[KIND] != of->kind || !is_known(own, BUFFER_TYPE, columns, aioproducer_is_buffer))
        return NULL;
    int awaits = PyList_Check(last), is_added = 0;
    if (awaits ? !PyCallable_Check(of->kind) : !is_known(own, RECEIPTS_TYPE, last, aioproducer_is_receipts))
        return NULL;
    /* First, because an allocation may start the garbage collector, and finalizers may call the producer. */
    PyObject *waiter = awaits ? PyObject_CallNoArgs(of->kind) : aioproducer_receipts_make(last);
    if (waiter == NULL)
        return NULL;
    long long room = batch->numbers[LIMIT] - batch->numbers[SIZE], free = memory->numbers[FREE];
    if (batch->objects[COLUMNS] == columns && batch->objects[LAST_WAITERS] == last && batch->objects[KIND] == of->kind &&
        room > 0 && free > 0 && (!awaits || PyList_Append(last, waiter) == 0)) {
        is_added = aioproducer_buffer_put(columns, of->value, of->key, of->headers, ms, own->largest_payload + RECORD_OVERHEAD,
                                          (Py_ssize_t)room, (Py_ssize_t)free, &size, &more_held) == 1;
        if (awaits && !is_added)
            take_back(last, waiter);
    }
    if (!is_added) {
        Py_DECREF(waiter);
        return NULL;
    }
    if (!awaits)
        aioproducer_receipts_publish(last, waiter);
    batch->numbers[SIZE] += size;
    batch->numbers[HELD] += more_held;
    memory->numbers[FREE] -= more_held;
    return waiter;
}

/* Append the record to *batch* and return its waiter. NULL without an exception: the record takes the general path. */
static PyObject *append_to(FastAppend *own, Fields *batch, const Arguments *of, long long ms)
{
    PyObject *last = batch->objects[LAST_WAITERS];
    if (last == NULL)
        return NULL;
    /* A finalizer may end the batch while the waiter is allocated. */
    Py_INCREF((PyObject *)batch);
    Py_INCREF(last);
    PyObject *waiter = append_to_living(own, batch, last, of, ms);
    Py_DECREF(last);
    Py_DECREF((PyObject *)batch);
    return waiter;
}

/* Call `Accumulator.recover` and keep the exception, if there is one. */
static void recover(FastAppend *own, Fields *topic)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyObject *done = PyObject_CallFunctionObjArgs(own->objects[RECOVER], topic, NULL);
    Py_XDECREF(done);
    if (done != NULL)
        PyErr_Restore(type, error, traceback);
    else {
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(traceback);
    }
}

/* Return 1 if a record of *payload* bytes exceeds the limit of the open batch of *queue*, and only the limit. */
static int is_full(FastAppend *own, Fields *queue, Py_ssize_t payload)
{
    Fields *batch = field(queue, OPEN, own->objects[BATCH_TYPE]);
    return batch != NULL && payload <= own->largest_payload - RECORD_OVERHEAD &&
           batch->numbers[SIZE] + payload + RECORD_OVERHEAD > batch->numbers[LIMIT];
}

/* Append the record to a batch that `Accumulator.open_for` opens, or whose limit it raises. NULL without an exception: the
   general path. */
static PyObject *append_first(FastAppend *own, const Arguments *of)
{
    Py_ssize_t payload = sum(of->value == NULL ? 0 : PyBytes_Size(of->value), of->key == NULL ? 0 : PyBytes_Size(of->key));
    Fields *topic = topic_of(own, of), *queue = topic == NULL ? NULL : queue_of(own, topic, of), *batch;
    int is_sticky = of->partition == NULL && of->key == NULL && own->sticks;
    if (payload > own->largest_payload || topic == NULL || of->headers != NULL || of->timestamp_ms != NULL ||
        (queue == NULL && !is_sticky) || (queue != NULL && queue->objects[OPEN] != Py_None && !is_full(own, queue, payload)))
        return NULL;
    PyObject *size = PyLong_FromSsize_t(payload + RECORD_OVERHEAD), *at = NULL, *waiter = NULL;
    Py_INCREF((PyObject *)topic);
    if (size != NULL)
        at = PyObject_CallFunctionObjArgs(own->objects[OPEN_FOR], topic, is_sticky ? Py_None : (PyObject *)queue, size, of->kind,
                                          NULL);
    if (at != NULL && at != Py_None) {
        long long ms = PyLong_AsLongLong(at);
        if (!PyErr_Occurred() && (batch = open_batch(own, of)) != NULL)
            waiter = append_to(own, batch, of, ms);
    }
    if (waiter == NULL && at != Py_None) /* no batch stays without a record */
        recover(own, topic);
    Py_XDECREF(at);
    Py_XDECREF(size);
    Py_DECREF((PyObject *)topic);
    return waiter;
}

/* Append the record and return its waiter. NULL without an exception: the record takes the general path. */
static PyObject *append_fast(FastAppend *own, const Arguments *of)
{
    long long ms;
    int is_here;
    if (own->largest_payload < 0 || !PyUnicode_CheckExact(of->topic) || (of->value != NULL && !PyBytes_CheckExact(of->value)) ||
        (of->key != NULL && !PyBytes_CheckExact(of->key)))
        return NULL;
    if ((is_here = on_loop(own)) <= 0)
        return NULL;
    if (timestamp_of(own, of, &ms)) {
        /* From here on no Python code runs, except in the allocation of `append_to`. */
        Fields *batch = open_batch(own, of);
        PyObject *waiter = batch == NULL ? NULL : append_to(own, batch, of, ms);
        if (waiter != NULL)
            return waiter;
    }
    return PyErr_Occurred() ? NULL : append_first(own, of);
}

enum { A_KIND, A_TOPIC, A_VALUE, A_KEY, A_PARTITION, A_HEADERS, A_TIMESTAMP, A_COUNT };

static PyObject *fast_append(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    FastAppend *own = (FastAppend *)self;
    if (count != A_COUNT) {
        PyErr_Format(PyExc_TypeError, "append() takes %d arguments, not %zd", A_COUNT, count);
        return NULL;
    }
    Arguments of = {args[A_KIND],
                    args[A_TOPIC],
                    or_null(args[A_VALUE]),
                    or_null(args[A_KEY]),
                    or_null(args[A_PARTITION]),
                    args[A_HEADERS] == own->objects[NO_HEADERS] ? NULL : args[A_HEADERS],
                    or_null(args[A_TIMESTAMP])};
    PyObject *waiter = append_fast(own, &of);
    if (waiter != NULL || PyErr_Occurred())
        return waiter;
    return PyObject_CallFunctionObjArgs(own->objects[GENERAL], args[A_KIND], args[A_TOPIC], args[A_VALUE], args[A_KEY],
                                        args[A_PARTITION], args[A_HEADERS], args[A_TIMESTAMP], NULL);
}

static PyMethodDef fast_methods[] = {
    {"append", (PyCFunction)(void (*)(void))fast_append, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot fast_slots[] = {
    {Py_tp_new, fast_new},
    {Py_tp_traverse, fast_traverse},
    {Py_tp_clear, fast_clear},
    {Py_tp_dealloc, fast_dealloc},
    {Py_tp_methods, fast_methods},
    {0, NULL},
};

static PyType_Spec fast_specification = {
    .name = "aioproducer._core.intake.fast_append.FastAppend",
    .basicsize = sizeof(FastAppend),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = fast_slots,
};

int aioproducer_add_append_types(PyObject *module)
{
    return aioproducer_add_fields(module) < 0 ? -1 : aioproducer_add_type(module, &fast_specification);
}
