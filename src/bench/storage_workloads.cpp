#include "millrace/base/error.hpp"
#include "millrace/bench/storage.hpp"

namespace millrace {
namespace {

// From mlcommons/storage: configs/dlio/workload/*.yaml (v2.0; those of b200 are newer). The minimum utilizations are
// those of its submission guidelines.
const StorageWorkload published[] = {
    {"unet3d", "a100", 146600628, 7, 0.636, 0.90},    {"unet3d", "h100", 146600628, 7, 0.323, 0.90},
    {"unet3d", "b200", 146600628, 7, 0.162, 0.90},    {"resnet50", "a100", 114660, 400, 0.435, 0.90},
    {"resnet50", "h100", 114660, 400, 0.224, 0.90},   {"cosmoflow", "a100", 2828486, 1, 0.00551, 0.70},
    {"cosmoflow", "h100", 2828486, 1, 0.00350, 0.70}, {"retinanet", "b200", 322957, 24, 0.04755, 0.85},
};

}  // namespace

StorageWorkload storage_workload(const std::string& name, const std::string& accelerator) {
  std::string known, of_this;
  for (const StorageWorkload& w : published) {
    if (w.name == name && w.accelerator == accelerator) return w;
    known += (known.empty() ? "" : ", ") + w.name + " on " + w.accelerator;
    if (w.name == name) of_this += (of_this.empty() ? "" : ", ") + w.accelerator;
  }
  fail(Exit::config, "no parameters of {} on {} are published. {}", name, accelerator,
       of_this.empty() ? "published are " + known : name + " is published for " + of_this);
}

}  // namespace millrace
