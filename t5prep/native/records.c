/* Frame examples as TFRecords: tf.train.Example as TensorFlow's deterministic serialization writes it, features in the order of their
   names (t5prep/dataset/tfrecord.py names the definitions of the formats). Each record is measured first, so that it is written once,
   where it will stand. */
#include "records.h"

#include "numbers.h"

#define LONGEST_VARINT 10
/* The tags of the two lists of Feature that are used. */
#define STRINGS 0x0a
#define NUMBERS 0x1a
/* The bytes before each right answer that say how long it is. */
#define REFERENCE_HEAD 4

static size_t varint_size(uint64_t value) {
  size_t size = 1;
  for (; value > 0x7f; value >>= 7) size++;
  return size;
}

/* Return the bytes of a length-delimited field: its tag, the size of its content, the content. */
static uint64_t field_size(uint64_t content) { return 1 + varint_size(content) + content; }

/* Return the bytes of a feature's entry in the map, whose list has so many bytes inside. */
static uint64_t entry_size(const char *name, uint64_t inner) {
  return field_size(field_size(strlen(name)) + field_size(field_size(inner)));
}

/* Return the bytes of an entry of packed numbers. An empty list of numbers is left out. */
static uint64_t numbers_size(const char *name, uint64_t size) { return entry_size(name, size ? field_size(size) : 0); }

static uint32_t token(const Lists *lists, int64_t place) {
  return lists->width == 2 ? ((const uint16_t *)lists->values)[place] : ((const uint32_t *)lists->values)[place];
}

static uint64_t tokens_size(const Lists *lists, size_t example) {
  uint64_t size = 0;
  for (int64_t i = lists->starts[example]; i < lists->starts[example + 1]; i++) {
    uint32_t id = token(lists, i);
    size += 1u + (id > 0x7f) + (id > 0x3fff) + (id > 0x1fffff) + (id > 0xfffffff);
  }
  return size;
}

static int inside(const int64_t *starts, size_t i, int64_t total) { return is_range(starts[i], starts[i + 1], total); }

/* Measure the right answers of an example as strings of a list. Return 0 where their sizes are wrong. */
static int measure_references(const Texts *texts, size_t example, uint64_t *size) {
  int64_t end = texts->starts[example + 1];
  for (int64_t at = texts->starts[example]; at < end;) {
    if (end - at < REFERENCE_HEAD) return 0;
    int64_t length = four_bytes(texts->bytes + at);
    if (length > end - at - REFERENCE_HEAD) return 0;
    *size += field_size((uint64_t)length);
    at += REFERENCE_HEAD + length;
  }
  return 1;
}

/* Add the tokens of one example to a side of a record: their bytes, and the bytes of as many segment ids. Return 0 where they do not fit. */
static int measure_side(const Lists *lists, size_t example, uint64_t segment, int64_t *left, uint64_t *size, uint64_t *segments) {
  if (!inside(lists->starts, example, lists->total)) return 0;
  int64_t count = lists->starts[example + 1] - lists->starts[example];
  *size += tokens_size(lists, example);
  *segments += (uint64_t)count * varint_size(segment);
  *left -= count;
  return !lists->length || *left >= 0;
}

/* Return the bytes of the varints of 0, 1, ..., count - 1. */
static uint64_t counting_size(int64_t count) {
  uint64_t size = 0;
  for (int64_t first = 0; first < count; first = first ? first * 0x80 : 0x80) size += (uint64_t)(count - first);
  return size;
}

static uint64_t plain_size(const Batch *batch, const Sizes *size) {
  uint64_t features = 0;
  if (batch->mask) features += numbers_size("attention_mask", (uint64_t)batch->inputs.length);
  if (batch->label_mask) features += numbers_size("decoder_attention_mask", (uint64_t)batch->labels.length);
  features += entry_size("id", size->ids) + numbers_size("input_ids", size->inputs) + numbers_size("labels", size->labels);
  if (size->references) features += entry_size("references", size->references);
  if (batch->types) features += numbers_size("token_type_ids", (uint64_t)batch->inputs.length);
  return features;
}

static int measure(const Batch *batch, size_t record, Sizes *size) {
  int64_t first = batch->starts[record], last = batch->starts[record + 1], left[2] = {batch->inputs.length, batch->labels.length};
  memset(size, 0, sizeof *size);
  if (first < 0 || last < first || last > (int64_t)batch->examples || (!batch->packed && last - first != 1)) return BAD_OFFSETS;
  uint64_t positions[2] = {0, 0};
  for (int64_t i = first; i < last; i++) {
    size_t one = (size_t)i;
    uint64_t segment = (uint64_t)(i - first + 1);
    if (!inside(batch->ids.starts, one, batch->ids.total) || !inside(batch->references.starts, one, batch->references.total) ||
        !measure_references(&batch->references, one, &size->references) ||
        !measure_side(&batch->inputs, one, segment, &left[0], &size->inputs, &size->input_segments) ||
        !measure_side(&batch->labels, one, segment, &left[1], &size->labels, &size->label_segments))
      return BAD_OFFSETS;
    size->ids += field_size((uint64_t)(batch->ids.starts[one + 1] - batch->ids.starts[one]));
    positions[0] += counting_size(batch->inputs.starts[one + 1] - batch->inputs.starts[one]);
    positions[1] += counting_size(batch->labels.starts[one + 1] - batch->labels.starts[one]);
  }
  if (batch->inputs.length) size->inputs += (uint64_t)left[0] * varint_size((uint64_t)batch->inputs.pad);
  if (batch->labels.length) size->labels += (uint64_t)left[1] * varint_size((uint64_t)batch->labels.pad);
  if (batch->packed) {
    size->input_segments += (uint64_t)left[0];
    size->label_segments += (uint64_t)left[1];
    size->features = entry_size("id", size->ids) + numbers_size("input_ids", size->inputs) +
                     numbers_size("input_positions", positions[0] + (uint64_t)left[0]) +
                     numbers_size("input_segment_ids", size->input_segments) +
                     numbers_size("label_positions", positions[1] + (uint64_t)left[1]) +
                     numbers_size("label_segment_ids", size->label_segments) + numbers_size("labels", size->labels);
  } else {
    size->features = plain_size(batch, size);
  }
  size->framed = field_size(size->features) + FRAME_HEAD + FRAME_TAIL;
  return size->framed > UINT32_MAX ? BAD_TEXT : OK;
}

int records_measure(const Batch *batch, Sizes *sizes) {
  for (size_t record = 0; record < batch->records; record++) {
    int status = measure(batch, record, &sizes[record]);
    if (status != OK) return status;
  }
  return OK;
}

/* The functions that put something return where the next byte goes. */
static uint8_t *put_bytes(uint8_t *at, const void *bytes, size_t size) {
  memcpy(at, bytes, size);
  return at + size;
}

static uint8_t *put_varint(uint8_t *at, uint64_t value) {
  for (; value > 0x7f; value >>= 7) *at++ = (uint8_t)(value | 0x80);
  *at++ = (uint8_t)value;
  return at;
}

/* Write a token id without a branch for its size. Four bytes are written, also where fewer belong to it: what follows in the record,
   its checksum at the least, is written over them. */
static uint8_t *put_id(uint8_t *at, uint32_t id) {
  if (id > 0x1fffff) return put_varint(at, id);
  uint32_t two = id > 0x7f, three = id > 0x3fff;
  uint32_t bytes = (id & 0x7f) | (id << 1 & 0x7f00) | (id << 2 & 0x7f0000) | two << 7 | three << 15;
  for (int i = 0; i < 4; i++) at[i] = (uint8_t)(bytes >> 8 * i); /* compilers turn this into one store */
  return at + 1 + two + three;
}

static uint8_t *put_again(uint8_t *at, uint64_t value, int64_t count) {
  if (value <= 0x7f) {
    memset(at, (int)value, (size_t)count);
    return at + count;
  }
  uint8_t once[LONGEST_VARINT];
  size_t size = (size_t)(put_varint(once, value) - once);
  while (count-- > 0) at = put_bytes(at, once, size);
  return at;
}

static uint8_t *put_little_endian(uint8_t *at, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) *at++ = (uint8_t)(value >> 8 * i);
  return at;
}

/* Write the bytes before the content of a feature's list: the map's entry, its name, the feature, and `list`, the list's tag. */
static uint8_t *put_entry(uint8_t *at, const char *name, uint8_t list, uint64_t inner) {
  uint64_t name_size = strlen(name), feature = field_size(inner);
  *at++ = 0x0a;
  at = put_varint(at, field_size(name_size) + field_size(feature));
  *at++ = 0x0a;
  at = put_varint(at, name_size);
  at = put_bytes(at, name, (size_t)name_size);
  *at++ = 0x12;
  at = put_varint(at, feature);
  *at++ = list;
  return put_varint(at, inner);
}

/* Write the bytes before packed numbers of so many bytes. */
static uint8_t *put_numbers(uint8_t *at, const char *name, uint64_t size) {
  if (!size) return put_entry(at, name, NUMBERS, 0);
  at = put_entry(at, name, NUMBERS, field_size(size));
  *at++ = 0x0a;
  return put_varint(at, size);
}

static uint8_t *put_string(uint8_t *at, const uint8_t *bytes, int64_t size) {
  *at++ = 0x0a;
  at = put_varint(at, (uint64_t)size);
  return put_bytes(at, bytes, (size_t)size);
}

static uint8_t *put_mask(uint8_t *at, const char *name, const Lists *lists, size_t example) {
  int64_t ones = lists->starts[example + 1] - lists->starts[example];
  at = put_numbers(at, name, (uint64_t)lists->length);
  return put_again(put_again(at, 1, ones), 0, lists->length - ones);
}

static uint8_t *put_types(uint8_t *at, const Lists *lists, size_t example, int64_t separator) {
  int64_t first = lists->starts[example], end = lists->starts[example + 1], place = first;
  while (place < end && token(lists, place) != separator) place++;
  int64_t zeros = place < end ? place + 1 - first : end - first;
  at = put_numbers(at, "token_type_ids", (uint64_t)lists->length);
  at = put_again(put_again(at, 0, zeros), 1, end - first - zeros);
  return put_again(at, 0, lists->length - (end - first));
}

static uint8_t *put_references(uint8_t *at, const Texts *texts, size_t example, uint64_t size) {
  at = put_entry(at, "references", STRINGS, size);
  for (int64_t from = texts->starts[example]; from < texts->starts[example + 1];) {
    int64_t length = four_bytes(texts->bytes + from);
    at = put_string(at, texts->bytes + from + REFERENCE_HEAD, length);
    from += REFERENCE_HEAD + length;
  }
  return at;
}

/* The examples of a record: from the first to before the last. */
typedef struct {
  const Batch *batch;
  int64_t first, last;
} Some;

static uint8_t *put_ids(uint8_t *at, Some some, uint64_t size) {
  const Texts *ids = &some.batch->ids;
  at = put_entry(at, "id", STRINGS, size);
  for (int64_t one = some.first; one < some.last; one++) at = put_string(at, ids->bytes + ids->starts[one], ids->starts[one + 1] - ids->starts[one]);
  return at;
}

static uint8_t *put_tokens(uint8_t *at, const char *name, Some some, const Lists *lists, uint64_t size) {
  int64_t missing = lists->length;
  at = put_numbers(at, name, size);
  for (int64_t one = some.first; one < some.last; one++) {
    int64_t begin = lists->starts[one], end = lists->starts[one + 1];
    missing -= end - begin;
    for (int64_t i = begin; i < end; i++) at = put_id(at, token(lists, i));
  }
  return lists->length ? put_again(at, (uint64_t)lists->pad, missing) : at;
}

static uint8_t *put_segments(uint8_t *at, const char *name, Some some, const Lists *lists, uint64_t size) {
  int64_t missing = lists->length;
  uint64_t segment = 0;
  at = put_numbers(at, name, size);
  for (int64_t one = some.first; one < some.last; one++) {
    int64_t count = lists->starts[one + 1] - lists->starts[one];
    at = put_again(at, ++segment, count);
    missing -= count;
  }
  return put_again(at, 0, missing);
}

/* `counting` holds the varints of 0, 1, 2, ..., one after the other. */
static uint8_t *put_positions(uint8_t *at, const char *name, Some some, const Lists *lists, const uint8_t *counting) {
  int64_t missing = lists->length;
  uint64_t size = 0;
  for (int64_t one = some.first; one < some.last; one++) {
    int64_t count = lists->starts[one + 1] - lists->starts[one];
    size += counting_size(count);
    missing -= count;
  }
  at = put_numbers(at, name, size + (uint64_t)missing);
  for (int64_t one = some.first; one < some.last; one++)
    at = put_bytes(at, counting, (size_t)counting_size(lists->starts[one + 1] - lists->starts[one]));
  return put_again(at, 0, missing);
}

static uint8_t *put_plain(uint8_t *at, const Batch *batch, Some some, const Sizes *size) {
  size_t one = (size_t)some.first;
  if (batch->mask) at = put_mask(at, "attention_mask", &batch->inputs, one);
  if (batch->label_mask) at = put_mask(at, "decoder_attention_mask", &batch->labels, one);
  at = put_ids(at, some, size->ids);
  at = put_tokens(at, "input_ids", some, &batch->inputs, size->inputs);
  at = put_tokens(at, "labels", some, &batch->labels, size->labels);
  if (size->references) at = put_references(at, &batch->references, one, size->references);
  return batch->types ? put_types(at, &batch->inputs, one, batch->separator) : at;
}

static uint8_t *put_packed(uint8_t *at, const Batch *batch, Some some, const Sizes *size, const uint8_t *counting) {
  at = put_ids(at, some, size->ids);
  at = put_tokens(at, "input_ids", some, &batch->inputs, size->inputs);
  at = put_positions(at, "input_positions", some, &batch->inputs, counting);
  at = put_segments(at, "input_segment_ids", some, &batch->inputs, size->input_segments);
  at = put_positions(at, "label_positions", some, &batch->labels, counting);
  at = put_segments(at, "label_segment_ids", some, &batch->labels, size->label_segments);
  return put_tokens(at, "labels", some, &batch->labels, size->labels);
}

int records_frame(const Batch *batch, const Sizes *sizes, uint8_t *out) {
  int64_t longest = batch->inputs.length > batch->labels.length ? batch->inputs.length : batch->labels.length;
  uint8_t *counting = batch->packed ? room_for(NULL, (size_t)counting_size(longest), 1) : NULL;
  if (batch->packed && !counting) return NO_MEMORY;
  uint8_t *at = counting;
  for (int64_t i = 0; batch->packed && i < longest; i++) at = put_varint(at, (uint64_t)i);
  for (size_t record = 0; record < batch->records; record++, sizes++) {
    Some some = {batch, batch->starts[record], batch->starts[record + 1]};
    uint64_t length = sizes->framed - FRAME_HEAD - FRAME_TAIL;
    at = put_little_endian(out, length, 8);
    at = put_little_endian(at, masked_crc(out, 8), 4);
    *at++ = 0x0a;
    at = put_varint(at, sizes->features);
    at = batch->packed ? put_packed(at, batch, some, sizes, counting) : put_plain(at, batch, some, sizes);
    out = put_little_endian(at, masked_crc(out + FRAME_HEAD, (size_t)length), 4);
  }
  free(counting);
  return OK;
}
