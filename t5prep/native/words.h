/* Declare a table of short words whose best segmentation no rounding can change: they need not be segmented again. */
#ifndef T5PREP_WORDS_H
#define T5PREP_WORDS_H

#include <string.h>

#include "unigram.h"

#define WORD_BYTES 16
#define WORD_PIECES 5
#ifndef SETS_BITS
#define SETS_BITS 16 /* 8 MB: a larger table holds more words, but waits longer for the memory */
#endif
#define WAYS 2

/* One cache line. `limit`: the ids are certain after words with an absolute sum of scores of at most this; negative where they
   never are. An empty place has length 0. */
typedef struct {
  uint64_t spelling[2];
  float limit;
  uint8_t length, pieces, unused[2];
  int32_t ids[WORD_PIECES];
  float scores[WORD_PIECES]; /* 0 after the last piece */
} Word;

typedef struct {
  uint64_t spelling[2];
  uint32_t set;
} Spelling;

struct Words {
  Word *places; /* WAYS for each set, aligned to a cache line */
  void *memory;
};

Words *words_new(void);
void words_free(Words *words);

/* Segment a word that the table does not hold, and add it. A word that has unknown characters or too many pieces is added
   without ids, as never certain. The returned word stays valid until the next call. */
const Word *words_add(Words *words, const Model *model, const Spelling *spelling, const uint8_t *word, size_t length);

/* Compute the place of a word of at most WORD_BYTES in the table, and prefetch it. WORD_BYTES bytes must be readable. */
static inline void words_prepare(const Words *words, Spelling *spelling, const uint8_t *word, size_t length) {
  uint8_t bytes[WORD_BYTES];
  memcpy(bytes, word, sizeof bytes);
  for (size_t i = 0; i < WORD_BYTES; i++) bytes[i] = i < length ? bytes[i] : 0; /* compilers turn this into a mask */
  memcpy(spelling->spelling, bytes, sizeof bytes);
  uint64_t hash = (spelling->spelling[0] ^ (uint64_t)length) * UINT64_C(0x9e3779b97f4a7c15);
  hash = (hash ^ (hash >> 29) ^ spelling->spelling[1]) * UINT64_C(0xbf58476d1ce4e5b9);
  hash = (hash ^ (hash >> 32)) * UINT64_C(0x94d049bb133111eb);
  spelling->set = (uint32_t)(hash >> (64 - SETS_BITS)) * WAYS;
  __builtin_prefetch(&words->places[spelling->set]);
  __builtin_prefetch(&words->places[spelling->set + 1]);
}

static inline int words_same(const Word *word, const Spelling *spelling, size_t length) {
  uint64_t other = (word->spelling[0] ^ spelling->spelling[0]) | (word->spelling[1] ^ spelling->spelling[1]);
  return (other | (word->length ^ length)) == 0;
}

/* Return a word of at most WORD_BYTES as words_add does, from the table if it is there. */
static inline const Word *words_find(Words *words, const Model *model, const Spelling *spelling, const uint8_t *word,
                                     size_t length) {
  const Word *set = words->places + spelling->set;
  int second = words_same(&set[1], spelling, length);
  if (second | words_same(&set[0], spelling, length)) return &set[second];
  return words_add(words, model, spelling, word, length);
}

#endif
