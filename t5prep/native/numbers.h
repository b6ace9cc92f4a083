/* What all files here share: statuses, sizes and places that others chose, and numbers in bytes. */
#ifndef T5PREP_NUMBERS_H
#define T5PREP_NUMBERS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* What functions return. */
enum { OK = 0, NO_MEMORY = -1, BAD_MODEL = -2, BAD_TEXT = -3, BAD_OFFSETS = -4 };

/* Write the sum or the product of two sizes. Return 0 if one of them is negative, or the result is no int64. */
static inline int size_sum(int64_t a, int64_t b, int64_t *sum) { return a >= 0 && b >= 0 && !__builtin_add_overflow(a, b, sum); }
static inline int size_product(int64_t a, int64_t b, int64_t *product) {
  return a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, product);
}

/* Check whether `length` numbers from `begin` on lie in `total` numbers. */
static inline int lies_inside(int64_t begin, int64_t length, int64_t total) {
  return begin >= 0 && length >= 0 && length <= total && begin <= total - length;
}

/* Check whether what is from `begin` to `end` lies in `total` numbers. */
static inline int is_range(int64_t begin, int64_t end, int64_t total) { return begin >= 0 && begin <= end && end <= total; }

/* Return room for `count` things of `size` bytes, with what `old` holds (NULL for nothing); NULL if there is no memory. */
static inline void *room_for(void *old, size_t count, size_t size) {
  size_t bytes;
  return __builtin_mul_overflow(count, size, &bytes) ? NULL : realloc(old, bytes ? bytes : 1);
}

/* The finalizer of SplitMix64 (Steele et al. 2014). */
static inline uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

/* Return eight bytes as a number, the first byte lowest. */
static inline uint64_t eight_bytes(const uint8_t *bytes) {
  uint64_t number;
  memcpy(&number, bytes, sizeof number);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  number = __builtin_bswap64(number);
#endif
  return number;
}

static inline uint32_t four_bytes(const uint8_t *bytes) {
  return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

#endif
