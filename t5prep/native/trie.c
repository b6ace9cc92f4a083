/* Build a double-array trie, breadth first, so that the nodes near the root, which every text visits, are close in memory. */
#include <math.h>

#include "unigram.h"

#define BLOCK 256
/* How many free places are tried for a node's children before a new block is added: so the time to build stays linear. */
#define TRIES 256

typedef struct {
  uint32_t node;
  size_t first, end, depth;
} Range;

/* A trie that is being built: a linked list of the free places, from `first` to `last`, and the bases that have children. A base
   belongs to one node only, because a child stores its byte and not its parent. */
typedef struct {
  Trie *trie;
  uint32_t *before, *after, first, last;
  uint8_t *used;
} Builder;

#define NONE UINT32_MAX

static int in_order(const void *a, const void *b) {
  const Key *x = a, *y = b;
  size_t shorter = x->length < y->length ? x->length : y->length;
  int order = memcmp(x->bytes, y->bytes, shorter);
  return order ? order : (x->length > y->length) - (x->length < y->length);
}

static int widen(void **array, size_t count, size_t size) {
  void *wider = room_for(*array, count, size);
  if (wider) *array = wider;
  return wider != NULL;
}

static int grow(Builder *b) {
  Trie *trie = b->trie;
  size_t old = trie->size, size = old + BLOCK;
  if (size > MOST_NODES) return BAD_MODEL;
  if (!widen((void **)&trie->nodes, size, sizeof *trie->nodes) || !widen((void **)&trie->ids, size, sizeof *trie->ids) ||
      !widen((void **)&b->before, size, sizeof *b->before) || !widen((void **)&b->after, size, sizeof *b->after) ||
      !widen((void **)&b->used, size, 1))
    return NO_MEMORY;
  for (size_t i = old; i < size; i++) {
    trie->nodes[i] = (Node){0, -INFINITY};
    trie->ids[i] = -1;
    b->used[i] = 0;
    b->before[i] = i > old ? (uint32_t)i - 1 : b->last;
    b->after[i] = i + 1 < size ? (uint32_t)i + 1 : NONE;
  }
  if (b->last == NONE) b->first = (uint32_t)old;
  else b->after[b->last] = (uint32_t)old;
  b->last = (uint32_t)size - 1;
  trie->size = (uint32_t)size;
  return OK;
}

static void take(Builder *b, uint32_t place, uint32_t label) {
  uint32_t before = b->before[place], after = b->after[place];
  if (before == NONE) b->first = after;
  else b->after[before] = after;
  if (after == NONE) b->last = before;
  else b->before[after] = before;
  b->trie->nodes[place].link = label; /* base 0, under which no node has children */
}

static int fits(const Builder *b, uint32_t base, const uint8_t *labels, size_t count) {
  if (b->used[base]) return 0;
  for (size_t i = 0; i < count; i++)
    if (b->trie->nodes[base ^ labels[i]].link) return 0;
  return 1;
}

/* Find a base under which the places of all children of a node are free. */
static int find_base(Builder *b, const uint8_t *labels, size_t count, uint32_t *base) {
  uint32_t place = b->first;
  for (int tries = 0; place != NONE && tries < TRIES; tries++, place = b->after[place]) {
    *base = place ^ labels[0];
    if (fits(b, *base, labels, count)) return OK;
  }
  *base = b->trie->size;
  return grow(b);
}

/* Add a child of range.node for each different byte at range.depth, and append the children to the ranges. */
static int add_children(Builder *b, const Key *keys, Range range, Range *ranges, size_t *count) {
  uint8_t labels[256];
  size_t starts[257], different = 0;
  for (size_t i = range.first; i < range.end; i++) {
    if (keys[i].length == range.depth) { /* the string ends here: strings are sorted, so it is the first of its range */
      if (i != range.first || !range.depth) return BAD_MODEL;
      b->trie->ids[range.node] = keys[i].id;
      b->trie->nodes[range.node].score = keys[i].score;
      continue;
    }
    uint8_t label = keys[i].bytes[range.depth];
    if (different && labels[different - 1] == label) continue;
    labels[different] = label;
    starts[different++] = i;
  }
  if (!different) return OK;
  starts[different] = range.end;
  uint32_t base;
  int status = find_base(b, labels, different, &base);
  if (status != OK) return status;
  b->used[base] = 1;
  b->trie->nodes[range.node].link |= base << 9;
  for (size_t i = 0; i < different; i++) {
    take(b, base ^ labels[i], IS_CHILD | labels[i]);
    ranges[(*count)++] = (Range){base ^ labels[i], starts[i], starts[i + 1], range.depth + 1};
  }
  return OK;
}

static int build(Builder *b, const Key *keys, size_t count, Range *ranges) {
  size_t waiting = 1;
  int status = grow(b);
  if (status != OK) return status;
  take(b, 0, 1); /* the root is not free, and is no child */
  b->used[0] = 1;
  ranges[0] = (Range){0, 0, count, 0};
  for (size_t i = 0; i < waiting && status == OK; i++) status = add_children(b, keys, ranges[i], ranges, &waiting);
  return status;
}

int trie_build(Trie *trie, Key *keys, size_t count) {
  size_t most = 1;
  *trie = (Trie){0};
  qsort(keys, count, sizeof *keys, in_order);
  for (size_t i = 0; i < count; i++) most += keys[i].length; /* there are at most as many nodes as bytes */
  Range *ranges = room_for(NULL, most, sizeof *ranges);
  if (!ranges) return NO_MEMORY;
  Builder builder = {.trie = trie, .first = NONE, .last = NONE};
  int status = build(&builder, keys, count, ranges);
  free(ranges);
  free(builder.before);
  free(builder.after);
  free(builder.used);
  if (status != OK) trie_free(trie);
  return status;
}

void trie_free(Trie *trie) {
  free(trie->nodes);
  free(trie->ids);
  *trie = (Trie){0};
}
