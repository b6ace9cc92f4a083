/* Find where rows end in CSV whose quotes are regular. */
#include "csv_rows.h"

#include <string.h>

static const Rows IRREGULAR = {-1, -1};

static int around_quotes(uint8_t byte) { return byte == ',' || byte == '\n' || byte == '\r' || byte == '"'; }

Rows csv_rows(const uint8_t *bytes, size_t size, int final) {
  Rows found = {0, 0};
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
