/* Declare a SentencePiece unigram model and the functions that encode one text. Only the files *module.c of this folder use Python. */
#ifndef T5PREP_UNIGRAM_H
#define T5PREP_UNIGRAM_H

#include <float.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "numbers.h"

/* Sums must be rounded to 32 bits after each addition, as SentencePiece's are. */
#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0
#error "float arithmetic has another precision here; SentencePiece does the work instead"
#endif

/* SentencePiece's escaped blank, U+2581. In this folder it is one byte, a blank: normalized texts have no other blank. */
#define SPACE ' '
#define SPACE_BYTES "\xe2\x96\x81"

/* The most bytes of a normalized text: positions in it are 32-bit numbers. */
#define LONGEST (1u << 27)

/* How many bytes may be read after the end of a normalized text, because words are searched many bytes at a time. */
#define BEHIND 64

/* A double-array trie. A link is a base and, in its low bits, IS_CHILD and the byte that leads to this node; 0 for a free node.
   The child of x by byte c is y = base of x ^ c, if y is marked as a child by c. The number of nodes is a multiple of 256 and
   every base is below it, so y needs no bounds check. Where no string ends, the id is -1 and the score minus infinity, which
   never wins. */
typedef struct {
  uint32_t link;
  float score;
} Node;

#define IS_CHILD 0x100u
#define MOST_NODES (1u << 23)

typedef struct {
  Node *nodes;
  int32_t *ids;
  uint32_t size;
} Trie;

/* Go from a node to its child by `byte`. Return 0 if there is none. No string holds a NUL, so a walk ends there. */
static inline int go(const Node *nodes, uint32_t *node, uint8_t byte) {
  *node = nodes[*node].link >> 9 ^ byte;
  return (nodes[*node].link & 0x1ff) == (IS_CHILD | byte);
}

typedef struct {
  const uint8_t *bytes;
  size_t length;
  int32_t id;
  float score;
} Key;

/* Sort `keys` and build a trie of them. Return OK, NO_MEMORY, or BAD_MODEL where two are equal or one is empty. */
int trie_build(Trie *trie, Key *keys, size_t count);
void trie_free(Trie *trie);

/* How a model normalizes text (normalizer.cc). `rules` and `texts` are its compiled character map, a darts double array and
   NUL-terminated strings; `own` holds its user-defined pieces, which are not normalized. */
typedef struct {
  uint32_t *rules;
  size_t rules_size;
  char *texts;
  size_t texts_size;
  Trie own;
  int dummy_prefix, remove_extra_whitespaces;
  uint8_t ascii[128]; /* what each ASCII character becomes: ITSELF, BLANK, or SPECIAL where rules must be looked up */
  int plain;          /* 1 if all characters from '!' to '}' become ITSELF, and the blank BLANK */
  uint8_t joins[128]; /* 1 if a following non-ASCII character may change the result */
} Normalizer;

enum { SPECIAL = 0, ITSELF = 1, BLANK = 2 };

typedef struct {
  Normalizer normalizer;
  Trie trie;
  float unk_score, largest_score; /* largest_score: the largest absolute score, including unk_score */
  int32_t unk_id;
  int byte_fallback, word_by_word; /* word_by_word: pieces have a space only as their first character */
  int32_t byte_ids[256];
  size_t pieces, longest; /* the number of pieces, and the bytes of the longest */
} Model;

/* Read a serialized ModelProto. Return OK, NO_MEMORY, or BAD_MODEL where it is none, or of a kind that is not supported here. */
int model_load(Model *model, const uint8_t *proto, size_t size);
void model_free(Model *model);
int normalizer_load(Normalizer *normalizer, const uint8_t *charsmap, size_t size, Key *own, size_t count);
void normalizer_free(Normalizer *normalizer);

/* The last piece of the best path to a position. */
typedef struct {
  uint32_t start, node; /* its start, and its node in the trie: 0 for an unknown character */
} Step;

/* Buffers for one thread, reused for each text. */
typedef struct Words Words;
typedef struct Workspace {
  struct Workspace *next;
  uint8_t *text; /* the normalized text and BEHIND zeros, because it is read many bytes at a time */
  size_t size, room;
  float *best; /* at each position of the present word: the best sum; `from` holds its last piece */
  Step *from;
  int32_t *path;
  size_t word_room;
  int32_t *ids;
  size_t count, ids_room;
  Words *words;
} Workspace;

Workspace *workspace_new(void);
void workspace_free(Workspace *workspace);

/* Write the normalized form of a text into work->text. Return OK, NO_MEMORY, or BAD_TEXT where it is longer than LONGEST. */
int normalize(const Normalizer *normalizer, Workspace *work, const uint8_t *text, size_t size);

/* Append the ids of a text to work->ids. Return OK, NO_MEMORY, or BAD_TEXT for more than 32 MB or where no path leads to its end. */
int encode(const Model *model, Workspace *work, const uint8_t *text, size_t size);

#define EACH_BYTE UINT64_C(0x0101010101010101)

/* Return a number with the highest bit of each byte set that is a blank, and no other bit. */
static inline uint64_t blanks_of(uint64_t bytes) {
  uint64_t others = bytes ^ EACH_BYTE * ' ';
  return ~(((others & EACH_BYTE * 0x7f) + EACH_BYTE * 0x7f) | others) & EACH_BYTE * 0x80;
}

/* Return the length of a UTF-8 character by its first byte; 1 for a byte that begins none. */
static inline size_t character_length(uint8_t first) { return (size_t)("\1\1\1\1\1\1\1\1\1\1\1\1\2\2\3\4"[first >> 4]); }

#endif
