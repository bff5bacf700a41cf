// Finds where documents begin, counts tokens, or marks the last one. A block handles a row, and each of its threads
// some neighbouring positions.
#include "cuda/block/dispatch_dtype.hpp"
#include "cuda/block/vectorized_loop.hpp"
#include "cuda/kernels/kernels.hpp"

namespace millrace::cuda {
namespace {

template <class Token>
struct FindStarts {
  std::int32_t* dst;
  const Token* tokens;
  int positions, of_thread, separator;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    int* const starts = block.template shared<int>();
    const int begin = block.thread() * of_thread, end = begin + of_thread < positions ? begin + of_thread : positions;
    const std::int64_t row = block.index() * positions;
    int start = 0;  // after the last separator of this thread's positions
    for (int p = begin; p < end; ++p)
      if (int(tokens[row + p]) == separator) start = p + 1;
    starts[block.thread()] = start;
    block.sync();
    start = 0;
    for (int t = 0; t < block.thread(); ++t) start = starts[t] > start ? starts[t] : start;
    for (int p = begin; p < end; ++p) {
      dst[row + p] = start;
      if (int(tokens[row + p]) == separator) start = p + 1;
    }
  }
};

template <class Token>
struct CountTokens {
  std::int32_t* dst;
  const Token* tokens;
  int positions, of_thread, separator, first;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    int* const counts = block.template shared<int>();
    const int begin = block.thread() * of_thread, end = begin + of_thread < positions ? begin + of_thread : positions;
    const std::int64_t row = block.index() * positions;
    int count = 0;
    for (int p = begin; p < end; ++p) count += int(tokens[row + p]) != separator;
    counts[block.thread()] = count;
    block.sync();
    count = first;
    for (int t = 0; t < block.thread(); ++t) count += counts[t];
    for (int p = begin; p < end; ++p) {
      const bool counted = int(tokens[row + p]) != separator;
      count += counted;
      dst[row + p] = counted ? count : first;
    }
  }
};

template <class T, class Token>
struct MarkLast {
  T* dst;
  const Token* tokens;
  int positions, of_thread, separator;

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    int* const lasts = block.template shared<int>();
    const int begin = block.thread() * of_thread, end = begin + of_thread < positions ? begin + of_thread : positions;
    const std::int64_t row = block.index() * positions;
    int last = 0;
    for (int p = begin; p < end; ++p)
      if (int(tokens[row + p]) != separator) last = p;
    lasts[block.thread()] = last;
    block.sync();
    for (int t = 0; t < block.threads(); ++t) last = lasts[t] > last ? lasts[t] : last;
    for (int p = begin; p < end; ++p) dst[row + p] = narrow<T>(p == last ? 1.0f : 0.0f);
  }
};

class Documents : public Op {
 public:
  Documents(const DocumentsSpec& spec, const LaunchContext& context) : spec_(spec), context_(context) {
    if (spec_.positions() > max_index)
      fail(Exit::config, "documents: rows of {} tokens are longer than the kernels can index. lower data.window",
           spec_.positions());
    with_tokens(nullptr, [](auto) {});
    if (spec_.kind == DocumentsSpec::Kind::last) dispatch_dtype(spec_.dtype, [](auto) {});
  }
  MemoryRequirements memory_requirements() const override { return {}; }
  std::string implementation() const override { return "kernel"; }
  void backward(const OpArgs&) override {}

  void forward(const OpArgs& args) override {
    with_tokens(args.src[0].data, [&](const auto* tokens) {
      const int positions = int(spec_.positions()), of_thread = (positions + each_threads - 1) / each_threads,
                separator = int(spec_.separator);
      if (spec_.kind == DocumentsSpec::Kind::begins)
        run(FindStarts{args.dst.as<std::int32_t>(), tokens, positions, of_thread, separator});
      else if (spec_.kind == DocumentsSpec::Kind::counts)
        run(CountTokens{args.dst.as<std::int32_t>(), tokens, positions, of_thread, separator, int(spec_.first)});
      else
        dispatch_dtype(spec_.dtype, [&](auto zero) {
          run(MarkLast{args.dst.as<decltype(zero)>(), tokens, positions, of_thread, separator});
        });
    });
  }

 private:
  template <class Kernel>
  void run(const Kernel& kernel) const {
    launch(context_, spec_.src[0], each_threads, each_threads * sizeof(int), kernel);
  }
  template <class Body>
  void with_tokens(const void* tokens, const Body& body) const {
    if (spec_.raw == DType::u8) return body(static_cast<const std::uint8_t*>(tokens));
    if (spec_.raw == DType::u16) return body(static_cast<const std::uint16_t*>(tokens));
    if (spec_.raw == DType::i32) return body(static_cast<const std::int32_t*>(tokens));
    fail(Exit::config, "documents: {} values cannot be tokens. use uint8, uint16 or int32", name_of(spec_.raw));
  }

  DocumentsSpec spec_;
  LaunchContext context_;
};

}  // namespace

std::unique_ptr<Op> make_documents(const DocumentsSpec& spec, const LaunchContext& context) {
  return std::make_unique<Documents>(spec, context);
}

}  // namespace millrace::cuda
