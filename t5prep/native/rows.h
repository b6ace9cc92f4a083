/* Compute on rows of token ids. */
#ifndef T5PREP_ROWS_H
#define T5PREP_ROWS_H

#include <stddef.h>
#include <stdint.h>

/* Find the row of each example by first-fit (t5prep/tokens/ragged.py): `lengths` are pairs of inputs and targets, each at most as long
   as `room`. Return OK, NO_MEMORY or BAD_OFFSETS. */
int first_fit_rows(const int64_t *lengths, size_t examples, const int64_t room[2], int64_t *rows);

/* Rows of `length` tokens, of which `hidden` are hidden in `spans` spans: 0 < spans <= hidden, spans <= length - hidden. */
typedef struct {
  const int32_t *tokens;
  const uint64_t *keys; /* one a row */
  size_t rows, length, hidden, spans;
  int32_t first_sentinel, eos;
} Rows;

/* Hide spans as t5prep/tokens/span_corruption.py defines it: write length - hidden + spans + 1 inputs and hidden + spans + 1 targets a row. Return OK or NO_MEMORY. */
int spans_hide(const Rows *rows, int32_t *inputs, int32_t *targets);

#endif
