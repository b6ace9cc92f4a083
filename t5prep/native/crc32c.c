/* Compute CRC-32C, eight bytes a step: by the processor's own instruction where it has one, else by tables. */
#include "numbers.h"
#include "records.h"

#define POLYNOMIAL UINT32_C(0x82f63b78) /* Castagnoli's polynomial, bits reversed */

static uint32_t tables[8][256];

void crc_prepare(void) {
  for (uint32_t byte = 0; byte < 256; byte++) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
    tables[0][byte] = crc;
  }
  for (uint32_t byte = 0; byte < 256; byte++)
    for (int i = 1; i < 8; i++) tables[i][byte] = tables[i - 1][byte] >> 8 ^ tables[0][tables[i - 1][byte] & 0xff];
}

static uint32_t by_tables(uint32_t crc, const uint8_t *bytes, size_t size) {
  for (; size >= 8; bytes += 8, size -= 8) {
    uint64_t eight = eight_bytes(bytes) ^ crc;
    crc = 0;
    for (int i = 0; i < 8; i++) crc ^= tables[7 - i][eight >> 8 * i & 0xff];
  }
  while (size--) crc = crc >> 8 ^ tables[0][(crc ^ *bytes++) & 0xff];
  return crc;
}

#if defined(__GNUC__) && defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t crc, const uint8_t *bytes, size_t size) {
  uint64_t wide = crc;
  for (; size >= 8; bytes += 8, size -= 8) wide = __builtin_ia32_crc32di(wide, eight_bytes(bytes));
  crc = (uint32_t)wide;
  while (size--) crc = __builtin_ia32_crc32qi(crc, *bytes++);
  return crc;
}

static uint32_t extend(uint32_t crc, const uint8_t *bytes, size_t size) {
  return __builtin_cpu_supports("sse4.2") ? by_instruction(crc, bytes, size) : by_tables(crc, bytes, size);
}
#else
static uint32_t extend(uint32_t crc, const uint8_t *bytes, size_t size) { return by_tables(crc, bytes, size); }
#endif

uint32_t masked_crc(const uint8_t *bytes, size_t size) {
  uint32_t crc = ~extend(UINT32_MAX, bytes, size);
  return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8); /* crc32c.h: kMaskDelta */
}
