#include "kv/sharing.h"

void kvad_kv_sequence_publish(struct kvad_kv_sequence *sequence, struct kvad_prefix *index,
                              struct kvad_prefix_root *root, const int32_t *tokens) {
    struct kvad_kv_sequence *s = sequence;
    size_t b = s->shape->block_tokens;
    for (size_t i = s->n_published; (i + 1) * b <= s->length; i++) {
        uint32_t parent = i > 0 ? s->table[i - 1] : KVAD_KV_NO_BLOCK;
        uint32_t known = kvad_prefix_publish(index, root, parent, tokens + i * b, s->table[i]);
        if (known != s->table[i]) kvad_kv_sequence_replace(s, i, known);
        s->n_published = i + 1;
    }
}
