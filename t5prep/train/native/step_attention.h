/* Attend from one query of each row to the keys and values of a cache, which are read once and in order.
 *
 * step.c includes this file once for each instruction set, with TARGET, NAME, VECTOR and LANES as for step_products.h.
 */

/* Write the sum of values, [count, size], each times its share: `vectors` * LANES of each value's `size` numbers. */
TARGET static inline __attribute__((always_inline)) void NAME(weighted_sum)(const int vectors, const float *values,
                                                                            const float *shares, int64_t count,
                                                                            int64_t size, const float *next, float *out) {
  VECTOR sums[64 / LANES] = {{0}};
  for (int64_t key = 0; key < count; key++) {
    for (int line = 0; line < vectors * LANES; line += LINE / 4) __builtin_prefetch(next + key * size + line);
    for (int v = 0; v < vectors; v++) sums[v] += shares[key] * *(const VECTOR *)(values + key * size + v * LANES);
  }
  for (int v = 0; v < vectors; v++) *(VECTOR *)(out + v * LANES) = sums[v];
}

/* Write the scores of the first `count` keys, [count, size], with their biases, and return the highest one. */
TARGET static float NAME(scores)(const float *query, const float *keys, const float *biases, int64_t count, int64_t size,
                                 const float *next, float *scores) {
  float highest = -INFINITY;
  for (int64_t key = 0; key < count; key++) {
    VECTOR sums = {0};
    float score = biases[key];
    for (int64_t i = 0; i < size; i += LINE / 4) __builtin_prefetch(next + key * size + i);
    for (int64_t i = 0; i < size; i += LANES)
      sums += *(const VECTOR *)(query + i) * *(const VECTOR *)(keys + key * size + i);
    for (int lane = 0; lane < LANES; lane++) score += sums[lane];
    scores[key] = score;
    if (score > highest) highest = score;
  }
  return highest;
}

/* Arguments: queries, [rows, heads * size]; keys and values, [rows, heads, length, size]; biases, [rows or 1, heads or 1,
 * length], added to the scores; how many keys are attended to, int32. The result is [rows, heads * size]. `size` is a
 * multiple of 16. */
TARGET void *NAME(attend)(xla_call *call) {
  if (asks_for_version(call)) return NULL;
  const xla_buffers *given = &call->arguments;
  const float *query = data_of(given, 0), *keys = data_of(given, 1), *values = data_of(given, 2);
  const int64_t rows = size_of(given, 1, 0), heads = size_of(given, 1, 1);
  const int64_t length = size_of(given, 1, 2), size = size_of(given, 1, 3);
  const int64_t by_head = size_of(given, 3, 1) > 1 ? length : 0;
  const int64_t by_row = size_of(given, 3, 0) > 1 ? size_of(given, 3, 1) * length : 0;
  const int64_t asked = *(const int32_t *)given->buffers[4]->data;
  const int64_t count = asked < 1 ? 1 : asked > length ? length : asked;
  float *shares = malloc((size_t)length * sizeof(float)), *out = data_of(&call->results, 0);
  if (!shares) abort(); /* as in rows_in_panels */
  for (int64_t row = 0; row < rows; row++) {
    for (int64_t head = 0; head < heads; head++, query += size, out += size) {
      const int64_t at = (row * heads + head) * length * size, next = at + length * size;
      const float *biases = (const float *)data_of(given, 3) + row * by_row + head * by_head;
      const float highest = NAME(scores)(query, keys + at, biases, count, size, keys + next, shares);
      float sum = 0;
      for (int64_t key = 0; key < count; key++) sum += shares[key] = expf(shares[key] - highest);
      for (int64_t key = 0; key < count; key++) shares[key] /= sum;
      if (size % 64 == 0) {
        for (int64_t i = 0; i < size; i += 64)
          NAME(weighted_sum)(64 / LANES, values + at + i, shares, count, size, values + next + i, out + i);
      } else {
        for (int64_t i = 0; i < size; i += 16)
          NAME(weighted_sum)(16 / LANES, values + at + i, shares, count, size, values + next + i, out + i);
      }
    }
  }
  free(shares);
  return NULL;
}
