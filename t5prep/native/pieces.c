/* Write the texts of rows of token ids. */
#include "numbers.h"
#include "rows.h"

/* How a piece is written: inside of a run of pieces; behind a blank that began the run; at the beginning of a text; or at the beginning
   of a run behind something else. */
typedef enum { INSIDE, BLANK, FIRST, LATER } Way;

static int64_t size_of(uint64_t place) { return (int64_t)(place >> 32 & 0xffff); }

static int64_t skipped_of(uint64_t place) { return (int64_t)(place >> 48 & 0x3fff); }

/* Return the size of the longest piece, or -1 if the places do not fit the letters. */
static int64_t longest(const Pieces *pieces) {
  int64_t most = 0;
  for (int64_t id = 0; id < pieces->count; id++) {
    uint64_t place = pieces->places[id];
    int64_t size = size_of(place);
    if (!lies_inside((uint32_t)place, size, pieces->letters_size - PIECE_AT_ONCE) || skipped_of(place) > size) return -1;
    if (size > most) most = size;
  }
  return most;
}

/* Write one row from `at` on, where there is room, and return its end, or NULL for an id that is none. *odd becomes 1 where a blank at the
   beginning of a run is followed by another one, which SentencePiece may leave out too. */
static uint8_t *put_row(const Pieces *pieces, const int32_t *ids, int64_t length, uint8_t *at, uint8_t *odd) {
  const uint8_t *letters = pieces->letters;
  const uint64_t *places = pieces->places;
  const uint32_t count = (uint32_t)pieces->count;
  Way way = FIRST;
  for (int64_t i = 0; i < length; i++) {
    uint32_t id = (uint32_t)*(const volatile int32_t *)&ids[i]; /* read once: what is checked is what is used */
    if (id >= count) return NULL;
    uint64_t place = places[id];
    const uint8_t *from = letters + (uint32_t)place;
    int64_t size = size_of(place);
    if (way != INSIDE || place & (PIECE_SPECIAL | PIECE_NEWLINE)) {
      int64_t skipped = skipped_of(place);
      if (place & PIECE_NEWLINE) {
        *at++ = '\n';
        way = FIRST;
        continue;
      }
      if (place & PIECE_SPECIAL && !size) { /* padding */
        if (way != FIRST) way = LATER;
        continue;
      }
      int begins = way == FIRST || way == LATER;
      if (way == LATER) *at++ = ' ';
      if (way == BLANK && skipped) *odd = 1;
      if (begins) from += skipped, size -= skipped;
      way = place & PIECE_SPECIAL ? LATER : begins && !size ? BLANK : INSIDE;
    }
    memcpy(at, from, PIECE_AT_ONCE);
    if (size > PIECE_AT_ONCE) memcpy(at, from, (size_t)size);
    at += size;
  }
  return at;
}

int rows_write(const Pieces *pieces, const int32_t *ids, int64_t width, const int32_t *lengths, int64_t rows, Letters *out, int32_t *ends,
               uint8_t *odd) {
  int64_t most = longest(pieces), room = 0;
  if (most < 0) return BAD_OFFSETS;
  for (int64_t row = 0; row < rows; row++) {
    int64_t length = lengths[row], needed;
    if (length < 0 || length > width) return BAD_OFFSETS;
    if (length && ids[row * width + length - 1] == pieces->eos) length--;
    if (!size_product(length, most + 1, &needed) || !size_sum(needed, out->size + PIECE_AT_ONCE, &needed)) return BAD_TEXT;
    if (needed > room) {
      uint8_t *bytes = room_for(out->bytes, 2, (size_t)needed);
      if (!bytes) return NO_MEMORY;
      out->bytes = bytes;
      room = 2 * needed;
    }
    odd[row] = 0;
    const uint8_t *end = put_row(pieces, ids + row * width, length, out->bytes + out->size, &odd[row]);
    if (!end) return BAD_TEXT;
    out->size = end - out->bytes;
    if (out->size > INT32_MAX) return BAD_TEXT;
    ends[row] = (int32_t)out->size;
  }
  return OK;
}
