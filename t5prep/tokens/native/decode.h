/* Read token ids out of serialized tf.train.Example records. */
#ifndef T5PREP_DECODE_H
#define T5PREP_DECODE_H

#include <stddef.h>
#include <stdint.h>

/* A feature to read: `length` values a row, the rest of a row filled with `fill`. Where `exact`, a record must have `length`. */
typedef struct {
  const char *name;
  size_t name_size;
  int32_t *values;
  int64_t length;
  int32_t fill;
  int exact;
} Wanted;

/* The status of a record that is not as this project writes it; TensorFlow's parser reads it, or says what is wrong. */
enum { NOT_PLAIN = -5 };

/* Write the ids of one record into row `row` of each of `count` features. Return OK or NOT_PLAIN. */
int record_decode(const uint8_t *record, size_t size, const Wanted *wanted, size_t count, size_t row);

#endif
