// Compares the memory plan with what is really allocated, from the device and with malloc.
#include <gtest/gtest.h>
#include <malloc.h>

#include "millrace/train/session/network.hpp"
#include "support/expect_error.hpp"
#include "train/runs.hpp"

namespace millrace {
namespace memory_plan_test {

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

// Counts the bytes that are allocated from a collective.
class CountingCollective : public Collective {
 public:
  explicit CountingCollective(std::unique_ptr<Collective> real) : real_(std::move(real)) {}
  std::string describe() const override { return real_->describe(); }
  SharedRegion allocate(std::size_t bytes) override {
    taken += bytes;
    return real_->allocate(bytes);
  }
  void all_reduce_async(const SharedRegion& r, std::size_t b, std::size_t n, DType t, int tag) override {
    real_->all_reduce_async(r, b, n, t, tag);
  }
  void reduce_scatter_async(const SharedRegion& r, std::size_t b, std::size_t n, DType t, int tag) override {
    real_->reduce_scatter_async(r, b, n, t, tag);
  }
  void all_gather_async(const SharedRegion& r, std::size_t b, std::size_t n, DType t, int tag) override {
    real_->all_gather_async(r, b, n, t, tag);
  }
  void wait(int tag) override { real_->wait(tag); }
  void finish() override { real_->finish(); }
  void all_reduce_scalars(std::span<double> v) override { real_->all_reduce_scalars(v); }
  void broadcast(const SharedRegion& r, std::size_t b, std::size_t n, int root) override {
    real_->broadcast(r, b, n, root);
  }
  void take_spans(std::vector<CommSpan>& out) override { real_->take_spans(out); }
  std::size_t taken = 0;

 private:
  std::unique_ptr<Collective> real_;
};

struct Side {
  std::unique_ptr<World> alone = solo_world();
  ExecutionContext compute;
  CountingDevice* device = nullptr;
  CountingCollective* collective = nullptr;
  Side() : Side(nullptr) {}
  explicit Side(World* world) : compute(make_cpu_context(world ? *world : *alone, {})) {
    auto counting = std::make_unique<CountingDevice>(std::move(compute.device));
    device = counting.get();
    compute.device = std::move(counting);
    auto shared = std::make_unique<CountingCollective>(std::move(compute.collective));
    collective = shared.get();
    compute.collective = std::move(shared);
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

// AdamW with ZeRO on P ranks, in bytes of a parameter: 8 / P of moments; in float32 4 of weights; in 16 bits 2 of
// weights and 4 / P of the master. Every rank has all gradients, and the master of parameters that are read as float32.
TEST(MemoryPlan, ZeroDividesTheStateOfTheOptimizerByTheRanks) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int ranks : {1, 2, 3}) {
      NetworkSpec spec = resnet(dtype);
      spec.optimizer.kind = OptimizerSpec::Kind::adamw;
      run_thread_world(ranks, [&](World& world) {
        Side side(&world);
        NetworkSpec own = spec;
        own.buckets = {1 << 16, world.size(), world.rank()};
        const NetworkPlan plan = plan_network(*side.compute.backend, own);
        const NetworkMemory& planned = plan.needs;
        const Network network(side.compute, own);
        const double count = double(network.layout().count), stats = double(network.layout().stats_count);
        const double f32 = dtype == DType::f32 ? count : double(network.layout().f32_count);
        EXPECT_LT(f32, dtype == DType::f32 ? count + 1 : count / 50);
        const double p = ranks, padding = p * double(OptimizerSpec::chunk_size);
        const auto expect_bytes = [&](std::size_t actual, double expected, double padded_by, const char* what) {
          EXPECT_GE(double(actual), expected) << what << ", " << name_of(dtype) << " on " << ranks << " ranks";
          EXPECT_LE(double(actual), expected + (ranks == 1 ? 0 : padded_by)) << what << ", " << name_of(dtype);
        };
        const double weights = dtype == DType::f32 ? 4 * count : 2 * count + 4 * (count - f32) / p + 4 * f32;
        expect_bytes(planned.parameters, weights + 4 * stats, 10 * padding, "parameters");
        expect_bytes(planned.moments, 8 * count / p, 8 * padding / p, "moments");
        // A rank allocates what was planned. The plan leaves out the copies of the step's state and the minimum size of
        // small buffers.
        const std::size_t taken = side.device->taken + side.collective->taken;
        EXPECT_GE(taken, planned.total());
        EXPECT_LE(taken, planned.total() + 4096);
        world.barrier();
      });
    }
}

TEST(MemoryPlan, TooLittleMemoryIsReportedBeforeAnyAllocation) {
  Side side;
  side.device->limit = 1 << 20;
  test::expect_error(Exit::config, "lower train.micro_batch",
                     [&] { const Network network(side.compute, resnet(DType::f32)); });
  EXPECT_EQ(side.device->taken, 0u);
}

}  // namespace memory_plan_test
}  // namespace millrace
