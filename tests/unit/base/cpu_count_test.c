#include "base/cpu_count.h"

#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

/* A made-up /sys and /proc below a fresh folder. */
static char root[64];

static void write_file(const char *path, const char *text) {
    char full[512];
    int size = snprintf(full, sizeof full, "%s%s", root, path);
    assert_true(size > 0 && (size_t)size < sizeof full);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int make_root(void **state) {
    (void)state;
    strcpy(root, "/tmp/kvad_cpu_count_XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

static void write_siblings(unsigned cpu, const char *list) {
    char path[128];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", cpu);
    write_file(path, list);
}

static void test_two_threads_of_one_core_count_once(void **state) {
    (void)state;
    write_siblings(0, "0,4\n");
    write_siblings(1, "1,5\n");
    write_siblings(4, "0,4\n");
    write_siblings(5, "1,5\n");
    assert_int_equal(kvad_cpu_count_cores(root, (unsigned long[]){0x33}, 1), 2);
    assert_int_equal(kvad_cpu_count_cores(root, (unsigned long[]){0x10}, 1), 1);
    assert_int_equal(kvad_cpu_count_cores(root, (unsigned long[]){0x21}, 1), 2);
}

static void test_cpus_without_topology_are_cores(void **state) {
    (void)state;
    assert_int_equal(kvad_cpu_count_cores(root, (unsigned long[]){0xf, 1}, 2), 5);
}

static void test_no_cgroup_is_no_limit(void **state) {
    (void)state;
    assert_int_equal(kvad_cpu_count_quota(root), 0);
}

static void test_quota_is_floored_and_at_least_one(void **state) {
    (void)state;
    write_file("/proc/self/cgroup", "0::/\n");
    write_file("/sys/fs/cgroup/cpu.max", "350000 100000\n");
    assert_int_equal(kvad_cpu_count_quota(root), 3);
    write_file("/sys/fs/cgroup/cpu.max", "50000 100000\n");
    assert_int_equal(kvad_cpu_count_quota(root), 1);
    write_file("/sys/fs/cgroup/cpu.max", "max 100000\n");
    assert_int_equal(kvad_cpu_count_quota(root), 0);
}

static void test_lowest_quota_of_all_parents_counts(void **state) {
    (void)state;
    write_file("/proc/self/cgroup", "0::/work.slice/job\n");
    write_file("/sys/fs/cgroup/work.slice/job/cpu.max", "800000 100000\n");
    write_file("/sys/fs/cgroup/work.slice/cpu.max", "200000 100000\n");
    assert_int_equal(kvad_cpu_count_quota(root), 2);
    write_file("/sys/fs/cgroup/work.slice/cpu.max", "max 100000\n");
    assert_int_equal(kvad_cpu_count_quota(root), 8);
}

static void test_version_1_quota_is_read(void **state) {
    (void)state;
    write_file("/proc/self/cgroup", "11:cpuset:/a\n4:cpu,cpuacct:/docker/abc\n0::/\n");
    write_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "250000\n");
    write_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    assert_int_equal(kvad_cpu_count_quota(root), 2);
    write_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    assert_int_equal(kvad_cpu_count_quota(root), 0);
}

static void test_nonsense_in_quota_files_is_no_limit(void **state) {
    (void)state;
    write_file("/proc/self/cgroup", "\n0\n0:\n0::/x\n");
    write_file("/sys/fs/cgroup/x/cpu.max", "-5 0\n");
    write_file("/sys/fs/cgroup/cpu.max", "");
    assert_int_equal(kvad_cpu_count_quota(root), 0);
}

static void test_default_is_within_what_is_allowed(void **state) {
    (void)state;
    assert_true(kvad_cpu_count_default() >= 1);
    assert_true(kvad_cpu_count_default() <= kvad_cpu_count_allowed());
    assert_true(kvad_cpu_count_allowed() <= (unsigned)sysconf(_SC_NPROCESSORS_CONF));
}

int main(void) {
#define WITH_ROOT(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)
    const struct CMUnitTest tests[] = {
        WITH_ROOT(test_two_threads_of_one_core_count_once),
        WITH_ROOT(test_cpus_without_topology_are_cores),
        WITH_ROOT(test_no_cgroup_is_no_limit),
        WITH_ROOT(test_quota_is_floored_and_at_least_one),
        WITH_ROOT(test_lowest_quota_of_all_parents_counts),
        WITH_ROOT(test_version_1_quota_is_read),
        WITH_ROOT(test_nonsense_in_quota_files_is_no_limit),
        cmocka_unit_test(test_default_is_within_what_is_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
