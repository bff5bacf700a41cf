#include "millrace/base/error.hpp"
#include "support/host/cudnn.hpp"

namespace millrace::test {

void execute_plan(cudnnHandle_t, const std::vector<PlanMemory>& memory, std::function<void()> run) {
  for (const PlanMemory& m : memory) MR_CHECK(reinterpret_cast<std::uintptr_t>(m.data) % m.alignment == 0);
  run();
}
cudnnBackendDescriptor_t described_gpu() { return nullptr; }

}  // namespace millrace::test
