/* Define the Python module t5prep.reading._native. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include "csv_rows.h"
#include "json_lines.h"

PyDoc_STRVAR(json_doc,
             "plain_json_lines(data)\n--\n\n"
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

PyDoc_STRVAR(csv_doc,
             "csv_rows(data, final)\n--\n\n"
             "Return the end of the last whole row and the number of rows; None where quotes are not as in RFC 4180.");

static PyObject *rows_of_csv(PyObject *module, PyObject *args) {
  Py_buffer data;
  int final;
  (void)module;
  if (!PyArg_ParseTuple(args, "y*p", &data, &final)) return NULL;
  Rows found;
  Py_BEGIN_ALLOW_THREADS
  found = csv_rows(data.buf, (size_t)data.len, final);
  Py_END_ALLOW_THREADS
  PyBuffer_Release(&data);
  if (found.end < 0) Py_RETURN_NONE;
  return Py_BuildValue("LL", found.end, found.rows);
}

static PyMethodDef functions[] = {{"csv_rows", rows_of_csv, METH_VARARGS, csv_doc},
                                  {"plain_json_lines", lines_of_json, METH_VARARGS, json_doc},
                                  {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", NULL, 0, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&module); }
