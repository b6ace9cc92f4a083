/* Define the Python module t5prep.train._native. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include "step.h"

PyDoc_STRVAR(calls_doc,
             "custom_calls()\n--\n\n"
             "Return the custom calls of XLA that this processor can run, {instructions: {name: capsule}}, fastest first.");

static PyObject *custom_calls(PyObject *module, PyObject *args) {
  PyObject *sets = PyDict_New();
  (void)module, (void)args;
  for (const custom_call *call = step_calls; sets && call->name; call++) {
    if (!has_instructions(call->instructions)) continue;
    PyObject *own = PyDict_GetItemString(sets, call->instructions); /* borrowed */
    if (own) {
      Py_INCREF(own);
    } else if (!(own = PyDict_New()) || PyDict_SetItemString(sets, call->instructions, own) < 0) {
      Py_CLEAR(sets);
    }
    PyObject *capsule = PyCapsule_New((void *)(uintptr_t)call->function, "xla._CUSTOM_CALL_TARGET", NULL);
    if (!own || !capsule || PyDict_SetItemString(own, call->name, capsule) < 0) Py_CLEAR(sets);
    Py_XDECREF(capsule);
    Py_XDECREF(own);
  }
  return sets;
}

static PyMethodDef functions[] = {{"custom_calls", custom_calls, METH_NOARGS, calls_doc}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", NULL, 0, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&module); }
