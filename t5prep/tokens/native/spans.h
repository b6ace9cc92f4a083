/* Hide spans of tokens, as t5prep/tokens/span_corruption.py defines it. */
#ifndef T5PREP_SPANS_H
#define T5PREP_SPANS_H

#include <stddef.h>
#include <stdint.h>

/* Rows of `length` tokens, of which `hidden` are hidden in `spans` spans: 0 < spans <= hidden, spans <= length - hidden. */
typedef struct {
  const int32_t *tokens;
  const uint64_t *keys; /* one a row */
  size_t rows, length, hidden, spans;
  int32_t first_sentinel, eos;
} Rows;

/* Write length - hidden + spans + 1 inputs and hidden + spans + 1 targets a row. Return OK or NO_MEMORY. */
int spans_hide(const Rows *rows, int32_t *inputs, int32_t *targets);

#endif
