/* Cut blocks of a TFRecord file into their records, and check the records' checksums. */
#include <string.h>

#include "decode.h"
#include "records.h"
#include "unigram.h"

/* Bytes of a record's length and of that length's checksum, and of the checksum behind a record. */
#define HEAD 12
#define TAIL 4

static uint64_t number_of(const uint8_t *bytes, int count) {
  uint64_t value = 0;
  while (count--) value = value << 8 | bytes[count];
  return value;
}

int block_cut(const uint8_t *block, size_t size, int64_t number, Place *places, int64_t count) {
  size_t at = 0;
  for (int64_t i = 0; i < count; i++) {
    if (size - at < HEAD + TAIL) return BROKEN;
    uint64_t length = number_of(block + at, 8);
    if (length > size - at - HEAD - TAIL) return BROKEN;
    at += HEAD;
    if (masked_crc(block + at, (size_t)length) != number_of(block + at + length, TAIL)) return BROKEN;
    places[i] = (Place){number, (int64_t)at, (int64_t)length};
    at += (size_t)length + TAIL;
  }
  return at == size ? OK : BROKEN;
}
