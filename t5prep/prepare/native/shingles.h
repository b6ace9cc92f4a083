/* Hash the words of texts and their runs, as near_duplicates/shingles.py does in numpy. */
#include <stddef.h>
#include <stdint.h>

/* Where a word longer than this lies, and its place among all words: its hash is left to the caller. */
enum { LONG_WORD = 256 };
typedef struct {
  int64_t word, begin, end;
} long_word;

/* Hash the words of folded texts that lie one after the other, each followed by a byte that is no word, and count those of
 * each text. Text i is from begins[i] to begins[i + 1] - 1. Eight readable bytes follow the last text. Room is for a word a
 * byte, and for a long word every LONG_WORD bytes. Return the number of words; *longs is that of the long ones. */
int64_t word_hashes(const uint8_t *data, const int64_t *begins, size_t texts, uint64_t *hashes, int64_t *counts,
                    long_word *long_words, int64_t *longs);

/* Hash each run of `words` words of each text, or the whole text where it has fewer. factors[words] are odd. Write the runs,
 * of which there is room for as many as words, and where those of each text begin (texts + 1); return their number. */
int64_t run_hashes(const uint64_t *hashes, const int64_t *counts, size_t texts, const uint64_t *factors, int64_t words,
                   uint64_t *runs, int64_t *begins);
