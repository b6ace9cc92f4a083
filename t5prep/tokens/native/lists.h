/* Lists of ids that lie one after the other. */
#ifndef T5PREP_LISTS_H
#define T5PREP_LISTS_H

#include <stddef.h>
#include <stdint.h>

/* Copies lengths[i] ids from source[begins[i]] on to target[places[i]] on, for each i. Returns OK or BAD_OFFSETS. */
int lists_copy(const int32_t *source, int64_t source_size, const int64_t *begins, int32_t *target, int64_t target_size,
               const int64_t *places, const int64_t *lengths, size_t count);

#endif
