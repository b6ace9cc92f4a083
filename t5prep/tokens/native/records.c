/* Write tf.train.Example records as TensorFlow's deterministic serialization does, features in the order of their names, and
   frame them (t5prep/dataset/tfrecord.py names the definitions of the formats, and writes the same bytes). */
#include "records.h"

#include <stdlib.h>
#include <string.h>

#include "unigram.h"

#define LONGEST_VARINT 10
#define FRAME 16
/* More bytes than all tags, lengths and names of one record take. */
#define AROUND 128
/* The tags of the two lists of Feature that are used. */
#define STRINGS 0x0a
#define NUMBERS 0x1a

static uint8_t *put_varint(uint8_t *at, uint64_t value) {
  for (; value > 0x7f; value >>= 7) *at++ = (uint8_t)(value | 0x80);
  *at++ = (uint8_t)value;
  return at;
}

static size_t varint_size(uint64_t value) {
  size_t size = 1;
  for (; value > 0x7f; value >>= 7) size++;
  return size;
}

static uint8_t *put_little_endian(uint8_t *at, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) *at++ = (uint8_t)(value >> 8 * i);
  return at;
}

static uint8_t *put_bytes(uint8_t *at, const void *bytes, size_t size) {
  memcpy(at, bytes, size);
  return at + size;
}

/* Write the bytes before the values of a feature: the map's entry, its name, the feature, and `list`, the tag of its list.
   An empty list of packed numbers is left out; an empty string is written. */
static uint8_t *put_head(uint8_t *at, const char *name, uint8_t list, uint64_t size) {
  int empty = list == NUMBERS && !size;
  uint64_t name_size = strlen(name), inner = empty ? 0 : 1 + varint_size(size) + size;
  uint64_t feature = 1 + varint_size(inner) + inner;
  uint64_t entry = 1 + varint_size(name_size) + name_size + 1 + varint_size(feature) + feature;
  *at++ = 0x0a;
  at = put_varint(at, entry);
  *at++ = 0x0a;
  at = put_varint(at, name_size);
  at = put_bytes(at, name, (size_t)name_size);
  *at++ = 0x12;
  at = put_varint(at, feature);
  *at++ = list;
  at = put_varint(at, inner);
  if (empty) return at;
  *at++ = 0x0a;
  return put_varint(at, size);
}

static uint8_t *put_mask(uint8_t *at, const Lists *lists, int64_t ones) {
  if (!lists->mask) return at;
  at = put_head(at, lists->mask, NUMBERS, (uint64_t)lists->length);
  memset(at, 1, (size_t)ones);
  memset(at + ones, 0, (size_t)(lists->length - ones));
  return at + lists->length;
}

static uint8_t *put_ids(uint8_t *at, const Lists *lists, size_t row) {
  const int32_t *value = lists->values + lists->starts[row], *end = lists->values + lists->starts[row + 1];
  uint8_t pad[LONGEST_VARINT];
  size_t pad_size = (size_t)(put_varint(pad, (uint64_t)lists->pad) - pad), size = 0;
  int64_t missing = lists->length ? lists->length - (end - value) : 0;
  for (const int32_t *one = value; one < end; one++) {
    uint32_t id = (uint32_t)*one;
    size += 1 + (id > 0x7f) + (id > 0x3fff) + (id > 0x1fffff) + (id > 0xfffffff);
  }
  at = put_head(at, lists->name, NUMBERS, size + (uint64_t)missing * pad_size);
  for (; value < end; value++) at = put_varint(at, (uint32_t)*value);
  if (pad_size == 1) {
    memset(at, pad[0], (size_t)missing);
    return at + missing;
  }
  while (missing-- > 0) at = put_bytes(at, pad, pad_size);
  return at;
}

static int64_t most_bytes(const Lists *lists, size_t row) {
  int64_t count = lists->starts[row + 1] - lists->starts[row];
  if (lists->length > count) count = lists->length;
  return count * (LONGEST_VARINT + (lists->mask != NULL)) + 2 * AROUND;
}

static int inside(const int64_t *starts, size_t row, int64_t total) {
  return starts[row] >= 0 && starts[row] <= starts[row + 1] && starts[row + 1] <= total;
}

static int valid(const Lists *lists, size_t row, int64_t *count) {
  if (!inside(lists->starts, row, lists->total)) return 0;
  *count = lists->starts[row + 1] - lists->starts[row];
  return !lists->length || *count <= lists->length;
}

static int write_record(const Batch *batch, size_t row, Buffer *out, uint32_t *size) {
  int64_t inputs, labels;
  if (!inside(batch->id_starts, row, batch->ids_size) || !valid(&batch->inputs, row, &inputs) || !valid(&batch->labels, row, &labels)) return BAD_OFFSETS;
  int64_t id_size = batch->id_starts[row + 1] - batch->id_starts[row];
  size_t most = (size_t)(id_size + most_bytes(&batch->inputs, row) + most_bytes(&batch->labels, row)) + AROUND + FRAME;
  if (out->room - out->size < most) {
    size_t room = out->size + most + out->room / 2;
    uint8_t *bytes = realloc(out->bytes, room);
    if (!bytes) return NO_MEMORY;
    out->bytes = bytes;
    out->room = room;
  }
  /* The length of all features is written before them: they are written after room for its longest form, and then moved. */
  uint8_t *begin = out->bytes + out->size, *features = begin + 12 + 1 + LONGEST_VARINT, *at = features;
  at = put_mask(at, &batch->inputs, inputs);
  at = put_mask(at, &batch->labels, labels);
  at = put_head(at, "id", STRINGS, (uint64_t)id_size);
  at = put_bytes(at, batch->ids + batch->id_starts[row], (size_t)id_size);
  at = put_ids(at, &batch->inputs, row);
  at = put_ids(at, &batch->labels, row);
  size_t features_size = (size_t)(at - features);
  begin[12] = 0x0a;
  uint8_t *after = put_varint(begin + 13, features_size);
  memmove(after, features, features_size);
  uint64_t length = (uint64_t)(after + features_size - (begin + 12));
  put_little_endian(begin, length, 8);
  put_little_endian(begin + 8, masked_crc(begin, 8), 4);
  put_little_endian(begin + 12 + length, masked_crc(begin + 12, (size_t)length), 4);
  if (length > UINT32_MAX - FRAME) return BAD_TEXT;
  *size = (uint32_t)(length + FRAME);
  out->size += (size_t)length + FRAME;
  return OK;
}

int records_write(const Batch *batch, size_t rows, Buffer *out, uint32_t *sizes) {
  for (size_t i = 0; i < batch->count; i++) {
    if (batch->order[i] < 0 || (uint64_t)batch->order[i] >= rows) return BAD_OFFSETS;
    int status = write_record(batch, (size_t)batch->order[i], out, &sizes[i]);
    if (status != OK) return status;
  }
  return OK;
}
