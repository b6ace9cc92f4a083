/* Define the custom calls of a decoding step. model/custom_calls.py says what each of them computes. */
#include "step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)

enum { LINE = 64 }; /* bytes of a line of the cache */

/* Return how many columns the panel has that holds the next ones of `left` columns. */
static int64_t width_of(int64_t left) { return left > PANEL / 2 ? PANEL : PANEL / 2; }

/* Return the rows of a matrix, [rows, inner], as the columns of panels, [inner, PANEL], of which the last one is narrower
 * where few rows are left; zeros behind the last row. The panels begin with a cache line in `memory`, which the caller frees. */
static float *rows_in_panels(const float *matrix, int64_t rows, int64_t inner, void **memory) {
  *memory = calloc((size_t)((rows + PANEL) * inner) * sizeof(float) + LINE, 1);
  if (!*memory) abort(); /* a call has no other way to fail, and XLA does the same where its own memory ends */
  float *panels = (float *)((char *)*memory + LINE - (uintptr_t)*memory % LINE);
  for (int64_t first = 0; first < rows; first += PANEL) {
    const int64_t left = rows - first, width = width_of(left);
    for (int64_t row = 0; row < left && row < width; row++)
      for (int64_t i = 0; i < inner; i++)
        panels[first * inner + i * width + row] = matrix[(first + row) * inner + i];
  }
  return panels;
}

static void copy_columns(const float *from, int64_t from_stride, float *to, int64_t to_stride, int rows, int64_t columns) {
  for (int row = 0; row < rows; row++)
    memcpy(to + row * to_stride, from + row * from_stride, (size_t)columns * sizeof(float));
}

typedef float vector16 __attribute__((vector_size(64), aligned(4)));
#define TARGET __attribute__((target("avx512f")))
#define NAME(name) name##_avx512
#define VECTOR vector16
#define LANES 16
#define MOST 12
#include "step_attention.h"
#include "step_products.h"
#undef TARGET
#undef NAME
#undef VECTOR
#undef LANES
#undef MOST

typedef float vector8 __attribute__((vector_size(32), aligned(4)));
#define TARGET __attribute__((target("avx2,fma")))
#define NAME(name) name##_avx2
#define VECTOR vector8
#define LANES 8
#define MOST 3
#include "step_attention.h"
#include "step_products.h"

#define CALLS(set)                                                                                                  \
  {#set, "t5prep_rows_by_panels", rows_by_panels_##set}, {#set, "t5prep_table_by_rows", table_by_rows_##set}, {     \
    #set, "t5prep_attend", attend_##set                                                                             \
  }
const custom_call step_calls[] = {CALLS(avx512), CALLS(avx2), {NULL, NULL, NULL}};

int has_instructions(const char *set) {
  if (!strcmp(set, "avx512")) return __builtin_cpu_supports("avx512f");
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

#else

const custom_call step_calls[] = {{NULL, NULL, NULL}};
int has_instructions(const char *set) { return (void)set, 0; }

#endif
