/* Produce requests, and answers that only acknowledge, in flexible versions: the twins of `python_produce_writer` and
   `python_read_base_offsets` in aioproducer/_core/protocol/produce.py.

   If a request has a single record, the Python twins of both cost a twentieth of the time of the record.
*/
#include "_accelerator.h"

#define UUID_SIZE 16
#define LONGEST_STRING 0x7FFF
#define USUAL_OVERHEAD 64     /* usual bytes of a request with one topic, without partitions */
#define PARTITION_OVERHEAD 12 /* maximum bytes of a partition and its share of the topic, without records */

/* ---- produce_writer(by_name) ---- */

enum { TRANSACTIONAL_ID, ACKS, TIMEOUT_MS, TOPIC_DATA, NAME, TOPIC_ID, PARTITION_DATA, INDEX, RECORDS, FIELDS };

/* Indices of the fields in TopicBatches and PartitionBatch. */
static const int places[FIELDS] = {[NAME] = 0, [TOPIC_ID] = 1, [PARTITION_DATA] = 2, [INDEX] = 0, [RECORDS] = 1};

static PyObject *field(PyObject *names, int which, PyObject *of)
{
    if (!PyTuple_Check(of))
        return PyObject_GetAttr(of, PyTuple_GetItem(names, which));
    PyObject *item = PyTuple_GetItem(of, places[which]);
    return item == NULL ? NULL : Py_NewRef(item);
}

static int does_not_fit(const char *what)
{
    PyErr_Format(PyExc_OverflowError, "%s does not fit", what);
    return -1;
}

/* Written bytes, at the start of `buf`, which has room for more. Attributes of a request may run Python code, which may resize
   `buf`, so no address of its memory is kept. */
typedef struct {
    PyObject *buf; /* a bytearray */
    Py_ssize_t end;
} Out;

/* Make room for *size* bytes and return their address, or NULL. */
static char *room(Out *out, Py_ssize_t size)
{
    Py_ssize_t need = sum(out->end, size), has = PyByteArray_Size(out->buf);
    if (need > has && PyByteArray_Resize(out->buf, need < 2 * has ? 2 * has : need) < 0)
        return NULL;
    return PyByteArray_AsString(out->buf) + out->end;
}

static int put_bytes(Out *out, const char *bytes, Py_ssize_t size)
{
    char *at = room(out, size);
    if (at == NULL)
        return -1;
    memcpy(at, bytes, (size_t)size);
    out->end += size;
    return 0;
}

static int put_compact_length(Out *out, Py_ssize_t length)
{
    char bytes[5];
    int size = 0;
    if (length >= INT32_MAX)
        return does_not_fit("a length");
    for (uint32_t rest = (uint32_t)length + 1; size == 0 || rest > 0; rest >>= 7)
        bytes[size++] = (char)((rest & 0x7F) | (rest > 0x7F ? 0x80 : 0));
    return put_bytes(out, bytes, size);
}

static int put_no_tags(Out *out)
{
    return put_bytes(out, "", 1);
}

/* `put_number`, `put_nullable_string` and `put_records` steal the reference that `field(…)` returns; NULL means an exception.
   The other functions borrow their arguments. */

static int put_number(Out *out, PyObject *number, int bytes)
{
    char encoded[8];
    long long value = number == NULL ? -1 : PyLong_AsLongLong(number);
    long long limit = 1LL << (8 * bytes - 1);
    Py_XDECREF(number);
    if (value == -1 && PyErr_Occurred())
        return -1;
    if (value < -limit || value >= limit)
        return does_not_fit("a number");
    for (int at = 0; at < bytes; at++)
        encoded[at] = (char)((uint64_t)value >> 8 * (bytes - 1 - at));
    return put_bytes(out, encoded, bytes);
}

static int put_string(Out *out, PyObject *string)
{
    Py_ssize_t size;
    const char *bytes = PyUnicode_AsUTF8AndSize(string, &size);
    if (bytes == NULL)
        return -1;
    if (size > LONGEST_STRING)
        return does_not_fit("a string");
    return put_compact_length(out, size) < 0 ? -1 : put_bytes(out, bytes, size);
}

static int put_nullable_string(Out *out, PyObject *string)
{
    int status = string == NULL ? -1 : string == Py_None ? put_compact_length(out, -1) : put_string(out, string);
    Py_XDECREF(string);
    return status;
}

static int put_records(Out *out, PyObject *records)
{
    Py_buffer view;
    int status = -1;
    if (records == Py_None)
        status = put_compact_length(out, -1);
    else if (records != NULL && PyObject_GetBuffer(records, &view, PyBUF_SIMPLE) == 0) {
        if (put_compact_length(out, view.len) == 0)
            status = put_bytes(out, view.buf, view.len);
        PyBuffer_Release(&view);
    }
    Py_XDECREF(records);
    return status;
}

/* Make room for all *partitions* at once, because a resize often copies the bytearray. The estimate may be too low. */
static int make_room(Out *out, PyObject *names, PyObject *partitions)
{
    Py_ssize_t total = 0;
    for (Py_ssize_t at = 0; at < PyTuple_Size(partitions); at++) {
        PyObject *records = field(names, RECORDS, PyTuple_GetItem(partitions, at));
        Py_ssize_t size = records == NULL || records == Py_None ? 0 : PyObject_Size(records);
        if (size < 0 || records == NULL)
            PyErr_Clear(); /* `put_partition` raises it again */
        total = sum(total, sum(size < 0 ? 0 : size, PARTITION_OVERHEAD));
        Py_XDECREF(records);
    }
    return room(out, total) == NULL ? -1 : 0;
}

static int put_partition(Out *out, PyObject *names, PyObject *partition)
{
    if (put_number(out, field(names, INDEX, partition), 4) < 0 || put_records(out, field(names, RECORDS, partition)) < 0)
        return -1;
    return put_no_tags(out);
}

/* Put the array in field *which* of *of*; *put* puts each item. */
static int put_each(Out *out, PyObject *names, int which, PyObject *of,
                    int (*put)(Out *out, PyObject *names, PyObject *item))
{
    PyObject *array = field(names, which, of), *items = array == NULL ? NULL : PySequence_Tuple(array);
    int status = items == NULL ? -1 : put_compact_length(out, PyTuple_Size(items));
    if (status == 0 && which == PARTITION_DATA)
        status = make_room(out, names, items);
    for (Py_ssize_t index = 0; status == 0 && index < PyTuple_Size(items); index++)
        status = put(out, names, PyTuple_GetItem(items, index));
    Py_XDECREF(items);
    Py_XDECREF(array);
    return status < 0 ? -1 : put_no_tags(out);
}

static int put_topic_by_name(Out *out, PyObject *names, PyObject *topic)
{
    PyObject *name = field(names, NAME, topic);
    int status = name == NULL ? -1 : put_string(out, name);
    Py_XDECREF(name);
    return status < 0 ? -1 : put_each(out, names, PARTITION_DATA, topic, put_partition);
}

static int put_topic_by_id(Out *out, PyObject *names, PyObject *topic)
{
    PyObject *id = field(names, TOPIC_ID, topic);
    int status = -1;
    if (id != NULL && PyBytes_Check(id))
        status = put_bytes(out, PyBytes_AsString(id), PyBytes_Size(id));
    else if (id != NULL)
        (void)does_not_fit("a topic id");
    Py_XDECREF(id);
    return status < 0 ? -1 : put_each(out, names, PARTITION_DATA, topic, put_partition);
}

static PyObject *write_request(PyObject *names, PyObject *const *args, Py_ssize_t count,
                               int (*put_topic)(Out *out, PyObject *names, PyObject *topic))
{
    if (!has_arguments("write", count, 2))
        return NULL;
    Out out = {args[0], 0};
    PyObject *request = args[1];
    if (!PyByteArray_Check(out.buf)) {
        PyErr_SetString(PyExc_TypeError, "write() appends to a bytearray");
        return NULL;
    }
    out.end = PyByteArray_Size(out.buf);
    if (room(&out, USUAL_OVERHEAD) == NULL || put_nullable_string(&out, field(names, TRANSACTIONAL_ID, request)) < 0 ||
        put_number(&out, field(names, ACKS, request), 2) < 0 || put_number(&out, field(names, TIMEOUT_MS, request), 4) < 0 ||
        put_each(&out, names, TOPIC_DATA, request, put_topic) < 0 || PyByteArray_Resize(out.buf, out.end) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *write_by_name(PyObject *names, PyObject *const *args, Py_ssize_t count)
{
    return write_request(names, args, count, put_topic_by_name);
}

static PyObject *write_by_id(PyObject *names, PyObject *const *args, Py_ssize_t count)
{
    return write_request(names, args, count, put_topic_by_id);
}

static PyMethodDef writer_by_name = {"write", (PyCFunction)(void (*)(void))write_by_name, METH_FASTCALL, NULL};
static PyMethodDef writer_by_id = {"write", (PyCFunction)(void (*)(void))write_by_id, METH_FASTCALL, NULL};

PyObject *aioproducer_produce_writer(PyObject *module, PyObject *by_name)
{
    int is_by_name = PyObject_IsTrue(by_name);
    static const char *const all[FIELDS] = {"transactional_id", "acks",           "timeout_ms", "topic_data", "name",
                                            "topic_id",         "partition_data", "index",      "records"};
    PyObject *names = is_by_name < 0 ? NULL : PyTuple_New(FIELDS), *write = NULL;
    for (int which = 0; names != NULL && which < FIELDS; which++) {
        PyObject *name = PyUnicode_InternFromString(all[which]);
        if (name == NULL || PyTuple_SetItem(names, which, name) < 0)
            Py_CLEAR(names);
    }
    if (names != NULL)
        write = PyCFunction_New(is_by_name ? &writer_by_name : &writer_by_id, names);
    Py_XDECREF(names);
    (void)module;
    return write;
}

/* ---- read_base_offsets(kind, payload, names) ---- */

#define RESPONSE_HEADER_SIZE 4
/* Layout of an acknowledged partition: index int32, error code int16, base offset int64, log append time int64, log start offset
   int64; then one byte each: no record errors, no message (null), no tags. */
enum {
    ERROR_CODE_AT = 4,
    BASE_OFFSET_AT = 6,
    APPENDED_AT = 14,
    START_OFFSET_AT = 22,
    NOTHING_ELSE_AT = 30,
    PARTITION_SIZE = 33
};
#define HIGHEST_BASE_OFFSET (INT64_MAX - INT32_MAX) /* of aioproducer/_core/protocol/produce.py */
static const char no_error[] = {0, 0}, nothing_else[] = {1, 0, 0};

/* The unread bytes. Reading functions return NULL or -1 without an exception if the answer has an error or further content, or is
   incomplete. The only exception is MemoryError. */
typedef struct {
    const unsigned char *at;
    Py_ssize_t left;
} Rest;

static const unsigned char *take(Rest *rest, Py_ssize_t size)
{
    const unsigned char *taken = rest->at;
    if (size > rest->left)
        return NULL;
    rest->at += size;
    rest->left -= size;
    return taken;
}

static int64_t big_endian(const unsigned char *at, int bytes)
{
    uint64_t number = at[0] & 0x80 ? UINT64_MAX : 0;
    for (int index = 0; index < bytes; index++)
        number = number << 8 | at[index];
    return (int64_t)number;
}

/* Return the length in an unsigned varint of at most 31 bits; -1 if the length is null, too large or incomplete. */
static Py_ssize_t compact_length(Rest *rest)
{
    Py_ssize_t length = 0;
    for (int shift = 0; shift <= 28; shift += 7) {
        const unsigned char *at = take(rest, 1);
        if (at == NULL || (shift == 28 && at[0] > 0x07))
            return -1;
        length |= (Py_ssize_t)(at[0] & 0x7F) << shift;
        if (at[0] <= 0x7F)
            return length - 1;
    }
    return -1;
}

static int has_no_tags(Rest *rest)
{
    const unsigned char *at = take(rest, 1);
    return at != NULL && at[0] == 0;
}

/* Return the name of the next topic. *names* is None if the answer has names, else a dict of the names by topic id. */
static PyObject *topic_name(Rest *rest, PyObject *names)
{
    Py_ssize_t size = names == Py_None ? compact_length(rest) : UUID_SIZE;
    const char *at = size < 0 ? NULL : (const char *)take(rest, size);
    if (at == NULL)
        return NULL;
    if (names == Py_None) {
        PyObject *name = PyUnicode_DecodeUTF8(at, size, NULL);
        if (name == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
            PyErr_Clear();
        return name;
    }
    PyObject *id = PyBytes_FromStringAndSize(at, size);
    PyObject *name = id == NULL ? NULL : PyDict_GetItemWithError(names, id);
    Py_XINCREF(name);
    Py_XDECREF(id);
    return name;
}

static int read_partition(Rest *rest, PyObject *name, PyObject *offsets)
{
    const unsigned char *at = take(rest, PARTITION_SIZE);
    if (at == NULL || memcmp(at + ERROR_CODE_AT, no_error, sizeof no_error) != 0 ||
        memcmp(at + NOTHING_ELSE_AT, nothing_else, sizeof nothing_else) != 0)
        return -1;
    int64_t index = big_endian(at, 4), base_offset = big_endian(at + BASE_OFFSET_AT, 8);
    int64_t appended_ms = big_endian(at + APPENDED_AT, 8), start_offset = big_endian(at + START_OFFSET_AT, 8);
    if (index < 0 || base_offset < -1 || base_offset > HIGHEST_BASE_OFFSET || appended_ms < -1 || start_offset < -1)
        return -1;
    PyObject *partition = Py_BuildValue("Oi", name, (int)index);
    PyObject *offset = Py_BuildValue("LL", (long long)base_offset, (long long)appended_ms);
    int status = partition == NULL || offset == NULL ? -1 : PyDict_SetItem(offsets, partition, offset);
    Py_XDECREF(partition);
    Py_XDECREF(offset);
    return status;
}

static int read_topic(Rest *rest, PyObject *names, PyObject *offsets)
{
    PyObject *name = topic_name(rest, names);
    Py_ssize_t count = name == NULL ? -1 : compact_length(rest);
    int status = count < 0 ? -1 : 0;
    for (Py_ssize_t index = 0; status == 0 && index < count; index++)
        status = read_partition(rest, name, offsets);
    Py_XDECREF(name);
    return status == 0 && has_no_tags(rest) ? 0 : -1;
}

/* Return a tuple of class *kind* with both. From Python 3.14 on its hash would be wrong, but no code uses the hash. */
static PyObject *answer_of(PyTypeObject *kind, int throttle_time_ms, PyObject *offsets)
{
    PyObject *throttle = PyLong_FromLong(throttle_time_ms);
    PyObject *answer = throttle == NULL ? NULL : PyType_GenericAlloc(kind, 2);
    if (answer != NULL && (PyTuple_SetItem(answer, 0, Py_NewRef(throttle)) < 0 ||
                           PyTuple_SetItem(answer, 1, Py_NewRef(offsets)) < 0))
        Py_CLEAR(answer);
    Py_XDECREF(throttle);
    return answer;
}

PyObject *aioproducer_read_base_offsets(PyObject *module, PyObject *const *args, Py_ssize_t given)
{
    if (!has_arguments("read_base_offsets", given, 3))
        return NULL;
    PyObject *kind = args[0], *payload = args[1], *names = args[2];
    if (!PyType_Check(kind) || !PyType_IsSubtype((PyTypeObject *)kind, &PyTuple_Type) || !PyBytes_Check(payload) ||
        (names != Py_None && !PyDict_Check(names))) {
        PyErr_SetString(PyExc_TypeError, "a kind of tuple is wanted, a payload of bytes, and names in a dict or None");
        return NULL;
    }
    Rest rest = {(const unsigned char *)PyBytes_AsString(payload), PyBytes_Size(payload)};
    Py_ssize_t count = take(&rest, RESPONSE_HEADER_SIZE) != NULL && has_no_tags(&rest) ? compact_length(&rest) : -1;
    PyObject *offsets = PyDict_New(), *answer = NULL;
    int status = offsets == NULL || count < 0 ? -1 : 0;
    for (Py_ssize_t index = 0; status == 0 && index < count; index++)
        status = read_topic(&rest, names, offsets);
    const unsigned char *throttle_time_ms = status == 0 ? take(&rest, 4) : NULL;
    if (throttle_time_ms != NULL && has_no_tags(&rest) && big_endian(throttle_time_ms, 4) >= 0)
        answer = answer_of((PyTypeObject *)kind, (int)big_endian(throttle_time_ms, 4), offsets);
    Py_XDECREF(offsets);
    (void)module;
    if (answer == NULL && !PyErr_Occurred())
        Py_RETURN_NONE;
    return answer == NULL ? NULL : Py_BuildValue("Nn", answer, rest.left);
}
