/* Read tf.train.Example records as records.c and TensorFlow write them: each list of numbers is one packed field. */
#include "decode.h"

#include <string.h>

#include "unigram.h"

#define MOST_FEATURES 64
/* The tags of Example.features, an entry of its map, and an entry's key; of an entry's value; of Feature.int64_list. */
#define FIRST 0x0a
#define VALUE 0x12
#define NUMBERS 0x1a
#define CONTINUES UINT64_C(0x8080808080808080)

typedef struct {
  const uint8_t *at, *end;
} Span;

/* Read a varint of at most ten bytes, as protocol buffers do. Return 0 where there is none. */
static int take_varint(Span *from, uint64_t *value) {
  *value = 0;
  for (int shift = 0; shift < 70 && from->at < from->end; shift += 7) {
    uint8_t byte = *from->at++;
    if (shift < 64) *value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return 1;
  }
  return 0;
}

/* Read a field with `tag` and a length, and where its content lies. Return 0 where the next field is another one. */
static int take(Span *from, uint8_t tag, Span *content) {
  uint64_t size;
  if (from->at == from->end || *from->at++ != tag || !take_varint(from, &size)) return 0;
  if (size > (uint64_t)(from->end - from->at)) return 0;
  content->at = from->at;
  content->end = from->at += size;
  return 1;
}

/* Read up to `most` varints as ids, many bytes at a time where they are there. Return how many, or -1 for a broken one. */
static int64_t take_ids(Span *values, int32_t *ids, int64_t most) {
  Span from = *values;
  int64_t count = 0;
  while (from.at < from.end && count < most) {
    if (from.end - from.at >= 8) {
      uint64_t bytes = eight_bytes(from.at);
      if (!(bytes & CONTINUES) && most - count >= 8) {
        for (int i = 0; i < 8; i++) ids[count + i] = (int32_t)(bytes >> 8 * i & 0xff);
        count += 8;
        from.at += 8;
        continue;
      }
      if (!(bytes & 0x80)) {
        ids[count++] = (int32_t)(bytes & 0x7f);
        from.at++;
        continue;
      }
      if (!(bytes & 0x8000)) {
        ids[count++] = (int32_t)((bytes & 0x7f) | (bytes >> 1 & 0x3f80));
        from.at += 2;
        continue;
      }
    }
    uint64_t value;
    if (!take_varint(&from, &value)) return -1;
    ids[count++] = (int32_t)(uint32_t)value;
  }
  *values = from;
  return count;
}

/* Return how many varints there are. A broken one at the end does not count. */
static int64_t count_values(Span values) {
  int64_t count = 0;
  while (values.at < values.end) count += *values.at++ < 0x80;
  return count;
}

static int read_values(Span feature, const Wanted *wanted, size_t row) {
  Span list, packed;
  if (!take(&feature, NUMBERS, &list) || feature.at != feature.end) return 0;
  if (list.at == list.end) packed = list; /* no values */
  else if (!take(&list, FIRST, &packed) || list.at != list.end) return 0;
  int32_t *ids = wanted->values + row * (size_t)wanted->length;
  int64_t count = take_ids(&packed, ids, wanted->length);
  if (count < 0 || (wanted->count < 0 ? packed.at < packed.end : count + count_values(packed) != wanted->count)) return 0;
  for (; count < wanted->length; count++) ids[count] = wanted->fill;
  return 1;
}

int record_decode(const uint8_t *record, size_t size, const Wanted *wanted, size_t count, size_t row) {
  Span example = {record, record + size}, features, entry, key, feature;
  uint64_t seen = 0;
  if (count > MOST_FEATURES || !take(&example, FIRST, &features) || example.at != example.end) return NOT_PLAIN;
  while (features.at < features.end) {
    if (!take(&features, FIRST, &entry) || !take(&entry, FIRST, &key)) return NOT_PLAIN;
    if (!take(&entry, VALUE, &feature) || entry.at != entry.end) return NOT_PLAIN;
    for (size_t i = 0; i < count; i++) {
      if (wanted[i].name_size != (size_t)(key.end - key.at) || memcmp(wanted[i].name, key.at, wanted[i].name_size)) continue;
      if (seen >> i & 1 || !read_values(feature, &wanted[i], row)) return NOT_PLAIN;
      seen |= UINT64_C(1) << i;
    }
  }
  return seen == (count == MOST_FEATURES ? UINT64_MAX : (UINT64_C(1) << count) - 1) ? OK : NOT_PLAIN;
}
