/* Define the functions of t5prep._native that read serialized records. */
#include "module.h"

#include "records.h"

enum { MOST_WANTED = 8 };

/* Return the blocks of a tuple of bytes, to be freed by `free`, or NULL with an exception. */
static Block *blocks_of(PyObject *tuple) {
  Py_ssize_t count = PyTuple_Size(tuple);
  Block *blocks = room_for(NULL, (size_t)count, sizeof *blocks);
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

static PyObject *cut_blocks(PyObject *module, PyObject *args) {
  PyObject *tuple, *result = NULL;
  Array counts = {.use = COPY, .size = 8}, places = {.use = WRITE, .size = sizeof(Place)};
  (void)module;
  if (!PyArg_ParseTuple(args, "O!O&O&", &PyTuple_Type, &tuple, take_array, &counts, take_array, &places)) return NULL;
  Block *blocks = blocks_of(tuple);
  if (blocks && counts.count != (int64_t)PyTuple_Size(tuple)) {
    failed(BAD_OFFSETS);
  } else if (blocks) {
    const int64_t *count = counts.numbers;
    Place *place = places.numbers;
    int64_t number = 0, room = places.count;
    int fits = 1;
    Py_BEGIN_ALLOW_THREADS
    for (; number < counts.count; number++) {
      fits = count[number] >= 0 && count[number] <= room;
      if (!fits || block_cut(&blocks[number], number, place, count[number]) != OK) break;
      place += count[number];
      room -= count[number];
    }
    Py_END_ALLOW_THREADS
    result = fits ? PyLong_FromLongLong(number) : failed(BAD_OFFSETS);
  }
  free(blocks);
  release_arrays(&counts, 1);
  release_arrays(&places, 1);
  return result;
}

/* Check that an array that was taken holds int32[rows, length]; else release it and raise an exception. */
static int is_rows(Array *array, int64_t rows, int64_t length) {
  int64_t count;
  if (length <= INT32_MAX && size_product(rows, length, &count) && array->count == count) return 1;
  release_arrays(array, 1);
  failed(BAD_OFFSETS);
  return 0;
}

static PyObject *decode_rows(PyObject *module, PyObject *args) {
  PyObject *tuple, *features, *mask, *result = NULL;
  Array places = {.use = COPY, .size = sizeof(Place)}, arrays[MOST_WANTED + 1];
  int pad;
  (void)module;
  if (!PyArg_ParseTuple(args, "O!O&O!Oi", &PyTuple_Type, &tuple, take_array, &places, &PyTuple_Type, &features, &mask, &pad)) return NULL;
  Py_ssize_t count = PyTuple_Size(features), held = 0;
  Wanted wanted[MOST_WANTED];
  Block *blocks = blocks_of(tuple);
  if (blocks && (count < 1 || count > MOST_WANTED)) failed(BAD_OFFSETS);
  for (; blocks && !PyErr_Occurred() && held < count; held++) {
    PyObject *named;
    char *name;
    Py_ssize_t size;
    long long length, values;
    int fill;
    arrays[held] = (Array){.use = WRITE, .size = 4};
    if (!PyArg_ParseTuple(PyTuple_GetItem(features, held), "SO&LiL", &named, take_array, &arrays[held], &length, &fill, &values) ||
        PyBytes_AsStringAndSize(named, &name, &size) || !is_rows(&arrays[held], places.count, length))
      break;
    wanted[held] = (Wanted){name, (size_t)size, arrays[held].numbers, length, fill, values};
  }
  if (blocks && !PyErr_Occurred() && mask != Py_None) {
    arrays[held] = (Array){.use = WRITE, .size = 4};
    if (take_array(mask, &arrays[held]) && is_rows(&arrays[held], places.count, wanted[0].length)) held++;
  }
  if (blocks && !PyErr_Occurred()) {
    int64_t read;
    Py_BEGIN_ALLOW_THREADS
    read = decode_all(blocks, (int64_t)PyTuple_Size(tuple), places.numbers, places.count, wanted, (size_t)count,
                      held > count ? arrays[count].numbers : NULL, pad);
    Py_END_ALLOW_THREADS
    result = PyLong_FromLongLong(read);
  }
  release_arrays(arrays, (size_t)held);
  release_arrays(&places, 1);
  free(blocks);
  return result;
}

static PyObject *read_texts(PyObject *module, PyObject *args) {
  PyObject *tuple, *named, *texts = NULL, *ends = NULL;
  Array places = {.use = COPY, .size = sizeof(Place)}, counts = {.use = WRITE, .size = 4};
  char *name;
  Py_ssize_t size;
  (void)module;
  if (!PyArg_ParseTuple(args, "O!O&SO&", &PyTuple_Type, &tuple, take_array, &places, &named, take_array, &counts)) return NULL;
  Block *blocks = PyBytes_AsStringAndSize(named, &name, &size) ? NULL : blocks_of(tuple);
  int64_t given = (int64_t)PyTuple_Size(tuple);
  int status = counts.count == places.count ? OK : BAD_OFFSETS;
  Strings out = {0};
  for (int twice = 0; blocks && status == OK && twice < 2; twice++) {
    if (twice) {
      texts = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)out.size);
      ends = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)((out.count + 1) * (int64_t)sizeof(int32_t)));
      if (!texts || !ends) break;
      out.bytes = (uint8_t *)PyBytes_AsString(texts);
      out.ends = (int32_t *)PyBytes_AsString(ends);
      out.ends[0] = 0;
    }
    Py_BEGIN_ALLOW_THREADS
    status = strings_read(blocks, given, places.numbers, places.count, name, (size_t)size, counts.numbers, &out);
    Py_END_ALLOW_THREADS
  }
  if (blocks && status != OK) failed(status);
  free(blocks);
  release_arrays(&places, 1);
  release_arrays(&counts, 1);
  if (status == OK && texts && ends) return Py_BuildValue("NN", texts, ends);
  Py_XDECREF(texts);
  Py_XDECREF(ends);
  return NULL;
}

static PyObject *write_texts(PyObject *module, PyObject *args) {
  PyObject *tuple, *named, *texts = NULL;
  Array a[] = {{.use = COPY, .size = sizeof(Place)}, {.use = READ, .size = 1},  {.use = COPY, .size = 8},
               {.use = WRITE, .size = 4},            {.use = WRITE, .size = 4}, {.use = WRITE, .size = 1}};
  Wanted wanted = {.count = -1};
  Pieces pieces = {0};
  char *name;
  Py_ssize_t size;
  (void)module;
  if (!PyArg_ParseTuple(args, "O!O&(SLi)O&O&(iip)O&O&O&", &PyTuple_Type, &tuple, take_array, &a[0], &named, &wanted.length, &wanted.fill,
                        take_array, &a[1], take_array, &a[2], &pieces.eos, &pieces.marker, &pieces.strip, take_array, &a[3], take_array,
                        &a[4], take_array, &a[5]))
    return NULL;
  Block *blocks = PyBytes_AsStringAndSize(named, &name, &size) ? NULL : blocks_of(tuple);
  int64_t rows = a[0].count;
  wanted.name = name, wanted.name_size = (size_t)size;
  pieces.letters = a[1].numbers, pieces.letters_size = a[1].count;
  pieces.places = a[2].numbers, pieces.count = a[2].count, pieces.fill = wanted.fill;
  Letters out = {0};
  int status = BAD_OFFSETS;
  if (blocks && wanted.length >= 0 && wanted.length <= INT32_MAX && pieces.count <= INT32_MAX && a[3].count == rows && a[4].count == rows &&
      a[5].count == rows) {
    Py_BEGIN_ALLOW_THREADS
    status = texts_write(blocks, (int64_t)PyTuple_Size(tuple), a[0].numbers, rows, &wanted, &pieces, &out, a[3].numbers, a[4].numbers,
                         a[5].numbers);
    Py_END_ALLOW_THREADS
  }
  release_arrays(a, 6);
  if (status == OK) texts = PyBytes_FromStringAndSize((const char *)out.bytes, (Py_ssize_t)out.size);
  else if (blocks) failed(status);
  free(out.bytes);
  free(blocks);
  return texts;
}

PyMethodDef record_functions[] = {{"cut_blocks", cut_blocks, METH_VARARGS, NULL},
                                  {"decode_rows", decode_rows, METH_VARARGS, NULL},
                                  {"read_texts", read_texts, METH_VARARGS, NULL},
                                  {"write_texts", write_texts, METH_VARARGS, NULL},
                                  {NULL, NULL, 0, NULL}};
