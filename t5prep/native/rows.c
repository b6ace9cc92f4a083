/* Choose the rows of packed examples, and hide spans of tokens. */
#include "numbers.h"
#include "rows.h"

/* First-fit: a tree over rows says where there may be room, so no row is looked at in turn.
   The most that is left of each side in one of some rows. Node i has the children 2 i and 2 i + 1; the last level is the rows. */
typedef struct {
  int64_t left[2];
} Room;

static int may_fit(const Room *room, const int64_t *lengths) { return room->left[0] >= lengths[0] && room->left[1] >= lengths[1]; }

/* Return the first leaf with room. A node may promise what two of its leaves have apart; then the search goes on behind it. */
static size_t first_leaf(const Room *nodes, size_t leaves, const int64_t *lengths) {
  size_t node = 1;
  for (;;) {
    if (may_fit(&nodes[node], lengths)) {
      if (node >= leaves) return node;
      node *= 2;
    } else {
      while (node & 1) node /= 2;
      node++;
    }
  }
}

static void take(Room *nodes, size_t node, const int64_t *lengths) {
  for (int side = 0; side < 2; side++) nodes[node].left[side] -= lengths[side];
  while (node /= 2) {
    const Room *one = &nodes[2 * node], *other = one + 1;
    for (int side = 0; side < 2; side++) nodes[node].left[side] = one->left[side] > other->left[side] ? one->left[side] : other->left[side];
  }
}

int first_fit_rows(const int64_t *lengths, size_t examples, const int64_t room[2], int64_t *rows) {
  size_t leaves = 1;
  while (leaves < examples + 1) leaves *= 2; /* one more than can be needed: some row is empty */
  Room *nodes = room_for(NULL, 2 * leaves, sizeof *nodes);
  if (!nodes) return NO_MEMORY;
  const Room empty = {{room[0], room[1]}};
  for (size_t node = 0; node < 2 * leaves; node++) nodes[node] = empty;
  for (size_t i = 0; i < examples; i++) {
    const int64_t one[2] = {lengths[2 * i], lengths[2 * i + 1]}; /* read once: another thread may change them */
    if (one[0] < 0 || one[1] < 0 || !may_fit(&empty, one)) {
      free(nodes);
      return BAD_OFFSETS;
    }
    size_t leaf = first_leaf(nodes, leaves, one);
    take(nodes, leaf, one);
    rows[i] = (int64_t)(leaf - leaves);
  }
  free(nodes);
  return OK;
}

/* Spans: the same numbers and the same cuts as the definition in Python, a row at a time. */

/* SplitMix64; the number's place is the counter. */
static uint64_t draw(uint64_t key, uint64_t place) { return mix(key + (place + 1) * 0x9E3779B97F4A7C15u); }

/* Let the number at `top` sink in a heap whose greatest is first. */
static void sink(uint64_t *heap, size_t size, size_t top) {
  uint64_t moved = heap[top];
  for (size_t below = 2 * top + 1; below < size; below = 2 * top + 1) {
    if (below + 1 < size && heap[below + 1] > heap[below]) below++;
    if (heap[below] <= moved) break;
    heap[top] = heap[below];
    top = below;
  }
  heap[top] = moved;
}

/* Draw numbers whose low bits are their place, and keep those below `bound`, in the order of their places. Return how many. */
static size_t draw_below(uint64_t bound, uint64_t low, uint64_t key, size_t first, size_t numbers, uint64_t *kept) {
  size_t count = 0;
  for (size_t i = 0; i < numbers; i++) {
    kept[count] = (draw(key, first + i) & ~low) | i;
    count += kept[count] < bound;
  }
  return count;
}

/* Return the greatest of the `size` smallest numbers. */
static uint64_t greatest_of_smallest(const uint64_t *numbers, size_t count, uint64_t *heap, size_t size) {
  memcpy(heap, numbers, size * sizeof *heap);
  for (size_t top = size / 2 + 1; top-- > 0;) sink(heap, size, top);
  for (size_t i = size; i < count; i++) {
    if (numbers[i] >= heap[0]) continue;
    heap[0] = numbers[i];
    sink(heap, size, 0);
  }
  return heap[0];
}

/* Cut `items` into `parts` runs: ends[i] is where run i ends. The cuts are behind the places of the smallest numbers drawn.
   Those are looked for among the numbers below a bound that few others are below; where it is too low, among all. */
static void cut(uint64_t key, size_t first, size_t items, size_t parts, uint64_t *kept, uint64_t *heap, uint64_t *ends) {
  size_t cuts = parts - 1, numbers = items - 1, out = 0;
  ends[cuts] = items;
  if (!cuts) return;
  uint64_t low = 1;
  while (low <= items) low <<= 1;
  low--;
  size_t wanted = cuts + cuts / 4 + 8;
  size_t count = wanted < numbers ? draw_below(UINT64_MAX / numbers * wanted, low, key, first, numbers, kept) : 0;
  if (count < cuts) count = draw_below(UINT64_MAX, low, key, first, numbers, kept);
  uint64_t greatest = greatest_of_smallest(kept, count, heap, cuts);
  for (size_t i = 0; i < count; i++)
    if (kept[i] <= greatest) ends[out++] = (kept[i] & low) + 1;
}

static int32_t *copied(int32_t *out, const int32_t *from, size_t count) {
  memcpy(out, from, count * sizeof *out);
  return out + count;
}

int spans_hide(const Rows *rows, int32_t *inputs, int32_t *targets) {
  size_t visible = rows->length - rows->hidden;
  uint64_t *ends = room_for(NULL, 3 * rows->spans + rows->length, sizeof *ends);
  if (!ends) return NO_MEMORY;
  uint64_t *hidden_ends = ends + rows->spans, *heap = hidden_ends + rows->spans, *kept = heap + rows->spans;
  for (size_t row = 0; row < rows->rows; row++) {
    const int32_t *token = rows->tokens + row * rows->length;
    cut(rows->keys[row], rows->hidden - 1, visible, rows->spans, kept, heap, ends);
    cut(rows->keys[row], 0, rows->hidden, rows->spans, kept, heap, hidden_ends);
    uint64_t seen = 0, hid = 0;
    for (size_t i = 0; i < rows->spans; i++) {
      int32_t sentinel = rows->first_sentinel - (int32_t)i;
      inputs = copied(inputs, token, (size_t)(ends[i] - seen));
      token += ends[i] - seen;
      *inputs++ = *targets++ = sentinel;
      targets = copied(targets, token, (size_t)(hidden_ends[i] - hid));
      token += hidden_ends[i] - hid;
      seen = ends[i];
      hid = hidden_ends[i];
    }
    *inputs++ = *targets++ = rows->eos;
  }
  free(ends);
  return OK;
}
