// Captured steps of a CudaDevice; see CapturedStep in millrace/device/device.hpp.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "millrace/device/device.hpp"

namespace millrace::cuda {

class CudaDevice;

// A step that becomes one CUDA graph. key: its name in messages.
//   run 1   calls the function and launches its kernels one by one. Libraries load code and allocate memory now, which
//           they could not do during a capture.
//   run 2   calls the function once more, inside a stream capture. Nothing is computed by that call: the kernels become
//           the nodes of a graph. Then the graph is launched.
//   run 3+  launches the graph: one call for all kernels of the step.
// If the capture fails, for example by a call of a library that CUDA forbids then, this is logged once and every run
// calls the function. A capture with collectives counts as failed if it fails on any rank: NCCL demands that all ranks
// launch a collective by a graph, or none.
std::unique_ptr<CapturedStep> make_graph_step(CudaDevice&, const std::string& key, std::function<void()> step);

// A step without a graph: every run calls the function (cuda.graph = off, and collectives that need the host).
std::unique_ptr<CapturedStep> make_eager_step(CudaDevice&, const std::string& key, std::function<void()> step);

}  // namespace millrace::cuda
