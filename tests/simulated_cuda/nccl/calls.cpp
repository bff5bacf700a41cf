// The functions of NCCL that src/cuda calls: see simulator.hpp. "NCCL documentation" is NVIDIA's user guide of
// NCCL 2.28.
#include <fmt/core.h>
#include <nccl.h>

#include <algorithm>

#include "simulated_cuda/nccl/arithmetic.hpp"
#include "simulated_cuda/nccl/communicator.hpp"
#include "simulated_cuda/nccl/memory.hpp"
#include "simulated_cuda/runtime.hpp"

using namespace millrace::simulated;

namespace {

// The arguments of a collective.
struct Collective {
  const char* call;
  NcclOperation::Kind kind;
  const void* from;
  void* to;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t reduction = ncclSum;
  int root = 0;
};

// Ends the process unless the buffers are as NCCL needs them. Returns the memory that they are in.
std::vector<void*> check_buffers(const Collective& c, ncclComm& comm, cudaStream_t stream) {
  const std::size_t slice = c.count * size_of(c.type), all = slice * std::size_t(comm.size());
  const std::size_t own = slice * std::size_t(comm.rank());
  // ncclBroadcast: the send buffer matters on the root only.
  const bool sends = c.kind != NcclOperation::broadcast || c.root == comm.rank();
  const std::size_t from_bytes = !sends ? 0 : c.kind == NcclOperation::reduce_scatter ? all : slice;
  const std::size_t to_bytes = c.kind == NcclOperation::all_gather ? all : slice;
  if (slice == 0) return {};
  // nccl.h: buffers are memory of the GPU.
  if (sends) check_device_range(c.call, stream, c.from, from_bytes);
  check_device_range(c.call, stream, c.to, to_bytes);
  const auto* const from = static_cast<const char*>(c.from);
  const auto* const to = static_cast<const char*>(c.to);
  // NCCL documentation, "In-place operations": this overlap of the buffers is the only one that is allowed.
  const bool in_place = c.kind == NcclOperation::all_gather       ? from == to + own
                        : c.kind == NcclOperation::reduce_scatter ? to == from + own
                                                                  : to == from;
  if (sends && !in_place && from < to + to_bytes && to < from + from_bytes)
    violation(c.call, stream, "the buffers overlap, but not as an operation in place does");
  void* const at_to = comm.memory_of(to, to_bytes);
  void* const at_from = sends ? comm.memory_of(from, from_bytes) : at_to;
  if (!at_to || !at_from) return {};
  return {at_from, at_to};
}

// Fills in what the operation is told about its memory.
void describe_memory(const Collective& c, ncclComm& comm, const std::vector<void*>& memory, NcclOperation& operation) {
  if (memory.empty()) return;
  const std::lock_guard hold(ncclComm::registrations_mutex());
  const NcclMemory &from = comm.registrations.at(memory[0]), &to = comm.registrations.at(memory[1]);
  operation.memory = std::min(from.kind, to.kind);
  if (!(from.window_flags & to.window_flags & NCCL_WIN_COLL_SYMMETRIC)) return;
  // A rank of an operation in place takes its own part of the buffer (NCCL documentation, "In-place operations"). Other
  // ranks do not access that part by itself: what an all-gather sends, and where a reduce-scatter puts its sum.
  if (c.kind == NcclOperation::all_reduce || c.kind == NcclOperation::reduce_scatter)
    operation.from_offset = std::uint64_t(static_cast<const char*>(c.from) - from.begin);
  if (c.kind != NcclOperation::reduce_scatter)
    operation.to_offset = std::uint64_t(static_cast<const char*>(c.to) - to.begin);
}

ncclResult_t start(const Collective& c, ncclComm_t comm, cudaStream_t stream) {
  if (!comm) return ncclInvalidArgument;
  if (const auto status = comm->enter(c.call); status != ncclSuccess) return status;
  check_enqueue(c.call, stream);
  if (this_thread().device != comm->device())
    violation(c.call, stream, fmt::format("the communicator belongs to GPU {}", comm->device()));
  if (size_of(c.type) == 0) violation(c.call, stream, fmt::format("the type {} is not simulated", int(c.type)));
  if (c.reduction < ncclSum || c.reduction > ncclAvg || c.root < 0 || c.root >= comm->size())
    return ncclInvalidArgument;
  NcclOperation operation;
  operation.kind = c.kind;
  operation.type = c.type;
  operation.reduction = c.reduction;
  operation.root = c.root;
  operation.count = c.count;
  const std::vector<void*> memory = check_buffers(c, *comm, stream);
  describe_memory(c, *comm, memory, operation);
  return comm->launch(c.call, operation, {static_cast<const char*>(c.from), static_cast<char*>(c.to), memory}, stream);
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = is_old_nccl() ? NCCL_VERSION(2, 26, 2) : NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t status) {
  switch (status) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (!id) return ncclInvalidArgument;
  return NcclLink::make_id(*id) ? ncclSuccess : ncclSystemError;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  // nccl.h: the GPU of the rank has to be set before.
  check_call("ncclCommInitRankConfig", Safety::unsafe_in_capture);
  if (!out) return ncclInvalidArgument;
  *out = nullptr;
  if (size < 1 || rank < 0 || rank >= size) return ncclInvalidArgument;
  if (size > max_nccl_ranks)
    violation("ncclCommInitRankConfig", fmt::format("more than {} ranks are not simulated", max_nccl_ranks));
  // nccl.h: a configuration that NCCL_CONFIG_INITIALIZER did not initialise is an error.
  if (config && (config->magic != 0xcafebeef || config->size != sizeof *config)) return ncclInvalidArgument;
  // NCCL documentation, ncclConfig_t: maxCTAs is a positive integer up to 32. init.cc: a policy is a set of flags.
  const auto is_set = [](int value) { return value != NCCL_CONFIG_UNDEF_INT; };
  if (config && is_set(config->maxCTAs) && (config->maxCTAs < 1 || config->maxCTAs > 32)) return ncclInvalidArgument;
  if (config && is_set(config->CTAPolicy) &&
      (config->CTAPolicy < 0 || config->CTAPolicy > (NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO)))
    return ncclInvalidArgument;
  const bool blocking = !config || config->blocking != 0;
  auto* const comm = new ncclComm(size, rank, this_thread().device, blocking);
  know(*comm);
  *out = comm;
  return comm->connect(id);
}

// Unlike all other calls, this and ncclCommAbort are allowed while a call is in progress.
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (!comm || !error) return ncclInvalidArgument;
  return comm->async_error(error);
}
ncclResult_t ncclCommAbort(ncclComm_t comm) { return comm ? comm->abort() : ncclSuccess; }

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (!comm) return ncclSuccess;
  if (const auto status = comm->enter("ncclCommFinalize"); status != ncclSuccess) return status;
  return comm->finalize();
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return comm ? comm->destroy() : ncclSuccess; }

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t reduction,
                           ncclComm_t comm, cudaStream_t stream) {
  return start({"ncclAllReduce", NcclOperation::all_reduce, from, to, count, type, reduction}, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream) {
  return start({"ncclReduceScatter", NcclOperation::reduce_scatter, from, to, count, type, reduction}, comm, stream);
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return start({"ncclAllGather", NcclOperation::all_gather, from, to, count, type}, comm, stream);
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return start({"ncclBroadcast", NcclOperation::broadcast, from, to, count, type, ncclSum, root}, comm, stream);
}
}
