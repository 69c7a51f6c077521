/* Fields of the append path: base classes of the classes in Python, which _append.c reads and changes. */
#ifndef AIOPRODUCER_APPEND_H
#define AIOPRODUCER_APPEND_H

#include "_accelerator.h"

/* All base classes share one layout, so a wrong class leads to a wrong value and never to a wrong pointer. */
typedef struct {
    PyObject_HEAD
    PyObject *objects[4];
    long long numbers[3];
    char flag;
} Fields;

enum { WAITERS };                                     /* objects of MemoryFields */
enum { FREE };                                        /* numbers of MemoryFields */
enum { KNOWN_MS };                                    /* numbers of ClockFields */
enum { APPEND_LOCK, BY_PARTITION, LEADERS, STICKY };  /* objects of TopicFields */
enum { OPEN };                                        /* objects of QueueFields */
enum { COLUMNS, KIND, LAST_WAITERS };                 /* objects of BatchFields */
enum { SIZE, HELD, LIMIT };                           /* numbers of BatchFields */

/* _append_fields.c */
int aioproducer_add_fields(PyObject *module);
int aioproducer_add_type(PyObject *module, PyType_Spec *specification);
int aioproducer_has_fields(PyTypeObject *type);
int aioproducer_is_fields(PyObject *object);

#endif
