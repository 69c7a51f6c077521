/* The accelerator: the append of a record, loops over records, waiters, requests and responses, in C. Each function and class is
   the twin of the Python function or class of its name.

   aioproducer/_core/acceleration.py imports the accelerator if it was built and is enabled. The Python twins are the definition;
   tests/property/test_acceleration*.py compare both. Arguments of another type or size raise an exception.

   - Only the limited API of Python 3.11 is used, so one build serves all later versions.
   - Only waiters, buffers, the fields of the append path and functions with bound arguments (`factory_of`,
     `running_loop_without_getpid`, `produce_writer`) have state.
   - Columns are copied to tuples first, except a BytesColumn, which never changes. So borrowed references stay valid when lists
     change meanwhile. Only `uniform_headers` and `RecordBuffer` read headers in place: under the GIL and without running Python
     code. Without a GIL they leave lists and dicts to Python.
   - Sizes are Py_ssize_t, and `sum` adds them without overflow.
*/
#include "_accelerator.h"

#define FAST(function) (PyCFunction)(void (*)(void))function, METH_FASTCALL, NULL

static PyMethodDef functions[] = {
    {"acknowledgements", aioproducer_acknowledgements, METH_O, NULL},
    {"factory_of", aioproducer_factory_of, METH_VARARGS, NULL},
    {"keep_freed_memory", aioproducer_keep_freed_memory, METH_O, NULL},
    {"key_partitions", aioproducer_key_partitions, METH_VARARGS, NULL},
    {"measured_headers", aioproducer_measured_headers, METH_O, NULL},
    {"murmur2", aioproducer_murmur2, METH_O, NULL},
    {"new_metadata", FAST(aioproducer_new_metadata)},
    {"new_tuple", FAST(aioproducer_new_tuple)},
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
    {"untracking", aioproducer_untracking, METH_O, NULL},
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
