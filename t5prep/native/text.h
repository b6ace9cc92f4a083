/* Read text: where rows end, and the words of texts as hashes. */
#ifndef T5PREP_TEXT_H
#define T5PREP_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* The end of the last whole row, and the number of rows; -1 if quotes are not as in RFC 4180. */
typedef struct {
  int64_t end, rows;
} RowEnds;

/* A quote may open only at the beginning of a field and close only at its end. A row ends at \n, \r\n or a single \r outside of
   quotes. `final`: nothing follows these bytes, so the last row is whole, and a \r at the very end is a row's end. */
RowEnds csv_rows(const uint8_t *bytes, size_t size, int final);

/* Return how many rows end in bytes without quotes. */
int64_t row_ends(const uint8_t *bytes, size_t size);

/* Return the number of lines where each is `{...}` and none holds what readers of JSON may see in two ways: a name twice in an
   object, a name with an escape, deep nesting, a number of very many digits, NaN or Infinity. Else return 0. Whether the rest is
   JSON is not checked. */
int64_t json_lines(const uint8_t *bytes, size_t size);

/* Where a word longer than this lies, and its place among all words: its hash is left to the caller. */
enum { LONG_WORD = 256 };
typedef struct {
  int64_t word, begin, end;
} long_word;

/* Hash the words of folded texts that lie one after the other, each followed by a byte that is no word, and count those of
   each text. Text i is from begins[i] to begins[i + 1] - 1. Eight readable bytes follow the last text. Room is for a word a
   byte, and for a long word every LONG_WORD bytes. Return the number of words; *longs is that of the long ones. */
int64_t word_hashes(const uint8_t *data, const int64_t *begins, size_t texts, uint64_t *hashes, int64_t *counts,
                    long_word *long_words, int64_t *longs);

/* Hash each run of `words` words of each text, or the whole text where it has fewer. factors[words] are odd. Write the runs,
   of which there is room for as many as words, and where those of each text begin (texts + 1); return their number. */
int64_t run_hashes(const uint64_t *hashes, const int64_t *counts, size_t texts, const uint64_t *factors, int64_t words,
                   uint64_t *runs, int64_t *begins);

/* Continue the digest of each row by a list of its ids, four bytes each, and their number. List i is from starts[i] to
   starts[i + 1]. */
void list_digests(const uint8_t *ids, const int64_t *starts, size_t lists, uint64_t *digests);

/* Count how often an id stands in each list. */
void list_counts(const int32_t *ids, const int64_t *starts, size_t lists, int32_t id, int64_t *counts);

#endif
