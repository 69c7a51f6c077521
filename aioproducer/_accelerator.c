/* The accelerator: loops over records, what their tasks await, the requests that take them and the answers, in C. Each
   function does what the Python function of its name does.

   aioproducer/acceleration.py imports it, if it was built and is wanted. The Python functions say what is meant, and
   tests/property/test_acceleration*.py compare the two. Most are called with what was checked before; anything else raises an
   exception all the same: no type and no size is taken for granted here.

   - Only the limited API of Python 3.11, so one build serves all later ones.
   - No state besides the module, but in what waits for records, in the records of a batch, and in functions that are made of what they always need
     (`factory_of`, `running_loop_without_getpid`, `produce_writer`). Columns are copied to tuples first: what is in a tuple stays there, so references borrowed from it are good, whoever changes the
     lists meanwhile (bytes, str and tuples do not change). Only `uniform_headers` reads the headers of a record where they
     are, while it holds the GIL and allocates nothing; without a GIL it leaves lists and dicts to Python.
   - Sizes are Py_ssize_t, and added by `sum`, which does not overflow.
*/
#include "_accelerator.h"

static PyMethodDef functions[] = {
    {"acknowledgements", aioproducer_acknowledgements, METH_O, NULL},
    {"factory_of", aioproducer_factory_of, METH_VARARGS, NULL},
    {"keep_freed_memory", aioproducer_keep_freed_memory, METH_O, NULL},
    {"key_partitions", aioproducer_key_partitions, METH_VARARGS, NULL},
    {"measured_headers", aioproducer_measured_headers, METH_O, NULL},
    {"murmur2", aioproducer_murmur2, METH_O, NULL},
    {"new_metadata", aioproducer_new_metadata, METH_VARARGS, NULL},
    {"produce_writer", aioproducer_produce_writer, METH_O, NULL},
    {"read_base_offsets", aioproducer_read_base_offsets, METH_VARARGS, NULL},
    {"receipts", aioproducer_receipts, METH_VARARGS, NULL},
    {"records_section", aioproducer_records_section, METH_VARARGS, NULL},
    {"running_loop_without_getpid", aioproducer_running_loop_without_getpid, METH_VARARGS, NULL},
    {"set_outcomes", aioproducer_set_outcomes, METH_VARARGS, NULL},
    {"sizes", aioproducer_sizes, METH_VARARGS, NULL},
    {"split_columns", aioproducer_split_columns, METH_VARARGS, NULL},
    {"uniform_headers", aioproducer_uniform_headers, METH_O, NULL},
    {"wake_each", aioproducer_wake_each, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static int add_types(PyObject *module)
{
    return aioproducer_add_append_types(module) < 0 ? -1 : aioproducer_add_buffer(module);
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
    .m_name = "aioproducer._accelerator",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__accelerator(void)
{
    return PyModuleDef_Init(&definition);
}
