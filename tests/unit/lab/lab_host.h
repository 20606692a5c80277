/* Who runs a bench or an experiment in a test: lends it the smallest synthetic model, watches its
 * reports, and can stop it or spoil the model at one of them. */
#ifndef KVAD_TESTS_LAB_HOST_H
#define KVAD_TESTS_LAB_HOST_H

#include "lab/synthetic.h"
#include "model/model.h"
#include "test.h"

struct host {
    struct kvad_model *model; /* the bench's own, while it has one */
    int n_reports, n_models;
    int stop_at;          /* report that says stop; 0: none */
    const char *spoil_at; /* a report with this in it changes a weight */
    double last_done;
    bool went_back;
    const struct kvad_engine *engine;
};

static inline enum kvad_status open_model(void *user, enum kvad_weight_type weights,
                                          struct kvad_threads *threads, struct kvad_model **out,
                                          struct kvad_error *err) {
    struct host *host = user;
    struct kvad_model_options options;
    kvad_model_options_init(&options);
    options.weights = weights;
    options.threads = threads;
    host->n_models++;
    enum kvad_status status = kvad_synthetic_build("tiny", 1, &options, out, err);
    host->model = status == KVAD_OK ? *out : NULL;
    return status;
}

static inline bool report(void *user, const char *what, double done) {
    struct host *host = user;
    host->went_back |= done < host->last_done || done > 1;
    host->last_done = done;
    if (host->spoil_at && strstr(what, host->spoil_at)) {
        float *weight = (float *)(void *)host->model->layers[0].out.panels;
        *weight += 1;
        host->spoil_at = NULL;
    }
    return ++host->n_reports != host->stop_at;
}

static inline void engine_in_use(void *user, struct kvad_engine *engine) {
    struct host *host = user;
    host->engine = engine;
}

#endif
