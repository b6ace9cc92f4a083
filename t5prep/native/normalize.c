/* Normalize text as SentencePiece 0.2.3 does (normalizer.cc): the longest rule at each position, blanks joined and escaped. */

#include "unigram.h"

#define MOST_RULES 32 /* kMaxTrieResultsSize of normalizer.h */
#define MOST_OWN 64   /* kResultSize of PrefixMatcher */
#define REPLACEMENT "\xef\xbf\xbd"

/* A unit of a darts double array (darts.h, DoubleArrayUnit). */
static int has_leaf(uint32_t unit) { return unit >> 8 & 1; }
static uint32_t value_of(uint32_t unit) { return unit & 0x7fffffff; }
static uint32_t label_of(uint32_t unit) { return unit & 0x800000ff; }
static uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); }

typedef struct {
  const char *bytes;
  size_t length, consumed;
} Prefix;

/* Return the length of the longest user-defined piece that `text` begins with, 0 for none. */
static size_t own_prefix(const Trie *own, const uint8_t *text, size_t size) {
  size_t longest = 0;
  uint32_t x = 0;
  int matches = 0;
  for (size_t i = 0; i < size; i++) {
    if (!go(own->nodes, &x, text[i])) break;
    if (own->ids[x] >= 0 && matches++ < MOST_OWN) longest = i + 1;
  }
  return longest;
}

/* Find the longest rule that `text` begins with. Return its length, 0 for none. */
static size_t rule_prefix(const Normalizer *n, const uint8_t *text, size_t size, uint32_t *value) {
  size_t longest = 0;
  uint32_t x = n->rules_size ? offset_of(n->rules[0]) : 0;
  int matches = 0;
  for (size_t i = 0; i < size; i++) {
    x ^= text[i];
    if (x >= n->rules_size || label_of(n->rules[x]) != text[i]) break;
    int leaf = has_leaf(n->rules[x]);
    x ^= offset_of(n->rules[x]);
    if (x >= n->rules_size) break;
    if (leaf && matches++ < MOST_RULES) {
      longest = i + 1;
      *value = value_of(n->rules[x]);
    }
  }
  return longest;
}

static int trails(uint8_t byte) { return (byte & 0xc0) == 0x80; }

/* Return the length of the valid UTF-8 character that `t` begins with, 0 for none (DecodeUTF8 of util.cc). */
static size_t valid_character(const uint8_t *t, size_t size) {
  if (t[0] < 0x80) return 1;
  if (size >= 2 && (t[0] & 0xe0) == 0xc0) return trails(t[1]) && t[0] >= 0xc2 ? 2 : 0;
  if (size >= 3 && (t[0] & 0xf0) == 0xe0) {
    uint32_t c = (t[0] & 0x0fu) << 12 | (t[1] & 0x3fu) << 6 | (t[2] & 0x3fu);
    return trails(t[1]) && trails(t[2]) && c >= 0x800 && (c < 0xd800 || c >= 0xe000) ? 3 : 0;
  }
  if (size >= 4 && (t[0] & 0xf8) == 0xf0) {
    uint32_t c = (t[0] & 0x07u) << 18 | (t[1] & 0x3fu) << 12 | (t[2] & 0x3fu) << 6 | (t[3] & 0x3fu);
    return trails(t[1]) && trails(t[2]) && trails(t[3]) && c >= 0x10000 && c <= 0x10ffff ? 4 : 0;
  }
  return 0;
}

/* Normalize the beginning of a text, as NormalizePrefix of normalizer.cc does. `size` is not 0. */
static Prefix prefix(const Normalizer *n, const uint8_t *text, size_t size) {
  uint32_t value = 0;
  size_t length = n->own.nodes ? own_prefix(&n->own, text, size) : 0;
  if (length) return (Prefix){(const char *)text, length, length};
  length = rule_prefix(n, text, size, &value);
  if (length && value < n->texts_size) return (Prefix){n->texts + value, strlen(n->texts + value), length};
  length = valid_character(text, size);
  return length ? (Prefix){(const char *)text, length, length} : (Prefix){REPLACEMENT, 3, 1};
}

static int is_blank(Prefix p) { return p.length == 1 && p.bytes[0] == ' '; }

static int make_room(Workspace *work, size_t wanted) {
  if (wanted <= work->room) return OK;
  if (wanted > LONGEST) return BAD_TEXT;
  size_t room = wanted + wanted / 2;
  uint8_t *text = room_for(work->text, room, 1);
  if (!text) return NO_MEMORY;
  work->text = text;
  work->room = room;
  return OK;
}

/* Append a normalized prefix, with SPACE for each blank and each escaped blank. Room is reserved. */
static void append(Workspace *work, const char *bytes, size_t length) {
  for (size_t i = 0; i < length; i++) {
    if (length - i >= 3 && !memcmp(bytes + i, SPACE_BYTES, 3)) {
      work->text[work->size++] = SPACE;
      i += 2;
    } else {
      work->text[work->size++] = (uint8_t)bytes[i];
    }
  }
}

/* Copy text, eight bytes at a time, as long as normalization does not change it. Return how many bytes were copied. */
static size_t copy_plain(uint8_t *out, const uint8_t *text, size_t size, int *after_blank) {
  size_t at = 0;
  uint64_t before = *after_blank ? 0x80 : 0;
  while (size - at > 8 && text[at + 8] < 0x80) { /* the next byte may begin a mark that combines with the last character */
    uint64_t bytes = eight_bytes(text + at), blanks = blanks_of(bytes);
    uint64_t outside = (bytes + EACH_BYTE * (0x80 - 0x7e)) | (bytes - EACH_BYTE * 0x20) | bytes; /* '~' and above, or below ' ' */
    if ((outside & EACH_BYTE * 0x80) || (blanks & (blanks << 8 | before))) break;
    memcpy(out + at, text + at, 8);
    before = blanks >> 56;
    at += 8;
  }
  *after_blank = before != 0;
  return at;
}

int normalize(const Normalizer *n, Workspace *work, const uint8_t *text, size_t size) {
  const uint8_t *at = text, *end = text + size;
  int after_blank = n->remove_extra_whitespaces;
  work->size = 0;
  while (n->remove_extra_whitespaces && at < end) {
    Prefix p = prefix(n, at, (size_t)(end - at));
    if (!is_blank(p)) break;
    at += p.consumed;
  }
  if (at == end) return OK;
  int status = make_room(work, size + 1 + BEHIND);
  if (status != OK) return status;
  if (n->dummy_prefix) work->text[work->size++] = SPACE;
  for (const uint8_t *slowly = at; at < end;) {
    if (at >= slowly && n->plain && n->remove_extra_whitespaces) {
      size_t copied = copy_plain(work->text + work->size, at, (size_t)(end - at), &after_blank);
      work->size += copied;
      at += copied;
      slowly = at + 8; /* these eight bytes hold one that cannot be copied */
    }
    uint8_t c = *at;
    if (c < 0x80 && n->ascii[c] != SPECIAL && (at + 1 == end || at[1] < 0x80 || !n->joins[c])) {
      at++;
      if (n->ascii[c] == ITSELF) {
        work->text[work->size++] = c;
        after_blank = 0;
      } else {
        if (!after_blank) work->text[work->size++] = SPACE;
        after_blank = n->remove_extra_whitespaces;
      }
      continue;
    }
    Prefix p = prefix(n, at, (size_t)(end - at));
    at += p.consumed;
    while (after_blank && p.length && p.bytes[0] == ' ') p.bytes++, p.length--;
    status = make_room(work, work->size + p.length + (size_t)(end - at) + BEHIND);
    if (status != OK) return status;
    append(work, p.bytes, p.length);
    if (p.length) after_blank = p.bytes[p.length - 1] == ' ';
    if (!n->remove_extra_whitespaces) after_blank = 0;
  }
  while (n->remove_extra_whitespaces && work->size && work->text[work->size - 1] == SPACE) work->size--;
  memset(work->text + work->size, 0, BEHIND);
  return OK;
}

/* Find what each ASCII character becomes where no rule combines it with the following characters. */
static void read_ascii(Normalizer *n) {
  for (int c = 0; c < 128; c++) {
    uint8_t text[2] = {(uint8_t)c, 0};
    uint32_t root = 0;
    int joined = n->own.nodes && go(n->own.nodes, &root, (uint8_t)c);
    n->joins[c] = 0;
    uint32_t x = n->rules_size ? offset_of(n->rules[0]) ^ (uint32_t)c : 0;
    if (x < n->rules_size && label_of(n->rules[x]) == (uint32_t)c) {
      uint32_t children = x ^ offset_of(n->rules[x]);
      for (uint32_t follows = 0; follows < 256; follows++) {
        uint32_t y = children ^ follows;
        if (y >= n->rules_size || label_of(n->rules[y]) != follows) continue;
        if (follows >= 0x80) n->joins[c] = 1;
        else joined = 1;
      }
    }
    Prefix p = prefix(n, text, 1);
    n->ascii[c] = SPECIAL;
    if (!joined && p.length == 1) n->ascii[c] = p.bytes[0] == ' ' ? BLANK : p.bytes[0] == c ? ITSELF : SPECIAL;
  }
  n->plain = n->ascii[' '] == BLANK;
  for (int c = '!'; c <= '}'; c++) n->plain &= n->ascii[c] == ITSELF;
}

/* Copy the character map: the double array, then the texts (DecodePrecompiledCharsMap). */
static int read_charsmap(Normalizer *n, const uint8_t *charsmap, size_t size) {
  if (!size) return OK;
  if (size <= 4) return BAD_MODEL;
  uint32_t rules = four_bytes(charsmap);
  if (rules >= size - 4 || rules < 1024 || rules % 1024 || charsmap[size - 1]) return BAD_MODEL;
  n->rules_size = rules / 4;
  n->texts_size = size - 4 - rules;
  n->rules = room_for(NULL, rules, 1);
  n->texts = room_for(NULL, n->texts_size, 1);
  if (!n->rules || !n->texts) return NO_MEMORY;
  for (size_t i = 0; i < n->rules_size; i++) n->rules[i] = four_bytes(charsmap + 4 + 4 * i);
  memcpy(n->texts, charsmap + 4 + rules, n->texts_size);
  return OK;
}

int normalizer_load(Normalizer *n, const uint8_t *charsmap, size_t size, Key *own, size_t count) {
  int status = read_charsmap(n, charsmap, size);
  if (status == OK && count) status = trie_build(&n->own, own, count);
  if (status == OK) read_ascii(n);
  return status;
}

void normalizer_free(Normalizer *n) {
  free(n->rules);
  free(n->texts);
  n->rules = NULL;
  n->texts = NULL;
  trie_free(&n->own);
}
