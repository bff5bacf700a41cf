#include "millrace/comm/progress_board.hpp"

#include "shared_memory.hpp"
#include "space.hpp"

namespace millrace {
namespace {

class SharedBoard : public ProgressBoard {
 public:
  explicit SharedBoard(World& world) {
    if (world.mpi_comm())
      memory_ = make_mpi_memory(world, !shared_memory_has_room(world, sizeof(RankBoard)));
    else
      memory_ = make_thread_memory(world);
    const MappedRegion region = memory_->allocate(sizeof(RankBoard));
    for (void* peer : region.peers) boards_.push_back(static_cast<RankBoard*>(peer));
    mine_ = static_cast<RankBoard*>(region.mine);
    const auto nodes = world.gather(std::to_string(world.node()));
    for (int r = 0; r < world.size(); ++r)
      if (memory_->shared() ? nodes[std::size_t(r)] == std::to_string(world.node()) : r == world.rank())
        ranks_.push_back(r);
  }

  void post(std::uint64_t number) override { mine_->posted.store(number, std::memory_order_release); }

  std::vector<int> behind(std::uint64_t number) const override {
    std::vector<int> out;
    for (std::size_t i = 0; i < boards_.size(); ++i)
      if (boards_[i]->posted.load(std::memory_order_acquire) < number) out.push_back(ranks_[i]);
    return out;
  }

 private:
  std::unique_ptr<SharedMemory> memory_;
  std::vector<RankBoard*> boards_;
  RankBoard* mine_ = nullptr;
  std::vector<int> ranks_;  // whose boards they are
};

}  // namespace

std::unique_ptr<ProgressBoard> make_progress_board(World& world) { return std::make_unique<SharedBoard>(world); }

}  // namespace millrace
