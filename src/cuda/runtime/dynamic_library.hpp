// cuDNN, cuBLASLt and NCCL are loaded with dlopen() when they are first used, so that the same program also runs on
// machines without them. Code calls their functions by the usual names: inside namespace millrace::cuda, a LazyFunction
// with the name of a library function hides the declaration in the library's header.
//
//   inline constinit DynamicLibrary nccl_library("libnccl.so.2", "/usr/lib", "NCCL (libnccl.so.2)");
//   MR_LAZY_FUNCTION(nccl_library, ncclAllReduce);
#pragma once
#include <atomic>

namespace millrace::cuda {

class DynamicLibrary {
 public:
  // file: the soname, which is searched for in the usual folders of the dynamic linker. built_with: the folder that
  // held the library when millrace was built, which is searched next. product: what the user should install.
  constexpr DynamicLibrary(const char* file, const char* built_with, const char* product)
      : file_(file), built_with_(built_with), product_(product) {}
  DynamicLibrary(const DynamicLibrary&) = delete;

  // Loads the library unless it is loaded. Error(config) with the name of the file and what to do. Thread-safe.
  void load();
  // The address of a function. If the program itself defines the function (linked, or a test's fake), that one is used
  // and the library is not loaded.
  void* symbol(const char* name);

 private:
  const char *file_, *built_with_, *product_;
  std::atomic<void*> handle_ = nullptr;
};

// A function of a library. The first call loads the library; Error(config) if the library or the function is missing.
template <class Signature>
class LazyFunction;

template <class Result, class... Args>
class LazyFunction<Result(Args...)> {
 public:
  constexpr LazyFunction(DynamicLibrary& library, const char* name) : library_(library), name_(name) {}
  LazyFunction(const LazyFunction&) = delete;

  Result operator()(Args... args) const {
    void* found = found_.load(std::memory_order_acquire);
    if (!found) {
      found = library_.symbol(name_);
      found_.store(found, std::memory_order_release);
    }
    return reinterpret_cast<Result (*)(Args...)>(found)(args...);
  }

 private:
  DynamicLibrary& library_;
  const char* name_;
  mutable std::atomic<void*> found_ = nullptr;
};

}  // namespace millrace::cuda

#define MR_LAZY_FUNCTION(library, name) inline constinit const LazyFunction<decltype(::name)> name(library, #name)
