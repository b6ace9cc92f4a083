/* Declare what XLA gives to a custom call on a CPU: version 0.3 of its C interface (xla/ffi/api/c_api.h of jaxlib). */
#ifndef T5PREP_XLA_CALL_H
#define T5PREP_XLA_CALL_H

#include <stddef.h>
#include <stdint.h>

typedef struct extension {
  size_t struct_size;
  int type;
  struct extension *next;
} extension;

enum { METADATA = 1 }; /* the type of the extension by which XLA asks for a handler's version */

typedef struct {
  size_t struct_size;
  extension *extensions;
  int major, minor;
} xla_version;

typedef struct {
  size_t struct_size;
  xla_version version;
  uint32_t traits;
  int64_t state_type;
} metadata;

typedef struct {
  extension base;
  metadata *metadata;
} metadata_extension;

typedef struct {
  size_t struct_size;
  extension *extensions;
  int dtype;
  void *data;
  int64_t rank;
  int64_t *dims;
} xla_buffer;

/* The arguments of a call, or its results. */
typedef struct {
  size_t struct_size;
  extension *extensions;
  int64_t size;
  int *types;
  xla_buffer **buffers;
} xla_buffers;

typedef struct {
  size_t struct_size;
  extension *extensions;
  const void *api;
  void *context;
  int stage;
  xla_buffers arguments, results;
} xla_call;

/* Return whether XLA asks for the version only, and answer it; then there is nothing to compute. */
static inline int asks_for_version(xla_call *call) {
  extension *asked = call->extensions;
  if (!asked || asked->type != METADATA) return 0;
  metadata *answer = ((metadata_extension *)asked)->metadata;
  answer->version.major = 0, answer->version.minor = 3, answer->traits = 0, answer->state_type = 0;
  return 1;
}

static inline float *data_of(const xla_buffers *buffers, int number) { return buffers->buffers[number]->data; }
static inline int64_t size_of(const xla_buffers *buffers, int number, int axis) {
  return buffers->buffers[number]->dims[axis];
}

#endif
