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

/* The function of serialized records, and its help. */
extern const char decode_doc[];
PyObject *decode_records(PyObject *module, PyObject *args);

#endif
