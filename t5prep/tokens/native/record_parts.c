/* Write the parts that records consist of: varints, the heads of features, frames (t5prep/dataset/tfrecord.py). */
#include "record_parts.h"

#include <stdlib.h>
#include <string.h>

#include "unigram.h"

#define FRAME_HEAD 12
#define FRAME_TAIL 4

size_t varint_size(uint64_t value) {
  size_t size = 1;
  for (; value > 0x7f; value >>= 7) size++;
  return size;
}

static uint8_t *put_little_endian(uint8_t *at, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) *at++ = (uint8_t)(value >> 8 * i);
  return at;
}

uint8_t *put_bytes(uint8_t *at, const void *bytes, size_t size) {
  memcpy(at, bytes, size);
  return at + size;
}

uint8_t *put_list_head(uint8_t *at, const char *name, uint8_t list, uint64_t inner) {
  uint64_t name_size = strlen(name), feature = 1 + varint_size(inner) + inner;
  uint64_t entry = 1 + varint_size(name_size) + name_size + 1 + varint_size(feature) + feature;
  *at++ = 0x0a;
  at = put_varint(at, entry);
  *at++ = 0x0a;
  at = put_varint(at, name_size);
  at = put_bytes(at, name, (size_t)name_size);
  *at++ = 0x12;
  at = put_varint(at, feature);
  *at++ = list;
  return put_varint(at, inner);
}

uint8_t *put_head(uint8_t *at, const char *name, uint8_t list, uint64_t size) {
  if (list == NUMBERS && !size) return put_list_head(at, name, list, 0);
  at = put_list_head(at, name, list, 1 + varint_size(size) + size);
  *at++ = 0x0a;
  return put_varint(at, size);
}

/* The length of all features is written before them: they are written after room for its longest form, and then moved. */
uint8_t *begin_record(Buffer *out, size_t most) {
  most += FRAME_HEAD + 1 + LONGEST_VARINT + FRAME_TAIL;
  if (out->room - out->size < most) {
    size_t room = out->size + most + out->room / 2;
    uint8_t *bytes = realloc(out->bytes, room);
    if (!bytes) return NULL;
    out->bytes = bytes;
    out->room = room;
  }
  return out->bytes + out->size + FRAME_HEAD + 1 + LONGEST_VARINT;
}

int end_record(Buffer *out, const uint8_t *features, const uint8_t *end, uint32_t *size) {
  uint8_t *begin = out->bytes + out->size;
  size_t features_size = (size_t)(end - features);
  begin[FRAME_HEAD] = 0x0a;
  uint8_t *after = put_varint(begin + FRAME_HEAD + 1, features_size);
  memmove(after, features, features_size);
  uint64_t length = (uint64_t)(after + features_size - (begin + FRAME_HEAD));
  put_little_endian(begin, length, 8);
  put_little_endian(begin + 8, masked_crc(begin, 8), 4);
  put_little_endian(begin + FRAME_HEAD + length, masked_crc(begin + FRAME_HEAD, (size_t)length), 4);
  if (length > UINT32_MAX - FRAME_HEAD - FRAME_TAIL) return BAD_TEXT;
  *size = (uint32_t)(length + FRAME_HEAD + FRAME_TAIL);
  out->size += *size;
  return OK;
}
