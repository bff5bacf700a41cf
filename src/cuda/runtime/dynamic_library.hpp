// CUDA's libraries are loaded when they are first used, so that one program also runs where they are not installed.
// Their functions keep their names: within millrace::cuda a Late of that name stands before the one in the header.
#pragma once
#include <atomic>

namespace millrace::cuda {

class DynamicLibrary {
 public:
  // file: its soname, looked for as the dynamic linker does. built_with: the folder it was in when millrace was built,
  // where it is looked for next. product: what to install.
  constexpr DynamicLibrary(const char* file, const char* built_with, const char* product)
      : file_(file), built_with_(built_with), product_(product) {}
  DynamicLibrary(const DynamicLibrary&) = delete;

  void load();  // Error(config) naming the file and the mend. From any thread
  // A function of a program that has it already, by being linked to it or by standing in for it, goes first.
  void* symbol(const char* name);

 private:
  const char *file_, *built_with_, *product_;
  std::atomic<void*> handle_ = nullptr;
};

// A function of a library, called like it. Error(config) at its first use where the library, or it alone, is missing.
template <class Signature>
class LazyFunction;

template <class Result, class... Args>
class LazyFunction<Result(Args...)> {
 public:
  constexpr LazyFunction(DynamicLibrary& library, const char* name) : library_(library), name_(name) {}
  LazyFunction(const LazyFunction&) = delete;

  Result operator()(Args... args) const {
    void* found = found_.load(std::memory_order_acquire);
    if (!found) found_.store(found = library_.symbol(name_), std::memory_order_release);
    return reinterpret_cast<Result (*)(Args...)>(found)(args...);
  }

 private:
  DynamicLibrary& library_;
  const char* name_;
  mutable std::atomic<void*> found_ = nullptr;
};

}  // namespace millrace::cuda

#define MR_LAZY_FUNCTION(library, name) inline constinit const LazyFunction<decltype(::name)> name(library, #name)
