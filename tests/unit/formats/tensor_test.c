#include "test.h"

#include <math.h>

#include "base/bytes.h"
#include "formats/tensor.h"

static struct kvad_tensor matrix_of(enum kvad_dtype dtype, const void *data, size_t rows,
                                    size_t columns) {
    return (struct kvad_tensor){.name = "w",
                                .dtype = dtype,
                                .n_dims = 2,
                                .shape = {rows, columns},
                                .stride = {columns, 1},
                                .n_elements = rows * columns,
                                .data = data,
                                .file = "file"};
}

/* The value by the definition of the format, through ldexp. */
static double value_of(unsigned pattern, int exponent_bits, int fraction_bits) {
    int bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = (int)(pattern >> fraction_bits) & ((1 << exponent_bits) - 1);
    int fraction = (int)pattern & ((1 << fraction_bits) - 1);
    double sign = pattern >> (exponent_bits + fraction_bits) & 1 ? -1.0 : 1.0;
    if (exponent == (1 << exponent_bits) - 1) return fraction ? (double)NAN : sign * HUGE_VAL;
    if (exponent == 0) return sign * ldexp(fraction, 1 - bias - fraction_bits);
    return sign * ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

static void check_all_patterns(enum kvad_dtype dtype, int exponent_bits, int fraction_bits) {
    static unsigned char data[2 * 65536];
    static float out[65536];
    struct kvad_error err;
    for (unsigned i = 0; i < 65536; i++) {
        data[2 * i] = (unsigned char)i;
        data[2 * i + 1] = (unsigned char)(i >> 8);
    }
    struct kvad_tensor tensor = matrix_of(dtype, data, 1, 65536);
    assert_ok(kvad_tensor_read_row(&tensor, 0, out, &err), &err);
    for (unsigned i = 0; i < 65536; i++) {
        double wanted = value_of(i, exponent_bits, fraction_bits);
        if (isnan(wanted))
            assert_true(isnan(out[i]));
        else
            assert_int_equal(kvad_bits_from_float(out[i]), kvad_bits_from_float((float)wanted));
    }
}

/* bugs.md LOAD-38 */
static void test_every_f16_pattern_is_widened_exactly(void **state) {
    (void)state;
    check_all_patterns(KVAD_DTYPE_F16, 5, 10);
}

/* bugs.md LOAD-38 */
static void test_every_bf16_pattern_is_widened_exactly(void **state) {
    (void)state;
    check_all_patterns(KVAD_DTYPE_BF16, 8, 7);
}

/* bugs.md LOAD-38 */
static void test_f32_is_little_endian_on_any_machine(void **state) {
    (void)state;
    static const unsigned char data[] = {0x00, 0x00, 0x80, 0x3f, 0x01, 0x00, 0x00, 0x00,
                                         0xff, 0xff, 0x7f, 0xff, 0x00, 0x00, 0x00, 0x80};
    struct kvad_tensor tensor = matrix_of(KVAD_DTYPE_F32, data, 1, 4);
    struct kvad_error err;
    float out[4];
    assert_ok(kvad_tensor_read_row(&tensor, 0, out, &err), &err);
    assert_true(out[0] == 1.0f && out[1] == 0x1p-149f && out[2] == -0x1.fffffep127f);
    assert_int_equal(kvad_bits_from_float(out[3]), 0x80000000u);
}

static void test_f64_is_rounded_to_nearest_even(void **state) {
    (void)state;
    static const double in[] = {1 + 0x1p-24,      1 + 3 * 0x1p-24, 1 + 0x1.8p-24, -0x1p-150,
                                -0x1.000001p-150, 1e300,           -0.0,          0x1.fffffefp127};
    static const float wanted[] = {1.0f,       1 + 0x1p-22f, 1 + 0x1p-23f, -0.0f,
                                   -0x1p-149f, HUGE_VALF,    -0.0f,        0x1.fffffep127f};
    unsigned char data[sizeof in];
    for (size_t i = 0; i < 8; i++) {
        uint64_t bits;
        memcpy(&bits, &in[i], 8);
        for (size_t k = 0; k < 8; k++)
            data[8 * i + k] = (unsigned char)(bits >> 8 * k);
    }
    struct kvad_tensor tensor = matrix_of(KVAD_DTYPE_F64, data, 1, 8);
    struct kvad_error err;
    float out[8];
    assert_ok(kvad_tensor_read_row(&tensor, 0, out, &err), &err);
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(kvad_bits_from_float(out[i]), kvad_bits_from_float(wanted[i]));
}

/* bugs.md LOAD-41 LOAD-42 */
static void test_rows_are_read_from_any_address(void **state) {
    (void)state;
    struct kvad_error err;
    for (size_t shift = 0; shift < 8; shift++) {
        unsigned char *data = malloc(shift + 24);
        assert_non_null(data);
        for (unsigned i = 0; i < 6; i++) {
            uint32_t bits = kvad_bits_from_float((float)i - 2.5f);
            for (unsigned k = 0; k < 4; k++)
                data[shift + 4 * i + k] = (unsigned char)(bits >> 8 * k);
        }
        for (size_t rows = 1; rows <= 2; rows++) {
            struct kvad_tensor tensor = matrix_of(KVAD_DTYPE_F32, data + shift, rows, 6 / rows);
            for (size_t r = 0; r < rows; r++) {
                float out[6];
                assert_ok(kvad_tensor_read_row(&tensor, r, out, &err), &err);
                for (size_t i = 0; i < 6 / rows; i++)
                    assert_true(out[i] == (float)(r * 6 / rows + i) - 2.5f);
            }
        }
        free(data);
    }
}

/* bugs.md LOAD-27 */
static void test_strides_are_honoured(void **state) {
    (void)state;
    unsigned char data[2 * 6]; /* bf16 0 .. 5 as [2][3] */
    for (unsigned i = 0; i < 6; i++) {
        uint32_t bits = kvad_bits_from_float((float)i);
        data[2 * i] = (unsigned char)(bits >> 16);
        data[2 * i + 1] = (unsigned char)(bits >> 24);
    }
    struct kvad_tensor transposed = matrix_of(KVAD_DTYPE_BF16, data, 3, 2);
    transposed.stride[0] = 1;
    transposed.stride[1] = 3;
    struct kvad_error err;
    float out[2];
    for (size_t r = 0; r < 3; r++) {
        assert_ok(kvad_tensor_read_row(&transposed, r, out, &err), &err);
        assert_true(out[0] == (float)r && out[1] == (float)(r + 3));
    }
    struct kvad_tensor column = {.name = "",
                                 .dtype = KVAD_DTYPE_BF16,
                                 .n_dims = 1,
                                 .shape = {2},
                                 .stride = {3},
                                 .n_elements = 2,
                                 .data = data + 2,
                                 .file = "f"};
    assert_ok(kvad_tensor_read_row(&column, 0, out, &err), &err);
    assert_true(out[0] == 1.0f && out[1] == 4.0f);
}

static void test_scalar_is_a_row_of_one_and_empty_rows_write_nothing(void **state) {
    (void)state;
    static const unsigned char one[] = {0, 0, 0x80, 0x3f};
    struct kvad_tensor scalar = {
        .name = "", .dtype = KVAD_DTYPE_F32, .n_elements = 1, .data = one, .file = "f"};
    struct kvad_error err;
    float out = 7.0f;
    assert_ok(kvad_tensor_read_row(&scalar, 0, &out, &err), &err);
    assert_true(out == 1.0f);
    struct kvad_tensor empty = matrix_of(KVAD_DTYPE_F32, NULL, 3, 0);
    assert_ok(kvad_tensor_read_row(&empty, 2, &out, &err), &err);
    assert_true(out == 1.0f);
}

static void test_a_part_of_a_row_is_that_part_of_the_whole(void **state) {
    (void)state;
    static const enum kvad_dtype dtypes[] = {KVAD_DTYPE_F32, KVAD_DTYPE_F16, KVAD_DTYPE_BF16,
                                             KVAD_DTYPE_F64};
    unsigned char data[3 * 7 * 8];
    float row[7], part[8];
    struct kvad_error err;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 37 % 61); /* no NaN: exponents stay low */
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (int turned = 0; turned < 2; turned++) {
            struct kvad_tensor tensor = matrix_of(dtypes[d], data, 3, 7);
            if (turned) tensor.stride[0] = 1, tensor.stride[1] = 3;
            for (size_t r = 0; r < 3; r++) {
                assert_ok(kvad_tensor_read_row(&tensor, r, row, &err), &err);
                for (size_t first = 0; first <= 7; first++)
                    for (size_t n = 0; n <= 7 - first; n++) {
                        part[n] = -1;
                        assert_ok(kvad_tensor_read(&tensor, r, first, n, part, &err), &err);
                        assert_memory_equal(part, row + first, n * sizeof *part);
                        assert_true(part[n] == -1);
                    }
            }
            assert_fails(kvad_tensor_read(&tensor, 1, 8, 0, part, &err), KVAD_ERR_ARGUMENT, &err,
                         "columns 8 to 8 are outside its 7");
            assert_fails(kvad_tensor_read(&tensor, 1, 3, 5, part, &err), KVAD_ERR_ARGUMENT, &err,
                         "columns 3 to 8 are outside its 7");
            assert_fails(kvad_tensor_read(&tensor, 1, 3, SIZE_MAX, part, &err), KVAD_ERR_ARGUMENT,
                         &err, "outside its 7");
        }
}

static void test_what_cannot_be_read_is_named(void **state) {
    (void)state;
    static const unsigned char data[64] = {0};
    static const enum kvad_dtype others[] = {KVAD_DTYPE_BOOL, KVAD_DTYPE_U8,  KVAD_DTYPE_I8,
                                             KVAD_DTYPE_U16,  KVAD_DTYPE_I16, KVAD_DTYPE_U32,
                                             KVAD_DTYPE_I32,  KVAD_DTYPE_U64, KVAD_DTYPE_I64};
    struct kvad_error err;
    float out[4];
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        struct kvad_tensor tensor = matrix_of(others[i], data, 2, 4);
        assert_fails(kvad_tensor_read_row(&tensor, 0, out, &err), KVAD_ERR_UNSUPPORTED, &err,
                     kvad_dtype_name(others[i]));
    }
    struct kvad_tensor tensor = matrix_of(KVAD_DTYPE_F32, data, 2, 4);
    assert_fails(kvad_tensor_read_row(&tensor, 2, out, &err), KVAD_ERR_ARGUMENT, &err, "row 2");
    tensor.n_dims = 3;
    assert_fails(kvad_tensor_read_row(&tensor, 0, out, &err), KVAD_ERR_ARGUMENT, &err,
                 "3 dimensions");
}

static void test_shape_text_is_always_terminated(void **state) {
    (void)state;
    struct kvad_tensor tensor = matrix_of(KVAD_DTYPE_F32, NULL, 768, 2304);
    char text[32];
    assert_string_equal(kvad_tensor_shape_text(&tensor, text, sizeof text), "[768, 2304]");
    for (size_t size = 1; size < 12; size++) {
        memset(text, '#', sizeof text);
        kvad_tensor_shape_text(&tensor, text, size);
        assert_int_equal(strlen(text), size - 1);
        assert_int_equal(text[size], '#');
    }
    tensor.n_dims = 0;
    assert_string_equal(kvad_tensor_shape_text(&tensor, text, sizeof text), "[]");
}

static void test_dtype_names_and_sizes_belong_together(void **state) {
    (void)state;
    assert_string_equal(kvad_dtype_name(KVAD_DTYPE_BF16), "BF16");
    assert_int_equal(kvad_dtype_bytes(KVAD_DTYPE_BF16), 2);
    assert_string_equal(kvad_dtype_name(KVAD_DTYPE_F64), "F64");
    assert_int_equal(kvad_dtype_bytes(KVAD_DTYPE_F64), 8);
    assert_int_equal(kvad_dtype_bytes(KVAD_DTYPE_BOOL), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_f16_pattern_is_widened_exactly),
        cmocka_unit_test(test_every_bf16_pattern_is_widened_exactly),
        cmocka_unit_test(test_f32_is_little_endian_on_any_machine),
        cmocka_unit_test(test_f64_is_rounded_to_nearest_even),
        cmocka_unit_test(test_rows_are_read_from_any_address),
        cmocka_unit_test(test_strides_are_honoured),
        cmocka_unit_test(test_scalar_is_a_row_of_one_and_empty_rows_write_nothing),
        cmocka_unit_test(test_a_part_of_a_row_is_that_part_of_the_whole),
        cmocka_unit_test(test_what_cannot_be_read_is_named),
        cmocka_unit_test(test_shape_text_is_always_terminated),
        cmocka_unit_test(test_dtype_names_and_sizes_belong_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
