/* Write records of several examples each. */
#ifndef T5PREP_PACK_RECORDS_H
#define T5PREP_PACK_RECORDS_H

#include "records.h"

/* Row r holds the examples batch.order[row_starts[r] .. row_starts[r + 1]), in this order. */
typedef struct {
  Batch batch;
  size_t examples; /* how many there are in all */
  const int64_t *row_starts;
  size_t rows;
} Packing;

/* Append a record for each row; sizes[r] is its number of bytes. Return OK, NO_MEMORY, or BAD_OFFSETS. */
int pack_write(const Packing *packing, Buffer *out, uint32_t *sizes);

/* Find the row of each example by first-fit (t5prep/tokens/packing.py): `lengths` are pairs of inputs and targets, each at most
   as long as `room`. Return OK or NO_MEMORY. */
int pack_fit(const int64_t *lengths, size_t examples, const int64_t room[2], int64_t *rows);

#endif
