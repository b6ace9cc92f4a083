/* Read back records of token ids that records.c wrote without padding. */
#ifndef T5PREP_READ_RECORDS_H
#define T5PREP_READ_RECORDS_H

#include <stddef.h>
#include <stdint.h>

/* Ids of records and their tokens, one after the other; those of record i begin at its start. The arrays have room for all
   bytes that are read: no token and no id takes less than a byte. */
typedef struct {
  uint8_t *ids;
  int32_t *inputs, *labels;
  int64_t *id_starts, *input_starts, *label_starts; /* one more than records */
} Read;

/* Read framed records, `count` with these sizes, one after the other. Return OK, or BAD_OFFSETS where they are no such records. */
int records_read(const uint8_t *bytes, size_t size, const uint32_t *sizes, size_t count, Read *out);

#endif
