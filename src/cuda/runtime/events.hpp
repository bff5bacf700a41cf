// Events and timestamps of a CudaDevice; see Event and Timestamps in millrace/device/device.hpp.
//
// Inside a captured step they become external event nodes of the graph. Without the external flag, a record() and a
// wait() in a capture only add a dependency between two nodes of that graph: work outside of the graph, such as the
// copy of the next batch, could not wait for them, and the host could not read their times.
#pragma once
#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <string>

#include "millrace/device/device.hpp"

namespace millrace::cuda {

class CudaDevice;

// timeout_seconds: synchronize() and Timestamps::read() throw Error(comm) if they would wait longer.
std::unique_ptr<Event> make_cuda_event(CudaDevice&, double timeout_seconds);
std::unique_ptr<Timestamps> make_cuda_timestamps(CudaDevice&, int count, double timeout_seconds);

// Blocks the host until query() no longer returns cudaErrorNotReady. Spins for a short time and then sleeps between
// queries, so that ranks that wait for their GPUs leave the cores to the loader's workers. what: names the work in the
// Error(comm) after timeout_seconds.
void wait_until_done(double timeout_seconds, const std::string& what, const std::function<cudaError_t()>& query);

}  // namespace millrace::cuda
