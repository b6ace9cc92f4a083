/* Check JSON lines before Arrow reads them. */
#ifndef T5PREP_JSON_LINES_H
#define T5PREP_JSON_LINES_H

#include <stddef.h>
#include <stdint.h>

/* Return the number of lines where each is `{...}` and none holds what readers of JSON may see in two ways: a name twice in an
   object, a name with an escape, deep nesting, a number of very many digits, NaN or Infinity. Else return 0. Whether the rest is
   JSON is not checked. */
int64_t json_lines(const uint8_t *bytes, size_t size);

#endif
