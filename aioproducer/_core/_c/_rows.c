/* Rows on their way in and out: the twins of what is in aioproducer/_core/murmur2.py, intake/fast_append.py,
   intake/rows.py and batching/waiters.py, where each has a `python_` before its name.
*/
#include "_records.h"

/* ---- murmur2(data), key_partitions(keys, partition_count) ---- */

#define MULTIPLIER 0x5BD1E995u

/* Kafka's murmur2: see aioproducer/_core/murmur2.py. */
static uint32_t hash_of(const unsigned char *data, size_t length)
{
    uint32_t h = 0x9747B28Cu ^ (uint32_t)length;
    for (; length >= 4; data += 4, length -= 4) {
        uint32_t k = data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
        k *= MULTIPLIER;
        h = h * MULTIPLIER ^ (k ^ k >> 24) * MULTIPLIER;
    }
    if (length > 0) {
        for (size_t place = 0; place < length; place++)
            h ^= (uint32_t)data[place] << 8 * place;
        h *= MULTIPLIER;
    }
    h = (h ^ h >> 13) * MULTIPLIER;
    return h ^ h >> 15;
}

PyObject *aioproducer_key_partitions(PyObject *module, PyObject *args)
{
    PyObject *keys;
    int partition_count;
    if (!PyArg_ParseTuple(args, "Oi:key_partitions", &keys, &partition_count))
        return NULL;
    if (partition_count < 1) {
        PyErr_SetString(PyExc_ZeroDivisionError, "a topic has at least one partition");
        return NULL;
    }
    Column column;
    Field key;
    if (column_init(&column, keys, -1) < 0)
        return NULL;
    Py_ssize_t count = column_length(&column);
    PyObject *chosen = PyList_New(count);
    for (Py_ssize_t index = 0; chosen != NULL && index < count; index++) {
        PyObject *partition = NULL;
        if (column_field(&column, index, &key) == 0 && key.size < 0)
            PyErr_SetString(PyExc_TypeError, "a key must be bytes");
        else if (!PyErr_Occurred())
            partition = PyLong_FromLong(
                (long)((hash_of((unsigned char *)key.data, (size_t)key.size) & 0x7FFFFFFF) % (uint32_t)partition_count));
        if (partition == NULL || PyList_SetItem(chosen, index, partition) < 0)
            Py_CLEAR(chosen);
    }
    Py_DECREF(column.items);
    return chosen;
}

/* Return the partition of *key*, which is bytes, by Kafka's default partitioner. */
Py_ssize_t aioproducer_partition_of(PyObject *key, Py_ssize_t partition_count)
{
    const unsigned char *data = (unsigned char *)PyBytes_AsString(key);
    return (Py_ssize_t)(hash_of(data, (size_t)PyBytes_Size(key)) & 0x7FFFFFFF) % partition_count;
}

PyObject *aioproducer_murmur2(PyObject *module, PyObject *data)
{
    char *bytes;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(data, &bytes, &size) < 0)
        return NULL;
    return PyLong_FromLong((long)(int32_t)hash_of((unsigned char *)bytes, (size_t)size));
}

/* ---- measured_headers(headers) ---- */

/* Size of headers that take the general path; of aioproducer/_core/intake/fast_append.py. */
#define OTHER ((long long)1 << 62)

/* Return the size of a header in a small record, 0 for another type, -1 with an exception. */
static Py_ssize_t header_size(PyObject *pair)
{
    Py_ssize_t size;
    if (!PyTuple_CheckExact(pair) || PyTuple_Size(pair) != 2)
        return 0;
    PyObject *name = PyTuple_GetItem(pair, 0), *data = PyTuple_GetItem(pair, 1);
    if (!PyUnicode_CheckExact(name) || (data != Py_None && !PyBytes_CheckExact(data)))
        return 0;
    if (PyUnicode_AsUTF8AndSize(name, &size) == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
            return -1;
        PyErr_Clear();
        return 0;
    }
    size = sum(size, varint_size(size) + HEADER_OVERHEAD);
    return sum(size, data == Py_None ? 0 : PyBytes_Size(data));
}

PyObject *aioproducer_measured_headers(PyObject *module, PyObject *headers)
{
    PyObject *pairs = NULL;
    Py_ssize_t size = 1, total = 0;
    if (PyDict_CheckExact(headers)) {
        PyObject *items = PyDict_Items(headers);
        pairs = items == NULL ? NULL : PyList_AsTuple(items);
        Py_XDECREF(items);
    } else if (PyList_CheckExact(headers) || PyTuple_CheckExact(headers)) {
        pairs = PySequence_Tuple(headers);
    } else {
        return Py_BuildValue("()L", OTHER);
    }
    for (Py_ssize_t at = 0; pairs != NULL && size > 0 && at < PyTuple_Size(pairs); at++) {
        size = header_size(PyTuple_GetItem(pairs, at));
        total = sum(total, size);
    }
    if (pairs != NULL && size > 0)
        return Py_BuildValue("Nn", pairs, total);
    Py_XDECREF(pairs);
    return pairs == NULL || size < 0 ? NULL : Py_BuildValue("()L", OTHER);
}

/* ---- uniform_headers(headers) ---- */

/* Without a GIL another thread may change lists and dicts, so only tuples are read. */
#ifdef Py_GIL_DISABLED
#define LISTS_STAY 0
#else
#define LISTS_STAY 1
#endif

/* A header of a record: borrowed references. */
typedef struct {
    PyObject *name;
    PyObject *data;
} Header;

/* Read a pair; return 1 if its name and value have plain types. */
static int is_plain(PyObject *pair, Header *header)
{
    if (PyTuple_CheckExact(pair) && PyTuple_Size(pair) == 2)
        *header = (Header){PyTuple_GetItem(pair, 0), PyTuple_GetItem(pair, 1)};
    else if (LISTS_STAY && PyList_CheckExact(pair) && PyList_Size(pair) == 2)
        *header = (Header){PyList_GetItem(pair, 0), PyList_GetItem(pair, 1)};
    else
        return 0;
    return PyUnicode_CheckExact(header->name) && (header->data == Py_None || PyBytes_CheckExact(header->data));
}

/* Return the number of headers of a record; -1 for another type. */
static Py_ssize_t width_of(PyObject *record)
{
    if (PyTuple_CheckExact(record))
        return PyTuple_Size(record);
    if (LISTS_STAY && PyDict_CheckExact(record))
        return PyDict_Size(record);
    return LISTS_STAY && PyList_CheckExact(record) ? PyList_Size(record) : -1;
}

/* Look up the next header of a record; *place* counts them, *position* is where a dict goes on. */
static int next_header(PyObject *record, Py_ssize_t place, Py_ssize_t *position, Header *header)
{
    if (PyDict_CheckExact(record))
        return PyDict_Next(record, position, &header->name, &header->data) && PyUnicode_CheckExact(header->name) &&
               (header->data == Py_None || PyBytes_CheckExact(header->data));
    return is_plain(PyList_CheckExact(record) ? PyList_GetItem(record, place) : PyTuple_GetItem(record, place), header);
}

static int same_name(PyObject *left, PyObject *right)
{
    return left == right || PyUnicode_Compare(left, right) == 0;
}

/* Put the values of a record into *columns*, a list of pairs of name and values; return whether they fit there.
   Nothing is allocated here, so no other code can change a record meanwhile. */
static int put_headers(PyObject *columns, PyObject *record, Py_ssize_t index)
{
    Py_ssize_t position = 0;
    Header header;
    for (Py_ssize_t place = 0; place < PyList_Size(columns); place++) {
        PyObject *column = PyList_GetItem(columns, place);
        if (!next_header(record, place, &position, &header) || !same_name(PyTuple_GetItem(column, 0), header.name) ||
            PyTuple_SetItem(PyTuple_GetItem(column, 1), index, Py_NewRef(header.data)) < 0)
            return 0;
    }
    return 1;
}

/* Return pairs of the names that a record has and room for *count* values; Py_None if those are no names. */
static PyObject *room_for_headers(PyObject *record, Py_ssize_t count)
{
    PyObject *columns = PyList_New(0);
    Py_ssize_t position = 0, width = width_of(record), size;
    Header header;
    for (Py_ssize_t place = 0; columns != NULL && place < width; place++) {
        int plain = width_of(record) == width && next_header(record, place, &position, &header);
        PyObject *name = plain ? Py_NewRef(header.name) : NULL, *column = NULL;
        if (name != NULL && PyUnicode_AsUTF8AndSize(name, &size) != NULL)
            column = Py_BuildValue("(ON)", name, PyTuple_New(count));
        Py_XDECREF(name);
        if (column == NULL || PyList_Append(columns, column) < 0)
            Py_CLEAR(columns);
        Py_XDECREF(column);
    }
    if (columns == NULL && (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))) {
        PyErr_Clear();
        return Py_NewRef(Py_None);
    }
    return columns;
}

PyObject *aioproducer_uniform_headers(PyObject *module, PyObject *headers)
{
    PyObject *records = tuple_of(headers, -1);
    Py_ssize_t count = records == NULL ? 0 : PyTuple_Size(records);
    if (records == NULL || count == 0 || width_of(PyTuple_GetItem(records, 0)) < 0) {
        Py_XDECREF(records);
        return records == NULL ? NULL : Py_NewRef(Py_None);
    }
    PyObject *first = PyTuple_GetItem(records, 0), *columns = room_for_headers(first, count);
    for (Py_ssize_t index = 0; columns != NULL && columns != Py_None && index < count; index++) {
        PyObject *record = PyTuple_GetItem(records, index);
        if (PyDict_CheckExact(record) != PyDict_CheckExact(first) || width_of(record) != PyList_Size(columns) ||
            !put_headers(columns, record, index)) {
            Py_DECREF(columns);
            columns = PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
        }
    }
    Py_DECREF(records);
    return columns;
}

/* ---- new_metadata(kind, topic, partition, base_offset, timestamps, log_append_time) ---- */

static int may_refer_to_others(PyObject *field)
{
    return !PyUnicode_CheckExact(field) && !PyLong_CheckExact(field) && !PyBool_Check(field);
}

static PyObject *fill(PyObject *metadata, PyObject *const fields[METADATA_FIELDS])
{
    for (Py_ssize_t at = 0; metadata != NULL && at < METADATA_FIELDS; at++)
        if (PyTuple_SetItem(metadata, at, Py_NewRef(fields[at])) < 0)
            Py_CLEAR(metadata);
    return metadata;
}

/* From Python 3.14 on a tuple stores its hash, which only `tuple.__new__` leaves unset. */
static PyObject *metadata_with_hash(PyTypeObject *kind, PyObject *const fields[METADATA_FIELDS])
{
    newfunc make = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
    PyObject *tuple = fill(PyTuple_New(METADATA_FIELDS), fields);
    PyObject *args = tuple == NULL ? NULL : PyTuple_Pack(1, tuple), *made = args == NULL ? NULL : make(kind, args, NULL);
    Py_XDECREF(args);
    Py_XDECREF(tuple);
    return made;
}

/* Before Python 3.14 the items follow the header of a tuple. PyTuple_SetItem would check each item, and expects NULL there. */
static PyObject *metadata_without_hash(PyTypeObject *kind, PyObject *const fields[METADATA_FIELDS])
{
    PyVarObject *made = PyObject_GC_NewVar(PyVarObject, kind, METADATA_FIELDS);
    PyObject **items = (PyObject **)(made + 1);
    for (Py_ssize_t at = 0; made != NULL && at < METADATA_FIELDS; at++)
        items[at] = Py_NewRef(fields[at]);
    return (PyObject *)made;
}

/* Metadata whose fields cannot lead back to it need no garbage collector. */
PyObject *aioproducer_metadata_of(PyTypeObject *kind, PyObject *const fields[METADATA_FIELDS])
{
    const int has_hash = Py_Version >= 0x030E0000;
    PyObject *metadata = has_hash ? metadata_with_hash(kind, fields) : metadata_without_hash(kind, fields);
    int must_be_tracked = 0;
    for (Py_ssize_t at = 0; at < METADATA_FIELDS; at++)
        must_be_tracked = must_be_tracked || may_refer_to_others(fields[at]);
    if (metadata != NULL && has_hash && !must_be_tracked)
        PyObject_GC_UnTrack(metadata);
    if (metadata != NULL && !has_hash && must_be_tracked)
        PyObject_GC_Track(metadata);
    return metadata;
}

PyObject *aioproducer_new_metadata(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (!has_arguments("new_metadata", count, 6))
        return NULL;
    PyObject *kind = args[0], *topic = args[1], *partition = args[2], *log_append = args[5];
    long long base = PyLong_AsLongLong(args[3]);
    if (base == -1 && PyErr_Occurred())
        return NULL;
    if (!PyType_Check(kind) || !PyType_IsSubtype((PyTypeObject *)kind, &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "metadata are tuples");
        return NULL;
    }
    PyObject *timestamps = PySequence_Tuple(args[4]);
    if (timestamps != NULL && base > INT64_MAX - PyTuple_Size(timestamps)) {
        PyErr_SetString(PyExc_OverflowError, "there are no such offsets");
        Py_CLEAR(timestamps);
    }
    PyObject *all = timestamps == NULL ? NULL : PyList_New(PyTuple_Size(timestamps));
    for (Py_ssize_t index = 0; all != NULL && index < PyTuple_Size(timestamps); index++) {
        PyObject *offset = PyLong_FromLongLong(base < 0 ? -1 : base + index);
        PyObject *const fields[METADATA_FIELDS] = {topic, partition, offset, PyTuple_GetItem(timestamps, index),
                                                   log_append};
        PyObject *metadata = offset == NULL ? NULL : aioproducer_metadata_of((PyTypeObject *)kind, fields);
        Py_XDECREF(offset);
        if (metadata == NULL || PyList_SetItem(all, index, metadata) < 0)
            Py_CLEAR(all);
    }
    (void)module;
    Py_XDECREF(timestamps);
    return all;
}
