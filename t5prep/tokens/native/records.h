/* Write tf.train.Example records of token ids, framed as TFRecords. */
#ifndef T5PREP_RECORDS_H
#define T5PREP_RECORDS_H

#include <stddef.h>
#include <stdint.h>

#include "record_parts.h"

/* Lists of ids: list i is values[starts[i] .. starts[i + 1]). A record holds `length` ids, padded with `pad`; 0 for no padding.
   `mask` is the name of a feature of ones and, where padded, zeros; NULL for none. */
typedef struct {
  const char *name, *mask;
  const int32_t *values;
  const int64_t *starts;
  int64_t total, length; /* total: the number of values */
  int64_t pad;
} Lists;

typedef struct {
  const uint8_t *ids;       /* UTF-8 */
  const int64_t *id_starts; /* id i is ids[id_starts[i] .. id_starts[i + 1]) */
  int64_t ids_size;
  Lists inputs, labels;
  const int64_t *order; /* record i is row order[i] */
  size_t count;
} Batch;

/* Append the records; sizes[i] is the number of bytes of record i. Return OK, NO_MEMORY, or BAD_OFFSETS. */
int records_write(const Batch *batch, size_t rows, Buffer *out, uint32_t *sizes);

#endif
