// The methods of convolutions that only timing chooses (products of matrices, layouts of oneDNN, other splits of the
// work), against sums in double.
#include <fmt/core.h>

#include <map>

#include "cpu/common/ops.hpp"
#include "cpu/common/parallel.hpp"
#include "cpu/conv/depthwise_geometry.hpp"
#include "cpu/onednn/onednn.hpp"
#include "ops/weighted_op_checks.hpp"
#include "reference/conv.hpp"
#include "support/op_harness.hpp"

namespace millrace {
namespace conv_variants_test {

using namespace test;
using cpu::ConvMethod;

struct Layer {
  const char* name;
  Shape src;
  std::int64_t out;
  Window window;
  std::int64_t groups = 1;

  ConvSpec spec(DType dtype) const {
    ConvSpec s;
    s.src = src;
    s.out_channels = out;
    s.window = window;
    s.groups = groups;
    s.dtype = dtype;
    return s;
  }
};

// Few channels, strides, padding of both sides, dilation, one tap with and without a stride, one and three axes; more
// rows than a block has, and fewer.
const std::vector<Layer>& layers() {
  static const std::vector<Layer> all{
      {"first", {3, 37, 33, 3}, 32, {.kernel = {7, 7, 1}, .stride = {2, 2, 1}, .pad = {3, 3, 0}}},
      {"one_channel", {2, 40, 31, 1}, 16, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}}},
      {"strided", {5, 17, 15, 32}, 48, {.kernel = {3, 3, 1}, .stride = {2, 2, 1}, .pad = {1, 1, 0}}},
      {"dilated", {2, 13, 12, 16}, 32, {.kernel = {3, 3, 1}, .pad = {2, 4, 0}, .dilation = {2, 3, 1}}},
      {"wide_pad", {2, 3, 2, 16}, 16, {.kernel = {5, 5, 1}, .pad = {4, 4, 0}}},
      {"pointwise", {7, 14, 14, 64}, 96, {.kernel = {1, 1, 1}}},
      {"pointwise_strided", {7, 15, 14, 64}, 96, {.kernel = {1, 1, 1}, .stride = {2, 2, 1}}},
      {"dense", {4, 16, 16, 64}, 64, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}}},
      {"line", {4, 100, 8}, 24, {.rank = 1, .kernel = {5, 1, 1}, .stride = {2, 1, 1}, .pad = {2, 0, 0}}},
      {"volume", {2, 7, 9, 8, 4}, 16, {.rank = 3, .kernel = {3, 3, 3}, .stride = {2, 1, 2}, .pad = {1, 1, 1}}},
      // So many channels that threads share tiles unless each is told to work alone; an incomplete panel of columns.
      {"wide", {2, 9, 10, 336}, 336, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}}},
      // By slices: incomplete slices, groups of output channels and panels of columns; with several threads, several
      // parts of the tiles.
      {"slices", {5, 13, 14, 48}, 80, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}}},
      // Depthwise, from here on: incomplete panels, several blocks of channels and of columns, strides with unequal
      // classes of outputs, outputs that no tap reaches, runs of one tap, padding alone.
      {"images", {2, 11, 10, 40}, 40, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}}, 40},
      {"stride_2", {2, 15, 13, 33}, 33, {.kernel = {7, 7, 1}, .stride = {2, 2, 1}, .pad = {3, 3, 0}}, 33},
      {"stride_3", {1, 16, 17, 16}, 16, {.kernel = {5, 4, 1}, .stride = {3, 3, 1}, .pad = {2, 1, 0}}, 16},
      {"gaps", {2, 9, 13, 16}, 16, {.kernel = {1, 2, 1}, .stride = {2, 3, 1}}, 16},
      {"wide_rows", {1, 9, 1700, 20}, 20, {.kernel = {3, 5, 1}, .stride = {2, 2, 1}, .pad = {1, 2, 0}}, 20},
      {"many_channels", {2, 7, 60, 336}, 336, {.kernel = {6, 2, 1}, .pad = {3, 1, 0}}, 336},
      {"far_apart", {1, 13, 14, 17}, 17, {.kernel = {3, 3, 1}, .pad = {4, 6, 0}, .dilation = {4, 6, 1}}, 17},
      {"dilated_2",
       {2, 9, 14, 8},
       8,
       {.kernel = {3, 3, 1}, .stride = {1, 2, 1}, .pad = {2, 2, 0}, .dilation = {2, 2, 1}},
       8},
      {"signal", {2, 70, 24}, 24, {.rank = 1, .kernel = {9, 1, 1}, .stride = {2, 1, 1}, .pad = {4, 0, 0}}, 24},
      {"long_signal", {1, 20000, 8}, 8, {.rank = 1, .kernel = {5, 1, 1}, .stride = {3, 1, 1}, .pad = {2, 0, 0}}, 8},
      {"wide_stride",
       {1, 60000, 16},
       16,
       {.rank = 1, .kernel = {3, 1, 1}, .stride = {65, 1, 1}, .dilation = {26000, 1, 1}},
       16},
      {"blocks", {2, 5, 6, 9, 18}, 18, {.rank = 3, .kernel = {3, 2, 3}, .stride = {2, 1, 2}, .pad = {1, 1, 1}}, 18},
  };
  return all;
}
constexpr std::size_t wide = 10, slices = 11, first_depthwise = 12;

using Param = std::tuple<std::size_t, ConvMethod, DType, int>;
class ConvVariants : public ::testing::TestWithParam<Param> {
 protected:
  ~ConvVariants() override { cpu::set_thread_count(threads_); }
  const int threads_ = cpu::thread_count();
};

const char* name_of_method(ConvMethod method) {
  switch (method) {
    case ConvMethod::gemm_alone:
      return "gemm_alone";
    case ConvMethod::gemm_together:
      return "gemm_together";
    case ConvMethod::kn2row:
      return "kn2row";
    case ConvMethod::turned:
      return "turned";
    case ConvMethod::depthwise:
      return "depthwise";
    case ConvMethod::winograd_4:
      return "winograd";
    case ConvMethod::winograd_4_alone:
      return "winograd_alone";
    case ConvMethod::winograd_4_slices:
      return "winograd_slices";
    default:
      return "blocked";
  }
}

struct Expected {
  Values dst;
  reference::ConvGradients gradients;
};
// All methods get the same numbers, so these are computed once for each layer and type.
const Expected& expected(std::size_t index, DType dtype, const Values& x, const Values& w, const Values& dy) {
  static std::map<std::pair<std::size_t, DType>, Expected> known;
  const auto [entry, is_new] = known.try_emplace({index, dtype});
  const ConvSpec s = layers()[index].spec(dtype);
  if (is_new) entry->second = {reference::conv_forward(s, x, w, {}), reference::conv_backward(s, x, w, dy)};
  return entry->second;
}

TEST_P(ConvVariants, ForwardAndGradientsMatch) {
  const auto [index, method, dtype, threads] = GetParam();
  if (dtype == DType::bf16 && !cpu::onednn::has_bf16() && !cpu::is_winograd(method))
    GTEST_SKIP() << "this processor has no bf16";
  cpu::set_thread_count(threads);
  const ConvSpec s = layers()[index].spec(dtype);
  for (const GradMode mode : {GradMode::write, GradMode::add}) {
    OpHarness h(cpu::make_conv(s, {method, method, method, true, ""}));
    const Values x = h.set_src(0, s.src, dtype, random_values(s.src.count(), 1));
    const Values w = h.set_weight(0, s.weight(), dtype, random_values(s.weight().count(), 2));
    const Values dy = h.set_diff_dst(s.dst(), dtype, random_values(s.dst().count(), 3));
    h.want_dst(s.dst(), dtype);
    h.want_diff_src(0, s.src, dtype);
    const Values before = h.want_diff_weight(0, s.weight(), mode, random_values(s.weight().count(), 4));
    h.repack();
    for (int run = 0; run < 2; ++run) {  // a second run finds used memory
      h.forward();
      if (run == 0) h.backward();
    }
    Expected e = expected(index, dtype, x, w, dy);
    add(e.gradients.weight, before);
    const std::string how = h.op().implementation();
    const double most = dtype == DType::f32 ? 4e-6 : 6e-3;  // of the largest magnitude; results are rounded to bf16
    expect_close(get(h.args.dst), e.dst, most, "dst by " + how);
    expect_close(get(h.args.diff_src[0]), e.gradients.src, most, "diff_src by " + how);
    expect_close(get(h.args.diff_weight[0]), e.gradients.weight,
                 dtype == DType::f32 || method == ConvMethod::depthwise ? 8e-6 : 6e-3, "diff_weight by " + how);
  }
}

std::string name_of_case(const ::testing::TestParamInfo<Param>& info) {
  const auto [index, method, dtype, threads] = info.param;
  return fmt::format("{}_{}_{}_{}_threads", layers()[index].name, name_of_method(method), name_of(dtype), threads);
}

INSTANTIATE_TEST_SUITE_P(Layers, ConvVariants,
                         ::testing::Combine(::testing::Range<std::size_t>(0, wide),
                                            ::testing::Values(ConvMethod::gemm_alone, ConvMethod::gemm_together,
                                                              ConvMethod::blocked, ConvMethod::kn2row,
                                                              ConvMethod::winograd_4_alone),
                                            ::testing::Values(DType::f32, DType::bf16), ::testing::Values(1, 3)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Turned, ConvVariants,
                         ::testing::Combine(::testing::Range<std::size_t>(0, wide),
                                            ::testing::Values(ConvMethod::turned), ::testing::Values(DType::bf16),
                                            ::testing::Values(1, 3)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Winograd, ConvVariants,
                         ::testing::Combine(::testing::Values(wide),
                                            ::testing::Values(ConvMethod::winograd_4, ConvMethod::winograd_4_alone),
                                            ::testing::Values(DType::f32, DType::bf16), ::testing::Values(1, 3)),
                         name_of_case);

INSTANTIATE_TEST_SUITE_P(WinogradSlices, ConvVariants,
                         ::testing::Combine(::testing::Values(wide, slices),
                                            ::testing::Values(ConvMethod::winograd_4_slices),
                                            ::testing::Values(DType::f32, DType::bf16), ::testing::Values(1, 3, 40)),
                         name_of_case);

INSTANTIATE_TEST_SUITE_P(Depthwise, ConvVariants,
                         ::testing::Combine(::testing::Range(first_depthwise, layers().size()),
                                            ::testing::Values(ConvMethod::depthwise),
                                            ::testing::Values(DType::f32, DType::bf16), ::testing::Values(1, 3)),
                         name_of_case);

// oneDNN has no depthwise code for these, and computes them by groups.
TEST(ConvVariantsUsed, DepthwiseConvolutionsAreNeverComputedByGroups) {
  const Layer all[] = {{"signal", {2, 40, 16}, 16, {.rank = 1, .kernel = {3, 1, 1}, .pad = {1, 0, 0}}, 16},
                       {"tiny", {2, 2, 2, 16}, 16, {.kernel = {3, 3, 1}, .pad = {1, 1, 0}}, 16},
                       {"padded", {2, 9, 9, 16}, 16, {.kernel = {3, 3, 1}, .pad = {2, 2, 0}}, 16}};
  for (const Layer& l : all)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      if (!cpu::DepthwiseGeometry::supports(l.spec(dtype))) continue;
      const std::string how = cpu::make_conv(l.spec(dtype), {})->implementation();
      for (const char* groups : {"jit:", "jit_bf16:", "gemm", "emulated"})
        EXPECT_EQ(how.find(groups), std::string::npos) << l.name << ", " << name_of(dtype) << ": " << how;
    }
}

TEST(ConvVariantsUsed, AreNamedByTheOperation) {
  const auto text = [](const char* layer, ConvMethod method, DType dtype = DType::f32) {
    for (const Layer& l : layers())
      if (std::string(l.name) == layer)
        return cpu::make_conv(l.spec(dtype), {method, method, method, true, "; a note"})->implementation();
    return std::string();
  };
  EXPECT_NE(text("strided", ConvMethod::gemm_alone).find("im2col"), std::string::npos);
  EXPECT_NE(text("strided", ConvMethod::gemm_together).find("backward weights im2col"), std::string::npos);
  EXPECT_EQ(text("pointwise", ConvMethod::gemm_alone).find("im2col"), std::string::npos) << "nothing is gathered";
  if (cpu::DepthwiseGeometry::supports(layers()[first_depthwise].spec(DType::f32))) {
    EXPECT_EQ(text("images", ConvMethod::depthwise),
              "depthwise rows, backward data depthwise rows, backward weights depthwise rows; a note");
  }
  EXPECT_NE(text("pointwise", ConvMethod::gemm_alone).find("; a note"), std::string::npos);
  for (const char* layer : {"one_channel", "dilated", "wide_pad", "dense"}) {
    const std::string how = text(layer, ConvMethod::turned, DType::bf16);
    const bool is_native = how.find("emulated") == std::string::npos;
    EXPECT_EQ(how.find(" of turned weights") != std::string::npos, cpu::onednn::has_bf16() && is_native) << how;
  }
  if (cpu::onednn::tile_kernels() != &cpu::matmul::wide_tiles) return;  // other names without AVX-512
  EXPECT_NE(text("strided", ConvMethod::blocked).find("backward weights jit:avx512_core in blocks"), std::string::npos)
      << text("strided", ConvMethod::blocked);
}

TEST(ConvVariantsUsed, WinogradSharesWideTilesUnlessThreadsWorkAlone) {
  const cpu::matmul::TileKernels* kernels = cpu::onednn::tile_kernels();
  if (!kernels) GTEST_SKIP() << "no Winograd's filtering without AVX2";
  const int before = cpu::thread_count();
  for (const int threads : {1, 3}) {
    cpu::set_thread_count(threads);
    const auto text = [&](ConvMethod method) {
      return cpu::make_conv(layers()[wide].spec(DType::f32), {method, method, ConvMethod::direct, true, ""})
          ->implementation();
    };
    const std::string name = fmt::format("winograd F(4x4):{}", kernels->name),
                      alone = text(ConvMethod::winograd_4_alone), shared = text(ConvMethod::winograd_4);
    EXPECT_NE(alone.find(name), std::string::npos) << alone;
    EXPECT_NE(alone.find("backward data " + name), std::string::npos) << alone;
    EXPECT_EQ(alone.find("together"), std::string::npos) << alone;
    EXPECT_NE(shared.find(name + " together"), std::string::npos) << shared;
    EXPECT_NE(shared.find("backward data " + name + " together"), std::string::npos) << shared;
    const std::string slices = text(ConvMethod::winograd_4_slices);
    EXPECT_NE(slices.find(name + " by slices, backward data " + name + " by slices"), std::string::npos) << slices;
  }
  cpu::set_thread_count(before);
}

// The rules alone: what has many channels and few tiles, or bf16 on AMX.
TEST(ConvVariantsUsed, RulesChooseSlicesAndTurnedWeights) {
  const auto how = [](const Shape& src, std::int64_t out, DType dtype,
                      Window window = {.kernel = {3, 3, 1}, .pad = {1, 1, 0}}) {
    return cpu::make_conv(Layer{"", src, out, window}.spec(dtype), {})->implementation();
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  if (cpu::onednn::tile_kernels()) {
    EXPECT_TRUE(has(how({64, 4, 4, 512}, 512, DType::f32), "backward data winograd F(4x4):"));
    EXPECT_TRUE(has(how({64, 4, 4, 512}, 512, DType::f32), " by slices"));
    EXPECT_FALSE(has(how({300, 4, 4, 512}, 512, DType::f32), " by slices")) << "too many tiles";
    EXPECT_FALSE(has(how({64, 4, 4, 128}, 128, DType::f32), " by slices")) << "too few channels";
  }
  const char* turned = "of turned weights";
  EXPECT_EQ(has(how({64, 16, 16, 64}, 64, DType::bf16), turned), cpu::onednn::has_amx());
  EXPECT_FALSE(has(how({1, 16, 16, 64}, 64, DType::bf16), turned)) << "too few pixels";
  EXPECT_FALSE(has(how({64, 16, 16, 64}, 64, DType::f32), turned));
  EXPECT_FALSE(has(how({64, 16, 16, 64}, 64, DType::bf16, {.kernel = {3, 3, 1}, .stride = {2, 2, 1}, .pad = {1, 1, 0}}),
                   turned));
  EXPECT_FALSE(has(how({64, 16, 16, 64}, 64, DType::bf16, {.kernel = {1, 1, 1}}), turned));
}

}  // namespace conv_variants_test
}  // namespace millrace
