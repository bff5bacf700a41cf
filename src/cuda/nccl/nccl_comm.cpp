#include "cuda/nccl/nccl_comm.hpp"

#include <fmt/core.h>

#include <chrono>
#include <thread>

#include "cuda/errors/check.hpp"
#include "millrace/base/units.hpp"
#include "millrace/base/value_table.hpp"

namespace millrace::cuda {
namespace {

using Clock = std::chrono::steady_clock;

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// True if it is true on every rank.
bool all_agree(World& world, bool mine) {
  std::int64_t value = mine;
  world.all_reduce(std::span<std::int64_t>(&value, 1), World::Reduce::min);
  return value != 0;
}

int version_code() {  // 0: unknown
  int code = 0;
  return ncclGetVersion(&code) == ncclSuccess ? code : 0;
}

}  // namespace

ncclDataType_t type_of(DType dtype) {
  constexpr TableRow<DType, ncclDataType_t> types[] = {
      {DType::f32, ncclFloat32}, {DType::f64, ncclFloat64}, {DType::bf16, ncclBfloat16}, {DType::f16, ncclFloat16}};
  if (const auto* type = find_value(types, dtype)) return *type;
  fail(Exit::internal, "internal error: all-reduce of {}", name_of(dtype));
}

NcclComm::NcclComm(World& world, const CudaOptions& options, double timeout_seconds) : timeout_(timeout_seconds) {
  const bool new_enough = version_code() >= NCCL_VERSION(2, 27, 0);
  const bool needs_new = options.nccl_cta_policy != CudaOptions::NcclCtaPolicy::automatic;
  world.agree(Exit::config, needs_new && !new_enough
                                ? fmt::format("cuda.nccl_cta_policy: NCCL {} has no policies. install NCCL 2.27 or "
                                              "newer, or remove the key",
                                              version())
                                : std::string());
  windows_ = all_agree(world, options.nccl_windows && new_enough);
  connect(world, options);
}

void NcclComm::connect(World& world, const CudaOptions& options) {
  ncclUniqueId id{};
  std::string trouble;
  if (world.rank() == 0)
    if (const auto status = ncclGetUniqueId(&id); status != ncclSuccess)
      trouble = fmt::format("NCCL found no network to the other ranks: {}. see NCCL_SOCKET_IFNAME", words(status));
  world.agree(Exit::comm, trouble);
  world.broadcast(&id, sizeof id, 0);
  world.barrier();  // ranks connect at the same time: NCCL gives up after some attempts

  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (options.nccl_max_ctas > 0) config.maxCTAs = options.nccl_max_ctas;
  if (options.nccl_cta_policy == CudaOptions::NcclCtaPolicy::efficiency) config.CTAPolicy = NCCL_CTA_POLICY_EFFICIENCY;
  finish_together(
      world, [&] { return ncclCommInitRankConfig(&comm_, world.size(), id, world.rank(), &config); },
      "connect all ranks", "for several ranks on one GPU set comm.backend = mpi");
}

// Makes a call that all ranks make, and waits until all have completed it. They tell each other how far they are,
// because NCCL does not tell a rank that another one has failed. Error(comm) on all ranks, with the communicator
// aborted.
void NcclComm::finish_together(World& world, const std::function<ncclResult_t()>& call, const std::string& what,
                               const std::string& advice) {
  const std::lock_guard lock(mutex_);  // the watchdog thread would report a failure without the advice
  ncclResult_t status = call();
  const auto deadline = after(timeout_);
  for (;;) {
    for (int i = 0; i < 20 && status == ncclInProgress; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (const auto asked = ncclCommGetAsyncError(comm_, &status); asked != ncclSuccess) status = asked;
    }
    enum : std::int64_t { done, working, failed };
    std::int64_t slowest = status == ncclSuccess                                 ? done
                           : status == ncclInProgress && Clock::now() < deadline ? working
                                                                                 : failed;
    world.all_reduce(std::span<std::int64_t>(&slowest, 1), World::Reduce::max);
    if (slowest == done) return;
    if (slowest == failed) break;
  }
  std::string trouble;
  if (status == ncclInProgress && Clock::now() >= deadline)
    trouble = fmt::format("NCCL did not {} within {:g} s. {}; NCCL_DEBUG=INFO shows more", what, timeout_, advice);
  else if (status != ncclSuccess && status != ncclInProgress)
    trouble = fmt::format("NCCL did not {}: {}. {}; NCCL_DEBUG=INFO shows more", what, words(status), advice);
  try {
    world.agree(Exit::comm, trouble);
  } catch (...) {
    if (comm_) ncclCommAbort(comm_);
    comm_ = nullptr;
    throw;
  }
}

NcclComm::~NcclComm() {
  if (!comm_) return;
  ncclResult_t status = ncclCommFinalize(comm_);
  for (const auto deadline = after(10); status == ncclInProgress && Clock::now() < deadline;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (const auto asked = ncclCommGetAsyncError(comm_, &status); asked != ncclSuccess) status = asked;
  }
  if (status == ncclSuccess)
    ncclCommDestroy(comm_);
  else
    ncclCommAbort(comm_);
}

NcclRegion NcclComm::allocate(World& world, std::size_t bytes) {
  NcclRegion region;
  region.bytes = (bytes + 4095) / 4096 * 4096;
  allocate_memory(world, region);
  MR_CUDA(cudaMemset(region.data, 0, region.bytes));
  MR_CUDA(cudaDeviceSynchronize());
  // NCCL cannot make a window of other memory, and documents its registration as unsafe.
  if (region.from_nccl && !make_window(world, region)) register_memory(world, region);
  return region;
}

void NcclComm::allocate_memory(World& world, NcclRegion& region) const {
  region.from_nccl = ncclMemAlloc(&region.data, region.bytes) == ncclSuccess;
  if (all_agree(world, region.from_nccl)) return;
  if (region.from_nccl) ncclMemFree(region.data);
  (void)cudaGetLastError();
  region.data = nullptr;
  region.from_nccl = false;
  const cudaError_t status = cudaMalloc(&region.data, region.bytes);
  if (status != cudaSuccess) (void)cudaGetLastError();
  world.agree(Exit::config, status == cudaSuccess
                                ? std::string()
                                : fmt::format("cannot allocate {} for gradients on the GPU ({}). use a smaller model",
                                              format_bytes(region.bytes), cudaGetErrorString(status)));
}

// False: not all ranks have the window, so none has it. NCCL returns success and null where it cannot make windows: the
// GPUs do not reach each other's memory, or NCCL_WIN_ENABLE=0 is set.
bool NcclComm::make_window(World& world, NcclRegion& region) {
  if (!windows_) return false;
  finish_together(
      world,
      [&] {
        check_alive();
        return ncclCommWindowRegister(comm_, region.data, region.bytes, &region.window, NCCL_WIN_COLL_SYMMETRIC);
      },
      "register a window", "set cuda.nccl_windows = off");
  windows_ = all_agree(world, region.window != nullptr);
  if (!windows_) deregister(region);
  return windows_;
}

void NcclComm::register_memory(World& world, NcclRegion& region) {
  bool registered = true;
  try {
    enqueue("ncclCommRegister",
            [&](ncclComm_t c) { return ncclCommRegister(c, region.data, region.bytes, &region.registration); });
  } catch (const Error&) {
    registered = false;
    region.registration = nullptr;
  }
  if (!all_agree(world, registered)) deregister(region);  // registered on all ranks or on none
}

// Waits until NCCL has given up the memory; only then may it be freed.
void NcclComm::deregister(NcclRegion& region) {
  if (region.window)
    enqueue("ncclCommWindowDeregister", [&](ncclComm_t c) { return ncclCommWindowDeregister(c, region.window); });
  region.window = nullptr;
  if (region.registration)
    enqueue("ncclCommDeregister", [&](ncclComm_t c) { return ncclCommDeregister(c, region.registration); });
  region.registration = nullptr;
}

void NcclComm::release(NcclRegion& region) noexcept {
  try {
    deregister(region);
  } catch (const Error&) {  // the communicator was aborted, which ended its registrations
  }
  if (region.from_nccl)
    ncclMemFree(region.data);
  else
    cudaFree(region.data);
  region = {};
}

std::string NcclComm::error() {
  const std::lock_guard lock(mutex_);
  if (!comm_) return "";
  ncclResult_t status = ncclSuccess;
  if (const auto asked = ncclCommGetAsyncError(comm_, &status); asked != ncclSuccess) status = asked;
  return status == ncclSuccess || status == ncclInProgress ? "" : "NCCL failed: " + words(status);
}

void NcclComm::abort() noexcept {
  const std::lock_guard lock(mutex_);
  if (comm_) ncclCommAbort(comm_);
  comm_ = nullptr;
}

std::string NcclComm::version() {
  const int code = version_code();
  if (code == 0) return "?";
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

void NcclComm::check_alive() const {
  if (!comm_) fail(Exit::comm, "communication between the GPUs was aborted");
}

void NcclComm::settle(std::unique_lock<std::mutex>& lock, const char* what, ncclResult_t status) {
  for (const auto deadline = after(timeout_); status == ncclInProgress;) {
    lock.unlock();  // the watchdog thread may call abort() now
    std::this_thread::yield();
    lock.lock();
    check_alive();
    if (const auto asked = ncclCommGetAsyncError(comm_, &status); asked != ncclSuccess) status = asked;
    if (status == ncclInProgress && Clock::now() > deadline)
      fail(Exit::comm,
           "waited {:g} s for {} to begin (a rank is late or unreachable). raise comm.timeout if it only needs more "
           "time",
           timeout_, what);
  }
  if (status != ncclSuccess) throw Error(Exit::comm, error_context::describe_failure(what, words(status)));
}

std::string NcclComm::words(ncclResult_t status) const {
  std::string text = ncclGetErrorString(status);
  const char* more = ncclGetLastError(comm_);
  if (more && *more) text += fmt::format(" ({})", more);
  for (char& c : text)
    if (c == '\n') c = ' ';
  return text;
}

}  // namespace millrace::cuda
