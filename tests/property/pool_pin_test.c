/* Pinned prompts stay in the cache until their time is over, or until a request needs the room. */
#include <time.h>

#include "test.h"
#include "world.h"

static uint64_t pin(struct kvad_engine *engine, size_t n, uint64_t ttl_ms, size_t wanted) {
    uint64_t id = 0;
    size_t n_pinned = SIZE_MAX;
    struct kvad_error err;
    assert_ok(kvad_cache_pin(engine, world.tokens, n, NULL, ttl_ms, &id, &n_pinned, &err), &err);
    assert_int_equal(n_pinned, wanted);
    return id;
}

static void test_pinned_prompts_outlive_others_until_their_time_is_over(void **state) {
    (void)state;
    struct kvad_engine_options options = paged_options(1);
    options.kv_bytes = 6 * tiny_block_bytes(&tiny_odd);
    for (uint64_t ttl_ms = 0; ttl_ms <= 1; ttl_ms++) {
        struct kvad_engine *engine = open_engine(world.model, &options);
        pin(engine, 40, 0, 0); /* nothing is there yet */
        check_request(engine, world.tokens, 40, 2, NULL);
        uint64_t id = pin(engine, 40, ttl_ms ? 20 : 0, 32);
        for (size_t i = 1; i < 4; i++)
            check_request(engine, world.tokens + 100 * i, 50, 2, NULL);
        if (ttl_ms == 0) {
            struct kvad_request_info info = check_request(engine, world.tokens, 40, 2, NULL);
            assert_int_equal(info.n_cached_tokens, 32);
            kvad_cache_unpin(engine, id);
            kvad_cache_unpin(engine, id); /* gone already */
        }
        struct timespec pause = {.tv_nsec = 25000000};
        nanosleep(&pause, NULL);
        for (size_t i = 1; i < 4; i++)
            check_request(engine, world.tokens + 100 * i, 50, 2, NULL);
        assert_int_equal(check_request(engine, world.tokens, 40, 2, NULL).n_cached_tokens, 0);
        close_engine(&engine);
    }
}

static void test_pins_give_way_before_a_request_fails(void **state) {
    (void)state;
    struct kvad_engine_options options = paged_options(1);
    options.kv_bytes = 4 * tiny_block_bytes(&tiny_odd);
    struct kvad_engine *engine = open_engine(world.model, &options);
    check_request(engine, world.tokens, 40, 2, NULL);
    pin(engine, 40, 0, 32);
    check_request(engine, world.tokens + 100, 20, 10, NULL); /* fits beside it */
    assert_int_equal(pin(engine, 40, 0, 32), 2);
    check_request(engine, world.tokens + 200, 60, 1, NULL); /* does not */
    assert_null(engine->pins);
    pin(engine, 40, 0, 0);
    close_engine(&engine);
    options.no_prefix_cache = true;
    engine = open_engine(world.model, &options);
    struct kvad_error err;
    uint64_t id;
    size_t n;
    assert_fails(kvad_cache_pin(engine, world.tokens, 40, NULL, 0, &id, &n, &err),
                 KVAD_ERR_UNSUPPORTED, &err, "prefix cache");
    close_engine(&engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pinned_prompts_outlive_others_until_their_time_is_over),
        cmocka_unit_test(test_pins_give_way_before_a_request_fails),
    };
    return cmocka_run_group_tests(tests, make_world, free_world);
}
