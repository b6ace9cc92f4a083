/* Write tf.train.Example records as TensorFlow's deterministic serialization does, features in the order of their names, and
   frame them (t5prep/dataset/tfrecord.py names the definitions of the formats, and writes the same bytes). */
#include "records.h"

#include <string.h>

#include "record_parts.h"
#include "unigram.h"

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
  for (; value < end; value++) at = put_id(at, (uint32_t)*value);
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
  size_t most = (size_t)(id_size + most_bytes(&batch->inputs, row) + most_bytes(&batch->labels, row)) + AROUND;
  uint8_t *features = begin_record(out, most), *at = features;
  if (!features) return NO_MEMORY;
  at = put_mask(at, &batch->inputs, inputs);
  at = put_mask(at, &batch->labels, labels);
  at = put_head(at, "id", STRINGS, (uint64_t)id_size);
  at = put_bytes(at, batch->ids + batch->id_starts[row], (size_t)id_size);
  at = put_ids(at, &batch->inputs, row);
  at = put_ids(at, &batch->labels, row);
  return end_record(out, features, at, size);
}

int records_write(const Batch *batch, size_t rows, Buffer *out, uint32_t *sizes) {
  for (size_t i = 0; i < batch->count; i++) {
    if (batch->order[i] < 0 || (uint64_t)batch->order[i] >= rows) return BAD_OFFSETS;
    int status = write_record(batch, (size_t)batch->order[i], out, &sizes[i]);
    if (status != OK) return status;
  }
  return OK;
}
