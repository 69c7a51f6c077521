/* Base classes with the fields of the append path: the twins of the classes in aioproducer/_core/append_fields.py. */
#include "_append.h"
#include <stddef.h>
#include <structmember.h>

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
    {"aioproducer._core.append_fields.BatchFields", batch_members}, {"aioproducer._core.append_fields.ClockFields", clock_members},
    {"aioproducer._core.append_fields.LockFields", lock_members},   {"aioproducer._core.append_fields.MemoryFields", memory_members},
    {"aioproducer._core.append_fields.QueueFields", queue_members}, {"aioproducer._core.append_fields.TopicFields", topic_members},
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

PyObject *aioproducer_untracking(PyObject *module, PyObject *create)
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
