/* Define the function of t5prep.tokens._native that decodes serialized records. */
#include "module.h"

#include <stdlib.h>

#include "decode.h"
#include "unigram.h"

/* Decode records whose places are known. Return how many of them are plain, up to the first that is not. */
static size_t decode_all(char *const *records, const Py_ssize_t *sizes, size_t rows, const Wanted *wanted, size_t count) {
  size_t row = 0;
  while (row < rows && record_decode((const uint8_t *)records[row], (size_t)sizes[row], wanted, count, row) == OK) row++;
  return row;
}

const char decode_doc[] =
             "decode_records(records, names, targets, lengths, fills, exact)\n--\n\n"
             "Read ids of serialized records, a list of bytes, and return how many records were read before the first that is\n"
             "not as this project writes it.\n\n"
             "For each of the names (bytes) a row of `lengths[i]` ids is written into `targets[i]`, int32[records, length]; what a\n"
             "record lacks of a row is filled with `fills[i]`, except where it must be `exact`. These are tuples.";

enum { MOST_WANTED = 8 };

PyObject *decode_records(PyObject *module, PyObject *args) {
  PyObject *list, *names, *targets, *lengths, *fills;
  int exact;
  (void)module;
  if (!PyArg_ParseTuple(args, "O!O!O!O!O!p", &PyList_Type, &list, &PyTuple_Type, &names, &PyTuple_Type, &targets, &PyTuple_Type,
                        &lengths, &PyTuple_Type, &fills, &exact))
    return NULL;
  Py_ssize_t count = PyTuple_Size(names), rows = PyList_Size(list), held = 0;
  Py_buffer buffers[MOST_WANTED];
  Wanted wanted[MOST_WANTED];
  char **records = NULL;
  Py_ssize_t *sizes = NULL;
  PyObject *result = NULL;
  if (count > MOST_WANTED || PyTuple_Size(targets) != count || PyTuple_Size(lengths) != count || PyTuple_Size(fills) != count)
    return failed(BAD_OFFSETS);
  for (; held < count; held++) {
    Wanted *one = &wanted[held];
    char *name;
    Py_ssize_t name_size;
    long long length = PyLong_AsLongLong(PyTuple_GetItem(lengths, held)), fill = PyLong_AsLongLong(PyTuple_GetItem(fills, held));
    if (PyErr_Occurred() || PyBytes_AsStringAndSize(PyTuple_GetItem(names, held), &name, &name_size) ||
        PyObject_GetBuffer(PyTuple_GetItem(targets, held), &buffers[held], PyBUF_WRITABLE))
      goto end;
    *one = (Wanted){name, (size_t)name_size, buffers[held].buf, length, (int32_t)fill, exact};
    if (length < 0 || length > INT32_MAX || buffers[held].len % 4 || (uintptr_t)buffers[held].buf % 4 || buffers[held].len / 4 != rows * length) {
      held++;
      failed(BAD_OFFSETS);
      goto end;
    }
  }
  records = malloc((size_t)rows * sizeof *records + 1);
  sizes = malloc((size_t)rows * sizeof *sizes + 1);
  if (!records || !sizes) {
    PyErr_NoMemory();
    goto end;
  }
  for (Py_ssize_t row = 0; row < rows; row++)
    if (PyBytes_AsStringAndSize(PyList_GetItem(list, row), &records[row], &sizes[row])) goto end;
  size_t read;
  Py_INCREF(list);
  Py_BEGIN_ALLOW_THREADS
  read = decode_all(records, sizes, (size_t)rows, wanted, (size_t)count);
  Py_END_ALLOW_THREADS
  Py_DECREF(list);
  result = PyLong_FromSize_t(read);
end:
  while (held--) PyBuffer_Release(&buffers[held]);
  free(records);
  free(sizes);
  return result;
}
