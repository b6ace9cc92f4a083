/* Find where rows end in CSV whose quotes are regular, and check JSON lines before Arrow reads them. */
#include "text.h"

#include <string.h>

#define DEEPEST 32
#define MOST_NAMES 64
#define MOST_DIGITS 1000

static const RowEnds IRREGULAR = {-1, -1};

static int around_quotes(uint8_t byte) { return byte == ',' || byte == '\n' || byte == '\r' || byte == '"'; }

RowEnds csv_rows(const uint8_t *bytes, size_t size, int final) {
  RowEnds found = {0, 0};
  for (size_t i = 0; i < size; i++) {
    if (bytes[i] == '"') {
      if (i && !around_quotes(bytes[i - 1])) return IRREGULAR;
      const uint8_t *closing = memchr(bytes + i + 1, '"', size - i - 1);
      if (!closing) {
        if (final) return IRREGULAR;
        break; /* the row goes on in bytes that are not read yet */
      }
      i = (size_t)(closing - bytes);
      /* Two quotes together are an escaped quote: the first counts as closing the field, the second as opening it again. */
      if (i + 1 < size && !around_quotes(bytes[i + 1])) return IRREGULAR;
    } else if (bytes[i] == '\n' || (bytes[i] == '\r' && (i + 1 < size ? bytes[i + 1] != '\n' : final))) {
      found.rows++;
      found.end = (int64_t)i + 1;
    }
  }
  if (final) {
    found.rows += found.end < (int64_t)size;
    found.end = (int64_t)size;
  }
  return found;
}

int64_t row_ends(const uint8_t *bytes, size_t size) {
  const uint8_t *end = bytes + size, *at;
  int64_t rows = 0;
  if (!size) return 0; /* there may be no bytes at all to search in */
  for (at = bytes; (at = memchr(at, '\r', (size_t)(end - at))); at++) rows++;
  for (at = bytes; (at = memchr(at, '\n', (size_t)(end - at))); at++) rows += at == bytes || at[-1] != '\r';
  return rows;
}

typedef struct {
  const uint8_t *begin;
  size_t size;
} Name;

typedef struct {
  int object, names; /* names: how many this object has so far */
  Name name[MOST_NAMES];
} Level;

typedef struct {
  Level levels[DEEPEST];
  int depth, expects_name, digits;
} State;

/* Return where the string that begins at `at`, behind its quote, ends; NULL if it does not. */
static const uint8_t *string_end(const uint8_t *at, const uint8_t *end, int *escaped) {
  *escaped = 0;
  for (; at < end; at++) {
    if (*at == '"') return at;
    if (*at == '\n') return NULL;
    if (*at == '\\') {
      *escaped = 1;
      if (++at == end || *at == '\n') return NULL;
      if (end - at >= 5 && !memcmp(at, "u0000", 5)) return NULL;
    }
  }
  return NULL;
}

static int add_name(Level *level, const uint8_t *begin, size_t size) {
  for (int i = 0; i < level->names; i++)
    if (level->name[i].size == size && !memcmp(level->name[i].begin, begin, size)) return 0;
  if (level->names == MOST_NAMES) return 0;
  level->name[level->names].begin = begin;
  level->name[level->names++].size = size;
  return 1;
}

static int open_level(State *state, int object) {
  if (state->depth == DEEPEST) return 0;
  Level *level = &state->levels[state->depth++];
  level->object = state->expects_name = object;
  level->names = 0;
  return 1;
}

/* Take a byte outside of strings. */
static int take(State *state, uint8_t byte) {
  int digit = byte >= '0' && byte <= '9';
  state->digits = digit ? state->digits + 1 : 0;
  if (byte == '{' || byte == '[') return open_level(state, byte == '{');
  if (byte == '}' || byte == ']') {
    state->expects_name = 0;
    return state->depth && state->levels[--state->depth].object == (byte == '}');
  }
  if (byte == ',') state->expects_name = state->depth && state->levels[state->depth - 1].object;
  return state->digits <= MOST_DIGITS && byte != 'N' && byte != 'I' && byte != '\n' && byte != '\r' && byte;
}

/* Return the end of the object that begins at `at`, NULL if it is in doubt. */
static const uint8_t *object_end(const uint8_t *at, const uint8_t *end, State *state) {
  int escaped;
  state->depth = state->expects_name = state->digits = 0;
  for (; at < end; at++) {
    if (*at != '"') {
      if (!take(state, *at)) return NULL;
      if (!state->depth) return at + 1;
      continue;
    }
    const uint8_t *begin = at + 1;
    at = string_end(begin, end, &escaped);
    if (!at) return NULL;
    if (state->expects_name && (escaped || !add_name(&state->levels[state->depth - 1], begin, (size_t)(at - begin)))) return NULL;
    state->expects_name = state->digits = 0;
  }
  return NULL;
}

int64_t json_lines(const uint8_t *bytes, size_t size) {
  const uint8_t *at = bytes, *end = bytes + size;
  int64_t lines = 0;
  State state;
  while (at < end) {
    if (*at != '{' || !(at = object_end(at, end, &state))) return 0;
    lines++;
    if (at < end && *at++ != '\n') return 0;
  }
  return lines;
}
