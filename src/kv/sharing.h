/* A sequence and the prefix index: starting with blocks that are there, and giving full ones to it.
 */
#ifndef KVAD_KV_SHARING_H
#define KVAD_KV_SHARING_H

#include "kv/prefix.h"
#include "kv/sequence.h"

/** Index every full block of the sequence that holds committed tokens and is not indexed yet;
 * tokens[length] are all tokens of the sequence. A block whose equal the index has gives way to
 * that one. O(new blocks). */
void kvad_kv_sequence_publish(struct kvad_kv_sequence *sequence, struct kvad_prefix *index,
                              struct kvad_prefix_root *root, const int32_t *tokens);

#endif
