// Compares the memory plan with what is really allocated, from the device and with malloc.
#include <gtest/gtest.h>
#include <malloc.h>

#include "millrace/train/session/network.hpp"
#include "support/expect_error.hpp"
#include "train/runs.hpp"

namespace millrace {
namespace {

// Counts the bytes that are allocated from a device.
class CountingDevice : public Device {
 public:
  explicit CountingDevice(std::unique_ptr<Device> real) : real_(std::move(real)) {}
  std::string name() const override { return real_->name(); }
  std::string describe() const override { return real_->describe(); }
  std::size_t memory_bytes() const override { return limit ? limit : real_->memory_bytes(); }
  void* allocate(MemoryKind kind, std::size_t bytes) override {
    taken += bytes;
    return real_->allocate(kind, bytes);
  }
  void release(MemoryKind kind, void* p, std::size_t n) noexcept override { real_->release(kind, p, n); }
  void copy_to_device(Stream l, void* to, const void* from, std::size_t n) override {
    real_->copy_to_device(l, to, from, n);
  }
  void copy_to_host(Stream l, void* to, const void* from, std::size_t n) override {
    real_->copy_to_host(l, to, from, n);
  }
  void fill_zero(Stream l, void* to, std::size_t n) override { real_->fill_zero(l, to, n); }
  bool shares_host_memory() const override { return real_->shares_host_memory(); }
  std::unique_ptr<Event> make_event() override { return real_->make_event(); }
  std::unique_ptr<Timestamps> make_timestamps(int n) override { return real_->make_timestamps(n); }
  std::unique_ptr<CapturedStep> capture(const std::string& k, std::function<void()> f) override {
    return real_->capture(k, std::move(f));
  }
  void synchronize() override { real_->synchronize(); }
  std::size_t taken = 0, limit = 0;

 private:
  std::unique_ptr<Device> real_;
};

NetworkSpec resnet(DType compute) {
  NetworkSpec spec;
  spec.model.name = "resnet";
  spec.model.depth = 8;
  spec.model.width = 32;
  spec.model.outputs = 10;
  spec.batch = {0, {32, 32, 3}, DType::u8, {}, true};
  spec.compute = compute;
  spec.train_rows = {16, 5};
  spec.eval_rows = {16};
  return spec;
}

struct Side {
  std::unique_ptr<World> alone = solo_world();
  ExecutionContext compute;
  CountingDevice* device = nullptr;
  Side() : Side(nullptr) {}
  explicit Side(World* world) : compute(make_cpu_context(world ? *world : *alone, {})) {
    auto counting = std::make_unique<CountingDevice>(std::move(compute.device));
    device = counting.get();
    compute.device = std::move(counting);
  }
};

std::size_t heap() {
  const struct mallinfo2 m = mallinfo2();
  return m.uordblks + m.hblkhd;
}

void one_pass(Network& network, std::int64_t rows) {
  std::vector<std::uint8_t> x(std::size_t(rows) * 32 * 32 * 3, 100);
  std::vector<std::int32_t> y(std::size_t(rows), 1);
  std::vector<std::int64_t> ids(std::size_t(rows), 0);
  const Tensor tx{x.data(), DType::u8, {rows, 32, 32, 3}}, ty{y.data(), DType::i32, {rows}},
      ti{ids.data(), DType::i64, {rows}};
  network.train_program(rows).forward(tx, ty, ti, true);
  network.train_program(rows).backward(true, nullptr);
  network.optimizer_step();
}

TEST(MemoryPlan, ANetworkAllocatesWhatWasPlanned) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Side side;
    const NetworkSpec spec = resnet(dtype);
    const NetworkMemory planned = plan_network(*side.compute.backend, spec).needs;
    EXPECT_EQ(side.device->taken, 0u) << "a plan allocates nothing";
    const std::size_t before = heap();
    Network network(side.compute, spec);
    EXPECT_EQ(network.needs().total(), planned.total());
    // Gradients and statistics are allocated by the collective. The plan leaves out the two copies of the step's state
    // and the minimum size of small buffers.
    const std::size_t from_device = planned.total() - planned.gradients;
    EXPECT_GE(side.device->taken, from_device);
    EXPECT_LE(side.device->taken, from_device + 4096) << name_of(dtype);
    for (const std::int64_t rows : {16, 5, 16}) one_pass(network, rows);
    const std::size_t grown = heap() - before;
    if (before > 0) {  // 0 with sanitizers, whose malloc does not report its use
      EXPECT_GE(grown, planned.total()) << name_of(dtype);
      EXPECT_LE(grown, planned.total() + planned.total() / 20 + (4u << 20)) << name_of(dtype);
    }
  }
}

TEST(MemoryPlan, ZeroDividesTheMomentsByTheRanks) {
  NetworkSpec spec = resnet(DType::bf16);
  spec.optimizer.kind = OptimizerSpec::Kind::adamw;
  NetworkMemory whole;
  {
    Side side;
    whole = plan_network(*side.compute.backend, spec).needs;
  }
  run_thread_world(3, [&](World& world) {
    Side side(&world);
    NetworkSpec sharded = spec;
    sharded.buckets = {1 << 16, world.size(), world.rank()};
    const NetworkMemory planned = plan_network(*side.compute.backend, sharded).needs;
    const std::size_t padding = 3 * OptimizerSpec::chunk_size * 2 * sizeof(float);
    EXPECT_GE(planned.moments, whole.moments / 3);
    EXPECT_LE(planned.moments, whole.moments / 3 + padding / 3);
    const std::size_t before = side.device->taken;
    const Network network(side.compute, sharded);
    // The master weights are allocated by the collective too, because every rank writes to them.
    const std::size_t master = std::size_t(sharded.buckets.padded(network.layout().count)) * sizeof(float);
    const std::size_t from_device = planned.total() - planned.gradients - master;
    EXPECT_GE(side.device->taken - before, from_device);
    EXPECT_LE(side.device->taken - before, from_device + 4096);
    world.barrier();
  });
}

TEST(MemoryPlan, TooLittleMemoryIsReportedBeforeAnyAllocation) {
  Side side;
  side.device->limit = 1 << 20;
  test::expect_error(Exit::config, "lower train.micro_batch",
                     [&] { const Network network(side.compute, resnet(DType::f32)); });
  EXPECT_EQ(side.device->taken, 0u);
}

}  // namespace
}  // namespace millrace
