# Flags that every kvad object gets, and the functions that define modules and tests.

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

add_compile_definitions(_POSIX_C_SOURCE=200809L _DEFAULT_SOURCE)
# The bits of every operation are defined by its written roundings: no contraction, no fast maths (docs/numerics.md).
add_compile_options(-ffp-contract=off -fno-math-errno -fno-strict-aliasing
                    -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes
                    -Wvla -Wpointer-arith -Wwrite-strings)
option(KVAD_WERROR "warnings are errors" OFF)
if(KVAD_WERROR)
  add_compile_options(-Werror)
endif()
if(KVAD_SANITIZE)
  add_compile_options(-fsanitize=${KVAD_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g)
  add_link_options(-fsanitize=${KVAD_SANITIZE})
endif()
if(KVAD_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(KVAD_FAULTS)
  add_compile_definitions(KVAD_FAULTS=1)
endif()

# kvad_module(NAME files...): one folder of src/ as object files. A file may include only lower folders
# (scripts/check_layers holds that).
function(kvad_module name)
  add_library(kvad_${name} OBJECT ${ARGN})
  target_include_directories(kvad_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include
                             ${UTF8PROC_INCLUDE})
  target_link_libraries(kvad_${name} PUBLIC PkgConfig::JANSSON PkgConfig::XXHASH Threads::Threads)
endfunction()

# kvad_test(NAME SOURCES files... MODULES base kernels ... [LABELS ...] [ARGS ...]): a program of cmocka tests, run by
# ctest; its working folder is the source tree. tests/support is on its include path. Labels (docs/testing.md):
# `levels` again with KVAD_CPU set to each level, `threads` under ThreadSanitizer.
function(kvad_test name)
  cmake_parse_arguments(T "" "" "SOURCES;MODULES;LABELS;ARGS" ${ARGN})
  add_executable(${name} ${T_SOURCES})
  foreach(module ${T_MODULES})
    target_link_libraries(${name} PRIVATE kvad_${module})
  endforeach()
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/support ${CMAKE_SOURCE_DIR}/src
                             ${CMAKE_SOURCE_DIR}/include)
  target_link_libraries(${name} PRIVATE cmocka ${UTF8PROC_LIBRARY} PkgConfig::JANSSON PkgConfig::XXHASH
                        Threads::Threads m)
  add_test(NAME ${name} COMMAND ${name} ${T_ARGS} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}" TIMEOUT 900)
  if("threads" IN_LIST T_LABELS)
    # Workers that wait for each other at barriers crawl where they get only a share of a CPU.
    set_tests_properties(${name} PROPERTIES PROCESSORS 2)
  endif()
endfunction()
