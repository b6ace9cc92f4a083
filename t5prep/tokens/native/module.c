/* Define the Python module t5prep.tokens._native. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <stdlib.h>
#include <string.h>

#include "lists.h"
#include "records.h"
#include "unigram.h"

typedef struct {
  PyObject_HEAD
  Model *model;
  Workspace *idle; /* as many as threads ever encoded at the same time; taken and given back while the GIL is held */
} Unigram;

static PyObject *failed(int status) {
  if (status == NO_MEMORY) return PyErr_NoMemory();
  PyErr_SetString(PyExc_ValueError, status == BAD_MODEL     ? "it is no unigram model of the kind that the encoder in C knows"
                                    : status == BAD_OFFSETS ? "offsets are int64, one more than texts, growing, inside the data"
                                                            : "a text is too long");
  return NULL;
}

static PyObject *unigram_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"model", NULL};
  Py_buffer proto;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*", names, &proto)) return NULL;
  allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  Unigram *self = (Unigram *)allocate(type, 0);
  int status = NO_MEMORY;
  if (self && (self->model = PyMem_Calloc(1, sizeof(Model)))) {
    Py_BEGIN_ALLOW_THREADS
    status = model_load(self->model, proto.buf, (size_t)proto.len);
    Py_END_ALLOW_THREADS
  }
  PyBuffer_Release(&proto);
  if (status == OK) return (PyObject *)self;
  if (self && self->model) {
    PyMem_Free(self->model);
    self->model = NULL;
  }
  Py_XDECREF((PyObject *)self);
  return failed(status);
}

static void unigram_dealloc(PyObject *object) {
  Unigram *self = (Unigram *)object;
  PyTypeObject *type = Py_TYPE(object);
  while (self->idle) {
    Workspace *work = self->idle;
    self->idle = work->next;
    workspace_free(work);
  }
  if (self->model) {
    model_free(self->model);
    PyMem_Free(self->model);
  }
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(object);
  Py_DECREF(type);
}

static int64_t number_at(const void *numbers, size_t i) {
  int64_t number;
  memcpy(&number, (const char *)numbers + i * sizeof number, sizeof number); /* buffers need not be aligned */
  return number;
}

/* Encode `count` texts; ends[i + 1] is the number of ids of the first i + 1 texts. */
static int encode_all(const Model *model, Workspace *work, const Py_buffer *data, const void *offsets, size_t count, char *ends) {
  int64_t start = number_at(offsets, 0), ids = 0;
  work->count = 0;
  memcpy(ends, &ids, sizeof ids);
  for (size_t i = 0; i < count; i++) {
    int64_t end = number_at(offsets, i + 1);
    if (start < 0 || end < start || end > (int64_t)data->len) return BAD_OFFSETS;
    int status = encode(model, work, (const uint8_t *)data->buf + start, (size_t)(end - start));
    if (status != OK) return status;
    ids = (int64_t)work->count;
    memcpy(ends + (i + 1) * sizeof ids, &ids, sizeof ids);
    start = end;
  }
  return OK;
}

static PyObject *encode_buffers(Unigram *self, const Py_buffer *data, const Py_buffer *offsets) {
  if (offsets->len < 8 || offsets->len % 8) return failed(BAD_OFFSETS);
  size_t count = (size_t)offsets->len / 8 - 1;
  PyObject *ends = PyBytes_FromStringAndSize(NULL, offsets->len), *ids = NULL;
  if (!ends) return NULL;
  Workspace *work = self->idle;
  if (work) self->idle = work->next;
  else work = workspace_new();
  int status = NO_MEMORY;
  if (work) {
    char *out = PyBytes_AsString(ends);
    Py_BEGIN_ALLOW_THREADS
    status = encode_all(self->model, work, data, offsets->buf, count, out);
    Py_END_ALLOW_THREADS
    if (status == OK) ids = PyBytes_FromStringAndSize((const char *)work->ids, (Py_ssize_t)(work->count * sizeof *work->ids));
    work->next = self->idle;
    self->idle = work;
  }
  PyObject *both = ids ? PyTuple_Pack(2, ids, ends) : status == OK ? NULL : failed(status);
  Py_XDECREF(ids);
  Py_DECREF(ends);
  return both;
}

PyDoc_STRVAR(encode_doc,
             "encode(data, offsets)\n--\n\n"
             "Return the ids of texts as bytes of int32[total], and as bytes of int64[texts + 1] where each text's begin.\n\n"
             "`data` holds UTF-8 and `offsets`, int64[texts + 1], where in it each text begins.");

static PyObject *unigram_encode(PyObject *object, PyObject *args) {
  Py_buffer data, offsets;
  if (!PyArg_ParseTuple(args, "y*y*", &data, &offsets)) return NULL;
  PyObject *both = encode_buffers((Unigram *)object, &data, &offsets);
  PyBuffer_Release(&data);
  PyBuffer_Release(&offsets);
  return both;
}

/* Check whether a buffer holds complete, aligned numbers of `size` bytes. */
static int holds(const Py_buffer *buffer, size_t size) {
  return (size_t)buffer->len % size == 0 && (uintptr_t)buffer->buf % size == 0;
}

static PyObject *write_batch(Batch *batch, size_t rows) {
  Buffer out = {NULL, 0, 0};
  PyObject *sizes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(batch->count * sizeof(uint32_t))), *data = NULL, *both = NULL;
  uint32_t *room = malloc(batch->count * sizeof *room + 1);
  int status = NO_MEMORY;
  if (sizes && room) {
    Py_BEGIN_ALLOW_THREADS
    status = records_write(batch, rows, &out, room);
    Py_END_ALLOW_THREADS
  }
  if (status == OK) {
    memcpy(PyBytes_AsString(sizes), room, batch->count * sizeof *room);
    data = PyBytes_FromStringAndSize((const char *)out.bytes, (Py_ssize_t)out.size);
    if (data) both = PyTuple_Pack(2, data, sizes);
  } else {
    failed(status);
  }
  free(room);
  free(out.bytes);
  Py_XDECREF(data);
  Py_XDECREF(sizes);
  return both;
}

PyDoc_STRVAR(records_doc,
             "write_records(ids, id_starts, inputs, input_starts, labels, label_starts, order, lengths, pads, masks)\n--\n\n"
             "Return framed records as bytes, one after the other, and how many bytes each has as bytes of uint32[records].\n\n"
             "`ids` holds UTF-8, `inputs` and `labels` int32 token ids; the starts, int64[rows + 1], say where those of each row\n"
             "begin. Record i is made of row `order[i]`, int64[records]. `lengths` are what both sides are filled up to with their\n"
             "`pads`, 0 for not at all; `masks` writes a mask of each side too.");

static PyObject *write_records(PyObject *module, PyObject *args) {
  Py_buffer b[7];
  long long lengths[2], pads[2];
  int masks;
  (void)module;
  if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*y*(LL)(LL)p", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5], &b[6], &lengths[0],
                        &lengths[1], &pads[0], &pads[1], &masks))
    return NULL;
  PyObject *both = NULL;
  size_t rows = (size_t)b[1].len / 8;
  int whole = holds(&b[1], 8) && holds(&b[2], 4) && holds(&b[3], 8) && holds(&b[4], 4) && holds(&b[5], 8) && holds(&b[6], 8);
  if (!whole || !rows || b[3].len != b[1].len || b[5].len != b[1].len || lengths[0] < 0 || lengths[1] < 0 ||
      lengths[0] > INT32_MAX || lengths[1] > INT32_MAX || (masks && (!lengths[0] || !lengths[1]))) {
    failed(BAD_OFFSETS);
  } else {
    Lists inputs = {"input_ids", masks ? "attention_mask" : NULL, b[2].buf, b[3].buf, b[2].len / 4, lengths[0], pads[0]};
    Lists labels = {"labels", masks ? "decoder_attention_mask" : NULL, b[4].buf, b[5].buf, b[4].len / 4, lengths[1], pads[1]};
    Batch batch = {b[0].buf, b[1].buf, b[0].len, inputs, labels, b[6].buf, (size_t)b[6].len / 8};
    both = write_batch(&batch, rows - 1);
  }
  for (int i = 0; i < 7; i++) PyBuffer_Release(&b[i]);
  return both;
}

PyDoc_STRVAR(copy_doc,
             "copy_lists(source, begins, target, places, lengths)\n--\n\n"
             "Copy `lengths[i]` ids from `source[begins[i]]` on to `target[places[i]]` on, for each i: int32 ids, int64 numbers.");

static PyObject *copy_lists(PyObject *module, PyObject *args) {
  Py_buffer b[5];
  (void)module;
  if (!PyArg_ParseTuple(args, "y*y*w*y*y*", &b[0], &b[1], &b[2], &b[3], &b[4])) return NULL;
  int status = BAD_OFFSETS;
  if (holds(&b[0], 4) && holds(&b[1], 8) && holds(&b[2], 4) && holds(&b[3], 8) && holds(&b[4], 8) && b[1].len == b[3].len &&
      b[1].len == b[4].len) {
    Py_BEGIN_ALLOW_THREADS
    status = lists_copy(b[0].buf, b[0].len / 4, b[1].buf, b[2].buf, b[2].len / 4, b[3].buf, b[4].buf, (size_t)b[1].len / 8);
    Py_END_ALLOW_THREADS
  }
  for (int i = 0; i < 5; i++) PyBuffer_Release(&b[i]);
  if (status != OK) return failed(status);
  Py_RETURN_NONE;
}

static PyMethodDef functions[] = {{"write_records", write_records, METH_VARARGS, records_doc},
                                  {"copy_lists", copy_lists, METH_VARARGS, copy_doc},
                                  {NULL, NULL, 0, NULL}};
static PyMethodDef methods[] = {{"encode", unigram_encode, METH_VARARGS, encode_doc}, {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {{Py_tp_doc, "A SentencePiece unigram model: Unigram(serialized_model)"},
                              {Py_tp_new, unigram_new},
                              {Py_tp_dealloc, unigram_dealloc},
                              {Py_tp_methods, methods},
                              {0, NULL}};

static PyType_Spec spec = {"t5prep.tokens._native.Unigram", sizeof(Unigram), 0, Py_TPFLAGS_DEFAULT, slots};

static int execute(PyObject *module) {
  crc_prepare();
  PyObject *type = PyType_FromSpec(&spec);
  int status = type ? PyModule_AddObjectRef(module, "Unigram", type) : -1;
  Py_XDECREF(type);
  return status;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, execute}, {0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", NULL, 0, functions, module_slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&module); }
