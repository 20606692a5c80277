/* Tensor names: wrapper prefixes and patterns.
 *
 * A pattern is a name with '*' for the number of a layer and '#' for the number of a head:
 * "blocks.*.sa.heads.#.key.weight". */
#ifndef KVAD_MODEL_NAMES_H
#define KVAD_MODEL_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Length of the prefix that wrappers put before a name, in any nesting: "transformer." and
 * "model." (the module that owns the layers), "module." (DataParallel), "_orig_mod."
 * (torch.compile), "_fsdp_wrapped_module.". */
size_t kvad_name_prefix(const char *name);

/** Whether `name` is of the pattern; then the numbers go to *layer and *head (0 where the pattern
 * has none). Numbers are plain decimals below 10^9. */
bool kvad_name_match(const char *pattern, const char *name, uint32_t *layer, uint32_t *head);

/** The name that a pattern stands for, into `text` (always terminated); returns `text`. */
const char *kvad_name_expand(const char *pattern, uint32_t layer, uint32_t head, char *text,
                             size_t size);

#endif
