/* Write and read TFRecords of tf.train.Example. */
#ifndef T5PREP_RECORDS_H
#define T5PREP_RECORDS_H

#include <stddef.h>
#include <stdint.h>

#include "rows.h"

/* Bytes of a frame before a record, its length and the length's checksum, and behind it, its own checksum. */
#define FRAME_HEAD 12
#define FRAME_TAIL 4

/* Texts in UTF-8: text i is bytes[starts[i] .. starts[i + 1]). */
typedef struct {
  const uint8_t *bytes;
  const int64_t *starts;
  int64_t total; /* the number of bytes */
} Texts;

/* Lists of token ids: list i is values[starts[i] .. starts[i + 1]). A record holds `length` ids, padded with `pad`; 0 for no padding. */
typedef struct {
  const void *values;
  const int64_t *starts;
  int64_t total; /* the number of values */
  int width;     /* bytes of a value: 2 for uint16, 4 for int32 */
  int64_t length, pad;
} Lists;

/* Columns of examples, and what records are made of them: record r holds the examples starts[r] .. starts[r + 1]. That is one, unless
   records are `packed`. The references of an example are its right answers, each behind its size in four bytes. */
typedef struct {
  Texts ids, references;
  Lists inputs, labels;
  size_t examples; /* how many there are in all */
  const int64_t *starts;
  size_t records;
  int mask, label_mask; /* whether to write a mask of each side */
  int types;            /* whether to write token types: 1 behind the first `separator` */
  int64_t separator;
  int packed;
} Batch;

/* Framed records: bytes[begin .. room). Who makes one empty, frees its bytes. */
typedef struct {
  uint8_t *bytes;
  int64_t room, begin;
} Framed;

/* Fill what records_frame copies from; to be called once, before it. */
void records_prepare(void);

/* Write all records, one after the other, and the bytes of each into `sizes`; keep only the first record unless `keep`. Return OK,
   NO_MEMORY, BAD_OFFSETS, or BAD_TEXT where a record is too long. */
int records_frame(const Batch *batch, int keep, uint32_t *sizes, Framed *out);

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

/* Where a record lies: its bytes are [begin, begin + size) of a block. t5prep/dataset/tfrecord.py has the same fields. */
typedef struct {
  int64_t block, begin, size;
} Place;

/* A block of a TFRecord file. */
typedef struct {
  const uint8_t *bytes;
  int64_t size;
} Block;

/* Decode records at these places into row 0, 1, ... of each of `count` features; a `mask`, if it is not NULL, gets 0 where the first
   feature has the id `pad`, else 1. Return how many were decoded before the first that is not as this project writes it: TensorFlow's
   parser reads that, or says what is wrong. */
int64_t decode_all(const Block *blocks, int64_t given, const Place *places, int64_t rows, const Wanted *wanted, size_t count,
                   int32_t *mask, int32_t pad);

/* Write the text of the ids of a feature of each record, filled up to its length, as row_write does (rows.h), and where it ends. A row of
   ids is written while it is near: rows of all records at once would go to memory and back. Return OK, NO_MEMORY, BAD_OFFSETS, or
   BAD_TEXT for a record that is not plain, and what row_write says. */
int texts_write(const Block *blocks, int64_t given, const Place *places, int64_t rows, const Wanted *wanted, const Pieces *pieces,
                Letters *out, int32_t *counts, int32_t *ends, uint8_t *marked);

/* Texts of records, one after the other: text i ends at ends[i + 1]. */
typedef struct {
  int64_t count, size; /* how many there are, and their bytes */
  int32_t *ends;
  uint8_t *bytes;
} Strings;

/* Read the values of the feature `name`, which are bytes, and how many each record has; of a record without the feature 0. Without
   `bytes` in `out`, count alone: then the same call writes into as many bytes, and count + 1 ends, of which the first is left alone.
   Return OK, BAD_OFFSETS, or BAD_TEXT for a record that is something else, or too much. */
int strings_read(const Block *blocks, int64_t given, const Place *places, int64_t rows, const char *name, size_t name_size,
                 int32_t *counts, Strings *out);

/* Write where the `count` records of a block lie, with `number` as their block. Return OK, or BAD_OFFSETS where it does not hold so many
   whole records with right checksums. */
int block_cut(const Block *block, int64_t number, Place *places, int64_t count);

/* Fill the tables of the checksums; to be called once, before any other function. */
void crc_prepare(void);

/* Return the CRC-32C (Castagnoli), masked as in TFRecord files. */
uint32_t masked_crc(const uint8_t *bytes, size_t size);

#endif
