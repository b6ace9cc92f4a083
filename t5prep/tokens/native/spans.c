/* Hide spans of tokens: the same numbers and the same cuts as the definition in Python, a row at a time. */
#include "spans.h"

#include <stdlib.h>
#include <string.h>

#include "unigram.h"

/* SplitMix64 (Steele et al. 2014); the number's place is the counter. */
static uint64_t draw(uint64_t key, uint64_t place) {
  uint64_t state = key + (place + 1) * 0x9E3779B97F4A7C15u;
  state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9u;
  state = (state ^ (state >> 27)) * 0x94D049BB133111EBu;
  return state ^ (state >> 31);
}

/* Let the number at `top` sink in a heap whose greatest is first. */
static void sink(uint64_t *heap, size_t size, size_t top) {
  uint64_t moved = heap[top];
  for (size_t below = 2 * top + 1; below < size; below = 2 * top + 1) {
    if (below + 1 < size && heap[below + 1] > heap[below]) below++;
    if (heap[below] <= moved) break;
    heap[top] = heap[below];
    top = below;
  }
  heap[top] = moved;
}

static int ascending(const void *one, const void *other) {
  uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
  return (a > b) - (a < b);
}

/* Cut `items` into `parts` runs: ends[i] is where run i ends. The cuts are behind the places of the smallest numbers drawn,
   whose low bits are their place. */
static void cut(uint64_t key, size_t first, size_t items, size_t parts, uint64_t *ends) {
  size_t cuts = parts - 1, numbers = items - 1;
  uint64_t low = 1;
  while (low <= items) low <<= 1;
  low--;
  for (size_t i = 0; i < numbers && cuts; i++) {
    uint64_t tagged = (draw(key, first + i) & ~low) | i;
    if (i < cuts) {
      ends[i] = tagged;
      if (i + 1 == cuts)
        for (size_t top = cuts / 2 + 1; top-- > 0;) sink(ends, cuts, top);
    } else if (tagged < ends[0]) {
      ends[0] = tagged;
      sink(ends, cuts, 0);
    }
  }
  for (size_t i = 0; i < cuts; i++) ends[i] = (ends[i] & low) + 1;
  qsort(ends, cuts, sizeof *ends, ascending);
  ends[cuts] = items;
}

static int32_t *copied(int32_t *out, const int32_t *from, size_t count) {
  memcpy(out, from, count * sizeof *out);
  return out + count;
}

int spans_hide(const Rows *rows, int32_t *inputs, int32_t *targets) {
  size_t visible = rows->length - rows->hidden;
  uint64_t *ends = malloc(2 * rows->spans * sizeof *ends), *hidden_ends = ends ? ends + rows->spans : NULL;
  if (!ends) return NO_MEMORY;
  for (size_t row = 0; row < rows->rows; row++) {
    const int32_t *token = rows->tokens + row * rows->length;
    cut(rows->keys[row], rows->hidden - 1, visible, rows->spans, ends);
    cut(rows->keys[row], 0, rows->hidden, rows->spans, hidden_ends);
    uint64_t seen = 0, hid = 0;
    for (size_t i = 0; i < rows->spans; i++) {
      int32_t sentinel = rows->first_sentinel - (int32_t)i;
      inputs = copied(inputs, token, (size_t)(ends[i] - seen));
      token += ends[i] - seen;
      *inputs++ = *targets++ = sentinel;
      targets = copied(targets, token, (size_t)(hidden_ends[i] - hid));
      token += hidden_ends[i] - hid;
      seen = ends[i];
      hid = hidden_ends[i];
    }
    *inputs++ = *targets++ = rows->eos;
  }
  free(ends);
  return OK;
}
