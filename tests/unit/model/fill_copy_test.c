/* A copy of weights lies where it is read: who would fill a panel copies it. */
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/fill.h"
#include "test.h"

enum { N_WORKERS = 3, MAX_PANELS = 64, MAX_PAGES = 4096 };

/* A panel of float32 is at least four pages. */
static const struct kvad_description description = {.family = "test",
                                                    .n_layers = 1,
                                                    .n_heads = 4,
                                                    .n_kv_heads = 4,
                                                    .head_dim = 64,
                                                    .d_model = 256,
                                                    .d_ff = 272,
                                                    .n_vocab = 320,
                                                    .n_ctx = 5,
                                                    .activation = KVAD_ACTIVATION_RELU,
                                                    .norm_eps = 1e-5f,
                                                    .eos = -1};

static _Atomic pthread_t fillers[KVAD_PARAMETER_COUNT][MAX_PANELS];

static enum kvad_status read_noted(void *user, enum kvad_parameter parameter, uint32_t layer,
                                   size_t row, size_t first, size_t n, float *out,
                                   struct kvad_error *err) {
    (void)user, (void)layer, (void)err;
    if (row / KVAD_PANEL < MAX_PANELS) fillers[parameter][row / KVAD_PANEL] = pthread_self();
    for (size_t i = 0; i < n; i++)
        out[i] = (float)(row * 1000 + first + i);
    return KVAD_OK;
}

/* What is copied. A page cannot be read until somebody tried to, and who did is written down; a
 * handler of signals has no argument of its own. */
static struct {
    unsigned char *at;
    size_t bytes, page;
    _Atomic pthread_t readers[MAX_PAGES];
} from;

static void let_read(int number, siginfo_t *info, void *context) {
    size_t offset = (size_t)((unsigned char *)info->si_addr - from.at);
    (void)context;
    if (offset >= from.bytes) {
        signal(number, SIG_DFL); /* a true one */
        return;
    }
    from.readers[offset / from.page] = pthread_self();
    mprotect(from.at + offset / from.page * from.page, from.page, PROT_READ);
}

static void lock_copy_of(const struct kvad_model *model) {
    from.page = (size_t)sysconf(_SC_PAGESIZE);
    from.bytes = kvad_round_up(model->area_bytes, from.page);
    assert_true(from.bytes / from.page <= MAX_PAGES);
    from.at = mmap(NULL, from.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(from.at != MAP_FAILED);
    memcpy(from.at, model->area, model->area_bytes);
    assert_int_equal(mprotect(from.at, from.bytes, PROT_NONE), 0);
}

/* Returns how many pages lie within one panel each. */
static size_t check_panels(const struct kvad_model *model, const struct kvad_linear_weights *linear,
                           enum kvad_parameter parameter) {
    const unsigned char *area = model->area;
    size_t start = (size_t)(linear->panels - area), n_pages = 0;
    for (size_t i = 0; i < kvad_panel_count(linear->n); i++) {
        size_t first = kvad_round_up(start + i * linear->panel_bytes, from.page) / from.page;
        size_t last = (start + (i + 1) * linear->panel_bytes) / from.page;
        for (size_t page = first; page < last; page++, n_pages++)
            assert_true(pthread_equal(from.readers[page], fillers[parameter][i]));
    }
    return n_pages;
}

static void test_who_fills_a_panel_copies_it(void **state) {
    (void)state;
    struct kvad_error err;
    struct kvad_threads *threads = NULL;
    struct kvad_model *model = NULL;
    struct kvad_model_source source = {.read = read_noted};
    struct kvad_model_options options;
    struct sigaction action = {.sa_sigaction = let_read, .sa_flags = SA_SIGINFO}, before;
    kvad_model_options_init(&options);
    assert_ok(kvad_threads_create(N_WORKERS, NULL, &threads, &err), &err);
    options.threads = threads;
    assert_ok(kvad_model_build(&description, &source, &options, &model, &err), &err);
    lock_copy_of(model);
    memset(model->area, 0xee, model->area_bytes);
    assert_int_equal(sigaction(SIGSEGV, &action, &before), 0);
    kvad_model_fill_copy(model, from.at, threads);
    sigaction(SIGSEGV, &before, NULL);
    assert_memory_equal(model->area, from.at, model->area_bytes);
    const struct kvad_layer_weights *layer = &model->layers[0];
    size_t n = check_panels(model, &layer->qkv, KVAD_PARAMETER_QKV_WEIGHT);
    n += check_panels(model, &layer->out, KVAD_PARAMETER_OUT_WEIGHT);
    n += check_panels(model, &layer->up, KVAD_PARAMETER_UP_WEIGHT);
    n += check_panels(model, &layer->down, KVAD_PARAMETER_DOWN_WEIGHT);
    n += check_panels(model, &model->head, KVAD_PARAMETER_HEAD_WEIGHT);
    assert_true(n > 100 || from.page > 4096);
    munmap(from.at, from.bytes);
    kvad_model_release(&model);
    kvad_threads_release(&threads);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_fills_a_panel_copies_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
