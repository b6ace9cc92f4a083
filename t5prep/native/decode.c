/* Read TFRecords of tf.train.Example as records.c and TensorFlow write them: each list of numbers is one packed field. */
#include "numbers.h"
#include "protobuf.h"
#include "records.h"

/* The tags of Example.features, an entry of its map, and an entry's key; of an entry's value; of Feature.int64_list. */
#define FIRST 0x0a
#define VALUE 0x12
#define NUMBERS 0x1a
#define CONTINUES UINT64_C(0x8080808080808080)

/* Read a field with `tag` and a length, and where its content lies. Return 0 if the next field is another one. */
static int take(Span *from, uint8_t tag, Span *content) {
  return from->at < from->end && *from->at++ == tag && take_content(from, content);
}

/* Return the number of a varint that has these bits, 8, 16 or 24, of some bytes. */
static int32_t up_to_three(uint64_t bytes, int bits) {
  uint32_t own = (uint32_t)bytes & ((UINT32_C(1) << bits) - 1);
  return (int32_t)((own & 0x7f) | (own >> 1 & 0x3f80) | (own >> 2 & 0x1fc000));
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
      /* Two numbers of at most three bytes each, without a branch for their sizes: a branch is often guessed wrong. */
      uint64_t ends = ~bytes & CONTINUES, second = ends & (ends - 1);
      if (second & UINT64_C(0xffffffffffff) && most - count >= 2) {
        int first = __builtin_ctzll(ends) + 1, both = __builtin_ctzll(second) + 1;
        if (first <= 24 && both - first <= 24) {
          ids[count++] = up_to_three(bytes, first);
          ids[count++] = up_to_three(bytes >> first, both - first);
          from.at += both / 8;
          continue;
        }
      }
    }
    uint64_t value;
    if (!take_varint(&from, &value)) return -1;
    ids[count++] = (int32_t)(uint32_t)value;
  }
  *values = from;
  return count;
}

/* Return how many varints there are, eight at a time where they are padding; -1 if one is broken. */
static int64_t count_values(Span values) {
  int64_t count = 0;
  for (uint64_t value; values.at < values.end;) {
    if (values.end - values.at >= 8 && !(eight_bytes(values.at) & CONTINUES)) {
      count += 8;
      values.at += 8;
      continue;
    }
    if (!take_varint(&values, &value)) return -1;
    count++;
  }
  return count;
}

static int read_values(Span feature, const Wanted *wanted, size_t row) {
  Span list, packed;
  if (!take(&feature, NUMBERS, &list) || feature.at != feature.end) return 0;
  if (list.at == list.end) packed = list; /* no values */
  else if (!take(&list, FIRST, &packed) || list.at != list.end) return 0;
  int32_t *ids = wanted->values + row * (size_t)wanted->length;
  int64_t count = take_ids(&packed, ids, wanted->length), more = count_values(packed);
  if (count < 0 || more < 0 || (wanted->count < 0 ? more : count + more != wanted->count)) return 0;
  for (; count < wanted->length; count++) ids[count] = wanted->fill;
  return 1;
}

/* Take an entry of a record's features: its name, and its value. Return 0 for something else. */
static int take_entry(Span *features, Span *key, Span *feature) {
  Span entry;
  return take(features, FIRST, &entry) && take(&entry, FIRST, key) && take(&entry, VALUE, feature) && entry.at == entry.end;
}

static int is_name(Span key, const char *name, size_t size) { return size == (size_t)(key.end - key.at) && !memcmp(name, key.at, size); }

/* Write the ids of one record into row `row` of each of `count` features, fewer than 64. Return 0 if it is not plain. */
static int record_decode(const uint8_t *record, size_t size, const Wanted *wanted, size_t count, size_t row) {
  Span example = {record, record + size}, features, key, feature;
  uint64_t seen = 0;
  if (!take(&example, FIRST, &features) || example.at != example.end) return 0;
  while (features.at < features.end) {
    if (!take_entry(&features, &key, &feature)) return 0;
    for (size_t i = 0; i < count; i++) {
      if (!is_name(key, wanted[i].name, wanted[i].name_size)) continue;
      if (seen >> i & 1 || !read_values(feature, &wanted[i], row)) return 0;
      seen |= UINT64_C(1) << i;
    }
  }
  return seen == (UINT64_C(1) << count) - 1;
}

int64_t decode_all(const Block *blocks, int64_t given, const Place *places, int64_t rows, const Wanted *wanted, size_t count,
                   int32_t *mask, int32_t pad) {
  for (int64_t row = 0; row < rows; row++) {
    Place at = places[row];
    if (at.block < 0 || at.block >= given || !lies_inside(at.begin, at.size, blocks[at.block].size)) return row;
    if (!record_decode(blocks[at.block].bytes + at.begin, (size_t)at.size, wanted, count, (size_t)row)) return row;
    if (!mask) continue;
    const int32_t *ids = wanted[0].values + row * wanted[0].length;
    for (int64_t i = 0; i < wanted[0].length; i++) mask[row * wanted[0].length + i] = ids[i] != pad;
  }
  return rows;
}

int texts_write(const Block *blocks, int64_t given, const Place *places, int64_t rows, const Wanted *wanted, const Pieces *pieces,
                Letters *out, int32_t *counts, int32_t *ends, uint8_t *marked) {
  int64_t most = pieces_longest(pieces);
  Wanted one = *wanted;
  int status = most < 0 ? BAD_OFFSETS : (one.values = room_for(NULL, (size_t)one.length, sizeof *one.values)) ? OK : NO_MEMORY;
  for (int64_t row = 0; status == OK && row < rows; row++) {
    if (decode_all(blocks, given, &places[row], 1, &one, 1, NULL, 0) < 1) status = BAD_TEXT;
    else status = row_write(pieces, most, one.values, one.length, out, &counts[row], &marked[row]);
    ends[row] = (int32_t)out->size;
  }
  if (most >= 0) free(one.values);
  return status;
}

/* Read the values of a feature of bytes. Return how many there are, or -1 for something else. */
static int64_t take_texts(Span feature, Strings *out) {
  Span list, text;
  int64_t count = 0;
  if (!take(&feature, FIRST, &list) || feature.at != feature.end) return -1;
  for (; list.at < list.end; count++) {
    if (!take(&list, FIRST, &text)) return -1;
    size_t size = (size_t)(text.end - text.at);
    if (out->bytes) memcpy(out->bytes + out->size, text.at, size);
    out->size += (int64_t)size;
    out->count++;
    if (out->bytes) out->ends[out->count] = (int32_t)out->size;
  }
  return count;
}

int strings_read(const Block *blocks, int64_t given, const Place *places, int64_t rows, const char *name, size_t name_size,
                 int32_t *counts, Strings *out) {
  out->size = out->count = 0;
  for (int64_t row = 0; row < rows; row++) {
    Place at = places[row];
    if (at.block < 0 || at.block >= given || !lies_inside(at.begin, at.size, blocks[at.block].size)) return BAD_OFFSETS;
    const uint8_t *record = blocks[at.block].bytes + at.begin;
    Span example = {record, record + at.size}, features, key, feature;
    int64_t count = -1;
    if (!take(&example, FIRST, &features) || example.at != example.end) return BAD_TEXT;
    while (features.at < features.end) {
      if (!take_entry(&features, &key, &feature)) return BAD_TEXT;
      if (!is_name(key, name, name_size)) continue;
      if (count >= 0 || (count = take_texts(feature, out)) < 0) return BAD_TEXT;
      if (out->size > INT32_MAX || out->count >= INT32_MAX) return BAD_TEXT;
    }
    counts[row] = count < 0 ? 0 : (int32_t)count;
  }
  return OK;
}

int block_cut(const Block *block, int64_t number, Place *places, int64_t count) {
  const uint8_t *at = block->bytes, *end = at + block->size;
  for (int64_t i = 0; i < count; i++) {
    if (end - at < FRAME_HEAD + FRAME_TAIL) return BAD_OFFSETS;
    uint64_t length = four_bytes(at) | (uint64_t)four_bytes(at + 4) << 32;
    if (masked_crc(at, 8) != four_bytes(at + 8)) return BAD_OFFSETS;
    at += FRAME_HEAD;
    if (length > (uint64_t)(end - at - FRAME_TAIL) || masked_crc(at, (size_t)length) != four_bytes(at + length)) return BAD_OFFSETS;
    places[i] = (Place){number, at - block->bytes, (int64_t)length};
    at += length + FRAME_TAIL;
  }
  return at == end ? OK : BAD_OFFSETS;
}
