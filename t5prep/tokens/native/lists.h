/* Copy lists of ids that are stored one after the other. */
#ifndef T5PREP_LISTS_H
#define T5PREP_LISTS_H

#include <stddef.h>
#include <stdint.h>

/* Copy lengths[i] ids, starting at source[begins[i]], to target[places[i]], for each i. Return OK or BAD_OFFSETS. */
int lists_copy(const int32_t *source, int64_t source_size, const int64_t *begins, int32_t *target, int64_t target_size,
               const int64_t *places, const int64_t *lengths, size_t count);

#endif
