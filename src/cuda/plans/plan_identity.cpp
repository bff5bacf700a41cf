#include "cuda/plans/plan_identity.hpp"

#include <cuda_runtime.h>
#include <fmt/core.h>

#include <cctype>
#include <fstream>

#include "cuda/errors/check.hpp"

namespace millrace::cuda {

namespace fs = std::filesystem;

PlanIdentity PlanIdentity::of_current_device(const std::string& library, std::size_t version, std::size_t candidates) {
  PlanIdentity out;
  out.library = library;
  out.version = version;
  out.candidates = candidates;
  int device = 0;
  cudaDeviceProp p;
  MR_CUDA(cudaGetDevice(&device));
  MR_CUDA(cudaGetDeviceProperties(&p, device));
  MR_CUDA(cudaDriverGetVersion(&out.driver));
  MR_CUDA(cudaRuntimeGetVersion(&out.runtime));
  out.device = p.name;
  out.multiprocessors = p.multiProcessorCount;
  out.driver_build = cuda::driver_build();
  return out;
}

std::string PlanIdentity::text() const {
  return fmt::format("{} {} with {} candidates, {}, {} multiprocessors, driver {} (build {}), runtime {}", library,
                     version, candidates, device, multiprocessors, driver,
                     driver_build.empty() ? "unknown" : driver_build, runtime);
}

std::string driver_build(const fs::path& path) {
  std::ifstream in(path);
  std::string build;
  in >> build;
  return build;
}

fs::path PlanIdentity::file() const {
  std::string name = device;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return user_cache_file(fmt::format("{}-{}-{}-{}", library, version, name, multiprocessors));
}

}  // namespace millrace::cuda
