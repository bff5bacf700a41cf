#include "cpu/conv_variants/gemm_conv.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

namespace millrace::cpu {
namespace {

constexpr std::int64_t alone_bytes = 256 << 10, together_bytes = 4 << 20;  // of the gathered rows of a block
constexpr std::int64_t least_rows = 256;                                   // for which reading the weights pays off
constexpr std::int64_t gradient_rows = 512;  // for which reading and writing the gradient of the weights pays off

std::int64_t rows_of_block(const Im2col& matrix, std::int64_t element, bool together, std::int64_t least) {
  const std::int64_t rows = (together ? together_bytes : alone_bytes) / (matrix.depth() * element) / 16 * 16;
  if (matrix.is_source() && (together || thread_count() == 1)) return std::max<std::int64_t>(1, matrix.rows());
  return std::clamp<std::int64_t>(std::max(rows, least), 1, std::max<std::int64_t>(1, matrix.rows()));
}

void gather_together(const Im2col& matrix, const void* src, std::int64_t begin, std::int64_t end, void* to,
                     std::int64_t row_bytes) {
  parallel_ranges(end - begin, 16, [&](std::int64_t first, std::int64_t last) {
    matrix.gather(src, begin + first, begin + last, static_cast<char*>(to) + first * row_bytes);
  });
}

// Gradients of weights: oneDNN's of 1x1 kernels take two to ten times as long. With few channels all methods wait for
// memory.
bool is_faster_weight_gradient(const ConvSpec& s, bool one_tap) {
  const bool strided = std::ranges::any_of(s.window.stride, [](std::int64_t stride) { return stride > 1; });
  return s.src[-1] >= 32 && (one_tap || strided);
}

}  // namespace

// Measured on a processor with AMX: docs/benchmarks/2026-11-choice.md.
std::optional<ConvMethod> gemm_by_rule(const ConvSpec& s, ConvPass pass) {
  constexpr std::int64_t second_level_cache = 2 << 20, most_values_alone = 32 << 10;
  if (s.dtype != DType::bf16 || !onednn::has_amx()) return {};
  if (!GemmConv::supports(s, pass == ConvPass::data ? ConvPart::Of::data : ConvPart::Of::forward)) return {};
  const std::int64_t taps = ConvAxes(s).taps(), values = taps * s.src[-1] * s.out_channels;
  const std::int64_t pixels = s.dst().count() / std::max<std::int64_t>(1, s.dst()[0] * s.out_channels);
  const bool faster = pass == ConvPass::weights ? is_faster_weight_gradient(s, taps == 1)
                      : pass == ConvPass::data  ? s.out_channels >= 32
                                                : taps == 1 && pixels <= 16 && 2 * values >= second_level_cache;
  if (!faster) return {};
  const bool alone = thread_count() == 1 || (pass == ConvPass::weights && values <= most_values_alone);
  return alone ? ConvMethod::gemm_alone : ConvMethod::gemm_together;
}

bool GemmConv::supports(const ConvSpec& s, Of of) {
  return s.groups == 1 && !s.bias && (of == Of::forward || Im2col(s).is_source());
}

GemmConv::GemmConv(const ConvSpec& s, Of of, bool together, MemoryRequirements& needs)
    : matrix_(s),
      forward_(of == Of::forward),
      together_(together),
      gathers_(!matrix_.is_source()),
      in_bytes_((forward_ ? matrix_.depth() : s.out_channels) * std::int64_t(size_of(s.dtype))),
      out_bytes_((forward_ ? s.out_channels : matrix_.depth()) * std::int64_t(size_of(s.dtype))),
      block_(rows_of_block(matrix_, std::int64_t(size_of(s.dtype)), together, least_rows)) {
  const std::int64_t in = forward_ ? matrix_.depth() : s.out_channels,
                     out = forward_ ? s.out_channels : matrix_.depth();
  const auto canonical = onednn::strided({in, out}, s.dtype, forward_ ? onednn::dims{1, in} : onednn::dims{out, 1});
  const std::int64_t threads = together ? 1 : thread_count();
  std::optional<Alone> alone;
  if (!together) alone.emplace();
  const auto rows_of = [&](std::int64_t rows, std::int64_t width) { return onednn::plain({rows, width}, s.dtype); };
  onednn::desc packed = canonical;  // FloatMatmul reads no layouts of oneDNN
  if (s.dtype != DType::f32 || !onednn::prefers_float_matmul())
    packed =
        onednn::matmul(rows_of(block_, in), onednn::any({in, out}, s.dtype), {}, rows_of(block_, out)).weights_desc();
  std::size_t scratch = 0;
  const auto add = [&](std::vector<onednn::Call>& to, std::int64_t rows) {
    to.push_back(onednn::matmul_call(rows_of(rows, in), packed, {}, rows_of(rows, out)));
    scratch = std::max(scratch, to.back().scratch_bytes());
  };
  weight_ = PackedWeight(canonical, packed, needs);
  for (std::int64_t t = 0; t < threads; ++t) {
    add(products_, block_);
    if (matrix_.rows() % block_ > 0) add(last_, matrix_.rows() % block_);
  }
  rows_at_ = align64(scratch);
  thread_bytes_ = rows_at_ + (gathers_ ? align64(std::size_t(block_ * in_bytes_)) : 0);
  workspace_ = std::max(thread_bytes_ * std::size_t(threads), weight_.scratch_bytes());
}

std::string GemmConv::implementation() const {
  return fmt::format("{}{}{}", gathers_ ? "im2col, " : "", products_.front().name(), together_ ? " together" : "");
}

void GemmConv::run_block(const OpArgs& args, std::int64_t begin, std::int64_t end) {
  const auto thread = std::size_t(together_ ? 0 : thread_number());
  char* memory = static_cast<char*>(args.workspace) + thread_bytes_ * thread;
  char* from = (forward_ ? args.src[0] : args.diff_dst).as<char>();
  char* rows = gathers_ ? memory + rows_at_ : from + begin * in_bytes_;
  if (gathers_ && together_)
    gather_together(matrix_, from, begin, end, rows, in_bytes_);
  else if (gathers_)
    matrix_.gather(from, begin, end, rows);
  onednn::Call& call = (end - begin == block_ ? products_ : last_)[thread];
  call.bind(DNNL_ARG_SRC, rows);
  call.bind(DNNL_ARG_WEIGHTS, weight_.data(args));
  call.bind(DNNL_ARG_DST, (forward_ ? args.dst : args.diff_src[0]).as<char>() + begin * out_bytes_);
  call.bind_scratch(memory);
  call.run();
}

void GemmConv::run(const OpArgs& args) {
  const auto blocks = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t first = begin; first < end; first += block_)
      run_block(args, first, std::min(end, first + block_));
  };
  together_ ? blocks(0, matrix_.rows()) : parallel_ranges(matrix_.rows(), block_, blocks);
}

GemmWeightGradient::GemmWeightGradient(const ConvSpec& s, bool together)
    : matrix_(s),
      together_(together),
      gathers_(!matrix_.is_source()),
      out_(s.out_channels),
      element_(std::int64_t(size_of(s.dtype))),
      block_(rows_of_block(matrix_, element_, together, gradient_rows)) {
  const std::int64_t blocks = (matrix_.rows() + block_ - 1) / block_;
  parts_ = together ? 1 : std::clamp<std::int64_t>(thread_count(), 1, std::max<std::int64_t>(1, blocks));
  std::optional<Alone> alone;
  if (!together) alone.emplace();
  std::size_t scratch = 0;
  const auto add = [&](std::vector<Products>& to, std::int64_t rows) {
    const auto diff = onednn::strided({out_, rows}, s.dtype, {1, out_}),
               matrix = onednn::plain({rows, matrix_.depth()}, s.dtype),
               gradient = onednn::plain({out_, matrix_.depth()}, DType::f32);
    to.push_back({onednn::matmul_call(diff, matrix, {}, gradient),
                  onednn::matmul_call(diff, matrix, {}, gradient, Activation::none, true)});
    scratch = std::max({scratch, to.back().write.scratch_bytes(), to.back().add.scratch_bytes()});
  };
  for (std::int64_t p = 0; p < parts_; ++p) {
    add(products_, block_);
    if (matrix_.rows() % block_ > 0) add(last_, matrix_.rows() % block_);
  }
  rows_at_ = align64(scratch);
  part_bytes_ = rows_at_ + (gathers_ ? align64(std::size_t(block_ * matrix_.depth() * element_)) : 0);
  sums_at_ = part_bytes_ * std::size_t(parts_);
  const std::size_t sums = parts_ > 1 ? std::size_t(parts_) : 0;
  workspace_ = sums_at_ + sums * align64(std::size_t(out_ * matrix_.depth()) * sizeof(float));
}

std::string GemmWeightGradient::implementation() const {
  return fmt::format("{}{}{}", gathers_ ? "im2col, " : "", products_.front().write.name(),
                     together_ ? " together" : "");
}

// to: the gradient, or the sum of the part that is running.
void GemmWeightGradient::add_block(const OpArgs& args, std::int64_t begin, std::int64_t end, bool add, float* to) {
  const auto part = std::size_t(parts_ > 1 ? thread_number() : 0);
  char* memory = static_cast<char*>(args.workspace) + part_bytes_ * part;
  const std::int64_t row_bytes = matrix_.depth() * element_;
  char* src = args.src[0].as<char>();
  char* rows = gathers_ ? memory + rows_at_ : src + begin * row_bytes;
  if (gathers_ && together_)
    gather_together(matrix_, src, begin, end, rows, row_bytes);
  else if (gathers_)
    matrix_.gather(src, begin, end, rows);
  Products& products = (end - begin == block_ ? products_ : last_)[part];
  onednn::Call& call = add ? products.add : products.write;
  call.bind(DNNL_ARG_SRC, args.diff_dst.as<char>() + begin * out_ * element_);
  call.bind(DNNL_ARG_WEIGHTS, rows);
  call.bind(DNNL_ARG_DST, to);
  call.bind_scratch(memory);
  call.run();
}

void GemmWeightGradient::run(const OpArgs& args) {
  if (!args.diff_weight[0]) return;
  if (parts_ > 1) return run_alone(args);
  for (std::int64_t first = 0; first < matrix_.rows(); first += block_)
    add_block(args, first, std::min(matrix_.rows(), first + block_), first > 0 || args.mode[0] == GradMode::add,
              args.diff_weight[0].as<float>());
}

// The blocks of a part do not depend on the threads that are free, so neither does the order of the sums.
void GemmWeightGradient::run_alone(const OpArgs& args) {
  const std::int64_t count = out_ * matrix_.depth(),
                     step = std::int64_t(align64(std::size_t(count) * sizeof(float))) / 4;
  float* sums = static_cast<float*>(at(args.workspace, sums_at_));
  const std::int64_t blocks = (matrix_.rows() + block_ - 1) / block_;
  parallel_ranges(parts_, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      const std::int64_t first = blocks * part / parts_, last = blocks * (part + 1) / parts_;
      for (std::int64_t b = first; b < last; ++b)
        add_block(args, b * block_, std::min(matrix_.rows(), (b + 1) * block_), b > first, sums + part * step);
    }
  });
  float* to = args.diff_weight[0].as<float>();
  const bool add = args.mode[0] == GradMode::add;
  parallel_ranges(count, 4096, [&](std::int64_t begin, std::int64_t end) {
    if (!add) std::copy(sums + begin, sums + end, to + begin);
    for (std::int64_t part = add ? 0 : 1; part < parts_; ++part)
      for (std::int64_t i = begin; i < end; ++i) to[i] += sums[part * step + i];
  });
}

}  // namespace millrace::cpu
