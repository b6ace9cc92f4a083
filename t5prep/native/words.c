/* Keep the table of short words, and prove that a segmentation is the one that SentencePiece finds.

   SentencePiece's sum of a path has at most one rounding error for each addition. Each is at most 2^-24 of the largest sum on
   the path: |sum before the word| + characters * largest score. SentencePiece finds the path whose rounded sum is largest
   (rounding keeps the order, so the best path to each position is part of the best path to the end). It therefore finds the
   best path by exact sums wherever the second best is worse by more than the errors of both: 2 * characters additions at most. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "words.h"

#define ROUNDING (1.0 / (1 << 24))
/* A margin for errors of the doubles used here and for the growth of the sums by rounding, larger than needed. */
#define CAUTION 1.05

Words *words_new(void) {
  Words *words = calloc(1, sizeof *words);
  if (!words) return NULL;
  words->memory = calloc(((size_t)WAYS << SETS_BITS) + 2, sizeof(Word));
  if (!words->memory) {
    free(words);
    return NULL;
  }
  uintptr_t line = WAYS * sizeof(Word);
  words->places = (Word *)(((uintptr_t)words->memory + line - 1) / line * line);
  return words;
}

void words_free(Words *words) {
  free(words->memory);
  free(words);
}

/* The best path to each position of a word by exact sums, and the sum of the second best. */
typedef struct {
  double best[WORD_BYTES + 1], second[WORD_BYTES + 1];
  struct {
    uint32_t start;
    float score;
    uint32_t node; /* 0 for an unknown character */
  } from[WORD_BYTES + 1];
} Paths;

static inline void offer(Paths *paths, double best, double second, size_t start, size_t end, float score, uint32_t node) {
  double old = paths->best[end], sum = best + score, other = second + score, least = sum < old ? sum : old;
  double second_old = paths->second[end] > other ? paths->second[end] : other;
  paths->second[end] = second_old > least ? second_old : least;
  if (sum > old) {
    paths->best[end] = sum;
    paths->from[end].start = (uint32_t)start;
    paths->from[end].score = score;
    paths->from[end].node = node;
  }
}

/* Find the best and second best paths. Return the number of characters. */
static size_t find_paths(const Model *model, Paths *paths, const uint8_t *word, size_t length) {
  const Node *nodes = model->trie.nodes;
  size_t characters = 0;
  for (size_t i = 0; i <= length; i++) paths->best[i] = paths->second[i] = -INFINITY;
  paths->best[0] = 0;
  for (size_t k = 0; k < length; characters++) {
    size_t one = character_length(word[k]), j = k;
    if (one > length - k) one = length - k;
    double best = paths->best[k], second = paths->second[k];
    int single = 0;
    for (uint32_t x = 0; go(nodes, &x, word[j]);) {
      j++;
      single |= j == k + one && nodes[x].score > -INFINITY;
      offer(paths, best, second, k, j, nodes[x].score, x);
    }
    if (!single) offer(paths, best, second, k, k + one, model->unk_score, 0);
    k += one;
  }
  return characters;
}

/* Return the largest sum before a word for which its best path is certain. */
static float limit_of(const Paths *paths, size_t length, size_t characters, float largest_score) {
  double within = (double)characters * largest_score, limit = 100000.0 - 1 - CAUTION * within; /* below any reset */
  double margin = paths->best[length] - paths->second[length] - 1e-9;
  double largest_sum = margin / (2.0 * (double)characters * ROUNDING * CAUTION);
  limit = fmin(limit, largest_sum - CAUTION * within);
  return limit < 0 ? -1.0f : (float)(limit * (1 - 1e-6));
}

const Word *words_add(Words *words, const Model *model, const Spelling *spelling, const uint8_t *word, size_t length) {
  Paths paths;
  uint8_t ends[WORD_BYTES + 1];
  size_t characters = find_paths(model, &paths, word, length), pieces = 0;
  int known = 1;
  for (size_t end = length; end > 0; end = paths.from[end].start) {
    if (!(paths.best[end] > -INFINITY)) return NULL; /* no path leads here: `encode` says so */
    known &= paths.from[end].node != 0;
    ends[pieces++] = (uint8_t)end;
  }
  known = known && pieces <= WORD_PIECES;
  Word *set = words->places + spelling->set;
  set[1] = set[0];
  memset(&set[0], 0, sizeof set[0]);
  memcpy(set[0].spelling, spelling->spelling, sizeof set[0].spelling);
  set[0].limit = known ? limit_of(&paths, length, characters, model->largest_score) : -1;
  set[0].length = (uint8_t)length;
  set[0].pieces = (uint8_t)(known ? pieces : 0);
  for (size_t i = 0; i < set[0].pieces; i++) {
    set[0].ids[i] = model->trie.ids[paths.from[ends[pieces - 1 - i]].node];
    set[0].scores[i] = paths.from[ends[pieces - 1 - i]].score;
  }
  return &set[0];
}
