# Precompiled headers: the standard headers that most files include are parsed once, not 300 times, which saves a third
# of a build from scratch. Each file still includes what it uses: a build with MILLRACE_PRECOMPILED=OFF and
# MILLRACE_UNITY=OFF checks it.
option(MILLRACE_PRECOMPILED "precompile the standard library's headers" ON)
set(MILLRACE_STANDARD_HEADERS
    <algorithm> <array> <atomic> <chrono> <cmath> <condition_variable> <cstdint> <cstring> <deque> <filesystem> <fstream> <functional>
    <map> <memory> <mutex> <numeric> <optional> <set> <span> <sstream> <string> <thread> <vector> <fmt/core.h>)
if(MILLRACE_PRECOMPILED AND CCACHE AND CMAKE_CXX_COMPILER_LAUNCHER STREQUAL CCACHE)
  # Without this, ccache does not cache files that use precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()
if(MILLRACE_PRECOMPILED AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 gives false warnings for std::string if its header is precompiled.
  target_compile_options(millrace_flags INTERFACE -Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds)
endif()

# millrace_precompile(<owner> <library> <headers>): adds the target <owner>, which precompiles the headers with the
# compile options of targets that link <library>.
function(millrace_precompile owner library)
  if(NOT MILLRACE_PRECOMPILED)
    return()
  endif()
  file(CONFIGURE OUTPUT ${owner}.cpp CONTENT "")
  add_library(${owner} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${owner}.cpp)
  target_link_libraries(${owner} PRIVATE millrace_flags ${library})
  target_precompile_headers(${owner} PRIVATE ${ARGN})
endfunction()

# millrace_use_precompiled(<owner> <folders>): makes all targets of the folders use the precompiled headers of an owner.
function(millrace_use_precompiled owner)
  if(NOT MILLRACE_PRECOMPILED)
    return()
  endif()
  foreach(folder ${ARGN})
    get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
    foreach(target ${targets})
      get_target_property(type ${target} TYPE)
      if(target MATCHES "precompiled" OR NOT type MATCHES "STATIC|OBJECT|EXECUTABLE")
        continue()
      else()
        target_precompile_headers(${target} REUSE_FROM ${owner})
      endif()
    endforeach()
  endforeach()
endfunction()

# millrace_unite_kernels(<out> <files>): with MILLRACE_UNITY, files that include four kernels each, because the headers
# take most of the time of a kernel; else the files themselves. CMake unites C++ only. The largest files, which have a
# namespace of their own, stay alone.
function(millrace_unite_kernels out)
  set(alone ${ARGN})
  if(MILLRACE_UNITY)
    set(united ${ARGN})
    set(large "/(attention|batch_norm|dual_norm|input|norm_pool|pool)\\.cu$")
    list(FILTER united EXCLUDE REGEX ${large})
    list(FILTER alone INCLUDE REGEX ${large})
    set(number 0)
    while(united)
      list(SUBLIST united 0 4 four)
      list(REMOVE_ITEM united ${four})
      list(TRANSFORM four REPLACE "(.+)" "#include \"\\1\"\n")
      string(CONCAT content ${four})
      set(file ${PROJECT_BINARY_DIR}/Unity/kernels_${number}.cu)
      file(CONFIGURE OUTPUT ${file} CONTENT "${content}" @ONLY)
      set_source_files_properties(${file} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      list(APPEND alone ${file})
      math(EXPR number "${number} + 1")
    endwhile()
  endif()
  set(${out} ${alone} PARENT_SCOPE)
endfunction()
