#include "support/host/cudnn.hpp"

namespace millrace::test {

void execute_plan(cudnnHandle_t, const std::vector<PlanMemory>&, std::function<void()> run) { run(); }
cudnnBackendDescriptor_t described_gpu() { return nullptr; }

}  // namespace millrace::test
