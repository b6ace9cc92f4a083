/* Write records of several examples each, as PackedWriter in t5prep/prepare/record_writer.py does, and choose their rows. */
#include "pack_records.h"

#include <stdlib.h>
#include <string.h>

#include "unigram.h"

typedef struct {
  const char *ids, *positions, *segments;
} Names;

static const Names INPUTS = {"input_ids", "input_positions", "input_segment_ids"};
static const Names LABELS = {"labels", "label_positions", "label_segment_ids"};

enum { IDS, POSITIONS, SEGMENTS };

/* What all rows share: room for one feature, and the varints of 0, 1, 2, ..., one after the other, with the end of each. */
typedef struct {
  uint8_t *feature, *positions;
  size_t *position_ends;
} Scratch;

static void free_scratch(Scratch *scratch) {
  free(scratch->feature);
  free(scratch->positions);
  free(scratch->position_ends);
}

static int make_scratch(Scratch *scratch, size_t length) {
  scratch->feature = malloc(LONGEST_VARINT * length + 1);
  scratch->positions = malloc(LONGEST_VARINT * length + 1);
  scratch->position_ends = malloc((length + 1) * sizeof *scratch->position_ends);
  if (!scratch->feature || !scratch->positions || !scratch->position_ends) return NO_MEMORY;
  uint8_t *at = scratch->positions;
  for (size_t i = 0; i <= length; i++) {
    scratch->position_ends[i] = (size_t)(at - scratch->positions);
    if (i < length) at = put_varint(at, i);
  }
  return OK;
}

static uint8_t *put_again(uint8_t *at, uint64_t value, int64_t count) {
  if (value <= 0x7f) {
    memset(at, (int)value, (size_t)count);
    return at + count;
  }
  while (count-- > 0) at = put_varint(at, value);
  return at;
}

/* Write one feature of a row: ids, positions or segment ids of a side, over the length of a row. */
static uint8_t *put_side(uint8_t *at, const char *name, const Packing *packing, const Lists *side, size_t row, int kind, const Scratch *scratch) {
  uint8_t *value = scratch->feature;
  int64_t missing = side->length;
  uint64_t segment = 0;
  for (int64_t i = packing->row_starts[row]; i < packing->row_starts[row + 1]; i++) {
    const int64_t *starts = side->starts + packing->batch.order[i], tokens = starts[1] - starts[0];
    segment++;
    missing -= tokens;
    if (kind == POSITIONS) value = put_bytes(value, scratch->positions, scratch->position_ends[tokens]);
    else if (kind == SEGMENTS) value = put_again(value, segment, tokens);
    else
      for (const int32_t *id = side->values + starts[0], *end = id + tokens; id < end; id++) value = put_id(value, (uint32_t)*id);
  }
  value = put_again(value, kind == IDS ? (uint64_t)side->pad : 0, missing);
  at = put_head(at, name, NUMBERS, (uint64_t)(value - scratch->feature));
  return put_bytes(at, scratch->feature, (size_t)(value - scratch->feature));
}

static uint64_t id_size(const Packing *packing, int64_t i) {
  const int64_t *starts = packing->batch.id_starts + packing->batch.order[i];
  return (uint64_t)(starts[1] - starts[0]);
}

static int fits(const Lists *side, size_t example, int64_t *left) {
  int64_t begin = side->starts[example], end = side->starts[example + 1];
  if (begin < 0 || end < begin || end > side->total) return 0;
  *left -= end - begin;
  return *left >= 0;
}

static int valid(const Packing *packing, size_t row, uint64_t *ids) {
  const Batch *batch = &packing->batch;
  int64_t first = packing->row_starts[row], last = packing->row_starts[row + 1];
  int64_t inputs = batch->inputs.length, labels = batch->labels.length;
  if (first < 0 || last < first || last > (int64_t)batch->count) return 0;
  *ids = 0;
  for (int64_t i = first; i < last; i++) {
    if (batch->order[i] < 0 || (uint64_t)batch->order[i] >= packing->examples) return 0;
    size_t example = (size_t)batch->order[i];
    int64_t begin = batch->id_starts[example], end = batch->id_starts[example + 1];
    if (begin < 0 || end < begin || end > batch->ids_size) return 0;
    if (!fits(&batch->inputs, example, &inputs) || !fits(&batch->labels, example, &labels)) return 0;
    *ids += 1 + varint_size((uint64_t)(end - begin)) + (uint64_t)(end - begin);
  }
  return 1;
}

static int write_row(const Packing *packing, size_t row, const Scratch *scratch, Buffer *out, uint32_t *size) {
  const Batch *batch = &packing->batch;
  uint64_t ids;
  if (!valid(packing, row, &ids)) return BAD_OFFSETS;
  size_t most = (size_t)ids + 3 * LONGEST_VARINT * (size_t)(batch->inputs.length + batch->labels.length) + 3 * AROUND;
  uint8_t *features = begin_record(out, most);
  if (!features) return NO_MEMORY;
  uint8_t *at = put_list_head(features, "id", STRINGS, ids);
  for (int64_t i = packing->row_starts[row]; i < packing->row_starts[row + 1]; i++) {
    *at++ = 0x0a;
    at = put_varint(at, id_size(packing, i));
    at = put_bytes(at, batch->ids + batch->id_starts[batch->order[i]], (size_t)id_size(packing, i));
  }
  at = put_side(at, INPUTS.ids, packing, &batch->inputs, row, IDS, scratch);
  at = put_side(at, INPUTS.positions, packing, &batch->inputs, row, POSITIONS, scratch);
  at = put_side(at, INPUTS.segments, packing, &batch->inputs, row, SEGMENTS, scratch);
  at = put_side(at, LABELS.positions, packing, &batch->labels, row, POSITIONS, scratch);
  at = put_side(at, LABELS.segments, packing, &batch->labels, row, SEGMENTS, scratch);
  at = put_side(at, LABELS.ids, packing, &batch->labels, row, IDS, scratch);
  return end_record(out, features, at, size);
}

int pack_write(const Packing *packing, Buffer *out, uint32_t *sizes) {
  int64_t inputs = packing->batch.inputs.length, labels = packing->batch.labels.length;
  Scratch scratch;
  int status = make_scratch(&scratch, (size_t)(inputs > labels ? inputs : labels));
  for (size_t row = 0; row < packing->rows && status == OK; row++) status = write_row(packing, row, &scratch, out, &sizes[row]);
  free_scratch(&scratch);
  return status;
}

int pack_fit(const int64_t *lengths, size_t examples, const int64_t room[2], int64_t *rows) {
  int64_t(*left)[2] = malloc((examples + 1) * sizeof *left);
  int64_t least[2] = {room[0], room[1]};
  if (!left) return NO_MEMORY;
  for (size_t i = 0; i < examples; i++)
    for (int side = 0; side < 2; side++)
      if (lengths[2 * i + (size_t)side] < least[side]) least[side] = lengths[2 * i + (size_t)side];
  size_t first = 0, opened = 0; /* rows before `first` have no room even for the shortest inputs or targets */
  for (size_t i = 0; i < examples; i++) {
    const int64_t *one = lengths + 2 * i;
    size_t row = first;
    while (row < opened && (left[row][0] < one[0] || left[row][1] < one[1])) row++;
    if (row == opened) {
      left[row][0] = room[0];
      left[row][1] = room[1];
      opened++;
    }
    left[row][0] -= one[0];
    left[row][1] -= one[1];
    rows[i] = (int64_t)row;
    while (first < opened && (left[first][0] < least[0] || left[first][1] < least[1])) first++;
  }
  free(left);
  return OK;
}
