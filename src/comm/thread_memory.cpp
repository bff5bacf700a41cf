#include "comm/shared_memory.hpp"

namespace millrace {
namespace {

class ThreadMemory : public SharedMemory {
 public:
  explicit ThreadMemory(World& world) : world_(world) {
    slice_owners = world.size();
    local = world.rank();
  }

  bool shared() const override { return true; }

  MappedRegion allocate(std::size_t bytes) override {
    MappedRegion region = make_private_region(bytes);
    // Every rank owns every part, so that the memory of a rank that fails early stays valid for the others.
    std::vector<std::int64_t> holders(std::size_t(world_.size()), 0);
    holders[std::size_t(world_.rank())] = reinterpret_cast<std::intptr_t>(&region.owner);
    world_.all_reduce(std::span<std::int64_t>(holders), World::Reduce::sum);
    region.memory = this;
    region.peers.clear();
    for (const std::int64_t holder : holders) {
      kept_.push_back(*reinterpret_cast<std::shared_ptr<void>*>(holder));
      region.peers.push_back(kept_.back().get());
    }
    world_.barrier();
    return region;
  }

  bool barrier_passed(Barrier) override { return true; }
  void all_reduce_between_hosts(float*, std::size_t, DType) override {}
  void all_reduce_between_hosts(double*, std::size_t) override {}
  void reduce_scatter_between_hosts(float*, const std::vector<std::size_t>&, DType) override {}
  void all_gather_between_hosts(void*, const std::vector<std::size_t>&) override {}
  std::vector<double> gather_values(const std::vector<double>& own, std::size_t) override { return own; }

 private:
  World& world_;
  std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace

std::unique_ptr<SharedMemory> make_thread_memory(World& world) { return std::make_unique<ThreadMemory>(world); }

}  // namespace millrace
