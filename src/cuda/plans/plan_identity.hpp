// Which device and libraries a plan of the CUDA backend belongs to.
#pragma once
#include <filesystem>
#include <string>

#include "millrace/plans/plan_selector.hpp"

namespace millrace::cuda {

// What a plan and its time depend on, besides the problem. If one of them differs, the plans are chosen again.
struct PlanIdentity {
  std::string library;  // "cudnn"
  std::size_t version = 0;
  std::size_t candidates = 0;  // how many the library proposes for a problem at most
  std::string device;
  int multiprocessors = 0;
  int driver = 0, runtime = 0;  // versions of CUDA: the newest that the driver supports, and that of the runtime
  std::string driver_build;     // "580.65.06"; "": not known

  static PlanIdentity of_current_device(const std::string& library, std::size_t version, std::size_t candidates);
  std::string text() const;
  // millrace/<library>-<version>-<device>-<multiprocessors>.json in $XDG_CACHE_HOME or ~/.cache; empty if neither is
  // known.
  std::filesystem::path file() const;
};
// The build of the driver's kernel module, as Linux says; "" if there is none.
std::string driver_build(const std::filesystem::path& = "/sys/module/nvidia/version");
// The plans of this identity.
inline PlanSelector make_selector(const PlanIdentity& identity, const PlanSelectorOptions& options) {
  return PlanSelector(identity.text(), identity.file(), options);
}

}  // namespace millrace::cuda
