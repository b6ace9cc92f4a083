/* Define the Python module t5prep.prepare._native. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include "shingles.h"

PyDoc_STRVAR(words_doc,
             "word_hashes(data, begins, hashes, counts, long_words)\n--\n\n"
             "Write the hashes of all words and how many each text has; return how many words and long words there are.");

static PyObject *words_of_texts(PyObject *module, PyObject *args) {
  Py_buffer data, begins, hashes, counts, longs;
  (void)module;
  if (!PyArg_ParseTuple(args, "y*y*w*w*w*", &data, &begins, &hashes, &counts, &longs)) return NULL;
  PyObject *result = NULL;
  size_t texts = (size_t)counts.len / 8;
  const int64_t *begin = begins.buf;
  /* Texts lie one after the other, and eight readable bytes behind the last. */
  int fits = data.len >= 8 && (size_t)begins.len == 8 * (texts + 1) && hashes.len / 8 >= data.len &&
             longs.len / (Py_ssize_t)sizeof(long_word) > data.len / LONG_WORD && begin[0] >= 0;
  for (size_t text = 0; fits && text < texts; text++)
    fits = begin[text] < begin[text + 1] && begin[text + 1] <= data.len - 8;
  if (!fits) {
    PyErr_SetString(PyExc_ValueError, "the buffers do not fit each other");
  } else {
    int64_t words, found = 0;
    Py_BEGIN_ALLOW_THREADS
    words = word_hashes(data.buf, begin, texts, hashes.buf, counts.buf, longs.buf, &found);
    Py_END_ALLOW_THREADS
    result = Py_BuildValue("LL", (long long)words, (long long)found);
  }
  PyBuffer_Release(&data), PyBuffer_Release(&begins), PyBuffer_Release(&hashes), PyBuffer_Release(&counts);
  PyBuffer_Release(&longs);
  return result;
}

PyDoc_STRVAR(runs_doc,
             "run_hashes(hashes, counts, factors, runs, begins)\n--\n\n"
             "Write the hashes of all runs of len(factors) words and where those of each text begin; return their number.");

static PyObject *runs_of_texts(PyObject *module, PyObject *args) {
  Py_buffer hashes, counts, factors, runs, begins;
  (void)module;
  if (!PyArg_ParseTuple(args, "y*y*y*w*w*", &hashes, &counts, &factors, &runs, &begins)) return NULL;
  PyObject *result = NULL;
  size_t texts = (size_t)counts.len / 8;
  const int64_t *count = counts.buf;
  int64_t words = 0;
  int fits = (size_t)begins.len == 8 * (texts + 1) && factors.len >= 8;
  for (size_t text = 0; fits && text < texts; text++) {
    fits = count[text] >= 0;
    words += count[text];
  }
  if (!fits || words > hashes.len / 8 || words > runs.len / 8) {
    PyErr_SetString(PyExc_ValueError, "the buffers do not fit each other");
  } else {
    int64_t written;
    Py_BEGIN_ALLOW_THREADS
    written = run_hashes(hashes.buf, count, texts, factors.buf, factors.len / 8, runs.buf, begins.buf);
    Py_END_ALLOW_THREADS
    result = PyLong_FromLongLong(written);
  }
  PyBuffer_Release(&hashes), PyBuffer_Release(&counts), PyBuffer_Release(&factors), PyBuffer_Release(&runs);
  PyBuffer_Release(&begins);
  return result;
}

static PyMethodDef functions[] = {{"word_hashes", words_of_texts, METH_VARARGS, words_doc},
                                  {"run_hashes", runs_of_texts, METH_VARARGS, runs_doc},
                                  {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", NULL, 0, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&module); }
