/* Multiply few rows by a large matrix, which is read once, in order, while the sums stay in registers.
 *
 * step.c includes this file once for each instruction set, with TARGET (the attribute of its functions), NAME (their
 * names), VECTOR (its vector of floats), LANES (how many floats that is) and MOST (rows that fit its registers beside a
 * panel of PANEL columns).
 */

/* Multiply `rows` rows of `left`, [rows, inner], by a panel of `vectors` * LANES columns, [inner, vectors * LANES], into
 * `out`, whose rows are `stride` floats apart. Meanwhile fetch what will be read next: `step` bytes from `next` on for each
 * of the `inner` numbers, at most two cache lines. */
TARGET static inline __attribute__((always_inline)) void NAME(tile)(const int rows, const int vectors, const float *left,
                                                                    int64_t inner, const float *panel, float *out,
                                                                    int64_t stride, const char *next, int64_t step) {
  VECTOR sums[MOST][PANEL / LANES] = {{{0}}};
  for (int64_t i = 0; i < inner; i++) {
    VECTOR right[PANEL / LANES];
    __builtin_prefetch(next + i * step);
    __builtin_prefetch(next + i * step + LINE);
    for (int v = 0; v < vectors; v++) right[v] = *(const VECTOR *)(panel + (i * vectors + v) * LANES);
    _Pragma("GCC unroll 16") for (int row = 0; row < rows; row++) {
      const float one = left[row * inner + i];
      for (int v = 0; v < vectors; v++) sums[row][v] += one * right[v];
    }
  }
  _Pragma("GCC unroll 16") for (int row = 0; row < rows; row++) {
    for (int v = 0; v < vectors; v++) *(VECTOR *)(out + row * stride + v * LANES) = sums[row][v];
  }
}

#define CASE(ROWS)                                                          \
  case ROWS:                                                                \
    NAME(tile)(ROWS, vectors, left, inner, panel, out, stride, next, step); \
    return;

/* Call `tile` for a panel of PANEL columns and at most MOST rows, or of half as many columns. */
TARGET static void NAME(wide)(int rows, const float *left, int64_t inner, const float *panel, float *out, int64_t stride,
                              const char *next, int64_t step) {
  enum { vectors = PANEL / LANES };
  switch (rows) {
    CASE(1) CASE(2) CASE(3)
#if MOST > 3
    CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#endif
  }
}
TARGET static void NAME(narrow)(int rows, const float *left, int64_t inner, const float *panel, float *out, int64_t stride,
                                const char *next, int64_t step) {
  enum { vectors = PANEL / LANES / 2 };
  switch (rows) {
    CASE(1) CASE(2) CASE(3)
#if MOST > 3
    CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#endif
  }
}
#undef CASE

/* Write the product of rows, [rows, inner], and a matrix in panels, [panels, inner, PANEL]: [rows, columns]. */
void *NAME(rows_by_panels)(xla_call *call) {
  if (asks_for_version(call)) return NULL;
  const float *left = data_of(&call->arguments, 0), *panels = data_of(&call->arguments, 1);
  const int64_t inner = size_of(&call->arguments, 0, 1);
  const int64_t rows = size_of(&call->results, 0, 0), columns = size_of(&call->results, 0, 1);
  const int64_t turns = (rows + MOST - 1) / MOST, step = (int64_t)sizeof(float) * PANEL / turns;
  for (int64_t first = 0; first < columns; first += PANEL) {
    const float *panel = panels + first * inner;
    const char *next = (const char *)(panel + PANEL * inner); /* the next panel, of which each turn fetches a part */
    for (int64_t turn = 0, row = 0; turn < turns; turn++) {
      const int together = (int)((rows - row + turns - turn - 1) / (turns - turn)), fits = columns - first >= PANEL;
      float whole[MOST * PANEL], *out = data_of(&call->results, 0) + row * columns + first;
      NAME(wide)(together, left + row * inner, inner, panel, fits ? out : whole, fits ? columns : PANEL,
                 next + turn * inner * step, step);
      if (!fits) copy_columns(whole, PANEL, out, columns, together, columns - first);
      row += together;
    }
  }
  return NULL;
}

/* Write the product of a table, [entries, inner], and the rows of a matrix, [columns, inner]: [entries, columns]. */
void *NAME(table_by_rows)(xla_call *call) {
  if (asks_for_version(call)) return NULL;
  const float *table = data_of(&call->arguments, 0);
  const int64_t inner = size_of(&call->arguments, 0, 1);
  const int64_t entries = size_of(&call->results, 0, 0), columns = size_of(&call->results, 0, 1);
  const int64_t turns = (columns + PANEL - 1) / PANEL, step = (int64_t)sizeof(float) * MOST / turns;
  void *memory;
  const float *panels = rows_in_panels(data_of(&call->arguments, 1), columns, inner, &memory);
  for (int64_t entry = 0; entry < entries; entry += MOST) {
    const int together = (int)(entries - entry < MOST ? entries - entry : MOST);
    const float *own = table + entry * inner;
    const char *next = (const char *)(own + MOST * inner); /* the next rows of the table */
    for (int64_t turn = 0; turn < turns; turn++) {
      const int64_t first = turn * PANEL, left = columns - first, width = width_of(left);
      const int fits = left >= width;
      float whole[MOST * PANEL], *out = data_of(&call->results, 0) + entry * columns + first;
      (width == PANEL ? NAME(wide) : NAME(narrow))(together, own, inner, panels + first * inner, fits ? out : whole,
                                                   fits ? columns : width, next + turn * inner * step, step);
      if (!fits) copy_columns(whole, width, out, columns, together, left);
    }
  }
  free(memory);
  return NULL;
}
