/* Define the functions of t5prep._native that read, copy and write many rows at once. */
#include "module.h"

#include "records.h"
#include "rows.h"

/* Read the arguments of frame_records into `batch` and `keep`. Return 0 after raising an exception. */
static int parse_batch(PyObject *args, Batch *batch, int *keep) {
  PyObject *b[9];
  long long lengths[2], pads[2], separator;
  int width;
  if (!PyArg_ParseTuple(args, "(SSSSSSSS)Si(LL)(LL)(pp)Lp|p", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5], &b[6], &b[7], &b[8], &width, &lengths[0], &lengths[1], &pads[0], &pads[1], &batch->mask, &batch->label_mask,
                        &separator, &batch->packed, keep))
    return 0;
  Py_ssize_t size[9];
  int good = width == 2 || width == 4;
  for (int i = 0; i < 9; i++) size[i] = PyBytes_Size(b[i]);
  for (int i = 0; i < 2; i++) {
    good = good && size[2 + 2 * i] % width == 0;
    good = good && lengths[i] >= 0 && lengths[i] <= INT32_MAX;
  }
  for (int i = 1; i < 8; i += 2) good = good && size[i] % 8 == 0 && size[i] == size[1];
  good = good && size[8] % 8 == 0;
  batch->separator = separator;
  batch->types = separator >= 0;
  if (!good || !size[1] || !size[8] || ((batch->mask || batch->types || batch->packed) && !lengths[0]) ||
      ((batch->label_mask || batch->packed) && !lengths[1])) {
    failed(BAD_OFFSETS);
    return 0;
  }
  const void *p[9];
  for (int i = 0; i < 9; i++) p[i] = PyBytes_AsString(b[i]);
  batch->ids = (Texts){p[0], p[1], size[0]};
  batch->inputs = (Lists){p[2], p[3], size[2] / width, width, lengths[0], pads[0]};
  batch->labels = (Lists){p[4], p[5], size[4] / width, width, lengths[1], pads[1]};
  batch->references = (Texts){p[6], p[7], size[6]};
  batch->examples = (size_t)size[1] / 8 - 1;
  batch->starts = p[8];
  batch->records = (size_t)size[8] / 8 - 1;
  return 1;
}

static PyObject *frame_records(PyObject *module, PyObject *args) {
  Batch batch;
  Framed out = {0};
  int keep = 1, status;
  (void)module;
  if (!parse_batch(args, &batch, &keep)) return NULL;
  PyObject *data = NULL, *sizes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(batch.records * sizeof(uint32_t)));
  if (!sizes) return NULL;
  uint32_t *each = (uint32_t *)PyBytes_AsString(sizes);
  Py_BEGIN_ALLOW_THREADS
  status = records_frame(&batch, keep, each, &out);
  Py_END_ALLOW_THREADS
  if (status != OK) failed(status);
  else data = PyBytes_FromStringAndSize((const char *)out.bytes + out.begin, keep ? (Py_ssize_t)(out.room - out.begin) : 0);
  free(out.bytes);
  if (data) return Py_BuildValue("NN", data, sizes);
  Py_DECREF(sizes);
  return NULL;
}

/* Return None, or raise the exception of a status. */
static PyObject *done(int status) {
  if (status != OK) return failed(status);
  Py_RETURN_NONE;
}

static int copy_all(const Array *a, size_t size) {
  const int64_t *begins = a[1].numbers, *places = a[3].numbers, *lengths = a[4].numbers;
  for (int64_t i = 0; i < a[1].count; i++) {
    if (!lies_inside(begins[i], lengths[i], a[0].count) || !lies_inside(places[i], lengths[i], a[2].count)) return BAD_OFFSETS;
    memmove((char *)a[2].numbers + (size_t)places[i] * size, (char *)a[0].numbers + (size_t)begins[i] * size, (size_t)lengths[i] * size);
  }
  return OK;
}

static PyObject *copy_lists(PyObject *module, PyObject *args) {
  Array a[] = {{.use = READ, .size = 1}, {.use = COPY, .size = 8}, {.use = WRITE, .size = 1}, {.use = COPY, .size = 8}, {.use = COPY, .size = 8}};
  Py_ssize_t size = 4;
  (void)module;
  if (!PyArg_ParseTuple(args, "O&O&O&O&O&|n", take_array, &a[0], take_array, &a[1], take_array, &a[2], take_array, &a[3], take_array,
                        &a[4], &size))
    return NULL;
  int status = BAD_OFFSETS;
  if (size > 0 && a[0].count % size == 0 && a[2].count % size == 0 && a[1].count == a[3].count && a[1].count == a[4].count) {
    a[0].count /= size;
    a[2].count /= size;
    Py_BEGIN_ALLOW_THREADS
    status = copy_all(a, (size_t)size);
    Py_END_ALLOW_THREADS
  }
  release_arrays(a, 5);
  return done(status);
}

static PyObject *first_fit(PyObject *module, PyObject *args) {
  Array a[] = {{.use = COPY, .size = 8}, {.use = WRITE, .size = 8}};
  long long room[2];
  (void)module;
  if (!PyArg_ParseTuple(args, "O&(LL)O&", take_array, &a[0], &room[0], &room[1], take_array, &a[1])) return NULL;
  int status = BAD_OFFSETS;
  if (a[0].count % 2 == 0 && a[0].count / 2 == a[1].count) {
    int64_t most[2] = {room[0], room[1]};
    Py_BEGIN_ALLOW_THREADS
    status = first_fit_rows(a[0].numbers, (size_t)a[1].count, most, a[1].numbers);
    Py_END_ALLOW_THREADS
  }
  release_arrays(a, 2);
  return done(status);
}

static PyObject *hide_spans(PyObject *module, PyObject *args) {
  Array a[] = {{.use = READ, .size = 4}, {.use = READ, .size = 8}, {.use = WRITE, .size = 4}, {.use = WRITE, .size = 4}};
  long long length, hidden, spans;
  int sentinel, eos;
  (void)module;
  if (!PyArg_ParseTuple(args, "O&O&(LLL)iiO&O&", take_array, &a[0], take_array, &a[1], &length, &hidden, &spans, &sentinel, &eos,
                        take_array, &a[2], take_array, &a[3]))
    return NULL;
  int status = BAD_OFFSETS;
  int64_t rows = a[1].count, tokens, inputs, targets;
  if (length < INT32_MAX && spans > 0 && spans <= hidden && hidden <= length && spans <= length - hidden &&
      size_product(rows, length, &tokens) && size_product(rows, length - hidden + spans + 1, &inputs) &&
      size_product(rows, hidden + spans + 1, &targets) && a[0].count == tokens && a[2].count == inputs && a[3].count == targets) {
    Rows what = {a[0].numbers, a[1].numbers, (size_t)rows, (size_t)length, (size_t)hidden, (size_t)spans, sentinel, eos};
    Py_BEGIN_ALLOW_THREADS
    status = spans_hide(&what, a[2].numbers, a[3].numbers);
    Py_END_ALLOW_THREADS
  }
  release_arrays(a, 4);
  return done(status);
}

PyMethodDef row_functions[] = {{"frame_records", frame_records, METH_VARARGS, NULL},
                               {"first_fit", first_fit, METH_VARARGS, NULL},
                               {"hide_spans", hide_spans, METH_VARARGS, NULL},
                               {"copy_lists", copy_lists, METH_VARARGS, NULL},
                               {NULL, NULL, 0, NULL}};
