# What `make install` puts where: header, libraries, pkg-config and CMake packages, the program with its man pages and
# completions. Checked by scripts/check_install.
include(CMakePackageConfigHelpers)

install(TARGETS kvad_shared
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        NAMELINK_COMPONENT development)
install(TARGETS kvad_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${CMAKE_SOURCE_DIR}/include/kvad/kvad.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/kvad)

configure_file(${CMAKE_SOURCE_DIR}/cmake/kvad.pc.in ${CMAKE_BINARY_DIR}/kvad.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/kvad.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(cmake_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kvad)
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/kvad-config.cmake.in ${CMAKE_BINARY_DIR}/kvad-config.cmake
                              INSTALL_DESTINATION ${cmake_package_dir}
                              PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR
                              NO_CHECK_REQUIRED_COMPONENTS_MACRO)
# Before 1.0 a minor version may change the interface; from 1.0 on the SONAME's number decides.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/kvad-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/kvad-config.cmake ${CMAKE_BINARY_DIR}/kvad-config-version.cmake
        DESTINATION ${cmake_package_dir})

if(TARGET kvad)
  install(TARGETS kvad RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# The program knows its options: it writes its own manual and completions.
if(TARGET kvad AND (NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR))
  set(documents ${CMAKE_BINARY_DIR}/documents)
  set(written)
  function(kvad_write file)
    get_filename_component(folder ${documents}/${file} DIRECTORY)
    add_custom_command(OUTPUT ${documents}/${file}
                       COMMAND ${CMAKE_COMMAND} -E make_directory ${folder}
                       COMMAND kvad ${ARGN} > ${documents}/${file}
                       DEPENDS kvad VERBATIM)
    set(written ${written} ${documents}/${file} PARENT_SCOPE)
  endfunction()
  kvad_write(man/kvad.1 --man)
  foreach(command generate score tokenize inspect pack verify bench memory lab)
    kvad_write(man/kvad-${command}.1 --man ${command})
  endforeach()
  kvad_write(bash/kvad --completion bash)
  kvad_write(zsh/_kvad --completion zsh)
  kvad_write(fish/kvad.fish --completion fish)
  add_custom_target(documents ALL DEPENDS ${written})

  install(DIRECTORY ${documents}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${documents}/bash/kvad DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${documents}/zsh/_kvad DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${documents}/fish/kvad.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()
