/* Write the texts of rows of token ids, as SentencePiece decodes them. */
#include "numbers.h"
#include "rows.h"

/* Where a run of pieces is: not begun, at the beginning of a text or behind something else; begun, and nothing is written yet, so that
   a blank is left out; or something of it is written. */
typedef enum { FIRST, LATER, EMPTY, INSIDE } Way;

static int64_t size_of(uint64_t place) { return (int64_t)(place >> 32 & 0xffff); }

static int64_t skipped_of(uint64_t place) { return (int64_t)(place >> 48 & 0x1fff); }

int64_t pieces_longest(const Pieces *pieces) {
  int64_t most = 3; /* of U+FFFD, which a byte may become */
  for (int64_t id = 0; id < pieces->count; id++) {
    uint64_t place = pieces->places[id];
    int64_t size = size_of(place);
    if (!lies_inside((uint32_t)place, size, pieces->letters_size - PIECE_AT_ONCE) || skipped_of(place) > size) return -1;
    if (size > most) most = size;
  }
  return most;
}

/* Return the byte that an id is, or -1. */
static int byte_at(const Pieces *pieces, const int32_t *ids, int64_t i) {
  uint32_t id = (uint32_t)ids[i];
  return (int64_t)id < pieces->count && pieces->places[id] & PIECE_BYTE ? pieces->letters[(uint32_t)pieces->places[id]] : -1;
}

/* Write the character that ids which are bytes begin with, or U+FFFD for the first of them. Return how many ids that is. */
static int64_t put_character(const Pieces *pieces, const int32_t *ids, int64_t length, uint8_t *at) {
  int first = byte_at(pieces, ids, 0), more = first < 0 ? -1 : first < 0x80 ? 0 : first < 0xc2 ? -1 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : first < 0xf5 ? 3 : -1;
  /* The second byte of a character is such that no shorter way to write it, no half of a pair and nothing above U+10FFFF is one. */
  int least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80, most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  at[0] = (uint8_t)first;
  for (int i = 1; i <= more; i++) {
    int byte = i < length ? byte_at(pieces, ids, i) : -1;
    if (byte < least || byte > most) more = -1;
    else at[i] = (uint8_t)byte;
    least = 0x80, most = 0xbf;
  }
  if (more >= 0) return more + 1;
  memcpy(at, "\xef\xbf\xbd", 3);
  return 1;
}

/* Write one row from `at` on, where there is room, and return its end, or NULL for an id that is none. */
static uint8_t *put_row(const Pieces *pieces, const int32_t *ids, int64_t length, uint8_t *at, uint8_t *marked) {
  const uint8_t *letters = pieces->letters;
  const uint64_t *places = pieces->places;
  const uint32_t count = (uint32_t)pieces->count;
  Way way = FIRST;
  for (int64_t i = 0; i < length; i++) {
    uint32_t id = (uint32_t)ids[i];
    if (id >= count) return NULL;
    uint64_t place = places[id];
    const uint8_t *from = letters + (uint32_t)place;
    int64_t size = size_of(place);
    if (way != INSIDE || place & (PIECE_SPECIAL | PIECE_NEWLINE | PIECE_BYTE)) {
      int special = (place & PIECE_SPECIAL) != 0;
      if (place & PIECE_NEWLINE) {
        *at++ = '\n';
        way = FIRST;
        continue;
      }
      if (special && !size) { /* padding */
        if (way != FIRST) way = LATER;
        continue;
      }
      if (way == LATER) *at++ = ' ';
      if (place & PIECE_BYTE) {
        uint8_t character[4];
        int64_t bytes = put_character(pieces, ids + i, length - i, character);
        size = bytes > 1 ? bytes : character[0] < 0x80 ? 1 : 3;
        memcpy(at, character, (size_t)size);
        at += size;
        i += bytes - 1;
        way = INSIDE;
        continue;
      }
      if (special && (int64_t)id == pieces->marker) *marked = 1;
      int64_t skipped = way == INSIDE || (special && way == EMPTY) ? 0 : skipped_of(place);
      from += skipped, size -= skipped;
      way = special ? LATER : size || (skipped && !pieces->strip) ? INSIDE : EMPTY;
    }
    memcpy(at, from, PIECE_AT_ONCE);
    if (size > PIECE_AT_ONCE) memcpy(at, from, (size_t)size);
    at += size;
  }
  return at;
}

/* Return how many ids of a row are no `fill`, and where the last of these ends. */
static int32_t count_ids(const int32_t *ids, int64_t width, int32_t fill, int64_t *end) {
  int32_t count = 0;
  for (int64_t i = 0; i < width; i++) count += ids[i] != fill;
  while (width && ids[width - 1] == fill) width--;
  *end = width;
  return count;
}

int row_write(const Pieces *pieces, int64_t most, const int32_t *ids, int64_t width, Letters *out, int32_t *count, uint8_t *marked) {
  int64_t length, needed;
  *count = count_ids(ids, width, pieces->fill, &length);
  if (length && ids[length - 1] == pieces->eos) length--;
  if (!size_product(length, most + 1, &needed) || !size_sum(needed, out->size + PIECE_AT_ONCE, &needed)) return BAD_TEXT;
  if (needed > out->room) {
    uint8_t *bytes = room_for(out->bytes, 2, (size_t)needed);
    if (!bytes) return NO_MEMORY;
    out->bytes = bytes;
    out->room = 2 * needed;
  }
  *marked = 0;
  const uint8_t *end = put_row(pieces, ids, length, out->bytes + out->size, marked);
  if (!end) return BAD_TEXT;
  out->size = end - out->bytes;
  return out->size > INT32_MAX ? BAD_TEXT : OK;
}
