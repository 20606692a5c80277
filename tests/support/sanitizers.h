/* Under which sanitizer a test runs, for what it then cannot do. */
#ifndef KVAD_TEST_SANITIZERS_H
#define KVAD_TEST_SANITIZERS_H

#if defined(__has_feature)
#define TEST_HAS_FEATURE(name) __has_feature(name)
#else
#define TEST_HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_THREAD__) || TEST_HAS_FEATURE(thread_sanitizer)
enum { HAS_TSAN = 1 };
#else
enum { HAS_TSAN = 0 };
#endif
#if defined(__SANITIZE_ADDRESS__) || TEST_HAS_FEATURE(address_sanitizer)
enum { HAS_ASAN = 1 };
#else
enum { HAS_ASAN = 0 };
#endif

#endif
