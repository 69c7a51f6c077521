/* The accelerator: the append of a record, loops over records, waiters, requests and responses, in C. Each function and class is
   the twin of the Python function or class of its name.

   aioproducer/_core/acceleration.py imports the accelerator if it was built and is enabled. The Python twins are the definition;
   tests/property/test_acceleration*.py compare both. Arguments of another type or size raise an exception.

   - Only the limited API of Python 3.11 is used, so one build serves all later versions.
   - Only waiters, buffers, the fields of the append path and functions with bound arguments
     (`running_loop_without_getpid`, `produce_writer`) have state.
   - Columns are copied to tuples first, except a BytesColumn, which never changes. So borrowed references stay valid when lists
     change meanwhile. Only `uniform_headers` and `RecordBuffer` read headers in place: under the GIL and without running Python
     code. Without a GIL they leave lists and dicts to Python.
   - Sizes are Py_ssize_t, and `sum` adds them without overflow.
*/
#include "_accelerator.h"
#include <stddef.h>
#include <structmember.h>

/* ---- Base classes with the fields of the append path: the twins of the classes in aioproducer/_core/acceleration.py ---- */

static int fields_traverse(PyObject *self, visitproc visit, void *arg)
{
    Fields *own = (Fields *)self;
    Py_VISIT(Py_TYPE(self));
    for (int at = 0; at < 4; at++)
        Py_VISIT(own->objects[at]);
    return 0;
}

static int fields_clear(PyObject *self)
{
    Fields *own = (Fields *)self;
    for (int at = 0; at < 4; at++)
        Py_CLEAR(own->objects[at]);
    return 0;
}

static void fields_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    PyObject_GC_UnTrack(self);
    (void)fields_clear(self);
    release(self);
    Py_DECREF(type);
}

#define OBJECT(name, at) {name, T_OBJECT_EX, offsetof(Fields, objects) + (at) * sizeof(PyObject *), 0, NULL}
#define NUMBER(name, at) {name, T_LONGLONG, offsetof(Fields, numbers) + (at) * sizeof(long long), 0, NULL}
#define LAST {NULL, 0, 0, 0, NULL}

static PyMemberDef memory_members[] = {OBJECT("waiters", WAITERS), NUMBER("free", FREE), LAST};

static PyMemberDef clock_members[] = {NUMBER("known_ms", KNOWN_MS), LAST};

static PyMemberDef lock_members[] = {{"held", T_BOOL, offsetof(Fields, flag), 0, NULL}, LAST};

static PyMemberDef topic_members[] = {
    OBJECT("append_lock", APPEND_LOCK), OBJECT("by_partition", BY_PARTITION), OBJECT("leaders", LEADERS),
    OBJECT("sticky", STICKY), LAST,
};

static PyMemberDef queue_members[] = {OBJECT("open", OPEN), LAST};

static PyMemberDef batch_members[] = {
    OBJECT("columns", COLUMNS), OBJECT("kind", KIND), OBJECT("last", LAST_WAITERS),
    NUMBER("size", SIZE), NUMBER("held", HELD), NUMBER("limit", LIMIT), LAST,
};

static const struct {
    const char *name;
    PyMemberDef *members;
} of_fields[] = {
    {"aioproducer._core.acceleration.BatchFields", batch_members}, {"aioproducer._core.acceleration.ClockFields", clock_members},
    {"aioproducer._core.acceleration.LockFields", lock_members},   {"aioproducer._core.acceleration.MemoryFields", memory_members},
    {"aioproducer._core.acceleration.QueueFields", queue_members}, {"aioproducer._core.acceleration.TopicFields", topic_members},
};

/* Return 1 if instances of *type* begin with Fields, else 0. */
int aioproducer_has_fields(PyTypeObject *type)
{
    for (; type != NULL; type = PyType_GetSlot(type, Py_tp_base))
        if (PyType_GetSlot(type, Py_tp_dealloc) == (void *)fields_dealloc)
            return 1;
    return 0;
}

int aioproducer_is_fields(PyObject *object)
{
    return aioproducer_has_fields(Py_TYPE(object));
}

/* ---- untracking(create) ---- */

static PyObject *create_untracked(PyObject *create, PyObject *args)
{
    PyObject *created = PyObject_Call(create, args, NULL);
    if (created != NULL && PyObject_GC_IsTracked(created))
        PyObject_GC_UnTrack(created);
    return created;
}

static PyMethodDef create_method = {"create", create_untracked, METH_VARARGS, NULL};

static PyObject *untracking(PyObject *module, PyObject *create)
{
    (void)module;
    return PyCFunction_NewEx(&create_method, create, NULL);
}

int aioproducer_add_type(PyObject *module, PyType_Spec *specification)
{
    PyObject *type = PyType_FromSpec(specification);
    int failed = type == NULL || PyModule_AddObjectRef(module, strrchr(specification->name, '.') + 1, type) < 0;
    Py_XDECREF(type);
    return failed ? -1 : 0;
}

int aioproducer_add_fields(PyObject *module)
{
    for (size_t at = 0; at < sizeof of_fields / sizeof *of_fields; at++) {
        PyType_Slot slots[] = {
            {Py_tp_new, PyType_GenericNew},      {Py_tp_traverse, fields_traverse},         {Py_tp_clear, fields_clear},
            {Py_tp_dealloc, fields_dealloc},     {Py_tp_members, of_fields[at].members},    {0, NULL},
        };
        PyType_Spec specification = {
            .name = of_fields[at].name,
            .basicsize = sizeof(Fields),
            .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
            .slots = slots,
        };
        if (aioproducer_add_type(module, &specification) < 0)
            return -1;
    }
    return 0;
}

/* ---- new_tuple(kind, fields) ---- */

/* `tuple.__new__` makes a tuple of the fields first, and copies it. Before Python 3.14 the zeros of the allocation are no hash. */
static PyObject *new_tuple(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (!has_arguments("new_tuple", count, 2))
        return NULL;
    if (!PyType_Check(args[0]) || !PyType_IsSubtype((PyTypeObject *)args[0], &PyTuple_Type) || !PyTuple_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "new_tuple() takes a class of tuples, and a tuple");
        return NULL;
    }
    PyObject *made = PyType_GenericAlloc((PyTypeObject *)args[0], PyTuple_Size(args[1]));
    for (Py_ssize_t at = 0; made != NULL && at < PyTuple_Size(args[1]); at++)
        if (PyTuple_SetItem(made, at, Py_NewRef(PyTuple_GetItem(args[1], at))) < 0)
            Py_CLEAR(made);
    return made;
}

/* ---- keep_freed_memory(size) ---- */

static PyObject *keep_freed_memory(PyObject *module, PyObject *size)
{
    size_t bytes = PyLong_AsSize_t(size);
    if (bytes == (size_t)-1 && PyErr_Occurred())
        return NULL;
    void *volatile block = malloc(bytes); /* volatile: a compiler would remove an unused block */
    free(block);
    (void)module;
    Py_RETURN_NONE;
}

/* ---- The module ---- */

#define FAST(function) (PyCFunction)(void (*)(void))function, METH_FASTCALL, NULL

static PyMethodDef functions[] = {
    {"acknowledgements", aioproducer_acknowledgements, METH_O, NULL},
    {"keep_freed_memory", keep_freed_memory, METH_O, NULL},
    {"key_partitions", aioproducer_key_partitions, METH_VARARGS, NULL},
    {"murmur2", aioproducer_murmur2, METH_O, NULL},
    {"new_metadata", FAST(aioproducer_new_metadata)},
    {"new_tuple", FAST(new_tuple)},
    {"produce_writer", aioproducer_produce_writer, METH_O, NULL},
    {"read_base_offsets", FAST(aioproducer_read_base_offsets)},
    {"receipts", aioproducer_receipts, METH_VARARGS, NULL},
    {"records_section", aioproducer_records_section, METH_VARARGS, NULL},
    {"running_loop_without_getpid", aioproducer_running_loop_without_getpid, METH_VARARGS, NULL},
    {"running_totals", aioproducer_running_totals, METH_O, NULL},
    {"set_outcomes", FAST(aioproducer_set_outcomes)},
    {"sizes", aioproducer_sizes, METH_VARARGS, NULL},
    {"split_columns", aioproducer_split_columns, METH_VARARGS, NULL},
    {"uniform_headers", aioproducer_uniform_headers, METH_O, NULL},
    {"untracking", untracking, METH_O, NULL},
    {"wake_each", FAST(aioproducer_wake_each)},
    {NULL, NULL, 0, NULL},
};

static int add_types(PyObject *module)
{
    int failed = aioproducer_add_append_types(module) < 0 || aioproducer_add_buffer(module) < 0;
    return failed ? -1 : aioproducer_add_column(module);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, add_types},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "aioproducer._core._accelerator",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__accelerator(void)
{
    return PyModuleDef_Init(&definition);
}
