/* Find the best segmentation of a text, as SentencePiece 0.2.3 does (unigram_model.cc, EncodeOptimized, and
   sentencepiece_processor.cc, EncodeOptimized): sums are 32-bit floats from the start of the text, the first of equal
   candidates wins, the running sum is subtracted beyond +-100,000, and consecutive unknown pieces become one.

   Where pieces have a space only as their first character, every segmentation has a border before each space. Then a text is
   segmented word by word, and each word starts from the sum of the words before it. */
#include <math.h>
#include "unigram.h"
#include "words.h"

#define RESET 100000.0f /* kScoreResetThreshold */
#define LONGEST_TEXT (INT32_MAX / 64) /* bytes; a rule of usual models can turn one byte into 32, and longer ones are refused */

static int room_for_word(Workspace *work, size_t length) {
  if (length < work->word_room) return OK;
  size_t room = length + length / 2 + 64;
  work->word_room = 0;
  float *best = room_for(work->best, room, sizeof *best);
  if (best) work->best = best;
  Step *from = room_for(work->from, room, sizeof *from);
  if (from) work->from = from;
  int32_t *path = room_for(work->path, room, sizeof *path);
  if (path) work->path = path;
  if (!best || !from || !path) return NO_MEMORY;
  work->word_room = room;
  return OK;
}

static int room_for_ids(Workspace *work, size_t more) {
  if (work->ids_room - work->count >= more) return OK;
  size_t room = work->count + more + work->ids_room / 2;
  int32_t *ids = room_for(work->ids, room, sizeof *ids);
  if (!ids) return NO_MEMORY;
  work->ids = ids;
  work->ids_room = room;
  return OK;
}

/* Subtract the sum at `k` from all sums from there on, so that floats stay small enough to differ. */
static void reset(float *best, size_t k, size_t end) {
  float off = best[k];
  for (size_t i = k; i <= end; i++) best[i] -= off;
}

/* Fill `best` and `from` for a word that starts with the sum `before`. It must be followed by a NUL, or by a byte with which no
   piece continues. */
static void segment(const Model *model, Workspace *work, const uint8_t *word, size_t length, float before) {
  const Node *nodes = model->trie.nodes;
  float *best = work->best;
  Step *from = work->from;
  for (size_t i = 0; i <= length; i++) best[i] = -INFINITY;
  best[0] = before;
  for (size_t k = 0; k < length;) {
    size_t one = character_length(word[k]), j = k;
    if (one > length - k) one = length - k;
    if (best[k] < -RESET || best[k] > RESET) reset(best, k, length - k > model->longest ? k + model->longest : length);
    float here = best[k];
    int single = 0;
    for (uint32_t x = 0; go(nodes, &x, word[j]);) {
      float sum = nodes[x].score + here;
      j++;
      single |= j == k + one && sum > -INFINITY;
      if (sum > best[j]) {
        best[j] = sum;
        from[j] = (Step){(uint32_t)k, x};
      }
    }
    k += one;
    if (!single && model->unk_score + here > best[k]) {
      best[k] = model->unk_score + here;
      from[k] = (Step){(uint32_t)(k - one), 0};
    }
  }
}

/* Append the ids of an unknown piece: the unknown id, unless the piece before is unknown too, or its bytes. Room is reserved. */
static void append_unknown(const Model *model, Workspace *work, const uint8_t *piece, size_t length, int after_unknown) {
  if (!model->byte_fallback) {
    if (!after_unknown) work->ids[work->count++] = model->unk_id;
    return;
  }
  for (size_t i = 0; i < length; i++) {
    if (piece[i] != SPACE) {
      work->ids[work->count++] = model->byte_ids[piece[i]];
      continue;
    }
    for (int b = 0; b < 3; b++) work->ids[work->count++] = model->byte_ids[(uint8_t)SPACE_BYTES[b]];
  }
}

/* Append the ids of the best path through a word. Return BAD_TEXT where no path leads to its end. */
static int append_path(const Model *model, Workspace *work, const uint8_t *word, size_t length, int *after_unknown) {
  size_t pieces = 0;
  for (size_t end = length; end > 0; end = work->from[end].start) {
    if (!(work->best[end] > -INFINITY)) return BAD_TEXT;
    work->path[pieces++] = (int32_t)end;
  }
  while (pieces--) {
    size_t end = (size_t)work->path[pieces], start = work->from[end].start;
    uint32_t node = work->from[end].node;
    if (node) work->ids[work->count++] = model->trie.ids[node];
    else append_unknown(model, work, word + start, end - start, *after_unknown);
    *after_unknown = !node;
  }
  return OK;
}

/* Append the ids of a word with the same additions as SentencePiece, and add its pieces to the sum. */
static int append_exactly(const Model *model, Workspace *work, const uint8_t *word, size_t length, float *sum,
                          int *after_unknown) {
  if (room_for_word(work, length + 1) != OK) return NO_MEMORY;
  segment(model, work, word, length, *sum);
  *sum = work->best[length];
  return append_path(model, work, word, length, after_unknown);
}

#define BATCH 64

/* Return a bit for each of the BATCH bytes of `text`: 1 if it is a blank. */
static uint64_t blank_bits(const uint8_t *text) {
  uint64_t bits = 0;
  for (int i = 0; i < BATCH; i += 8) {
    uint64_t blanks = blanks_of(eight_bytes(text + i)) >> 7;
    bits |= (blanks * UINT64_C(0x0102040810204080)) >> 56 << i; /* collects the lowest bits of eight bytes */
  }
  return bits;
}

/* Find the starts of words: the word at `at`, and those in the next BATCH bytes, or in the first batch with one. Return their
   number n; starts[n] is the end of the last word. */
static size_t next_words(const uint8_t *text, size_t size, size_t at, size_t *starts) {
  size_t n = 1, next = at + 1;
  starts[0] = at;
  for (; next < size; next += BATCH) {
    uint64_t bits = blank_bits(text + next);
    if (size - next < BATCH) bits &= (UINT64_C(1) << (size - next)) - 1;
    for (; bits; bits &= bits - 1) starts[n++] = next + (size_t)__builtin_ctzll(bits);
    if (n > 1) return n - 1;
  }
  starts[n] = size;
  return n;
}

/* Append the ids of a word in the table, and add its scores to the sum. Scores after the last piece are 0. */
static void append_known(Workspace *work, const Word *known, float *sum) {
  float after = *sum + known->scores[0];
  memcpy(work->ids + work->count, known->ids, sizeof known->ids);
  work->count += known->pieces;
  after += known->scores[1];
  if (known->pieces > 2)
    for (int i = 2; i < WORD_PIECES; i++) after += known->scores[i];
  *sum = after;
}

static int append_words(const Model *model, Workspace *work) {
  size_t starts[BATCH + 2];
  Spelling spelled[BATCH + 2];
  float sum = 0;
  int after_unknown = 0;
  for (size_t at = 0, n; at < work->size; at = starts[n]) {
    n = next_words(work->text, work->size, at, starts);
    for (size_t i = 0; i < n; i++) words_prepare(work->words, &spelled[i], work->text + starts[i], starts[i + 1] - starts[i]);
    for (size_t i = 0; i < n; i++) {
      const uint8_t *word = work->text + starts[i];
      size_t length = starts[i + 1] - starts[i];
      const Word *known = length > WORD_BYTES ? NULL : words_find(work->words, model, &spelled[i], word, length);
      if (known && fabsf(sum) <= known->limit) {
        append_known(work, known, &sum);
        after_unknown = 0;
      } else {
        int status = append_exactly(model, work, word, length, &sum, &after_unknown);
        if (status != OK) return status;
      }
    }
  }
  return OK;
}

int encode(const Model *model, Workspace *work, const uint8_t *text, size_t size) {
  if (size > LONGEST_TEXT) return BAD_TEXT;
  int status = normalize(&model->normalizer, work, text, size);
  if (status != OK || !work->size) return status;
  /* Each id comes from at least one byte of the text, but a space spelled in bytes has three ids. */
  status = room_for_ids(work, (model->byte_fallback ? 3 : 1) * work->size + WORD_PIECES);
  if (status != OK) return status;
  int after_unknown = 0;
  float sum = 0;
  return model->word_by_word ? append_words(model, work)
                             : append_exactly(model, work, work->text, work->size, &sum, &after_unknown);
}

Workspace *workspace_new(void) {
  Workspace *work = calloc(1, sizeof *work);
  if (work && !(work->words = words_new())) {
    free(work);
    return NULL;
  }
  return work;
}

void workspace_free(Workspace *work) {
  free(work->text);
  free(work->best);
  free(work->from);
  free(work->path);
  free(work->ids);
  words_free(work->words);
  free(work);
}
