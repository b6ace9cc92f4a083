/* Compute on rows of token ids. */
#ifndef T5PREP_ROWS_H
#define T5PREP_ROWS_H

#include <stddef.h>
#include <stdint.h>

/* Find the row of each example by first-fit (t5prep/tokens/ragged.py): `lengths` are pairs of inputs and targets, each at most as long
   as `room`. Return OK, NO_MEMORY or BAD_OFFSETS. */
int first_fit_rows(const int64_t *lengths, size_t examples, const int64_t room[2], int64_t *rows);

/* Rows of `length` tokens, of which `hidden` are hidden in `spans` spans: 0 < spans <= hidden, spans <= length - hidden. */
typedef struct {
  const int32_t *tokens;
  const uint64_t *keys; /* one a row */
  size_t rows, length, hidden, spans;
  int32_t first_sentinel, eos;
} Rows;

/* Hide spans as t5prep/tokens/span_corruption.py defines it: write length - hidden + spans + 1 inputs and hidden + spans + 1 targets a row. Return OK or NO_MEMORY. */
int spans_hide(const Rows *rows, int32_t *inputs, int32_t *targets);

/* How each id is written, a number for each: where its letters begin (32 bits), how many there are (16), how many of these are left out
   at the beginning of a run of pieces (13), and three flags. A special id is a run of its own, and padding if it has no letters. A byte is
   part of a character, or written as U+FFFD. PIECE_AT_ONCE bytes can be read behind all letters. A row ends before the last ids that are
   `fill`, and an `eos` before these is not written. With `strip`, all blanks at the beginning of a run are left out, not those of one piece. */
#define PIECE_BYTE (UINT64_C(1) << 61)
#define PIECE_NEWLINE (UINT64_C(1) << 62)
#define PIECE_SPECIAL (UINT64_C(1) << 63)
enum { PIECE_AT_ONCE = 16 };
typedef struct {
  const uint8_t *letters;
  const uint64_t *places;
  int64_t letters_size, count;
  int32_t eos, fill, marker;
  int strip;
} Pieces;

/* Bytes to be freed by the caller, and room for some more. */
typedef struct {
  uint8_t *bytes;
  int64_t size, room;
} Letters;

/* Return the most bytes that an id is written as, or -1 if the places do not fit the letters. */
int64_t pieces_longest(const Pieces *pieces);

/* Write the text of a row behind `out`, how many of its ids are no `fill`, and whether it has the special id `marker`; `most` is
   pieces_longest(pieces). Return OK, NO_MEMORY, or BAD_TEXT for an id that is none, and too much text. */
int row_write(const Pieces *pieces, int64_t most, const int32_t *ids, int64_t width, Letters *out, int32_t *count, uint8_t *marked);

#endif
