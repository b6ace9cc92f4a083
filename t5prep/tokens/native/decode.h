/* Read token ids out of serialized tf.train.Example records, which lie in blocks of a TFRecord file. */
#ifndef T5PREP_DECODE_H
#define T5PREP_DECODE_H

#include <stddef.h>
#include <stdint.h>

/* A feature to read: the first `length` values of a record a row, the rest of a row filled with `fill`. A record must have
   `count` values; at most `length` where that is -1. */
typedef struct {
  const char *name;
  size_t name_size;
  int32_t *values;
  int64_t length;
  int32_t fill;
  int64_t count;
} Wanted;

/* Where a record lies: its bytes are [begin, begin + size) of a block. t5prep/dataset/record_blocks.py has the same fields. */
typedef struct {
  int64_t block, begin, size;
} Place;

/* The status of a record that is not as this project writes it; TensorFlow's parser reads it, or says what is wrong. */
enum { NOT_PLAIN = -5 };

/* The status of a block that does not hold so many whole records with right checksums. */
enum { BROKEN = -6 };

/* Write the ids of one record into row `row` of each of `count` features. Return OK or NOT_PLAIN. */
int record_decode(const uint8_t *record, size_t size, const Wanted *wanted, size_t count, size_t row);

/* Write where the `count` records of a block lie, with `number` as their block. Return OK or BROKEN. */
int block_cut(const uint8_t *block, size_t size, int64_t number, Place *places, int64_t count);

#endif
