/* What the files that define the Python module share. */
#ifndef T5PREP_MODULE_H
#define T5PREP_MODULE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include "numbers.h"

/* An array that an argument gives. Other threads may change it while the GIL is released: what is checked, and then relied on, is
   a COPY. What is only READ is never relied on. */
typedef struct {
  enum { READ, COPY, WRITE } use;
  size_t size; /* bytes of a number */
  void *numbers;
  int64_t count;
  Py_buffer view;
} Array;

/* Take an array from an argument ("O&" of PyArg_ParseTuple): whole numbers, aligned. */
int take_array(PyObject *object, void *array);
void release_arrays(Array *arrays, size_t count);

/* Raise the Python exception of a status, and return NULL. */
PyObject *failed(int status);

/* The module's functions by the file that defines them, each with an empty one at the end. */
extern PyMethodDef row_functions[], record_functions[], text_functions[];

#endif
