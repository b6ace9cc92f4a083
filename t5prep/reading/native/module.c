/* Define the Python module t5prep.reading._native. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include "json_lines.h"

PyDoc_STRVAR(json_doc,
             "json_lines(data)\n--\n\n"
             "Return the number of lines where each is an object that all readers of JSON see in one way, if it is JSON; else 0.");

static PyObject *lines_of_json(PyObject *module, PyObject *args) {
  Py_buffer data;
  (void)module;
  if (!PyArg_ParseTuple(args, "y*", &data)) return NULL;
  int64_t lines;
  Py_BEGIN_ALLOW_THREADS
  lines = json_lines(data.buf, (size_t)data.len);
  Py_END_ALLOW_THREADS
  PyBuffer_Release(&data);
  return PyLong_FromLongLong(lines);
}

static PyMethodDef functions[] = {{"json_lines", lines_of_json, METH_VARARGS, json_doc}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", NULL, 0, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&module); }
