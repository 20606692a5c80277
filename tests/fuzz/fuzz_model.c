/* A weight file of any kind, as a model: what loads has the sizes it says. */
#include "fuzz.h"

#include <stdlib.h>

#include "kvad/kvad.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct kvad_model_options options;
    struct kvad_model *model = NULL;
    struct kvad_model_info info;
    struct kvad_error err = {0};
    kvad_model_options_init(&options);
    options.no_tokenizer = true;
    for (uint32_t n_heads = 0; n_heads < 2; n_heads++) { /* of files that do not say */
        options.n_heads = n_heads;
        if (kvad_model_load_memory(data, size, NULL, &options, &model, &err) != KVAD_OK) {
            if (!err.text[0] || model) abort();
            continue;
        }
        kvad_model_get_info(model, &info);
        /* Memory stays proportional to the file, beyond a fixed small amount. */
        if (info.n_parameters > size && info.n_parameters > 1u << 24) abort();
        if (info.n_heads * info.head_dim != info.d_model) abort();
        kvad_model_release(&model);
    }
    return 0;
}
