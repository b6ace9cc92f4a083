/* Write the parts that records consist of. */
#ifndef T5PREP_RECORD_PARTS_H
#define T5PREP_RECORD_PARTS_H

#include <stddef.h>
#include <stdint.h>

#define LONGEST_VARINT 10
/* More bytes than all tags, lengths and names of three features take. */
#define AROUND 128
/* The tags of the two lists of Feature that are used. */
#define STRINGS 0x0a
#define NUMBERS 0x1a

typedef struct {
  uint8_t *bytes;
  size_t size, room;
} Buffer;

/* The functions that put something return where the next byte goes. */
uint8_t *put_bytes(uint8_t *at, const void *bytes, size_t size);
size_t varint_size(uint64_t value);

static inline uint8_t *put_varint(uint8_t *at, uint64_t value) {
  for (; value > 0x7f; value >>= 7) *at++ = (uint8_t)(value | 0x80);
  *at++ = (uint8_t)value;
  return at;
}

/* Write a token id without a branch for its size. Four bytes are written, also where fewer belong to it. */
static inline uint8_t *put_id(uint8_t *at, uint32_t id) {
  if (id > 0x1fffff) return put_varint(at, id);
  uint32_t two = id > 0x7f, three = id > 0x3fff;
  uint32_t bytes = (id & 0x7f) | (id << 1 & 0x7f00) | (id << 2 & 0x7f0000) | two << 7 | three << 15;
  for (int i = 0; i < 4; i++) at[i] = (uint8_t)(bytes >> 8 * i); /* compilers turn this into one store */
  return at + 1 + two + three;
}

/* Write the bytes before the content of a feature's list: the map's entry, its name, the feature, and `list`, the list's tag. */
uint8_t *put_list_head(uint8_t *at, const char *name, uint8_t list, uint64_t inner);

/* Write the bytes before one string, or before packed numbers. An empty list of numbers is left out; an empty string is written. */
uint8_t *put_head(uint8_t *at, const char *name, uint8_t list, uint64_t size);

/* Return where the features of one more record are written, at most `most` bytes; NULL where there is no memory. */
uint8_t *begin_record(Buffer *out, size_t most);

/* Frame the features that end at `end`; `size` becomes the bytes of the framed record. Return OK, or BAD_TEXT where it is too long. */
int end_record(Buffer *out, const uint8_t *features, const uint8_t *end, uint32_t *size);

/* Fill the tables of the checksums; to be called once, before any other function. */
void crc_prepare(void);

/* Return the CRC-32C (Castagnoli), masked as in TFRecord files. */
uint32_t masked_crc(const uint8_t *bytes, size_t size);

#endif
