/* Find where rows end in CSV whose quotes are regular. */
#ifndef T5PREP_CSV_ROWS_H
#define T5PREP_CSV_ROWS_H

#include <stddef.h>
#include <stdint.h>

/* The end of the last whole row, and the number of rows; -1 where quotes are not as in RFC 4180. */
typedef struct {
  int64_t end, rows;
} Rows;

/* A quote may open only at the beginning of a field and close only at its end. A row ends at \n, \r\n or a single \r outside of
   quotes. `final`: nothing follows these bytes, so the last row is whole, and a \r at the very end is a row's end. */
Rows csv_rows(const uint8_t *bytes, size_t size, int final);

#endif
