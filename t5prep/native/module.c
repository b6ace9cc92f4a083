/* Define the Python module t5prep._native, and how its functions take arrays. */
#include "module.h"

#include "records.h"
#include "unigram.h"

PyObject *failed(int status) {
  if (status == NO_MEMORY) return PyErr_NoMemory();
  PyErr_SetString(PyExc_ValueError, status == BAD_MODEL   ? "it is no unigram model of the kind that the encoder in C knows"
                                    : status == BAD_OFFSETS ? "the arrays do not fit each other: offsets are int64, one more than lists, growing, inside the data"
                                                          : "a text is too long, or not of the kind that is done in C");
  return NULL;
}

static void release(Array *array) {
  if (array->use == COPY) PyMem_Free(array->numbers);
  PyBuffer_Release(&array->view);
}

int take_array(PyObject *object, void *given) {
  Array *array = given;
  if (!object) { /* another argument was refused */
    release(array);
    return 1;
  }
  if (PyObject_GetBuffer(object, &array->view, array->use == WRITE ? PyBUF_WRITABLE : PyBUF_SIMPLE)) return 0;
  size_t bytes = (size_t)array->view.len;
  array->numbers = array->view.buf;
  array->count = (int64_t)(bytes / array->size);
  int status = bytes % array->size || (uintptr_t)array->view.buf % (array->size % 8 ? array->size : 8) ? BAD_OFFSETS : OK;
  if (status == OK && array->use == COPY) {
    array->numbers = PyMem_Malloc(bytes);
    if (array->numbers) memcpy(array->numbers, array->view.buf, bytes);
    else status = NO_MEMORY;
  }
  if (status == OK) return Py_CLEANUP_SUPPORTED;
  PyBuffer_Release(&array->view);
  failed(status);
  return 0;
}

void release_arrays(Array *arrays, size_t count) {
  while (count--) release(&arrays[count]);
}

typedef struct {
  PyObject_HEAD
  Model *model;
  Workspace *idle; /* as many as threads ever encoded at the same time; taken and given back while the GIL is held */
} Unigram;

static PyObject *unigram_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"model", NULL};
  Array proto = {.use = COPY, .size = 1};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&", names, take_array, &proto)) return NULL;
  allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  Unigram *self = (Unigram *)allocate(type, 0);
  int status = NO_MEMORY;
  if (self && (self->model = PyMem_Calloc(1, sizeof(Model)))) {
    Py_BEGIN_ALLOW_THREADS
    status = model_load(self->model, proto.numbers, (size_t)proto.count);
    Py_END_ALLOW_THREADS
  }
  release_arrays(&proto, 1);
  if (status == OK) return (PyObject *)self;
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
  if (self->model) model_free(self->model);
  PyMem_Free(self->model);
  freefunc free_object = (freefunc)PyType_GetSlot(type, Py_tp_free);
  free_object(object);
  Py_DECREF(type);
}

/* Encode texts, one between each two offsets; ends[i] is the number of ids up to offset i. */
static int encode_all(const Model *model, Workspace *work, const Array *data, const Array *offsets, char *ends) {
  const int64_t *offset = offsets->numbers;
  int64_t none = 0;
  work->count = 0;
  memcpy(ends, &none, sizeof none);
  for (int64_t i = 1; i < offsets->count; i++) {
    if (!is_range(offset[i - 1], offset[i], data->count)) return BAD_OFFSETS;
    int status = encode(model, work, (const uint8_t *)data->numbers + offset[i - 1], (size_t)(offset[i] - offset[i - 1]));
    if (status != OK) return status;
    int64_t ids = (int64_t)work->count;
    memcpy(ends + (size_t)i * sizeof ids, &ids, sizeof ids); /* bytes objects need not be aligned */
  }
  return OK;
}

static PyObject *encode_arrays(Unigram *self, const Array *data, const Array *offsets) {
  if (!offsets->count) return failed(BAD_OFFSETS);
  PyObject *ends = PyBytes_FromStringAndSize(NULL, offsets->view.len), *ids = NULL;
  if (!ends) return NULL;
  Workspace *work = self->idle;
  if (work) self->idle = work->next;
  else work = workspace_new();
  int status = NO_MEMORY;
  if (work) {
    char *out = PyBytes_AsString(ends);
    Py_BEGIN_ALLOW_THREADS
    status = encode_all(self->model, work, data, offsets, out);
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

static PyObject *unigram_encode(PyObject *object, PyObject *args) {
  Array a[] = {{.use = READ, .size = 1}, {.use = COPY, .size = 8}};
  if (!PyArg_ParseTuple(args, "O&O&", take_array, &a[0], take_array, &a[1])) return NULL;
  PyObject *both = encode_arrays((Unigram *)object, &a[0], &a[1]);
  release_arrays(a, 2);
  return both;
}

static PyMethodDef methods[] = {{"encode", unigram_encode, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {{Py_tp_doc, "A SentencePiece unigram model: Unigram(serialized_model)"},
                              {Py_tp_new, unigram_new},
                              {Py_tp_dealloc, unigram_dealloc},
                              {Py_tp_methods, methods},
                              {0, NULL}};

static PyType_Spec spec = {"t5prep._native.Unigram", sizeof(Unigram), 0, Py_TPFLAGS_DEFAULT, slots};

static int execute(PyObject *module) {
  crc_prepare();
  records_prepare();
  PyObject *type = PyType_FromSpec(&spec);
  int status = type ? PyModule_AddObjectRef(module, "Unigram", type) : -1;
  if (!status) status = PyModule_AddFunctions(module, record_functions);
  if (!status) status = PyModule_AddFunctions(module, text_functions);
  Py_XDECREF(type);
  return status;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, execute}, {0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", NULL, 0, row_functions, module_slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&module); }
