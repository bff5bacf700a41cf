// A convolution that shares values with the norms around it, chunk by chunk: what a norm would read from memory again
// is read while the chunk is in the cache. It normalises its source into a buffer, and sums up its result for the norm
// behind it. In the backward pass it computes the gradient of that norm into a buffer, and the gradient sums of the
// norm before it. Results that the norms read later go to memory past the caches. Each thread computes chunks of its
// own.
//
// Sums are computed in double and added in the order of the chunks, which depend only on the Spec. The gradients of the
// weights are added up in parts, whose number depends on the number of threads.
#include <cstring>
#include <vector>

#include "cpu/common/ops.hpp"
#include "cpu/common/stream.hpp"
#include "cpu/fused_conv/chunk_memory.hpp"
#include "cpu/norm/norm_rows.hpp"

namespace millrace::cpu {
namespace {

using Place = ConvChunks::Place;
using batch_norm::rows_of;

void check(const ConvSpec& s) {
  if (s.mode == Mode::infer || (s.produces_diff_sums && !s.need_diff_src))
    fail(Exit::config, "conv {}: cannot compute the sums of a batch norm without a backward pass. use fusion level 1",
         s.src.str());
  if (s.normalises_src && !s.produces_diff_sums)
    fail(Exit::config, "conv {}: only a convolution that computes the gradient sums of a norm can apply it",
         s.src.str());
}

// The ops of one thread: of the chunks, and of the last one. Null: it is like the others.
struct ThreadOps {
  std::unique_ptr<Op> chunk, last;
};

class ChunkedConv : public Op {
 public:
  ChunkedConv(const ConvSpec& spec, const std::function<std::unique_ptr<Op>(const ConvSpec&)>& make)
      : spec_(spec), chunks_(spec) {
    const int threads = thread_count();
    const bool same = chunks_.spec(false).src == chunks_.spec(true).src;
    for (int i = 0; i < threads; ++i) {
      const Alone alone;
      ops_.push_back({make(chunks_.spec(false)), same ? nullptr : make(chunks_.spec(true))});
    }
    memory_ = ChunkMemory(spec_, chunks_, threads, ops_[0].chunk->memory_requirements(),
                          same ? MemoryRequirements{} : ops_[0].last->memory_requirements());
  }

  MemoryRequirements memory_requirements() const override { return memory_.needs; }
  std::string implementation() const override {
    return ops_[0].chunk->implementation() + ", " + std::to_string(chunks_.count()) + " chunks with norms";
  }
  WorkShare work_share() const override { return ops_[0].chunk->work_share(); }
  void repack(const OpArgs& args) override {
    const Alone alone;
    ops_[0].chunk->repack(args);
    if (ops_[0].last) ops_[0].last->repack(of_last(args));
  }

  void forward(const OpArgs& args) override {
    parallel_ranges(chunks_.groups(), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t group = begin; group < end; ++group)
        for (std::int64_t i = 0; i < chunks_.of_group(); ++i) forward(args, group, i);
    });
    if (!spec_.produces_sums) return;
    const std::int64_t channels = spec_.out_channels;
    float* to = args.sums.as<float>();
    add_up(args, channels, [&](std::int64_t i, double total) {
      to[i] = float(total);
      if (args.sums.shape[0] == 4) to[2 * channels + i] = float(total - double(float(total)));
    });
  }

  void backward(const OpArgs& args) override {
    parallel_ranges(memory_.parts, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t part = begin; part < end; ++part) {
        const std::int64_t first = chunks_.groups() * part / memory_.parts,
                           behind = chunks_.groups() * (part + 1) / memory_.parts;
        for (std::int64_t group = first; group < behind; ++group)
          for (std::int64_t i = 0; i < chunks_.of_group(); ++i)
            backward(args, group, i, part, group == first && i == 0);
      }
    });
    add_weight_gradients(args);
    if (!spec_.produces_diff_sums || !args.diff_src[0]) return;
    const std::int64_t channels = spec_.src[-1];
    const float* inverse = args.moments.as<float>() + channels;
    float* to = args.diff_sums.as<float>();
    add_up(args, channels,
           [&](std::int64_t i, double total) { to[i] = float(i < channels ? total * double(inverse[i]) : total); });
  }

 private:
  bool by_lines() const { return chunks_.of_group() > 1; }
  static std::byte* at(const OpArgs& args, std::size_t offset) {
    return static_cast<std::byte*>(args.workspace) + offset;
  }
  std::byte* of_thread(const OpArgs& args, std::size_t offset) const {
    return at(args, std::size_t(thread_number()) * memory_.thread_bytes + offset);
  }
  // A buffer of the thread, as rows of so many channels.
  Tensor buffer(const OpArgs& args, std::size_t offset, std::int64_t rows, std::int64_t channels) const {
    return {of_thread(args, offset), spec_.dtype, {rows, channels}};
  }
  double* sums_of(const OpArgs& args, std::int64_t chunk, std::int64_t channels) const {
    return reinterpret_cast<double*>(at(args, memory_.sums_at)) + chunk * 2 * channels;
  }
  float* weights_of(const OpArgs& args, std::int64_t part, std::size_t w) const {
    return reinterpret_cast<float*>(at(args, memory_.weights_at + std::size_t(part) * memory_.part_bytes)) +
           (w == 0 ? 0 : memory_.weight_count[0]);
  }
  OpArgs of_last(OpArgs args) const {
    args.packed_weights = static_cast<std::byte*>(args.packed_weights) + memory_.last_weights_at;
    return args;
  }
  void run(const Place& p, void (Op::*pass)(const OpArgs&), const OpArgs& of) {
    ThreadOps& ops = ops_[std::size_t(thread_number())];
    Op& op = p.last && ops.last ? *ops.last : *ops.chunk;
    const Alone alone;
    (op.*pass)(of);
  }

  // The args of the op of a chunk. All tensors are those of the chunk; which of them are in buffers is not decided yet.
  OpArgs of_chunk(const OpArgs& args, const Place& p) const {
    OpArgs of = p.last && ops_[0].last ? of_last(args) : args;
    const ConvSpec& s = chunks_.spec(p.last);
    of.workspace = of_thread(args, 0);
    for (auto [to, from, shape, row] : {std::tuple{&of.src[0], &args.src[0], s.src, p.src},
                                        {&of.diff_src[0], &args.diff_src[0], s.src, p.src},
                                        {&of.dst, &args.dst, s.dst(), p.dst},
                                        {&of.diff_dst, &args.diff_dst, s.dst(), p.dst}}) {
      *to = rows_of(*from, row, 0);
      to->shape = shape;
    }
    return of;
  }

  // The part of the buffer for the source that is not padding. Writes zeros to the rest.
  Tensor source_buffer(const OpArgs& args, const Place& p) const {
    const Tensor all = buffer(args, memory_.src_at, p.above + p.rows + p.below, spec_.src[-1]);
    for (const Tensor& padding : {rows_of(all, 0, p.above), rows_of(all, p.above + p.rows, p.below)})
      std::memset(padding.data, 0, padding.bytes());
    return rows_of(all, p.above, p.rows);
  }
  void* copied(const OpArgs& args, const Place& p) const {
    const Tensor to = source_buffer(args, p);
    std::memcpy(to.data, rows_of(args.src[0], p.src, p.rows).data, to.bytes());
    return of_thread(args, memory_.src_at);
  }
  // The result of the norm before this convolution.
  void* normalised(const OpArgs& args, const Tensor& whole, const Place& p, std::uint32_t* bits) const {
    const std::int64_t channels = spec_.src[-1];
    const Tensor to = source_buffer(args, p);
    const float* mean = args.moments.as<float>();
    batch_norm::normalise_rows(
        to, rows_of(whole, p.src, p.rows),
        {mean, mean + channels, args.weight[2].as<float>(), args.weight[3].as<float>(), spec_.norm_activation}, bits);
    return of_thread(args, memory_.src_at);
  }

  void forward(const OpArgs& args, std::int64_t group, std::int64_t index) {
    const Place p = chunks_.place(group, index);
    OpArgs of = of_chunk(args, p);
    if (spec_.normalises_src)
      of.src[0].data = normalised(args, args.src[0], p, nullptr);
    else if (by_lines())
      of.src[0].data = copied(args, p);
    void* const to = of.dst.data;
    if (spec_.produces_sums) of.dst.data = of_thread(args, memory_.dst_at);
    run(p, &Op::forward, of);
    if (!spec_.produces_sums) return;
    double* sums = sums_of(args, group * chunks_.of_group() + index, spec_.out_channels);
    batch_norm::sum_rows(of.dst, sums, sums + spec_.out_channels);
    stream_copy(to, of.dst.data, of.dst.bytes());
  }

  void backward(const OpArgs& args, std::int64_t group, std::int64_t index, std::int64_t part, bool first_of_part) {
    const Place p = chunks_.place(group, index);
    OpArgs of = of_chunk(args, p);
    auto* bits = reinterpret_cast<std::uint32_t*>(of_thread(args, memory_.bits_at));
    if (spec_.produces_diff_sums) {
      void* const y = normalised(args, args.norm_src, p, bits);
      if (spec_.normalises_src) of.src[0].data = y;
    }
    if (by_lines() && !spec_.normalises_src) of.src[0].data = copied(args, p);
    if (spec_.normalises_diff_dst) {
      const std::int64_t k = spec_.out_channels;
      const float* of_norm = args.diff_affine.as<float>();
      const Tensor g = of.diff_dst;
      of.diff_dst.data = of_thread(args, memory_.dst_at);
      batch_norm::gradient_rows(of.diff_dst, g, of.dst, {of_norm, of_norm + k, of_norm + 2 * k, of_norm + 3 * k});
    }
    for (std::size_t w = 0; w < 2; ++w) {
      if (!args.diff_weight[w]) continue;
      if (memory_.parts > 1) of.diff_weight[w].data = weights_of(args, part, w);
      of.mode[w] = !first_of_part ? GradMode::add : memory_.parts > 1 ? GradMode::write : args.mode[w];
    }
    const bool unfinished = (spec_.produces_diff_sums || by_lines()) && args.diff_src[0];
    if (unfinished) of.diff_src[0].data = of_thread(args, memory_.diff_src_at);
    run(p, &Op::backward, of);
    if (unfinished) finish_gradient(args, p, group, index, bits);
  }

  // The gradient of the source is in its buffer. Adds what the chunk before has computed of it, keeps what the next one
  // will complete, and writes the rest.
  void finish_gradient(const OpArgs& args, const Place& p, std::int64_t group, std::int64_t index,
                       const std::uint32_t* bits) {
    const std::int64_t channels = spec_.src[-1], shared = chunks_.shared_rows();
    const Tensor all = buffer(args, memory_.diff_src_at, p.above + p.rows + p.below, channels);
    const Tensor kept = buffer(args, memory_.shared_at, shared, channels);
    if (index > 0) batch_norm::add_rows(rows_of(all, 0, shared), kept);
    if (index + 1 < chunks_.of_group())
      std::memcpy(kept.data, rows_of(all, all.shape[0] - shared, shared).data, kept.bytes());
    const Tensor g = rows_of(all, p.above, p.final_rows);
    if (spec_.produces_diff_sums) {
      double* product = sums_of(args, group * chunks_.of_group() + index, channels);
      batch_norm::pass_gradient_rows(g, rows_of(args.norm_src, p.src, p.final_rows), bits, args.moments.as<float>(),
                                     product + channels, product);
    }
    stream_copy(rows_of(args.diff_src[0], p.src, p.final_rows).data, g.data, g.bytes());
  }

  // Calls store(i, total) for both sums of each channel.
  template <class Store>
  void add_up(const OpArgs& args, std::int64_t channels, const Store& store) const {
    double* const total = sums_of(args, 0, channels);
    for (std::int64_t chunk = 1; chunk < chunks_.count(); ++chunk) {
      const double* more = sums_of(args, chunk, channels);
      for (std::int64_t i = 0; i < 2 * channels; ++i) total[i] += more[i];
    }
    for (std::int64_t i = 0; i < 2 * channels; ++i) store(i, total[i]);
  }

  void add_weight_gradients(const OpArgs& args) const {
    if (memory_.parts == 1) return;
    for (std::size_t w = 0; w < 2; ++w) {
      if (!args.diff_weight[w]) continue;
      float* to = args.diff_weight[w].as<float>();
      parallel_ranges(memory_.weight_count[w], 4096, [&](std::int64_t begin, std::int64_t end) {
        if (args.mode[w] == GradMode::write) std::fill(to + begin, to + end, 0.0f);
        for (std::int64_t part = 0; part < memory_.parts; ++part)
          add(to + begin, to + begin, weights_of(args, part, w) + begin, end - begin);
      });
    }
  }

  ConvSpec spec_;
  ConvChunks chunks_;
  std::vector<ThreadOps> ops_;
  ChunkMemory memory_;
};

}  // namespace

std::unique_ptr<Op> make_chunked_conv(const ConvSpec& spec,
                                      const std::function<std::unique_ptr<Op>(const ConvSpec&)>& make) {
  check(spec);
  return std::make_unique<ChunkedConv>(spec, make);
}

}  // namespace millrace::cpu
