#include "train/checkpoint/load_tensors.hpp"

#include <algorithm>
#include <optional>

#include "millrace/base/error.hpp"
#include "train/checkpoint/checkpoint_file.hpp"
#include "train/checkpoint/run_state.hpp"

namespace millrace {
namespace {

constexpr std::int64_t piece_elements = 16 << 20;  // 64 MiB

// Rank 0 calls f. All ranks get its problem, if it has one. Returns whether there is none. Collective.
template <class F>
bool on_rank_0(World& world, ReadResult& out, F f) {
  if (world.rank() == 0) try {
      f();
    } catch (const std::exception& e) {
      const auto* error = dynamic_cast<const Error*>(&e);
      out.unreadable = error && error->code() == Exit::config ? Unreadable::other_model : Unreadable::damaged;
      out.problem = e.what();
    }
  auto unreadable = std::int64_t(out.unreadable);
  world.broadcast(&unreadable, sizeof unreadable, 0);
  out.unreadable = Unreadable(unreadable);
  if (out.unreadable == Unreadable::no) return true;
  out.problem = world.broadcast_string(out.problem);
  return false;
}

}  // namespace

void store_elements(Device& device, const FlatBuffer& flat, const BucketSpec& buckets, std::int64_t begin,
                    std::int64_t count, const float* values) {
  for (const StoredRange& r : buckets.stored(flat.count, flat.whole)) {
    const std::int64_t from = std::max(begin, r.begin), end = std::min(begin + count, r.end);
    if (from < end)
      device.copy_to_device(Stream::compute, flat.device + r.offset + (from - r.begin), values + (from - begin),
                            std::size_t(end - from) * sizeof(float));
  }
}

ReadResult load_tensors(World& world, ExecutionContext& compute, Network& network, const std::filesystem::path& path) {
  const CheckpointTensors all = checkpoint_tensors(network);
  std::optional<CheckpointReader> reader;
  ReadResult out;
  if (!on_rank_0(world, out, [&] { reader.emplace(path, all.tensors, network.training()); })) return out;
  std::vector<float> piece;
  for (const NamedTensor& t : all.tensors) {
    const std::int64_t row_count = t.shape.row_count();
    const std::int64_t most = std::max<std::int64_t>(1, piece_elements / row_count);
    for (std::int64_t row = 0; row < t.shape[0]; row += most) {
      const std::int64_t rows = std::min(most, t.shape[0] - row), count = rows * row_count;
      piece.resize(std::max(piece.size(), std::size_t(count)));
      if (!on_rank_0(world, out, [&] { reader->read(t, row, rows, piece.data()); })) return out;
      world.broadcast(piece.data(), std::size_t(count) * sizeof(float), 0);
      store_elements(*compute.device, all.flats[std::size_t(t.flat)], network.buckets(), t.begin + row * row_count,
                     count, piece.data());
      compute.device->synchronize();  // before the piece is overwritten
    }
  }
  out.run = run_state_from_json(world.broadcast_string(world.rank() == 0 ? to_json(reader->run()) : ""));
  network.weights_changed();
  return out;
}

}  // namespace millrace
