/* Define the functions of t5prep.tokens._native that read, copy and write many rows at once. */
#include "module.h"

#include <stdlib.h>
#include <string.h>

#include "lists.h"
#include "pack_records.h"
#include "read_records.h"
#include "records.h"
#include "spans.h"
#include "unigram.h"

/* Check whether a buffer holds complete, aligned numbers of `size` bytes. */
static int holds(const Py_buffer *buffer, size_t size) {
  return (size_t)buffer->len % size == 0 && (uintptr_t)buffer->buf % size == 0;
}

typedef int (*Writer)(const void *what, size_t rows, Buffer *out, uint32_t *sizes);

/* Let `write` make so many records; return their bytes, and their sizes as bytes of uint32. */
static PyObject *written(Writer write, const void *what, size_t rows, size_t records) {
  Buffer out = {NULL, 0, 0};
  PyObject *sizes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(records * sizeof(uint32_t))), *data = NULL, *both = NULL;
  uint32_t *room = malloc(records * sizeof *room + 1);
  int status = NO_MEMORY;
  if (sizes && room) {
    Py_BEGIN_ALLOW_THREADS
    status = write(what, rows, &out, room);
    Py_END_ALLOW_THREADS
  }
  if (status == OK) {
    memcpy(PyBytes_AsString(sizes), room, records * sizeof *room);
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

static int write_batch(const void *batch, size_t rows, Buffer *out, uint32_t *sizes) { return records_write(batch, rows, out, sizes); }

static int write_packing(const void *packing, size_t rows, Buffer *out, uint32_t *sizes) {
  (void)rows;
  return pack_write(packing, out, sizes);
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
    both = written(write_batch, &batch, rows - 1, batch.count);
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

PyDoc_STRVAR(packed_doc,
             "write_packed(ids, id_starts, inputs, input_starts, labels, label_starts, order, row_starts, lengths, pads)\n--\n\n"
             "Return framed records of several examples each, as write_records does. Record r holds the examples\n"
             "`order[row_starts[r]:row_starts[r + 1]]`, both int64.");

static PyObject *write_packed(PyObject *module, PyObject *args) {
  Py_buffer b[8];
  long long lengths[2], pads[2];
  (void)module;
  if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*y*y*(LL)(LL)", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5], &b[6], &b[7], &lengths[0],
                        &lengths[1], &pads[0], &pads[1]))
    return NULL;
  PyObject *both = NULL;
  size_t examples = (size_t)b[1].len / 8, rows = (size_t)b[7].len / 8;
  int whole = holds(&b[1], 8) && holds(&b[2], 4) && holds(&b[3], 8) && holds(&b[4], 4) && holds(&b[5], 8) && holds(&b[6], 8) && holds(&b[7], 8);
  if (!whole || !examples || !rows || b[3].len != b[1].len || b[5].len != b[1].len || lengths[0] < 0 || lengths[1] < 0 ||
      lengths[0] > INT32_MAX || lengths[1] > INT32_MAX) {
    failed(BAD_OFFSETS);
  } else {
    Lists inputs = {NULL, NULL, b[2].buf, b[3].buf, b[2].len / 4, lengths[0], pads[0]};
    Lists labels = {NULL, NULL, b[4].buf, b[5].buf, b[4].len / 4, lengths[1], pads[1]};
    Batch batch = {b[0].buf, b[1].buf, b[0].len, inputs, labels, b[6].buf, (size_t)b[6].len / 8};
    Packing packing = {batch, examples - 1, b[7].buf, rows - 1};
    both = written(write_packing, &packing, rows - 1, rows - 1);
  }
  for (int i = 0; i < 8; i++) PyBuffer_Release(&b[i]);
  return both;
}

PyDoc_STRVAR(fit_doc,
             "first_fit(sizes, room, rows)\n--\n\n"
             "Write into `rows`, int64[n], the row of each example; `sizes`, int64[n, 2], are the tokens of its two sides, of\n"
             "which a row has `room`.");

static PyObject *first_fit(PyObject *module, PyObject *args) {
  Py_buffer sizes, rows;
  long long room[2];
  (void)module;
  if (!PyArg_ParseTuple(args, "y*(LL)w*", &sizes, &room[0], &room[1], &rows)) return NULL;
  int status = BAD_OFFSETS;
  if (holds(&sizes, 8) && holds(&rows, 8) && sizes.len == 2 * rows.len) {
    int64_t most[2] = {room[0], room[1]};
    Py_BEGIN_ALLOW_THREADS
    status = pack_fit(sizes.buf, (size_t)rows.len / 8, most, rows.buf);
    Py_END_ALLOW_THREADS
  }
  PyBuffer_Release(&sizes);
  PyBuffer_Release(&rows);
  if (status != OK) return failed(status);
  Py_RETURN_NONE;
}

PyDoc_STRVAR(read_doc,
             "read_records(data, sizes)\n--\n\n"
             "Return the ids, inputs and labels of records that write_records wrote without padding and masks, and where those of\n"
             "each record begin: bytes of UTF-8 or int32 in three bytearrays, and of int64[records + 1] in three more.\n\n"
             "`sizes` are the bytes of each record, uint32[records]. Raises ValueError where they are no such records.");

static PyObject *read_records(PyObject *module, PyObject *args) {
  Py_buffer data, sizes;
  (void)module;
  if (!PyArg_ParseTuple(args, "y*y*", &data, &sizes)) return NULL;
  size_t count = (size_t)sizes.len / 4, size = (size_t)data.len, starts = 8 * (count + 1);
  size_t most[6] = {size, 4 * size, 4 * size, starts, starts, starts};
  void *room[6];
  PyObject *all = PyTuple_New(6);
  for (int i = 0; all && i < 6; i++) {
    PyObject *one = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)most[i]);
    if (!one || PyTuple_SetItem(all, i, one)) Py_CLEAR(all);
    else room[i] = PyByteArray_AsString(one);
  }
  int status = all ? BAD_OFFSETS : NO_MEMORY;
  if (all && holds(&sizes, 4)) {
    Read read = {room[0], room[1], room[2], room[3], room[4], room[5]};
    Py_BEGIN_ALLOW_THREADS
    status = records_read(data.buf, size, sizes.buf, count, &read);
    Py_END_ALLOW_THREADS
    if (status == OK) {
      Py_ssize_t of[3] = {(Py_ssize_t)read.id_starts[count], 4 * (Py_ssize_t)read.input_starts[count],
                          4 * (Py_ssize_t)read.label_starts[count]};
      for (int i = 0; i < 3; i++)
        if (PyByteArray_Resize(PyTuple_GetItem(all, i), of[i])) status = NO_MEMORY;
    }
  }
  PyBuffer_Release(&data);
  PyBuffer_Release(&sizes);
  if (status == OK) return all;
  Py_XDECREF(all);
  return failed(status);
}

PyDoc_STRVAR(spans_doc,
             "hide_spans(tokens, keys, shape, sentinel, eos, inputs, targets)\n--\n\n"
             "Write the inputs and targets of rows, all int32, with spans hidden; `keys` are uint64, one a row, and `shape` says how\n"
             "long a row is, how many of its tokens are hidden, and in how many spans. `sentinel` is the id of the first one.");

static PyObject *hide_spans(PyObject *module, PyObject *args) {
  Py_buffer b[4];
  long long length, hidden, spans;
  int sentinel, eos;
  (void)module;
  if (!PyArg_ParseTuple(args, "y*y*(LLL)iiw*w*", &b[0], &b[1], &length, &hidden, &spans, &sentinel, &eos, &b[2], &b[3])) return NULL;
  int status = BAD_OFFSETS;
  long long rows = (long long)b[1].len / 8;
  int good = holds(&b[0], 4) && holds(&b[1], 8) && holds(&b[2], 4) && holds(&b[3], 4) && length < INT32_MAX && spans > 0 &&
             hidden >= spans && length - hidden >= spans;
  if (good && b[0].len / 4 == rows * length && b[2].len / 4 == rows * (length - hidden + spans + 1) && b[3].len / 4 == rows * (hidden + spans + 1)) {
    Rows what = {b[0].buf, b[1].buf, (size_t)rows, (size_t)length, (size_t)hidden, (size_t)spans, sentinel, eos};
    Py_BEGIN_ALLOW_THREADS
    status = spans_hide(&what, b[2].buf, b[3].buf);
    Py_END_ALLOW_THREADS
  }
  for (int i = 0; i < 4; i++) PyBuffer_Release(&b[i]);
  if (status != OK) return failed(status);
  Py_RETURN_NONE;
}

PyMethodDef row_functions[] = {{"cut_blocks", cut_blocks, METH_VARARGS, cut_doc},
                               {"decode_rows", decode_rows, METH_VARARGS, decode_doc},
                               {"write_records", write_records, METH_VARARGS, records_doc},
                               {"write_packed", write_packed, METH_VARARGS, packed_doc},
                               {"read_records", read_records, METH_VARARGS, read_doc},
                               {"first_fit", first_fit, METH_VARARGS, fit_doc},
                               {"hide_spans", hide_spans, METH_VARARGS, spans_doc},
                               {"copy_lists", copy_lists, METH_VARARGS, copy_doc},
                               {NULL, NULL, 0, NULL}};
