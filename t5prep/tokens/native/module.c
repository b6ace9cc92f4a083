/* Define the Python module t5prep.tokens._native. */
#include "module.h"

#include <stdlib.h>
#include <string.h>

#include "record_parts.h"
#include "unigram.h"

typedef struct {
  PyObject_HEAD
  Model *model;
  Workspace *idle; /* as many as threads ever encoded at the same time; taken and given back while the GIL is held */
} Unigram;

PyObject *failed(int status) {
  if (status == NO_MEMORY) return PyErr_NoMemory();
  PyErr_SetString(PyExc_ValueError, status == BAD_MODEL     ? "it is no unigram model of the kind that the encoder in C knows"
                                    : status == BAD_OFFSETS ? "offsets are int64, one more than lists, growing, inside the data"
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
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", NULL, 0, row_functions, module_slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&module); }
