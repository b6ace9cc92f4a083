/* Copy lists of ids that are stored one after the other. */
#include "lists.h"

#include <string.h>

#include "unigram.h"

static int inside(int64_t begin, int64_t length, int64_t total) {
  return begin >= 0 && length >= 0 && length <= total && begin <= total - length;
}

int lists_copy(const int32_t *source, int64_t source_size, const int64_t *begins, int32_t *target, int64_t target_size,
               const int64_t *places, const int64_t *lengths, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (!inside(begins[i], lengths[i], source_size) || !inside(places[i], lengths[i], target_size)) return BAD_OFFSETS;
    memmove(target + places[i], source + begins[i], (size_t)lengths[i] * sizeof *source);
  }
  return OK;
}
