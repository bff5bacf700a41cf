// Documents in one row of tokens.
#include <numeric>

#include "support/forwarding_backend.hpp"
#include "support/program_fixture.hpp"

namespace millrace {
namespace packed_sequences_test {

using namespace test;

struct Bench : CpuContext, ProgramFixture {
  Bench(const ModelSpec& spec, std::int64_t window)
      : ProgramFixture(*compute.device, *compute.backend, spec, {1, {window}, DType::u8, {window}, true}, 1) {}
};

// Its positions are rotations, of which only the differences matter.
TEST(PackedSequences, ALlamaComputesWhatItDoesForEachDocumentAlone) {
  ModelSpec spec;
  spec.name = "llama";
  spec.blocks = 2;
  spec.width = 32;
  spec.tokens = true;
  spec.outputs = 256;
  ModelSpec packed_spec = spec;
  packed_spec.separator = 255;
  const std::int64_t lengths[] = {9, 1, 14};
  Bench packed(packed_spec, 24);
  std::vector<float> sum(packed.gradient.size());
  double loss = 0;
  std::size_t begin = 0;
  for (std::uint8_t& token : packed.x) token %= 200;
  for (const std::int64_t length : lengths) packed.x[(begin += std::size_t(length)) - 1] = 255;
  begin = 0;
  for (const std::int64_t length : lengths) {
    Bench alone(spec, length);
    ASSERT_EQ(alone.master, packed.master);
    std::copy_n(packed.x.begin() + std::ptrdiff_t(begin), length, alone.x.begin());
    std::copy_n(packed.y.begin() + std::ptrdiff_t(begin), length, alone.y.begin());
    alone.state.row_weight = packed.state.row_weight / 24 * float(length);  // of a position, the same
    alone.run();
    loss += alone.state.losses[0].sum;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += alone.gradient[i];
    begin += std::size_t(length);
  }
  packed.run();
  EXPECT_NEAR(packed.state.losses[0].sum, loss, 1e-5 * loss);
  EXPECT_LT(relative_error(packed.gradient, sum), 1e-4);
  Bench not_divided(spec, 24);
  not_divided.x = packed.x;
  not_divided.y = packed.y;
  not_divided.run();
  EXPECT_GT(relative_error(not_divided.gradient, sum), 1e-3);
}

}  // namespace packed_sequences_test
}  // namespace millrace
