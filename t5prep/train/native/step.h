#ifndef T5PREP_STEP_H
#define T5PREP_STEP_H

#include "xla_call.h"

enum { PANEL = 32 }; /* columns of a panel */

/* One custom call of XLA, for processors with a set of instructions. */
typedef struct {
  const char *instructions, *name;
  void *(*function)(xla_call *);
} custom_call;

/* All calls, for the fastest instructions first; the last one has no name. */
extern const custom_call step_calls[];

/* Return whether this processor has a set of instructions. */
int has_instructions(const char *set);

#endif
