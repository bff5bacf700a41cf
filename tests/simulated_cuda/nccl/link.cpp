#include "simulated_cuda/nccl/link.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <random>
#include <set>

#include "simulated_cuda/simulator.hpp"

namespace millrace::simulated {

struct alignas(64) NcclLink::Slot {
  std::atomic<int> claimed, joined, finalized;
  std::atomic<std::uint64_t> ready, taken, window_posted, window_confirmed;
  int device;
  NcclOperation operation;
  NcclWindowCall window_call;
};
struct NcclLink::Area {
  std::uint64_t nonce;
  std::atomic<int> size;
  Slot slots[max_nccl_ranks];
};

namespace {

struct Id {
  std::uint64_t nonce;  // tells whether the descriptor is still the file of this id
  int process, descriptor;
};
static_assert(sizeof(Id) <= sizeof(ncclUniqueId));

Id read_id(const ncclUniqueId& from) {
  Id id;
  std::memcpy(&id, from.internal, sizeof id);
  return id;
}

std::mutex ids_mutex;
std::set<std::uint64_t>& open_ids() {  // of this process
  static auto* const all = new std::set<std::uint64_t>;
  return *all;
}

template <class T>
std::string name_in(const T& names, int index) {
  return index >= 0 && std::size_t(index) < std::size(names) ? names[index] : std::to_string(index);
}

}  // namespace

std::string NcclOperation::describe() const {
  static constexpr const char* kinds[] = {"all-reduce", "reduce-scatter", "all-gather", "broadcast"};
  static constexpr const char* types[] = {"int8",    "uint8",   "int32",   "uint32",   "int64",       "uint64",
                                          "float16", "float32", "float64", "bfloat16", "float8 e4m3", "float8 e5m2"};
  static constexpr const char* reductions[] = {"sum", "product", "maximum", "minimum", "average"};
  std::string text = fmt::format("{} of {} {}", name_in(kinds, kind), count, name_in(types, type));
  if (kind == all_reduce || kind == reduce_scatter) text += ", " + name_in(reductions, reduction);
  if (kind == broadcast) text += fmt::format(", root {}", root);
  static constexpr const char* memories[] = {", plain memory", ", registered memory", ", windows"};
  text += memories[memory];
  if (memory == window) text += fmt::format(" from byte {} to byte {}", from_offset, to_offset);
  return text + fmt::format(", {} number {}", captured ? "captured" : "not captured,", ordinal);
}

bool NcclLink::make_id(ncclUniqueId& out) {
  Id id;
  id.process = ::getpid();
  std::random_device random;
  id.nonce = std::uint64_t(random()) << 32 | random();
  id.descriptor = ::memfd_create("millrace_simulated_nccl", MFD_CLOEXEC);
  if (id.descriptor < 0) return false;
  if (::ftruncate(id.descriptor, sizeof(Area)) != 0 ||
      ::pwrite(id.descriptor, &id.nonce, sizeof id.nonce, 0) != ssize_t(sizeof id.nonce)) {
    ::close(id.descriptor);
    return false;
  }
  std::memset(&out, 0, sizeof out);
  std::memcpy(out.internal, &id, sizeof id);
  const std::lock_guard hold(ids_mutex);
  open_ids().insert(id.nonce);
  return true;
}

// The first rank that knows that all have joined closes the file of the id; a file lives on while it is mapped.
void NcclLink::release_id(const ncclUniqueId& from) const {
  const Id id = read_id(from);
  if (id.process != ::getpid()) return;
  const std::lock_guard hold(ids_mutex);
  if (open_ids().erase(id.nonce) > 0) ::close(id.descriptor);
}

bool NcclLink::join(const ncclUniqueId& from, int size, int rank, int device) {
  const Id id = read_id(from);
  const int file = ::open(fmt::format("/proc/{}/fd/{}", id.process, id.descriptor).c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return false;
  std::uint64_t nonce = 0;
  constexpr std::size_t head = (sizeof(Area) + 4095) / 4096 * 4096;
  bytes_ = head + std::size_t(size) * piece_bytes;
  // Checked before the file grows: it may be another one by now.
  void* mapped = MAP_FAILED;
  if (::pread(file, &nonce, sizeof nonce, 0) == ssize_t(sizeof nonce) && nonce == id.nonce) {
    mapped = ::mmap(nullptr, sizeof(Area), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) {
      int expected = 0;
      auto& agreed = static_cast<Area*>(mapped)->size;
      // nccl.h, ncclCommInitRank: all ranks give the same number of ranks.
      if (!agreed.compare_exchange_strong(expected, size) && expected != size)
        violation("ncclCommInitRankConfig",
                  fmt::format("rank {} has {} ranks, another one has {}", rank, size, expected));
      ::munmap(mapped, sizeof(Area));
      mapped = MAP_FAILED;
      if (::ftruncate(file, off_t(bytes_)) == 0)
        mapped = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
  }
  ::close(file);
  if (mapped == MAP_FAILED) return false;
  area_ = static_cast<Area*>(mapped);
  size_ = size;
  rank_ = rank;
  Slot& slot = area_->slots[rank];
  // nccl.h, ncclCommInitRank: a rank is unique within the communicator.
  if (slot.claimed.exchange(1)) violation("ncclCommInitRankConfig", fmt::format("rank {} joins twice", rank));
  slot.device = device;
  slot.joined = 1;
  return true;
}

void NcclLink::leave() {
  if (area_) ::munmap(area_, bytes_);
  area_ = nullptr;
}

template <class Condition>
bool NcclLink::all(const Condition& condition) const {
  for (int r = 0; r < size_; ++r)
    if (!condition(area_->slots[r])) return false;
  return true;
}

bool NcclLink::all_joined() const {
  return all([](const Slot& s) { return s.joined != 0; });
}
int NcclLink::device_of(int rank) const { return area_->slots[rank].device; }

char* NcclLink::piece(int rank) const {
  return reinterpret_cast<char*>(area_) + bytes_ - std::size_t(size_ - rank) * piece_bytes;
}
void NcclLink::post(const NcclOperation& operation, std::uint64_t step) {
  area_->slots[rank_].operation = operation;
  area_->slots[rank_].ready = step;
}
bool NcclLink::all_ready(std::uint64_t step) const {
  return all([&](const Slot& s) { return s.ready >= step; });
}
const NcclOperation& NcclLink::operation_of(int rank) const { return area_->slots[rank].operation; }
void NcclLink::take(std::uint64_t step) { area_->slots[rank_].taken = step; }
bool NcclLink::all_taken(std::uint64_t step) const {
  return all([&](const Slot& s) { return s.taken >= step; });
}

void NcclLink::post_window(const NcclWindowCall& call, std::uint64_t number) {
  area_->slots[rank_].window_call = call;
  area_->slots[rank_].window_posted = number;
}
bool NcclLink::all_post_window(std::uint64_t number) const {
  return all([&](const Slot& s) { return s.window_posted >= number; });
}
const NcclWindowCall& NcclLink::window_call_of(int rank) const { return area_->slots[rank].window_call; }
void NcclLink::confirm_window(std::uint64_t number) { area_->slots[rank_].window_confirmed = number; }
bool NcclLink::all_confirm_window(std::uint64_t number) const {
  return all([&](const Slot& s) { return s.window_confirmed >= number; });
}

void NcclLink::post_finalize() { area_->slots[rank_].finalized = 1; }
bool NcclLink::all_finalized() const {
  return all([](const Slot& s) { return s.finalized != 0; });
}

}  // namespace millrace::simulated
