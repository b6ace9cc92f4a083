/* Hash the words of texts and their runs, and lists of ids. shingles.py says what a word is; both must give the same numbers. */
#include "numbers.h"
#include "text.h"

static inline int is_word(uint8_t byte) {
  return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || byte >= 0x80;
}

/* Kana and Han begin with these bytes in UTF-8: each of their characters, of three bytes, is a word. */
static inline int is_unspaced(uint8_t byte) { return byte >= 0xE3 && byte <= 0xE9; }

static inline int is_sign(uint8_t byte) { return byte > ' '; }

/* The first `count` of eight bytes as a little-endian number. */
static inline uint64_t first_bytes(const uint8_t *at, int64_t count) {
  uint64_t eight = eight_bytes(at);
  return count < 8 ? eight & ((UINT64_C(1) << (8 * count)) - 1) : eight;
}

static uint64_t hash_word(const uint8_t *word, int64_t length) {
  uint64_t hash = mix((uint64_t)length);
  for (int64_t step = 0; step < length; step += 8)
    hash = mix(hash ^ mix(first_bytes(word + step, length - step) + (uint64_t)step));
  return hash;
}

typedef struct {
  const uint8_t *data;
  uint64_t *hashes;
  long_word *long_words;
  int64_t words, longs;
} hashed;

static void add_word(hashed *to, int64_t begin, int64_t end) {
  if (end - begin > LONG_WORD)
    to->long_words[to->longs++] = (long_word){to->words, begin, end};
  else
    to->hashes[to->words] = hash_word(to->data + begin, end - begin);
  to->words++;
}

static void add_words(hashed *to, int64_t begin, int64_t end, int (*inside)(uint8_t)) {
  int64_t word = -1, character_ends = -1;
  for (int64_t at = begin; at < end; at++) {
    uint8_t byte = to->data[at];
    if (!inside(byte)) {
      if (word >= 0) add_word(to, word, at);
      word = -1;
      continue;
    }
    int unspaced = is_unspaced(byte);
    if (word >= 0 && (unspaced || at == character_ends)) {
      add_word(to, word, at);
      word = at;
    } else if (word < 0) {
      word = at;
    }
    if (unspaced) character_ends = at + 3;
  }
  if (word >= 0) add_word(to, word, end);
}

int64_t word_hashes(const uint8_t *data, const int64_t *begins, size_t texts, uint64_t *hashes, int64_t *counts,
                    long_word *long_words, int64_t *longs) {
  hashed to = {data, hashes, long_words, 0, 0};
  for (size_t text = 0; text < texts; text++) {
    int64_t before = to.words, begin = begins[text], end = begins[text + 1] - 1;
    add_words(&to, begin, end, is_word);
    if (to.words == before && end > begin) add_words(&to, begin, end, is_sign);
    counts[text] = to.words - before;
  }
  *longs = to.longs;
  return to.words;
}

int64_t run_hashes(const uint64_t *hashes, const int64_t *counts, size_t texts, const uint64_t *factors, int64_t words,
                   uint64_t *runs, int64_t *begins) {
  int64_t written = 0;
  for (size_t text = 0; text < texts; text++) {
    int64_t count = counts[text], length = count < words ? count : words;
    begins[text] = written;
    for (int64_t first = 0; count && first <= count - length; first++) {
      uint64_t total = 0;
      for (int64_t place = 0; place < length; place++) total += hashes[first + place] * factors[place];
      runs[written++] = mix(total);
    }
    hashes += count;
  }
  begins[texts] = written;
  return written;
}

void list_digests(const uint8_t *ids, const int64_t *starts, size_t lists, uint64_t *digests) {
  for (size_t list = 0; list < lists; list++) {
    const uint8_t *at = ids + 4 * starts[list], *end = ids + 4 * starts[list + 1];
    uint64_t hash = mix(digests[list] ^ (uint64_t)(end - at));
    for (; end - at >= 8; at += 8) {
      hash = (hash ^ eight_bytes(at)) * UINT64_C(0x9E3779B97F4A7C15);
      hash ^= hash >> 32;
    }
    digests[list] = mix(at < end ? hash ^ four_bytes(at) : hash);
  }
}

void list_counts(const int32_t *ids, const int64_t *starts, size_t lists, int32_t id, int64_t *counts) {
  for (size_t list = 0; list < lists; list++) {
    int64_t count = 0;
    for (int64_t at = starts[list]; at < starts[list + 1]; at++) count += ids[at] == id; /* compilers make vectors of this */
    counts[list] = count;
  }
}
