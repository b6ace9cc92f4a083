/* Read protocol buffers: messages are fields, and a field is a tag and a number or bytes. */
#ifndef T5PREP_PROTOBUF_H
#define T5PREP_PROTOBUF_H

#include <stdint.h>

/* Bytes from `at` to `end`. */
typedef struct {
  const uint8_t *at, *end;
} Span;

/* Take a varint of at most ten bytes from the beginning of a span. Return 0 if there is none. */
static inline int take_varint(Span *from, uint64_t *value) {
  *value = 0;
  for (int shift = 0; shift < 70 && from->at < from->end; shift += 7) {
    uint8_t byte = *from->at++;
    if (shift < 64) *value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return 1;
  }
  return 0;
}

/* Take the content of a field behind its tag: its length, and so many bytes. Return 0 if they are not there. */
static inline int take_content(Span *from, Span *content) {
  uint64_t size;
  if (!take_varint(from, &size) || size > (uint64_t)(from->end - from->at)) return 0;
  content->at = from->at;
  content->end = from->at += size;
  return 1;
}

#endif
