/* Define the functions of t5prep._native that read text: where rows end, and the words of texts as hashes. */
#include "module.h"

#include "text.h"

static PyObject *lines_of_json(PyObject *module, PyObject *args) {
  Array data = {.use = READ, .size = 1};
  int64_t lines;
  (void)module;
  if (!PyArg_ParseTuple(args, "O&", take_array, &data)) return NULL;
  Py_BEGIN_ALLOW_THREADS
  lines = json_lines(data.numbers, (size_t)data.count);
  Py_END_ALLOW_THREADS
  release_arrays(&data, 1);
  return PyLong_FromLongLong(lines);
}

static PyObject *row_ends_of(PyObject *module, PyObject *args) {
  Array data = {.use = READ, .size = 1};
  int64_t rows;
  (void)module;
  if (!PyArg_ParseTuple(args, "O&", take_array, &data)) return NULL;
  Py_BEGIN_ALLOW_THREADS
  rows = row_ends(data.numbers, (size_t)data.count);
  Py_END_ALLOW_THREADS
  release_arrays(&data, 1);
  return PyLong_FromLongLong(rows);
}

static PyObject *rows_of_csv(PyObject *module, PyObject *args) {
  Array data = {.use = READ, .size = 1};
  int final;
  RowEnds found;
  (void)module;
  if (!PyArg_ParseTuple(args, "O&p", take_array, &data, &final)) return NULL;
  Py_BEGIN_ALLOW_THREADS
  found = csv_rows(data.numbers, (size_t)data.count, final);
  Py_END_ALLOW_THREADS
  release_arrays(&data, 1);
  if (found.end < 0) Py_RETURN_NONE;
  return Py_BuildValue("LL", (long long)found.end, (long long)found.rows);
}

static PyObject *words_of_texts(PyObject *module, PyObject *args) {
  Array a[] = {{.use = READ, .size = 1}, {.use = COPY, .size = 8}, {.use = WRITE, .size = 8}, {.use = WRITE, .size = 8},
               {.use = WRITE, .size = sizeof(long_word)}};
  (void)module;
  if (!PyArg_ParseTuple(args, "O&O&O&O&O&", take_array, &a[0], take_array, &a[1], take_array, &a[2], take_array, &a[3], take_array,
                        &a[4]))
    return NULL;
  int64_t texts = a[3].count, last = a[0].count - 8, words = 0, found = 0;
  const int64_t *begin = a[1].numbers;
  /* Texts lie one after the other, and eight readable bytes behind the last. */
  int fits = last >= 0 && a[1].count - 1 == texts && a[2].count >= a[0].count && a[4].count > a[0].count / LONG_WORD;
  for (int64_t text = 0; fits && text < texts; text++) fits = begin[text] < begin[text + 1] && is_range(begin[text], begin[text + 1], last);
  if (fits) {
    Py_BEGIN_ALLOW_THREADS
    words = word_hashes(a[0].numbers, begin, (size_t)texts, a[2].numbers, a[3].numbers, a[4].numbers, &found);
    Py_END_ALLOW_THREADS
  }
  release_arrays(a, 5);
  return fits ? Py_BuildValue("LL", (long long)words, (long long)found) : failed(BAD_OFFSETS);
}

static PyObject *runs_of_texts(PyObject *module, PyObject *args) {
  Array a[] = {{.use = READ, .size = 8}, {.use = COPY, .size = 8}, {.use = READ, .size = 8}, {.use = WRITE, .size = 8},
               {.use = WRITE, .size = 8}};
  (void)module;
  if (!PyArg_ParseTuple(args, "O&O&O&O&O&", take_array, &a[0], take_array, &a[1], take_array, &a[2], take_array, &a[3], take_array,
                        &a[4]))
    return NULL;
  int64_t texts = a[1].count, words = 0, written = 0;
  const int64_t *count = a[1].numbers;
  int fits = a[4].count - 1 == texts && a[2].count > 0;
  for (int64_t text = 0; fits && text < texts; text++) fits = size_sum(words, count[text], &words);
  fits = fits && words <= a[0].count && words <= a[3].count;
  if (fits) {
    Py_BEGIN_ALLOW_THREADS
    written = run_hashes(a[0].numbers, count, (size_t)texts, a[2].numbers, a[2].count, a[3].numbers, a[4].numbers);
    Py_END_ALLOW_THREADS
  }
  release_arrays(a, 5);
  return fits ? PyLong_FromLongLong(written) : failed(BAD_OFFSETS);
}

/* Check that lists of ids, from one start to the next, lie in the ids, and that there is a number for each. */
static int lists_fit(const Array a[3]) {
  int64_t lists = a[2].count;
  const int64_t *start = a[1].numbers;
  int fits = a[1].count - 1 == lists;
  for (int64_t list = 0; fits && list < lists; list++) fits = is_range(start[list], start[list + 1], a[0].count);
  return fits;
}

static PyObject *digests_of_lists(PyObject *module, PyObject *args) {
  Array a[] = {{.use = READ, .size = 4}, {.use = COPY, .size = 8}, {.use = WRITE, .size = 8}};
  (void)module;
  if (!PyArg_ParseTuple(args, "O&O&O&", take_array, &a[0], take_array, &a[1], take_array, &a[2])) return NULL;
  int fits = lists_fit(a);
  if (fits) {
    Py_BEGIN_ALLOW_THREADS
    list_digests(a[0].numbers, a[1].numbers, (size_t)a[2].count, a[2].numbers);
    Py_END_ALLOW_THREADS
  }
  release_arrays(a, 3);
  return fits ? Py_NewRef(Py_None) : failed(BAD_OFFSETS);
}

static PyObject *counts_of_lists(PyObject *module, PyObject *args) {
  Array a[] = {{.use = READ, .size = 4}, {.use = COPY, .size = 8}, {.use = WRITE, .size = 8}};
  int id;
  (void)module;
  if (!PyArg_ParseTuple(args, "O&O&iO&", take_array, &a[0], take_array, &a[1], &id, take_array, &a[2])) return NULL;
  int fits = lists_fit(a);
  if (fits) {
    Py_BEGIN_ALLOW_THREADS
    list_counts(a[0].numbers, a[1].numbers, (size_t)a[2].count, id, a[2].numbers);
    Py_END_ALLOW_THREADS
  }
  release_arrays(a, 3);
  return fits ? Py_NewRef(Py_None) : failed(BAD_OFFSETS);
}

PyMethodDef text_functions[] = {{"csv_rows", rows_of_csv, METH_VARARGS, NULL},
                                {"row_ends", row_ends_of, METH_VARARGS, NULL},
                                {"plain_json_lines", lines_of_json, METH_VARARGS, NULL},
                                {"word_hashes", words_of_texts, METH_VARARGS, NULL},
                                {"run_hashes", runs_of_texts, METH_VARARGS, NULL},
                                {"list_digests", digests_of_lists, METH_VARARGS, NULL},
                                {"list_counts", counts_of_lists, METH_VARARGS, NULL},
                                {NULL, NULL, 0, NULL}};
