#include "comm/operation.hpp"

#include <algorithm>
#include <cstring>

#include "comm/peer_reduction.hpp"

namespace millrace {
namespace {

constexpr std::size_t max_message_bytes = std::size_t(1) << 30;  // MPI counts are ints

// Copies a range of this rank's memory to the other ranks of the host.
void copy_to_peers(const MappedRegion& region, std::size_t begin_bytes, std::size_t bytes) {
  for (void* peer : region.peers)
    if (peer != region.mine)
      std::memcpy(static_cast<char*>(peer) + begin_bytes, static_cast<char*>(region.mine) + begin_bytes, bytes);
}

}  // namespace

void Executor::run(const Operation& op) {
  const MappedRegion& region = *op.region;
  const std::size_t element = size_of(op.dtype), part = op.count / size_, own = op.begin + part * rank_;
  if (op.span.op == CollectiveOp::all_gather) {
    if (region.memory->one_host) return copy_to_peers(region, own * element, part * element);
    return all_gather_between_hosts(region, op.begin * element, part * element);
  }
  if (op.span.op == CollectiveOp::reduce_scatter && region.memory->one_host) {
    void* mine[] = {region.mine};
    return reduce_peers(region.peers, mine, own, own + part, op.dtype);
  }
  if (op.span.op == CollectiveOp::reduce_scatter && scatters(op))
    return reduce_scatter_between_hosts(region, op.begin, part, op.dtype);
  // In chunks: what one rank writes is still in the shared caches when another rank reads it.
  const std::size_t chunk = chunk_elements(op.dtype);
  for (std::size_t at = op.begin; at < op.begin + op.count; at += chunk)
    reduce_chunk(region, at, std::min(at + chunk, op.begin + op.count), op.dtype);
}

std::size_t Executor::chunk_elements(DType dtype) const {
  return std::max<std::size_t>(4096, chunk_bytes_ / size_of(dtype));
}

// Whether a reduce-scatter between hosts gives the bits of an all-reduce, whose short slices are added in an order that
// only MPI knows. Otherwise it is done as an all-reduce, so that optim.zero changes no bits.
bool Executor::scatters(const Operation& op) const {
  const SharedMemory& memory = *op.region->memory;
  const std::size_t chunk = chunk_elements(op.dtype), rest = op.count % chunk, shortest = rest > 0 ? rest : chunk;
  const std::size_t slice = std::max<std::size_t>(64, shortest / std::size_t(memory.slice_owners)) - 64;
  return op.dtype != DType::f64 &&
         slice * size_of(op.dtype) / std::size_t(memory.hosts) >= SharedMemory::min_ordered_slice;
}

// Local rank j of a host sums slice j of the parts of all ranks over its host, in the order of the hosts that the parts
// belong to. After the exchange it has the sums over all hosts of the parts of its own host, and writes them there.
void Executor::reduce_scatter_between_hosts(const MappedRegion& region, std::size_t begin, std::size_t part,
                                            DType dtype) {
  SharedMemory& memory = *region.memory;
  if (memory.local >= memory.slice_owners) return;
  const std::size_t slice_owners = std::size_t(memory.slice_owners), j = std::size_t(memory.local), line = 64;
  const auto cut = [&](std::size_t i) { return i == slice_owners ? part : part * i / slice_owners / line * line; };
  const std::size_t first = begin + cut(j), length = cut(j + 1) - cut(j);
  scratch_.resize(std::max(scratch_.size(), length * size_));
  cuts_.assign(std::size_t(memory.hosts) + 1, 0);
  std::size_t at = 0;
  for (const std::size_t r : memory.by_host) {
    reduce_peers_to_float(region.peers, first + r * part, first + r * part + length, dtype, scratch_.data() + at);
    at += length;
    cuts_[std::size_t(memory.places[r].host) + 1] = at;
  }
  memory.reduce_scatter_between_hosts(scratch_.data(), cuts_, dtype);
  at = cuts_[std::size_t(memory.own_host)];
  for (std::size_t r = 0; r < size_; ++r) {
    if (memory.places[r].host != memory.own_host) continue;
    void* target[] = {region.peers[std::size_t(memory.places[r].local)]};
    write_from_float(scratch_.data() + at, target, first + r * part, first + r * part + length, dtype);
    at += length;
  }
}

// In bytes. Local rank j of a host exchanges slice j of the parts of all ranks, and writes it to all ranks of its host.
// So each part reaches a host once, not once for each of its ranks.
void Executor::all_gather_between_hosts(const MappedRegion& region, std::size_t begin, std::size_t part) {
  SharedMemory& memory = *region.memory;
  if (memory.local >= memory.slice_owners) return;
  if (memory.hosts == int(size_) && part * size_ <= max_message_bytes) {  // one rank per host: in place
    cuts_.clear();
    for (std::size_t r = 0; r <= size_; ++r) cuts_.push_back(r * part);
    return memory.all_gather_between_hosts(static_cast<char*>(region.mine) + begin, cuts_);
  }
  const std::size_t slice_owners = std::size_t(memory.slice_owners), j = std::size_t(memory.local), line = 64;
  const auto cut = [&](std::size_t i) { return i == slice_owners ? part : part * i / slice_owners / line * line; };
  const std::size_t chunk = std::clamp<std::size_t>(chunk_bytes_ / size_, 4096, max_message_bytes / size_);
  for (std::size_t at = cut(j); at < cut(j + 1); at += chunk) {
    const std::size_t length = std::min(chunk, cut(j + 1) - at);
    gathered_.resize(std::max(gathered_.size(), length * size_));
    const auto in_memory_of = [&](std::size_t local, std::size_t r) {
      return static_cast<char*>(region.peers[local]) + begin + r * part + at;
    };
    cuts_.assign(std::size_t(memory.hosts) + 1, 0);
    char* here = gathered_.data();
    for (const std::size_t r : memory.by_host) {
      const SharedMemory::Place& place = memory.places[r];
      if (place.host == memory.own_host) std::memcpy(here, in_memory_of(std::size_t(place.local), r), length);
      here += length;
      cuts_[std::size_t(place.host) + 1] = std::size_t(here - gathered_.data());
    }
    memory.all_gather_between_hosts(gathered_.data(), cuts_);
    here = gathered_.data();
    for (const std::size_t r : memory.by_host) {
      const SharedMemory::Place& place = memory.places[r];
      for (std::size_t local = 0; local < region.peers.size(); ++local)
        if (place.host != memory.own_host || std::size_t(place.local) != local)
          std::memcpy(in_memory_of(local, r), here, length);
      here += length;
    }
  }
}

// Reduces this rank's slice of [begin, end). Slices begin at multiples of 64 elements after `begin`.
void Executor::reduce_chunk(const MappedRegion& region, std::size_t begin, std::size_t end, DType dtype) {
  SharedMemory& memory = *region.memory;
  if (memory.local >= memory.slice_owners) return;
  const std::size_t slice_owners = std::size_t(memory.slice_owners), line = 64;
  const auto cut = [&](std::size_t i) {
    return i == slice_owners ? end : begin + (end - begin) * i / slice_owners / line * line;
  };
  const std::size_t first = cut(std::size_t(memory.local)), last = cut(std::size_t(memory.local) + 1);
  if (first >= last) return;
  if (memory.one_host) return reduce_peers(region.peers, region.peers, first, last, dtype);
  if (dtype == DType::f64) {
    void* mine[] = {region.mine};
    reduce_peers(region.peers, mine, first, last, dtype);
    memory.all_reduce_between_hosts(static_cast<double*>(region.mine) + first, last - first);
    return copy_to_peers(region, first * sizeof(double), (last - first) * sizeof(double));
  }
  if (scratch_.size() < last - first) scratch_.resize(last - first);
  reduce_peers_to_float(region.peers, first, last, dtype, scratch_.data());
  memory.all_reduce_between_hosts(scratch_.data(), last - first, dtype);
  write_from_float(scratch_.data(), region.peers, first, last, dtype);
}

}  // namespace millrace
