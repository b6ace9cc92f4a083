/* Read a SentencePiece model file (sentencepiece_model.proto): its pieces, and how it normalizes text. */
#include <math.h>

#include "protobuf.h"
#include "unigram.h"

/* The kinds of models, of which only this one is read here (TrainerSpec.ModelType), and of pieces (ModelProto.SentencePiece.Type). */
enum { UNIGRAM = 1, CHARACTERS = 4 };
enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 };
/* Sums of these over the longest text are finite: they have at most 2^25 pieces. */
#ifndef LARGEST_SCORE
#define LARGEST_SCORE 1e30f
#endif
#define UNK_PENALTY 10.0f /* kUnkPenalty of unigram_model.cc */

typedef struct {
  Span left;
  uint32_t number, kind;
  uint64_t value; /* a number */
  Span content;   /* of a string, a message or a fixed-size number */
} Field;

/* Go to the next field of a message. Return 1, 0 at the end, BAD_MODEL where the bytes are no message. */
static int next(Field *field) {
  uint64_t tag;
  if (field->left.at == field->left.end) return 0;
  if (!take_varint(&field->left, &tag) || tag > UINT32_MAX) return BAD_MODEL;
  field->number = (uint32_t)(tag >> 3);
  field->kind = (uint32_t)(tag & 7);
  if (field->kind == 0) return take_varint(&field->left, &field->value) ? 1 : BAD_MODEL;
  if (field->kind == 2) return take_content(&field->left, &field->content) ? 1 : BAD_MODEL;
  ptrdiff_t size = field->kind == 1 ? 8 : 4;
  if ((field->kind != 1 && field->kind != 5) || size > field->left.end - field->left.at) return BAD_MODEL;
  field->content = (Span){field->left.at, field->left.at + size};
  field->left.at += size;
  return 1;
}

typedef struct {
  const uint8_t *bytes;
  size_t length;
  float score;
  uint32_t type;
} Piece;

/* Check whether an enumeration from 1 to `last` has a value. Protocol buffers cut it to 32 bits, and ignore one that they do not know. */
static int is_known(uint64_t value, uint32_t last) { return (uint32_t)value >= 1 && (uint32_t)value <= last; }

static int read_piece(Piece *piece, Span message) {
  Field field = {.left = message};
  int more;
  *piece = (Piece){.bytes = message.at, .type = NORMAL};
  while ((more = next(&field)) == 1) {
    if (field.number == 1 && field.kind == 2) {
      piece->bytes = field.content.at;
      piece->length = (size_t)(field.content.end - field.content.at);
    } else if (field.number == 2 && field.kind == 5) {
      uint32_t bits = four_bytes(field.content.at);
      memcpy(&piece->score, &bits, sizeof bits);
    } else if (field.number == 3 && field.kind == 0 && is_known(field.value, BYTE)) {
      piece->type = (uint32_t)field.value;
    }
  }
  return more;
}

/* Copy a piece with SPACE for each escaped blank. Return its new length; 0 if it holds a blank and so matches no text. */
static size_t spaced(const Piece *piece, uint8_t *out, int *inside) {
  size_t length = 0;
  for (size_t i = 0; i < piece->length; i++) {
    if (piece->bytes[i] == SPACE) return 0;
    if (piece->length - i >= 3 && !memcmp(piece->bytes + i, SPACE_BYTES, 3)) {
      *inside |= length > 0;
      out[length++] = SPACE;
      i += 2;
    } else {
      out[length++] = piece->bytes[i];
    }
  }
  return length;
}

static int byte_of(const Piece *piece) {
  static const char digits[] = "0123456789ABCDEF";
  const char *high, *low;
  if (piece->length != 6 || memcmp(piece->bytes, "<0x", 3) || piece->bytes[5] != '>') return -1;
  high = memchr(digits, piece->bytes[3], 16);
  low = memchr(digits, piece->bytes[4], 16);
  return high && low ? (int)((high - digits) * 16 + (low - digits)) : -1;
}

typedef struct {
  Key *keys, *own;
  uint8_t *spaced;
  size_t keys_count, own_count, spaced_size;
  float lowest, largest;
} Pieces;

/* Add one piece to the pieces that the model and the normalizer look up. */
static int add_piece(Model *model, Pieces *pieces, const Piece *piece, int32_t id) {
  if (!(fabsf(piece->score) <= LARGEST_SCORE) || !piece->length) return BAD_MODEL;
  if (piece->type == NORMAL && piece->score < pieces->lowest) pieces->lowest = piece->score;
  if (piece->type == UNKNOWN) model->unk_id = id;
  if (piece->type == BYTE) {
    int byte = byte_of(piece);
    if (byte < 0) return BAD_MODEL;
    model->byte_ids[byte] = id;
  }
  if (piece->type != NORMAL && piece->type != USER_DEFINED) return OK;
  if (memchr(piece->bytes, 0, piece->length)) return BAD_MODEL;
  if (piece->length > model->longest) model->longest = piece->length;
  float score = piece->score;
  if (piece->type == USER_DEFINED) { /* GetUserDefinedScore of unigram_model.cc: longer pieces win */
    score = (float)(0.1 * (double)((int)piece->length - 1));
    pieces->own[pieces->own_count++] = (Key){piece->bytes, piece->length, id, 0};
  }
  if (fabsf(score) > pieces->largest) pieces->largest = fabsf(score);
  int inside = 0;
  uint8_t *copy = pieces->spaced + pieces->spaced_size;
  size_t length = spaced(piece, copy, &inside);
  if (length) {
    model->word_by_word &= !inside;
    pieces->keys[pieces->keys_count++] = (Key){copy, length, id, score};
    pieces->spaced_size += length;
  }
  return OK;
}

/* The fields of a ModelProto that are needed. They may come in any order. */
typedef struct {
  Span charsmap;
  size_t pieces;
  uint64_t model_type, suffix, escape, dummy_prefix, remove_extra, byte_fallback;
} Facts;

static int read_facts(Facts *facts, Span proto) {
  Field field = {.left = proto};
  int more;
  *facts = (Facts){.model_type = UNIGRAM, .escape = 1, .dummy_prefix = 1, .remove_extra = 1};
  while ((more = next(&field)) == 1) {
    facts->pieces += field.number == 1 && field.kind == 2;
    if ((field.number != 2 && field.number != 3) || field.kind != 2) continue;
    Field inner = {.left = field.content};
    int inside;
    while ((inside = next(&inner)) == 1) {
      int trainer = field.number == 2;
      if (!trainer && inner.number == 2 && inner.kind == 2) facts->charsmap = inner.content;
      if (inner.kind != 0) continue;
      if (trainer && inner.number == 3 && is_known(inner.value, CHARACTERS)) facts->model_type = (uint32_t)inner.value;
      if (trainer && inner.number == 24) facts->suffix = inner.value;
      if (trainer && inner.number == 35) facts->byte_fallback = inner.value;
      if (!trainer && inner.number == 3) facts->dummy_prefix = inner.value;
      if (!trainer && inner.number == 4) facts->remove_extra = inner.value;
      if (!trainer && inner.number == 5) facts->escape = inner.value;
    }
    if (inside < 0) return inside;
  }
  return more;
}

static int read_pieces(Model *model, Pieces *pieces, const Facts *facts, Span proto) {
  Field field = {.left = proto};
  int32_t id = 0;
  int status = OK;
  while (next(&field) == 1 && status == OK) {
    Piece piece;
    if (field.number != 1 || field.kind != 2) continue;
    status = read_piece(&piece, field.content);
    if (status == OK) status = add_piece(model, pieces, &piece, id++);
  }
  if (status != OK) return status;
  model->unk_score = pieces->lowest - UNK_PENALTY;
  model->largest_score = fmaxf(pieces->largest, fabsf(model->unk_score));
  status = model->unk_id < 0 || !pieces->keys_count || !(fabsf(model->unk_score) <= LARGEST_SCORE)
               ? BAD_MODEL : trie_build(&model->trie, pieces->keys, pieces->keys_count);
  if (status != OK) return status;
  return normalizer_load(&model->normalizer, facts->charsmap.at, (size_t)(facts->charsmap.end - facts->charsmap.at), pieces->own,
                         pieces->own_count);
}

int model_load(Model *model, const uint8_t *bytes, size_t size) {
  Span proto = {bytes, bytes + size};
  Facts facts;
  *model = (Model){.unk_id = -1, .word_by_word = 1};
  if (size > INT32_MAX || read_facts(&facts, proto) != OK || facts.model_type != UNIGRAM || facts.suffix || !facts.escape || !facts.pieces)
    return BAD_MODEL;
  model->pieces = facts.pieces;
  model->byte_fallback = facts.byte_fallback != 0;
  Pieces pieces = {.lowest = FLT_MAX};
  pieces.keys = room_for(NULL, facts.pieces, sizeof *pieces.keys);
  pieces.own = room_for(NULL, facts.pieces, sizeof *pieces.own);
  pieces.spaced = room_for(NULL, size, 1);
  int status = NO_MEMORY;
  if (pieces.keys && pieces.own && pieces.spaced) status = read_pieces(model, &pieces, &facts, proto);
  free(pieces.keys);
  free(pieces.own);
  free(pieces.spaced);
  model->normalizer.dummy_prefix = facts.dummy_prefix != 0;
  model->normalizer.remove_extra_whitespaces = facts.remove_extra != 0;
  if (status != OK) model_free(model);
  return status;
}

void model_free(Model *model) {
  trie_free(&model->trie);
  normalizer_free(&model->normalizer);
}
