#include "cpu/common/ops.hpp"
#include "cpu/common/parallel.hpp"
#include "cpu/tokens/token_types.hpp"

namespace millrace::cpu {
namespace {

class Documents : public Op {
 public:
  explicit Documents(const DocumentsSpec& spec) : spec_(spec) {
    with_tokens(Tensor{nullptr, spec_.raw, {}}, [](auto) {});
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "openmp"; }
  void backward(const OpArgs&) override {}

  void forward(const OpArgs& args) override {
    with_tokens(args.src[0], [&](const auto* tokens) {
      const std::int64_t positions = spec_.positions();
      parallel_ranges(spec_.src[0], 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          std::int32_t start = 0;
          for (std::int64_t p = 0; p < positions; ++p) {
            args.dst.as<std::int32_t>()[row * positions + p] = start;
            if (std::int64_t(tokens[row * positions + p]) == spec_.separator) start = std::int32_t(p + 1);
          }
        }
      });
    });
  }

 private:
  DocumentsSpec spec_;
};

}  // namespace

std::unique_ptr<Op> make_documents(const DocumentsSpec& spec) { return std::make_unique<Documents>(spec); }

}  // namespace millrace::cpu
