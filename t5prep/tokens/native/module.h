/* What the files that define the Python module share. */
#ifndef T5PREP_MODULE_H
#define T5PREP_MODULE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

/* Raise the Python exception of a status, and return NULL. */
PyObject *failed(int status);

/* The module's functions of many rows, with an empty one at the end. */
extern PyMethodDef row_functions[];

/* The functions of serialized records, and their help. */
extern const char cut_doc[], decode_doc[];
PyObject *cut_blocks(PyObject *module, PyObject *args);
PyObject *decode_rows(PyObject *module, PyObject *args);

#endif
