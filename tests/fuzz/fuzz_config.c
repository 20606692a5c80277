/* config.json beside a small GPT-2 of Hugging Face (corpus/fuzz_model/gpt2: 1 layer, 1 head, width
 * 2, mlp 3, 4 ids, context 5). Runs in the source tree. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvad/kvad.h"

static size_t read_weights(unsigned char *bytes, size_t capacity) {
    FILE *file = fopen("tests/fuzz/corpus/fuzz_model/gpt2", "rb");
    size_t size = file ? fread(bytes, 1, capacity, file) : 0;
    if (size == 0 || size == capacity) abort();
    fclose(file);
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static unsigned char weights[8192];
    static size_t n_weights;
    if (n_weights == 0) n_weights = read_weights(weights, sizeof weights);
    char *text = malloc(size + 1);
    if (!text) abort();
    if (size) memcpy(text, data, size);
    text[size] = 0;

    struct kvad_model_options options;
    struct kvad_model *model = NULL;
    struct kvad_model_info info;
    struct kvad_error err = {0};
    kvad_model_options_init(&options);
    options.no_tokenizer = true;
    if (kvad_model_load_memory(weights, n_weights, text, &options, &model, &err) == KVAD_OK) {
        kvad_model_get_info(model, &info); /* the sizes are the tensors', whatever is said */
        if (info.n_layers != 1 || info.d_model != 2 || info.d_ff != 3 || info.n_vocab != 4 ||
            info.n_ctx != 5 || info.eos >= 4)
            abort();
        kvad_model_release(&model);
    } else if (!err.text[0] || model) {
        abort();
    }
    free(text);
    return 0;
}
