# The headers that most files begin with are parsed once, not 300 times: a third of a build from nothing. Files include what they use all the same;
# MILLRACE_PRECOMPILED=OFF builds without, and so does the address sanitizer's build, which checks it.
option(MILLRACE_PRECOMPILED "precompile the standard library's headers" ON)
if(MILLRACE_SANITIZE STREQUAL "address")
  set(MILLRACE_PRECOMPILED OFF)
endif()
set(MILLRACE_STANDARD_HEADERS
    <algorithm> <array> <atomic> <chrono> <cmath> <condition_variable> <cstdint> <cstring> <deque> <filesystem> <fstream> <functional>
    <map> <memory> <mutex> <numeric> <optional> <set> <span> <sstream> <string> <thread> <vector>)
if(MILLRACE_PRECOMPILED AND CCACHE AND CMAKE_CXX_COMPILER_LAUNCHER STREQUAL CCACHE)
  # Otherwise ccache leaves files with precompiled headers alone.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()
if(MILLRACE_PRECOMPILED AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # False alarms of GCC 12 on strings, once they come from a precompiled header.
  target_compile_options(millrace_flags INTERFACE -Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds)
endif()

# millrace_precompile(<owner> <library> <headers>): a target that owns them, compiled as users of the library are.
function(millrace_precompile owner library)
  if(NOT MILLRACE_PRECOMPILED)
    return()
  endif()
  file(CONFIGURE OUTPUT ${owner}.cpp CONTENT "")
  add_library(${owner} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${owner}.cpp)
  target_link_libraries(${owner} PRIVATE millrace_flags ${library})
  target_precompile_headers(${owner} PRIVATE ${ARGN})
endfunction()

# millrace_use_precompiled(<owner> <owner with OpenMP> <folders>): by all targets of these folders.
function(millrace_use_precompiled plain openmp)
  if(NOT MILLRACE_PRECOMPILED)
    return()
  endif()
  foreach(folder ${ARGN})
    get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
    foreach(target ${targets})
      get_target_property(type ${target} TYPE)
      get_target_property(libraries ${target} LINK_LIBRARIES)
      if(target MATCHES "precompiled" OR NOT type MATCHES "STATIC|OBJECT|EXECUTABLE")
        continue()
      elseif("OpenMP::OpenMP_CXX" IN_LIST libraries)
        target_precompile_headers(${target} REUSE_FROM ${openmp})
      else()
        target_precompile_headers(${target} REUSE_FROM ${plain})
      endif()
    endforeach()
  endforeach()
endfunction()
