/* Read back records of token ids: Examples with the features id, input_ids and labels, in this order (records.c). */
#include "read_records.h"

#include <string.h>

#include "unigram.h"

/* Bytes of a frame before the record and behind it. */
#define FRAME_HEAD 12
#define FRAME_TAIL 4

typedef struct {
  const uint8_t *at, *end;
} Part;

static int varint(Part *part, uint64_t *value) {
  *value = 0;
  for (int shift = 0; part->at < part->end && shift < 64; shift += 7) {
    uint8_t byte = *part->at++;
    *value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return 1;
  }
  return 0;
}

/* Take a length-delimited field with this tag from the beginning of a part. */
static int field(Part *part, uint8_t tag, Part *content) {
  uint64_t size;
  if (part->at == part->end || *part->at != tag) return 0;
  part->at++;
  if (!varint(part, &size) || size > (uint64_t)(part->end - part->at)) return 0;
  content->at = part->at;
  content->end = part->at += size;
  return 1;
}

/* Take the entry of one feature: its values, the content of a list's only field; an empty list has none. */
static int feature(Part *features, const char *name, uint8_t list, Part *values) {
  Part entry, key, value, inner;
  if (!field(features, 0x0a, &entry) || !field(&entry, 0x0a, &key) || !field(&entry, 0x12, &value) || !field(&value, list, &inner)) return 0;
  if ((size_t)(key.end - key.at) != strlen(name) || memcmp(key.at, name, strlen(name))) return 0;
  *values = inner;
  return inner.at == inner.end || (field(&inner, 0x0a, values) && inner.at == inner.end);
}

static int tokens(Part values, int32_t *out, int64_t *count) {
  uint64_t value;
  while (values.at < values.end) {
    if (*values.at < 0x80) value = *values.at++;
    else if (!varint(&values, &value) || value > INT32_MAX) return 0;
    out[(*count)++] = (int32_t)value;
  }
  return 1;
}

static int record(Part framed, Read *out, size_t i) {
  Part features, id, inputs, labels, whole = {framed.at + FRAME_HEAD, framed.end - FRAME_TAIL};
  if (!field(&whole, 0x0a, &features) || whole.at != whole.end) return 0;
  if (!feature(&features, "id", 0x0a, &id) || !feature(&features, "input_ids", 0x1a, &inputs) || !feature(&features, "labels", 0x1a, &labels)) return 0;
  if (features.at != features.end) return 0;
  size_t size = (size_t)(id.end - id.at);
  memcpy(out->ids + out->id_starts[i], id.at, size);
  out->id_starts[i + 1] = out->id_starts[i] + (int64_t)size;
  out->input_starts[i + 1] = out->input_starts[i];
  out->label_starts[i + 1] = out->label_starts[i];
  return tokens(inputs, out->inputs, &out->input_starts[i + 1]) && tokens(labels, out->labels, &out->label_starts[i + 1]);
}

int records_read(const uint8_t *bytes, size_t size, const uint32_t *sizes, size_t count, Read *out) {
  Part left = {bytes, bytes + size};
  out->id_starts[0] = out->input_starts[0] = out->label_starts[0] = 0;
  for (size_t i = 0; i < count; i++) {
    if (sizes[i] < FRAME_HEAD + FRAME_TAIL || sizes[i] > (size_t)(left.end - left.at)) return BAD_OFFSETS;
    Part framed = {left.at, left.at + sizes[i]};
    if (!record(framed, out, i)) return BAD_OFFSETS;
    left.at = framed.end;
  }
  return left.at == left.end ? OK : BAD_OFFSETS;
}
