// Kernels: their bodies run on the host when their turn in the stream comes.
#include <cxxabi.h>

#include <cstdlib>
#include <memory>

#include "cuda/block/block.hpp"
#include "cuda/errors/check.hpp"
#include "simulated_cuda/runtime.hpp"

namespace millrace::cuda {

void run_on_host(const HostLaunch& launch, std::function<void()> body) {
  const StreamHandle stream = launch.stream;
  simulated::check_enqueue("launch of a kernel", stream);
  check(simulated::invalidate_capture(stream) ? cudaErrorStreamCaptureUnsupported : cudaSuccess, "launch of a kernel");
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(launch.kernel, nullptr, nullptr, &status),
                                                         std::free);
  simulated::enqueue(stream, status == 0 ? name.get() : launch.kernel, std::move(body),
                     {simulated::Activity::Kind::kernel, launch.kernel, 0, launch.dependent});
}

void wait_for_earlier_kernels() { simulated::wait_for_earlier_kernels(); }

}  // namespace millrace::cuda
