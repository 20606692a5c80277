/* Generate text: cc generate.c $(pkg-config --cflags --libs kvad) && ./a.out MODEL PROMPT */
#include <kvad/kvad.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    if (argc != 3) return fprintf(stderr, "usage: generate MODEL PROMPT\n"), 2;
    struct kvad_error err = {.text = "the prompt has more than 1024 tokens"};
    struct kvad_model *model = NULL;
    struct kvad_engine *engine = NULL;
    struct kvad_request *request = NULL;
    int32_t ids[1024];
    struct kvad_request_options options;
    kvad_request_options_init(&options);
    options.prompt = ids;
    options.max_tokens = 100;

    if (kvad_model_load(argv[1], NULL, &model, &err) != KVAD_OK ||
        kvad_tokenizer_encode(kvad_model_tokenizer(model), argv[2], strlen(argv[2]), 0, ids, 1024,
                              &options.n_prompt, &err) != KVAD_OK ||
        options.n_prompt > 1024 || kvad_engine_open(model, NULL, &engine, &err) != KVAD_OK ||
        kvad_request_submit(engine, &options, &request, &err) != KVAD_OK)
        return fprintf(stderr, "%s\n", err.text), 1;
    struct kvad_event event = {.finish = KVAD_FINISH_NONE};
    for (size_t n_active = 1; n_active && kvad_engine_step(engine, &n_active, &err) == KVAD_OK;)
        while (kvad_request_poll(request, &event))
            fwrite(event.text, 1, event.text_size, stdout);
    putchar('\n');
    kvad_request_destroy(&request);
    kvad_engine_close(&engine);
    kvad_model_release(&model);
    return event.finish == KVAD_FINISH_LENGTH || event.finish == KVAD_FINISH_STOP ? 0 : 1;
}
