/* Entry points of what is in C that take bytes of strangers, for libFuzzer: compile with -DTARGET=... and run from the root of the
   source tree (tests/native/fuzz). A wrong answer ends the process as a wrong access does. */
#include <stdio.h>
#include <stdlib.h>

#include "records.h"
#include "rows.h"
#include "text.h"
#include "unigram.h"

enum { MODEL = 1, ENCODE, DECODE, BLOCKS, CSV, JSON, SHINGLES, SPANS, FRAMES, PIECES };

#define MUST(condition) \
  if (!(condition)) __builtin_trap()

static Workspace *work;

/* Take a number below `most` from the beginning of the input. */
static size_t number(const uint8_t **data, size_t *size, size_t most) {
  size_t value = 0;
  for (int i = 0; i < 2 && *size; i++, (*size)--) value = value << 8 | *(*data)++;
  return value % most;
}

static void check_ids(const Model *model, int status, size_t size) {
  if (status != OK) return;
  MUST(work->count <= 3 * (32 * size + 2)); /* no rule of the seeds makes more of a byte */
  for (size_t i = 0; i < work->count; i++) MUST(work->ids[i] >= 0 && (size_t)work->ids[i] < model->pieces);
}

/* A model, and a text behind it that it encodes. */
__attribute__((unused)) static void fuzz_model(const uint8_t *data, size_t size) {
  Model model;
  size_t text = number(&data, &size, 200);
  if (text > size) text = size;
  if (model_load(&model, data, size - text) != OK) return;
  workspace_free(work); /* its table of words is of one model */
  work = workspace_new();
  int status = encode(&model, work, data + size - text, text);
  if (status == OK && !model.normalizer.rules_size) check_ids(&model, status, text);
  model_free(&model);
}

/* A text, by the model of the sample, as T5's models normalize it; twice, the second time by the table of words. */
__attribute__((unused)) static void fuzz_encode(const uint8_t *data, size_t size) {
  static Model model;
  if (!model.pieces) {
    static uint8_t proto[1 << 21];
    FILE *file = fopen("t5prep/sources/sample/spiece.model", "rb");
    MUST(file && model_load(&model, proto, fread(proto, 1, sizeof proto, file)) == OK);
    fclose(file);
  }
  work->count = 0;
  check_ids(&model, encode(&model, work, data, size), size);
  size_t first = work->count;
  MUST(encode(&model, work, data, size) == OK && work->count == 2 * first);
  MUST(!first || !memcmp(work->ids, work->ids + first, first * sizeof *work->ids));
}

/* A record, or what should be one: two features of some lengths, with a mask. */
__attribute__((unused)) static void fuzz_decode(const uint8_t *data, size_t size) {
  int64_t lengths[2] = {(int64_t)number(&data, &size, 24), (int64_t)number(&data, &size, 24)};
  int64_t counts[2] = {(int64_t)number(&data, &size, 32) - 1, (int64_t)number(&data, &size, 32) - 1};
  int32_t *rooms[3];
  for (int i = 0; i < 3; i++) rooms[i] = malloc(4 * (size_t)lengths[i % 2] + 1);
  Wanted wanted[2] = {{"input_ids", 9, rooms[0], lengths[0], 0, counts[0]}, {"labels", 6, rooms[1], lengths[1], -100, counts[1]}};
  Block block = {data, (int64_t)size};
  Place place = {0, 0, (int64_t)size};
  int64_t read = decode_all(&block, 1, &place, 1, wanted, 2, rooms[2], 0);
  MUST(read == 0 || read == 1);
  for (int64_t i = 0; read && i < lengths[0]; i++) MUST(rooms[2][i] == (rooms[0][i] != 0));
  for (int i = 0; i < 2; i++) {
    int32_t number_of[2];
    Strings out = {0};
    if (strings_read(&block, 1, &place, 1, i ? "references" : "id", i ? 10 : 2, number_of, &out) != OK) continue;
    int64_t count = out.count, bytes = out.size;
    MUST(number_of[0] == count && bytes + 2 * count <= (int64_t)size);
    out.bytes = malloc((size_t)bytes + 1);
    out.ends = malloc(4 * ((size_t)count + 1));
    MUST(strings_read(&block, 1, &place, 1, i ? "references" : "id", i ? 10 : 2, &number_of[1], &out) == OK);
    MUST(out.count == count && out.size == bytes && number_of[1] == count && (!count || out.ends[count] == bytes));
    free(out.bytes), free(out.ends);
  }
  for (int i = 0; i < 3; i++) free(rooms[i]);
}

/* A block of a TFRecord file. Its checksums are zeros: what checks them is not linked. */
__attribute__((unused)) static void fuzz_blocks(const uint8_t *data, size_t size) {
  int64_t count = (int64_t)number(&data, &size, 8);
  Place *places = malloc((size_t)count * sizeof *places + 1);
  Block block = {data, (int64_t)size};
  if (block_cut(&block, 7, places, count) == OK)
    for (int64_t i = 0; i < count; i++) MUST(places[i].block == 7 && lies_inside(places[i].begin, places[i].size, (int64_t)size - 4));
  free(places);
}

__attribute__((unused)) static void fuzz_csv(const uint8_t *data, size_t size) {
  MUST(row_ends(data, size) >= 0 && row_ends(data, size) <= (int64_t)size);
  for (int final = 0; final < 2; final++) {
    RowEnds found = csv_rows(data, size, final);
    MUST(found.end >= -1 && found.end <= (int64_t)size && found.rows >= -1 && found.rows <= (int64_t)size);
    MUST(!final || found.end == -1 || found.end == (int64_t)size);
  }
}

__attribute__((unused)) static void fuzz_json(const uint8_t *data, size_t size) {
  int64_t lines = json_lines(data, size);
  MUST(lines >= 0 && lines <= (int64_t)(size / 2));
}

/* Texts, each up to a NUL, and how many words a run has. */
__attribute__((unused)) static void fuzz_shingles(const uint8_t *data, size_t size) {
  int64_t words = 1 + (int64_t)number(&data, &size, 9), begins[64] = {0}, found, counts[63], run_begins[64];
  uint64_t factors[9] = {1, 3, 5, 7, 9, 11, 13, 15, 17};
  uint8_t *text = malloc(size + 9);
  uint64_t *hashes = malloc(8 * (size + 9)), *runs = malloc(8 * (size + 9));
  long_word *longs = malloc((size / LONG_WORD + 1) * sizeof *longs);
  size_t texts = 0;
  memcpy(text, data, size);
  memset(text + size, 0, 9);
  for (size_t i = 0; i <= size && texts < 63; i++)
    if (!text[i]) begins[++texts] = (int64_t)i + 1;
  int64_t total = word_hashes(text, begins, texts, hashes, counts, longs, &found);
  MUST(total >= 0 && total <= (int64_t)size && found >= 0 && found <= (int64_t)(size / LONG_WORD));
  MUST(run_hashes(hashes, counts, texts, factors, words, runs, run_begins) <= total);
  for (size_t i = 0; i < texts; i++) begins[i + 1] /= 4; /* the bytes as ids */
  memset(hashes, 0, 8 * texts);
  list_digests(text, begins, texts, hashes);
  list_counts((const int32_t *)(const void *)text, begins, texts, 0, counts);
  for (size_t i = 0; i < texts; i++) MUST(counts[i] >= 0 && counts[i] <= begins[i + 1] - begins[i]);
  free(text), free(hashes), free(runs), free(longs);
}

/* Rows whose spans are hidden: each token is in the inputs or in the targets. */
__attribute__((unused)) static void fuzz_spans(const uint8_t *data, size_t size) {
  size_t hidden = 1 + number(&data, &size, 40), visible = 1 + number(&data, &size, 90), least = hidden < visible ? hidden : visible;
  size_t spans = 1 + number(&data, &size, least), length = hidden + visible, rows = size / 8;
  uint64_t *keys = malloc(8 * rows + 1);
  memcpy(keys, data, 8 * rows);
  int32_t *tokens = malloc(4 * rows * length + 1), *inputs = malloc(4 * rows * (visible + spans + 1) + 1);
  int32_t *targets = malloc(4 * rows * (hidden + spans + 1) + 1);
  for (size_t i = 0; i < rows * length; i++) tokens[i] = (int32_t)(1000 + i % length);
  Rows what = {tokens, keys, rows, length, hidden, spans, 999, 1};
  MUST(spans_hide(&what, inputs, targets) == OK);
  for (size_t row = 0; row < rows; row++) {
    int64_t sum = 0;
    for (size_t i = 0; i < visible + spans + 1; i++) sum += inputs[row * (visible + spans + 1) + i] >= 1000;
    MUST(sum == (int64_t)visible);
  }
  free(keys), free(tokens), free(inputs), free(targets);
}

/* Columns of examples, right or wrong: what is written has the sizes that it says, and is read back. */
__attribute__((unused)) static void fuzz_frames(const uint8_t *data, size_t size) {
  enum { MOST = 5 };
  int64_t starts[5][MOST + 1], total = 0;
  size_t examples = 1 + number(&data, &size, MOST), flags = number(&data, &size, 64);
  Batch batch = {.examples = examples, .starts = starts[4], .mask = flags & 1, .label_mask = flags >> 1 & 1, .types = flags >> 2 & 1};
  batch.packed = flags >> 3 & 1;
  batch.records = batch.packed ? number(&data, &size, examples + 1) : examples;
  batch.separator = (int64_t)number(&data, &size, 300);
  for (int i = 0; i < 5; i++)
    for (size_t j = 0; j <= examples; j++) {
      int64_t more = (int64_t)number(&data, &size, 300);
      starts[i][j] = more > 250 ? more - 270 : i == 4 ? (int64_t)j : (j ? starts[i][j - 1] : 0) + more % 40;
    }
  int64_t lengths[2] = {(int64_t)number(&data, &size, 300), (int64_t)number(&data, &size, 300)};
  if ((batch.mask || batch.types || batch.packed) && !lengths[0]) return;
  if ((batch.label_mask || batch.packed) && !lengths[1]) return;
  void *bytes = malloc(size + 1); /* aligned */
  memcpy(bytes, data, size);
  int width = flags >> 4 & 1 ? 2 : 4;
  batch.ids = (Texts){bytes, starts[0], (int64_t)size};
  batch.references = (Texts){bytes, starts[1], (int64_t)size};
  batch.inputs = (Lists){bytes, starts[2], (int64_t)size / width, width, lengths[0], (int64_t)number(&data, &size, 1000)};
  batch.labels = (Lists){bytes, starts[3], (int64_t)size / width, width, lengths[1], -100};
  uint32_t sizes[MOST], alone[MOST];
  Place places[MOST];
  Framed out = {0}, last = {0};
  if (records_frame(&batch, 1, sizes, &out) == OK) {
    for (size_t i = 0; i < batch.records; i++) total += sizes[i];
    MUST(out.room - out.begin == total);
    MUST(records_frame(&batch, 0, alone, &last) == OK && !memcmp(sizes, alone, batch.records * sizeof *sizes));
    Block block = {out.bytes + out.begin, total};
    MUST(block_cut(&block, 0, places, (int64_t)batch.records) == OK);
    int64_t read = lengths[0] ? lengths[0] : 0;
    int32_t *ids = malloc(4 * (size_t)read * MOST + 1);
    Wanted wanted = {"input_ids", 9, ids, read, 0, read ? read : -1};
    if (read) MUST(decode_all(&block, 1, places, (int64_t)batch.records, &wanted, 1, NULL, 0) == (int64_t)batch.records);
    free(ids);
  }
  free(out.bytes), free(last.bytes);
  free(bytes);
}

/* Rows of ids, and how each id is written: the number of pieces, ids, how blanks are written, places of pieces, letters. */
__attribute__((unused)) static void fuzz_pieces(const uint8_t *data, size_t size) {
  enum { ROWS = 3, WIDTH = 8 };
  int32_t ids[ROWS * WIDTH], count;
  uint8_t marked;
  size_t known = number(&data, &size, 12);
  for (int i = 0; i < ROWS * WIDTH; i++) ids[i] = (int32_t)number(&data, &size, 14) - 1;
  int strip = (int)number(&data, &size, 2);
  if (size < 8 * known + PIECE_AT_ONCE) return;
  uint64_t *places = malloc(8 * known + 1);
  memcpy(places, data, 8 * known);
  uint8_t *letters = malloc(size - 8 * known);
  memcpy(letters, data + 8 * known, size - 8 * known);
  Pieces pieces = {letters, places, (int64_t)(size - 8 * known), (int64_t)known, 1, 13, 2, strip};
  Letters out = {0};
  int64_t most = pieces_longest(&pieces), before = 0;
  for (int row = 0; most >= 0 && row < ROWS; row++, before = out.size) {
    if (row_write(&pieces, most, ids + row * WIDTH, WIDTH, &out, &count, &marked) != OK) break;
    MUST(out.size >= before && marked <= 1 && count >= 0 && count <= WIDTH);
  }
  free(out.bytes), free(places), free(letters);
}

#ifdef NO_CHECKSUMS
void crc_prepare(void) {}

uint32_t masked_crc(const uint8_t *bytes, size_t size) {
  (void)bytes, (void)size;
  return 0;
}
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static void (*const targets[])(const uint8_t *, size_t) = {NULL,      fuzz_model, fuzz_encode,   fuzz_decode, fuzz_blocks,
                                                             fuzz_csv,  fuzz_json,  fuzz_shingles, fuzz_spans,  fuzz_frames, fuzz_pieces};
  if (!work) {
    work = workspace_new();
    crc_prepare();
    records_prepare();
  }
  targets[TARGET](data, size);
  return 0;
}
