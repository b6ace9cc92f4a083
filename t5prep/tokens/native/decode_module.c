/* Define the functions of t5prep.tokens._native that read serialized records. */
#include "module.h"

#include <stdlib.h>

#include "decode.h"
#include "unigram.h"

enum { MOST_WANTED = 8 };

/* The bytes objects of a tuple. Free with `free`. */
typedef struct {
  const uint8_t *bytes;
  int64_t size;
} Block;

/* Return the blocks of a tuple of bytes, or NULL with an exception. */
static Block *blocks_of(PyObject *tuple) {
  Py_ssize_t count = PyTuple_Size(tuple);
  Block *blocks = malloc((size_t)count * sizeof *blocks + 1);
  if (!blocks) return (Block *)PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < count; i++) {
    char *bytes;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(PyTuple_GetItem(tuple, i), &bytes, &size)) {
      free(blocks);
      return NULL;
    }
    blocks[i] = (Block){(const uint8_t *)bytes, size};
  }
  return blocks;
}

const char cut_doc[] =
             "cut_blocks(blocks, counts, places)\n--\n\n"
             "Write where the records of blocks lie into `places`, three int64 a record: block, begin, size.\n\n"
             "`blocks` is a tuple of bytes and `counts`, int64[blocks], how many records each holds. Checksums are checked. Return\n"
             "the number of blocks before the first that does not hold what it should.";

PyObject *cut_blocks(PyObject *module, PyObject *args) {
  PyObject *tuple, *result = NULL;
  Py_buffer counts, places;
  (void)module;
  if (!PyArg_ParseTuple(args, "O!y*w*", &PyTuple_Type, &tuple, &counts, &places)) return NULL;
  int64_t given = (int64_t)PyTuple_Size(tuple), number = 0, room = (int64_t)((size_t)places.len / sizeof(Place));
  Block *blocks = blocks_of(tuple);
  if (blocks && (counts.len != given * 8 || (uintptr_t)counts.buf % 8 || (uintptr_t)places.buf % 8)) {
    failed(BAD_OFFSETS);
  } else if (blocks) {
    const int64_t *count = counts.buf;
    Place *place = places.buf;
    int fits = 1;
    Py_BEGIN_ALLOW_THREADS
    for (; number < given; number++) {
      fits = count[number] >= 0 && count[number] <= room;
      if (!fits || block_cut(blocks[number].bytes, (size_t)blocks[number].size, number, place, count[number]) != OK) break;
      place += count[number];
      room -= count[number];
    }
    Py_END_ALLOW_THREADS
    result = fits ? PyLong_FromLongLong(number) : failed(BAD_OFFSETS);
  }
  free(blocks);
  PyBuffer_Release(&counts);
  PyBuffer_Release(&places);
  return result;
}

/* Decode records. Return how many of them are plain and where they say, up to the first that is not. */
static int64_t decode_all(const Block *blocks, int64_t given, const Place *places, int64_t rows, const Wanted *wanted, size_t count,
                          int32_t *mask, int32_t pad) {
  for (int64_t row = 0; row < rows; row++) {
    Place at = places[row];
    if (at.block < 0 || at.block >= given || at.begin < 0 || at.size < 0 || at.begin > blocks[at.block].size - at.size) return row;
    if (record_decode(blocks[at.block].bytes + at.begin, (size_t)at.size, wanted, count, (size_t)row) != OK) return row;
    if (!mask) continue;
    const int32_t *ids = wanted[0].values + row * wanted[0].length;
    for (int64_t i = 0; i < wanted[0].length; i++) mask[row * wanted[0].length + i] = ids[i] != pad;
  }
  return rows;
}

const char decode_doc[] =
             "decode_rows(blocks, places, names, targets, lengths, fills, counts, mask, pad)\n--\n\n"
             "Read ids of serialized records, and return how many were read before the first that is not as this project\n"
             "writes it. `blocks` is a tuple of bytes, and `places` says where the records lie: int64[records, 3].\n\n"
             "For each of the names (bytes) the first `lengths[i]` ids are written into `targets[i]`, int32[records, length]; what\n"
             "a record lacks of a row is filled with `fills[i]`. It must have `counts[i]` ids, at most the length where that is -1.\n"
             "These are tuples. A `mask` is None or of the shape of the first target: it gets 0 where that has the id `pad`, else 1.";

/* Whether a buffer holds int32[rows, length]. */
static int is_rows(const Py_buffer *buffer, int64_t rows, int64_t length) {
  return length >= 0 && length <= INT32_MAX && buffer->len % 4 == 0 && (uintptr_t)buffer->buf % 4 == 0 && buffer->len / 4 == rows * length;
}

PyObject *decode_rows(PyObject *module, PyObject *args) {
  PyObject *tuple, *names, *targets, *lengths, *fills, *counts, *mask, *result = NULL;
  int pad;
  Py_buffer places, buffers[MOST_WANTED], masked = {0};
  (void)module;
  if (!PyArg_ParseTuple(args, "O!y*O!O!O!O!O!Oi", &PyTuple_Type, &tuple, &places, &PyTuple_Type, &names, &PyTuple_Type, &targets,
                        &PyTuple_Type, &lengths, &PyTuple_Type, &fills, &PyTuple_Type, &counts, &mask, &pad))
    return NULL;
  Py_ssize_t count = PyTuple_Size(names), held = 0;
  int64_t rows = (int64_t)((size_t)places.len / sizeof(Place)), read;
  Wanted wanted[MOST_WANTED];
  Block *blocks = blocks_of(tuple);
  if (!blocks) goto end;
  if (count < 1 || count > MOST_WANTED || PyTuple_Size(targets) != count || PyTuple_Size(lengths) != count || PyTuple_Size(fills) != count ||
      PyTuple_Size(counts) != count || (uintptr_t)places.buf % 8) {
    failed(BAD_OFFSETS);
    goto end;
  }
  while (held < count) {
    char *name;
    Py_ssize_t size;
    long long length = PyLong_AsLongLong(PyTuple_GetItem(lengths, held)), fill = PyLong_AsLongLong(PyTuple_GetItem(fills, held));
    long long values = PyLong_AsLongLong(PyTuple_GetItem(counts, held));
    if (PyErr_Occurred() || PyBytes_AsStringAndSize(PyTuple_GetItem(names, held), &name, &size) ||
        PyObject_GetBuffer(PyTuple_GetItem(targets, held), &buffers[held], PyBUF_WRITABLE))
      goto end;
    wanted[held] = (Wanted){name, (size_t)size, buffers[held].buf, length, (int32_t)fill, values};
    if (!is_rows(&buffers[held++], rows, length)) {
      failed(BAD_OFFSETS);
      goto end;
    }
  }
  if (mask != Py_None && PyObject_GetBuffer(mask, &masked, PyBUF_WRITABLE)) goto end;
  if (masked.obj && !is_rows(&masked, rows, wanted[0].length)) {
    failed(BAD_OFFSETS);
    goto end;
  }
  Py_BEGIN_ALLOW_THREADS
  read = decode_all(blocks, (int64_t)PyTuple_Size(tuple), places.buf, rows, wanted, (size_t)count, masked.obj ? masked.buf : NULL, pad);
  Py_END_ALLOW_THREADS
  result = PyLong_FromLongLong(read);
end:
  if (masked.obj) PyBuffer_Release(&masked);
  while (held--) PyBuffer_Release(&buffers[held]);
  PyBuffer_Release(&places);
  free(blocks);
  return result;
}
