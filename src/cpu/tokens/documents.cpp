#include "cpu/common/ops.hpp"
#include "cpu/common/parallel.hpp"
#include "cpu/common/tile.hpp"
#include "cpu/tokens/token_types.hpp"

namespace millrace::cpu {
namespace {

class Documents : public Op {
 public:
  explicit Documents(const DocumentsSpec& spec) : spec_(spec) {
    with_tokens(Tensor{nullptr, spec_.raw, {}}, [](auto) {});
    if (spec_.kind == DocumentsSpec::Kind::last) dispatch_dtype(spec_.dtype, [](auto) {});
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "threads"; }
  void backward(const OpArgs&) override {}

  void forward(const OpArgs& args) override {
    with_tokens(args.src[0], [&](const auto* tokens) {
      parallel_ranges(spec_.src[0], 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          const std::int64_t at = row * spec_.positions();
          if (spec_.kind == DocumentsSpec::Kind::begins) find_begins(tokens + at, args.dst.as<std::int32_t>() + at);
          if (spec_.kind == DocumentsSpec::Kind::counts) count_tokens(tokens + at, args.dst.as<std::int32_t>() + at);
          if (spec_.kind == DocumentsSpec::Kind::last) mark_last(tokens + at, args.dst, at);
        }
      });
    });
  }

 private:
  template <class Token>
  bool separates(Token token) const {
    return std::int64_t(token) == spec_.separator;
  }
  template <class Token>
  void find_begins(const Token* tokens, std::int32_t* to) const {
    std::int32_t start = 0;
    for (std::int64_t p = 0; p < spec_.positions(); ++p) {
      to[p] = start;
      if (separates(tokens[p])) start = std::int32_t(p + 1);
    }
  }
  template <class Token>
  void count_tokens(const Token* tokens, std::int32_t* to) const {
    std::int32_t count = std::int32_t(spec_.first);
    for (std::int64_t p = 0; p < spec_.positions(); ++p)
      to[p] = separates(tokens[p]) ? std::int32_t(spec_.first) : ++count;
  }
  template <class Token>
  void mark_last(const Token* tokens, const Tensor& to, std::int64_t begin) const {
    std::int64_t last = spec_.positions() - 1;
    while (last > 0 && separates(tokens[last])) --last;
    Tile tile;
    for (std::int64_t p = 0; p < spec_.positions(); p += tile_count) {
      const std::int64_t n = std::min(tile_count, spec_.positions() - p);
      float* const out = float_target(to, begin + p, tile);
      for (std::int64_t i = 0; i < n; ++i) out[i] = p + i == last ? 1.0f : 0.0f;
      write_floats(to, begin + p, n, out);
    }
  }

  DocumentsSpec spec_;
};

}  // namespace

std::unique_ptr<Op> make_documents(const DocumentsSpec& spec) { return std::make_unique<Documents>(spec); }

}  // namespace millrace::cpu
