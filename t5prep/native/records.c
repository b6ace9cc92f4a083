/* Frame examples as TFRecords: tf.train.Example as TensorFlow's deterministic serialization writes it, features in the order of their
   names (t5prep/dataset/tfrecord.py names the definitions of the formats). A buffer is filled from its end to its beginning, the last
   record first: so the size of every content is known when it is written before it. */
#include "records.h"

#include "numbers.h"

#define LONGEST_VARINT 10
/* The tags of an entry of the map, its name and a string or packed numbers; of its feature; of the two lists that are used. */
#define FIRST 0x0a
#define VALUE 0x12
#define STRINGS 0x0a
#define NUMBERS 0x1a
/* More bytes than the heads and the names of all features of a record have. */
#define HEADS 512
/* The bytes before each right answer that say how long it is. */
#define REFERENCE_HEAD 4

/* The examples of a record: from the first to before the last. */
typedef struct {
  int64_t first, last;
} Some;

static uint32_t token(const Lists *lists, int64_t place) {
  return lists->width == 2 ? ((const uint16_t *)lists->values)[place] : ((const uint32_t *)lists->values)[place];
}

static int64_t count(const Lists *lists, Some some) { return lists->starts[some.last] - lists->starts[some.first]; }

/* Each of these functions writes something directly before `at`, and returns where it begins. */
static uint8_t *put_bytes(uint8_t *at, const void *bytes, int64_t size) { return memcpy(at - size, bytes, (size_t)size); }

static uint8_t *put_varint(uint8_t *at, uint64_t value) {
  uint8_t varint[LONGEST_VARINT];
  int64_t size = 0;
  for (; value > 0x7f; value >>= 7) varint[size++] = (uint8_t)(value | 0x80);
  varint[size++] = (uint8_t)value;
  return put_bytes(at, varint, size);
}

/* Write a token id without a branch for its size. Four bytes are written, also where fewer belong to it: what stands before it in the
   record is written over them. */
static uint8_t *put_id(uint8_t *at, uint32_t id) {
  if (id > 0x1fffff) return put_varint(at, (uint64_t)(int64_t)(int32_t)id); /* -100: no target stands at this place */
  uint32_t two = id > 0x7f, three = id > 0x3fff;
  uint32_t bytes = (id & 0x7f) | (id << 1 & 0x7f00) | (id << 2 & 0x7f0000) | two << 7 | three << 15;
  bytes <<= 8 * (3 - two - three);
  for (int i = 0; i < 4; i++) at[i - 4] = (uint8_t)(bytes >> 8 * i); /* compilers turn this into one store */
  return at - 1 - two - three;
}

static uint8_t *put_again(uint8_t *at, uint64_t value, int64_t times) {
  if (value <= 0x7f) return memset(at - times, (int)value, (size_t)times);
  while (times-- > 0) at = put_varint(at, value);
  return at;
}

/* The varints of 0, 1, ..., 16383, of which the first 128 have one byte and the others two. */
static uint8_t counting[2 * 16384 - 128];

void records_prepare(void) {
  uint8_t *at = counting + sizeof counting;
  for (uint32_t number = 16384; number-- > 0;) at = put_varint(at, number);
}

static uint8_t *put_counting(uint8_t *at, int64_t numbers) {
  for (; numbers > 16384; numbers--) at = put_id(at, (uint32_t)numbers - 1);
  return put_bytes(at, counting, numbers > 128 ? 2 * numbers - 128 : numbers);
}

static uint8_t *put_little_endian(uint8_t *at, uint64_t value, int bytes) {
  for (int i = bytes; i-- > 0;) *--at = (uint8_t)(value >> 8 * i);
  return at;
}

/* Write the tag and the size of the content between `at` and `end`. */
static uint8_t *put_head(uint8_t *at, const uint8_t *end, uint8_t tag) {
  at = put_varint(at, (uint64_t)(end - at));
  *--at = tag;
  return at;
}

/* Write what stands before the values of a feature, which go to `end`; `list` is the tag of their list. */
static uint8_t *put_entry(uint8_t *at, const uint8_t *end, const char *name, uint8_t list) {
  if (list == NUMBERS && at < end) at = put_head(at, end, FIRST); /* an empty list of numbers is left out */
  at = put_head(put_head(at, end, list), end, VALUE);
  const uint8_t *name_end = at;
  at = put_head(put_bytes(at, name, (int64_t)strlen(name)), name_end, FIRST);
  return put_head(at, end, FIRST);
}

static uint8_t *put_tokens(uint8_t *at, const char *name, Some some, const Lists *lists) {
  const uint8_t *end = at;
  if (lists->length) at = put_again(at, (uint64_t)lists->pad, lists->length - count(lists, some));
  for (int64_t i = lists->starts[some.last]; i-- > lists->starts[some.first];) at = put_id(at, token(lists, i));
  return put_entry(at, end, name, NUMBERS);
}

/* Write for each token of packed examples its place in its example, or the number of its example from 1 on. */
static uint8_t *put_places(uint8_t *at, const char *name, Some some, const Lists *lists, int segments) {
  const uint8_t *end = at;
  at = put_again(at, 0, lists->length - count(lists, some));
  for (int64_t one = some.last; one-- > some.first;) {
    int64_t tokens = lists->starts[one + 1] - lists->starts[one];
    at = segments ? put_again(at, (uint64_t)(one - some.first + 1), tokens) : put_counting(at, tokens);
  }
  return put_entry(at, end, name, NUMBERS);
}

static uint8_t *put_mask(uint8_t *at, const char *name, Some some, const Lists *lists) {
  const uint8_t *end = at;
  int64_t ones = count(lists, some);
  return put_entry(put_again(put_again(at, 0, lists->length - ones), 1, ones), end, name, NUMBERS);
}

static uint8_t *put_types(uint8_t *at, Some some, const Lists *lists, int64_t separator) {
  const uint8_t *end = at;
  int64_t place = lists->starts[some.first], last = lists->starts[some.last];
  while (place < last && token(lists, place) != separator) place++;
  int64_t ones = place < last ? last - place - 1 : 0;
  at = put_again(put_again(at, 0, lists->length - count(lists, some)), 1, ones);
  return put_entry(put_again(at, 0, count(lists, some) - ones), end, "token_type_ids", NUMBERS);
}

/* Return the bytes of the right answers of an example as strings of a list, -1 if their sizes are wrong. Write them
   from `at` on, if it is not NULL. */
static int64_t answers(const Texts *texts, int64_t example, uint8_t *at) {
  int64_t end = texts->starts[example + 1], size = 0;
  for (int64_t from = texts->starts[example], length; from < end; from += REFERENCE_HEAD + length) {
    if (end - from < REFERENCE_HEAD || (length = four_bytes(texts->bytes + from)) > end - from - REFERENCE_HEAD) return -1;
    uint8_t varint[LONGEST_VARINT], *varint_end = varint + LONGEST_VARINT;
    size += 1 + (varint_end - put_varint(varint_end, (uint64_t)length)) + length;
    if (at) put_head(put_bytes(at + size, texts->bytes + from + REFERENCE_HEAD, length), at + size, FIRST);
  }
  return size;
}

static uint8_t *put_references(uint8_t *at, Some some, const Texts *texts) {
  int64_t size = answers(texts, some.first, NULL);
  if (!size) return at;
  answers(texts, some.first, at - size);
  return put_entry(at - size, at, "references", STRINGS);
}

static uint8_t *put_ids(uint8_t *at, Some some, const Texts *ids) {
  const uint8_t *end = at;
  for (int64_t one = some.last; one-- > some.first;) {
    const uint8_t *text_end = at;
    at = put_head(put_bytes(at, ids->bytes + ids->starts[one], ids->starts[one + 1] - ids->starts[one]), text_end, FIRST);
  }
  return put_entry(at, end, "id", STRINGS);
}

static uint8_t *put_features(uint8_t *at, const Batch *batch, Some some) {
  const Lists *inputs = &batch->inputs, *labels = &batch->labels;
  if (batch->packed) {
    at = put_tokens(at, "labels", some, labels);
    at = put_places(at, "label_segment_ids", some, labels, 1);
    at = put_places(at, "label_positions", some, labels, 0);
    at = put_places(at, "input_segment_ids", some, inputs, 1);
    at = put_places(at, "input_positions", some, inputs, 0);
    return put_ids(put_tokens(at, "input_ids", some, inputs), some, &batch->ids);
  }
  if (batch->types) at = put_types(at, some, inputs, batch->separator);
  at = put_references(at, some, &batch->references);
  at = put_ids(put_tokens(put_tokens(at, "labels", some, labels), "input_ids", some, inputs), some, &batch->ids);
  if (batch->label_mask) at = put_mask(at, "decoder_attention_mask", some, labels);
  return batch->mask ? put_mask(at, "attention_mask", some, inputs) : at;
}

/* Return at least as many bytes as a record may have with all of its frame; -1 if the columns do not fit it, or each other. */
static int64_t most_bytes(const Batch *batch, Some some) {
  if (some.first < 0 || some.last < some.first || some.last > (int64_t)batch->examples) return -1;
  if (!batch->packed && some.last - some.first != 1) return -1;
  const Lists *sides[] = {&batch->inputs, &batch->labels};
  const Texts *texts[] = {&batch->ids, &batch->references};
  int64_t bytes = HEADS;
  for (int64_t one = some.first; one < some.last; one++) {
    for (int i = 0; i < 2; i++) {
      if (!is_range(sides[i]->starts[one], sides[i]->starts[one + 1], sides[i]->total)) return -1;
      if (!is_range(texts[i]->starts[one], texts[i]->starts[one + 1], texts[i]->total)) return -1;
    }
    int64_t size = answers(&batch->references, one, NULL);
    if (size < 0) return -1;
    bytes += size + 1 + LONGEST_VARINT + batch->ids.starts[one + 1] - batch->ids.starts[one];
  }
  for (int i = 0; i < 2; i++) {
    int64_t tokens = count(sides[i], some);
    if (sides[i]->length && tokens > sides[i]->length) return -1;
    /* A varint for each token, its segment and its position, or one byte each for its mask and its type. */
    bytes += (sides[i]->length ? sides[i]->length : tokens) * (batch->packed ? 3 * LONGEST_VARINT : LONGEST_VARINT + 2);
  }
  return bytes;
}

/* Make room for so many bytes before those that are there. Return 0 if there is no memory. */
static int make_room(Framed *out, int64_t bytes) {
  if (out->begin >= bytes) return 1;
  int64_t used = out->room - out->begin, room = 2 * out->room + bytes;
  uint8_t *moved = room_for(out->bytes, (size_t)room, 1);
  if (!moved) return 0;
  memmove(moved + room - used, moved + out->begin, (size_t)used);
  *out = (Framed){moved, room, room - used};
  return 1;
}

int records_frame(const Batch *batch, int keep, uint32_t *sizes, Framed *out) {
  if (!make_room(out, HEADS)) return NO_MEMORY;
  for (size_t record = batch->records; record-- > 0;) {
    Some some = {batch->starts[record], batch->starts[record + 1]};
    int64_t most = most_bytes(batch, some);
    if (most < 0) return BAD_OFFSETS;
    if (!keep) out->begin = out->room;
    if (!make_room(out, most)) return NO_MEMORY;
    uint8_t *end = out->bytes + out->begin, *content_end = end - FRAME_TAIL;
    uint8_t *content = put_head(put_features(content_end, batch, some), content_end, FIRST);
    put_little_endian(end, masked_crc(content, (size_t)(content_end - content)), FRAME_TAIL);
    put_little_endian(content - 4, (uint64_t)(content_end - content), 8);
    uint8_t *begin = put_little_endian(content, masked_crc(content - FRAME_HEAD, 8), 4) - 8;
    if (end - begin > UINT32_MAX) return BAD_TEXT;
    sizes[record] = (uint32_t)(end - begin);
    out->begin = begin - out->bytes;
  }
  return OK;
}
