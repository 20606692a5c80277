/* Models that are known by name. Each row is what the named publication and the config.json of the
 * published weights say. */
#include <stdio.h>
#include <string.h>

#include "lab/memory_formula.h"

/* n_kv_heads 0: as many as query heads. */
static const struct {
    const char *name, *source;
    uint32_t n_layers, n_heads, n_kv_heads, head_dim, n_ctx;
    uint32_t window, n_window_layers;
    uint32_t latent_dim, rope_dim, k_dim, v_dim; /* multi-head latent attention alone */
} models[] = {
    {"gpt2", "Radford et al. 2019, table 2", 12, 12, 0, 64, 1024, 0, 0, 0, 0, 0, 0},
    {"gpt2-medium", "Radford et al. 2019, table 2", 24, 16, 0, 64, 1024, 0, 0, 0, 0, 0, 0},
    {"gpt2-large", "Radford et al. 2019, table 2", 36, 20, 0, 64, 1024, 0, 0, 0, 0, 0, 0},
    {"gpt2-xl", "Radford et al. 2019, table 2", 48, 25, 0, 64, 1024, 0, 0, 0, 0, 0, 0},
    {"llama-7b", "Touvron et al. 2023a, table 2", 32, 32, 0, 128, 2048, 0, 0, 0, 0, 0, 0},
    {"llama-13b", "Touvron et al. 2023a, table 2", 40, 40, 0, 128, 2048, 0, 0, 0, 0, 0, 0},
    {"llama-65b", "Touvron et al. 2023a, table 2", 80, 64, 0, 128, 2048, 0, 0, 0, 0, 0, 0},
    {"llama-2-7b", "Touvron et al. 2023b", 32, 32, 0, 128, 4096, 0, 0, 0, 0, 0, 0},
    {"llama-2-70b", "Touvron et al. 2023b", 80, 64, 8, 128, 4096, 0, 0, 0, 0, 0, 0},
    {"llama-3-8b", "Grattafiori et al. 2024, table 3", 32, 32, 8, 128, 8192, 0, 0, 0, 0, 0, 0},
    {"llama-3-70b", "Grattafiori et al. 2024, table 3", 80, 64, 8, 128, 8192, 0, 0, 0, 0, 0, 0},
    {"falcon-7b", "Almazrouei et al. 2023", 32, 71, 1, 64, 2048, 0, 0, 0, 0, 0, 0},
    {"mistral-7b", "Jiang et al. 2023, table 1", 32, 32, 8, 128, 32768, 4096, 32, 0, 0, 0, 0},
    {"qwen2.5-7b", "Qwen Team 2024", 28, 28, 4, 128, 32768, 0, 0, 0, 0, 0, 0},
    {"gemma-2-9b", "Gemma Team 2024, table 1", 42, 16, 8, 256, 8192, 4096, 21, 0, 0, 0, 0},
    {"gemma-3-27b", "Gemma Team 2025", 62, 32, 16, 128, 131072, 1024, 52, 0, 0, 0, 0},
    {"deepseek-v2", "DeepSeek-AI 2024a, section 3.1", 60, 128, 0, 128, 163840, 0, 0, 512, 64, 192,
     128},
    {"deepseek-v3", "DeepSeek-AI 2024b, section 4.2", 61, 128, 0, 128, 163840, 0, 0, 512, 64, 192,
     128},
};
enum { N_MODELS = sizeof models / sizeof *models };

const char *kvad_memory_shape_name(unsigned index) {
    return index < N_MODELS ? models[index].name : NULL;
}

bool kvad_memory_shape_find(const char *name, struct kvad_memory_shape *out) {
    size_t i = 0;
    while (i < N_MODELS && strcmp(models[i].name, name) != 0)
        i++;
    if (i == N_MODELS) return false;
    *out = (struct kvad_memory_shape){
        .n_layers = models[i].n_layers,
        .n_heads = models[i].n_heads,
        .n_kv_heads = models[i].n_kv_heads ? models[i].n_kv_heads : models[i].n_heads,
        .k_dim = models[i].k_dim ? models[i].k_dim : models[i].head_dim,
        .v_dim = models[i].v_dim ? models[i].v_dim : models[i].head_dim,
        .latent_dim = models[i].latent_dim,
        .rope_dim = models[i].rope_dim,
        .n_ctx = models[i].n_ctx,
        .window = models[i].window,
        .n_window_layers = models[i].n_window_layers};
    snprintf(out->name, sizeof out->name, "%s", name);
    snprintf(out->source, sizeof out->source, "%s", models[i].source);
    return true;
}
