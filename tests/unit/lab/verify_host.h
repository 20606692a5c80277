/* Who runs checks of kvad verify in a test: counts the memory, watches the reports, and can stop a
 * check or spoil the model at one of them. */
#ifndef KVAD_TESTS_VERIFY_HOST_H
#define KVAD_TESTS_VERIFY_HOST_H

#include "lab/verify.h"
#include "model/model.h"
#include "test.h"
#include "test_heap.h"

struct host {
    struct test_heap heap;
    struct kvad_model *model;
    size_t n_reports, stop_at; /* the report that says stop; 0: none */
    const char *spoil_at;      /* a report that begins so changes a weight of a layer */
    size_t spoil_layer;
    const struct kvad_engine *engine;
};

static inline bool report(void *user, const struct kvad_verify_check *check, const char *what) {
    struct host *host = user;
    assert_non_null(check->name);
    if (host->spoil_at && strncmp(what, host->spoil_at, strlen(host->spoil_at)) == 0) {
        float *weight = (float *)(void *)host->model->layers[host->spoil_layer].out.panels;
        *weight += 1;
        host->spoil_at = NULL;
    }
    return ++host->n_reports != host->stop_at;
}

static inline void engine_in_use(void *user, struct kvad_engine *engine) {
    struct host *host = user;
    host->engine = engine;
}

static inline struct kvad_verify_options options_for(struct host *host) {
    return (struct kvad_verify_options){.seed = 1,
                                        .n_threads = 2,
                                        .hook = test_heap_hook(&host->heap),
                                        .report = report,
                                        .engine_in_use = engine_in_use,
                                        .user = host};
}

static inline struct kvad_verify *open_verify(struct host *host,
                                              const struct kvad_verify_options *options) {
    struct kvad_verify *verify = NULL;
    struct kvad_error err;
    assert_ok(kvad_verify_open(host->model, options, &verify, &err), &err);
    return verify;
}

static inline void close_verify(struct host *host, struct kvad_verify **verify) {
    kvad_verify_close(verify);
    assert_null(*verify);
    assert_null(host->engine);
    assert_int_equal(atomic_load(&host->heap.n_live), 0);
}

#endif
