/* Loops over columns of records: the twins of `python_` functions in aioproducer/_core/murmur2.py, intake/rows.py,
   batching/waiters.py, records/columns.py and records/record_batch.py.
*/
#include "_records.h"

/* ---- sizes(values, keys, headers) ---- */

static PyObject *size_bound(const Columns *columns, Py_ssize_t index)
{
    Measures record;
    if (measure(columns, index, &record) < 0)
        return NULL;
    Py_ssize_t large = LARGE_RECORD_OVERHEAD + (LARGE_HEADER_OVERHEAD - HEADER_OVERHEAD) * record.headers;
    return PyLong_FromSsize_t(sum(record.payload, record.payload < SMALL_PAYLOAD ? RECORD_OVERHEAD : large));
}

PyObject *aioproducer_sizes(PyObject *module, PyObject *args)
{
    PyObject *values, *keys, *headers;
    Columns columns;
    if (!PyArg_ParseTuple(args, "OOO:sizes", &values, &keys, &headers) ||
        columns_init(&columns, values, keys, headers) < 0)
        return NULL;
    PyObject *bounds = PyList_New(columns.count);
    for (Py_ssize_t index = 0; bounds != NULL && index < columns.count; index++) {
        PyObject *bound = size_bound(&columns, index);
        if (bound == NULL || PyList_SetItem(bounds, index, bound) < 0)
            Py_CLEAR(bounds);
    }
    columns_clear(&columns);
    return bounds;
}

/* ---- running_totals(sizes) ---- */

/* Return the totals as an array: no object per record. */
PyObject *aioproducer_running_totals(PyObject *module, PyObject *sizes)
{
    (void)module;
    PyObject *column = tuple_of(sizes, -1), *totals = NULL;
    Py_ssize_t count = column == NULL ? 0 : PyTuple_Size(column);
    PyObject *bytes = column == NULL ? NULL : PyBytes_FromStringAndSize(NULL, (count + 1) * (Py_ssize_t)sizeof(int64_t));
    int64_t total = 0;
    for (Py_ssize_t index = 0; bytes != NULL && index <= count; index++) {
        memcpy(PyBytes_AsString(bytes) + index * (Py_ssize_t)sizeof total, &total, sizeof total);
        Py_ssize_t size = index < count ? PyLong_AsSsize_t(PyTuple_GetItem(column, index)) : 0;
        if (size == -1 && PyErr_Occurred())
            Py_CLEAR(bytes);
        total = sum((Py_ssize_t)total, size);
    }
    PyObject *arrays = bytes == NULL ? NULL : PyImport_ImportModule("array");
    if (arrays != NULL)
        totals = PyObject_CallMethod(arrays, "array", "sO", "q", bytes);
    Py_XDECREF(arrays);
    Py_XDECREF(bytes);
    Py_XDECREF(column);
    return totals;
}

/* ---- records_section(values, keys, headers, timestamps, room) ---- */

/* The timestamp delta is computed once per object: records of one loop iteration share their timestamp. */
typedef struct {
    PyObject *first;
    PyObject *last; /* the last timestamp */
    int64_t delta;  /* difference of the last timestamp from the first, in milliseconds */
} Timestamps;

static int set_delta(Timestamps *timestamps, PyObject *own)
{
    if (own == timestamps->last)
        return 0;
    int64_t from = PyLong_AsLongLong(timestamps->first), to = PyLong_AsLongLong(own);
    if ((from == -1 || to == -1) && PyErr_Occurred())
        return -1;
    timestamps->last = own;
    return delta_or_error(from, to, &timestamps->delta);
}

static int measure_body(const Columns *columns, Timestamps *timestamps, PyObject *own, Py_ssize_t index, Body *body)
{
    Measures record;
    if (set_delta(timestamps, own) < 0 || measure(columns, index, &record) < 0)
        return -1;
    body->delta = timestamps->delta;
    body->size = sum(record.fields, 1 + varint_size(body->delta) + varint_size(index) + varint_size(record.headers));
    return 0;
}

static PyObject *section_of(const Columns *columns, PyObject *timestamps, Py_ssize_t room, Body *bodies)
{
    Py_ssize_t total = room;
    PyObject *first = columns->count > 0 ? PyTuple_GetItem(timestamps, 0) : NULL;
    Timestamps known = {first, first, 0};
    for (Py_ssize_t index = 0; index < columns->count; index++) {
        Body *body = &bodies[index];
        if (measure_body(columns, &known, PyTuple_GetItem(timestamps, index), index, body) < 0)
            return NULL;
        total = sum(total, sum(varint_size(body->size), body->size));
    }
    PyObject *section = total == PY_SSIZE_T_MAX ? PyErr_NoMemory() : PyByteArray_FromStringAndSize(NULL, total);
    if (section == NULL)
        return NULL;
    char *at = PyByteArray_AsString(section);
    memset(at, 0, (size_t)room);
    at += room;
    for (Py_ssize_t index = 0; index < columns->count; index++)
        at = put_record(at, columns, index, index, bodies[index]);
    return section;
}

PyObject *aioproducer_records_section(PyObject *module, PyObject *args)
{
    PyObject *values, *keys, *headers, *timestamps, *section = NULL;
    Py_ssize_t room;
    Columns columns;
    if (!PyArg_ParseTuple(args, "OOOOn:records_section", &values, &keys, &headers, &timestamps, &room) ||
        columns_init(&columns, values, keys, headers) < 0)
        return NULL;
    Body *bodies = PyMem_Calloc((size_t)columns.count, sizeof *bodies);
    timestamps = bodies == NULL ? PyErr_NoMemory() : tuple_of(timestamps, columns.count);
    if (timestamps != NULL)
        section = section_of(&columns, timestamps, room < 0 ? 0 : room, bodies);
    Py_XDECREF(timestamps);
    PyMem_Free(bodies);
    columns_clear(&columns);
    return section;
}

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

/* ---- uniform_headers(headers) ---- */

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

/* Look up the next header of a record; *place* is its number, *position* the state of the iteration over a dict. */
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

/* Put the values of a record into *columns*, a list of pairs of name and values; return 1 if all names match.
   This function allocates no object, so no other code can change the record meanwhile. */
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

/* Return a pair per header of a record: the name, and a tuple for *count* values. Py_None if a name is invalid. */
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

static PyObject *fill_metadata(PyObject *metadata, PyObject *const fields[METADATA_FIELDS])
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
    PyObject *tuple = fill_metadata(PyTuple_New(METADATA_FIELDS), fields);
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

/* The garbage collector visits metadata only if a field may refer to another object. */
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
