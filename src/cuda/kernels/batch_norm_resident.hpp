// Batch norm in one kernel in each direction, for tensors that fit into the shared memory of all multiprocessors. A
// block reads its part once and keeps it there. When the sums of all blocks are known, it writes the result from there.
//
// The blocks wait for each other, so all must be resident at once (launch_together). A grid that is not larger than the
// device becomes resident when the kernels before it have ended; copies and kernels of one thread beside it end too. A
// kernel of NCCL beside it would not: its blocks wait for those of other ranks, some of them might find no room beside
// blocks that wait here, and those here no room beside them. So the backend refuses these kernels with several ranks.
#pragma once
#include "cuda/kernels/batch_norm_kernels.hpp"

namespace millrace::cuda::batch_norm {

// Packs that a thread keeps in shared memory: get() returns them in the order of put().
template <class T>
class Kept {
 public:
  template <class Block>
  MR_DEVICE_INLINE Kept(Block& block, const Layout& l, std::size_t at)
      : first_(reinterpret_cast<Raw<T>*>(block.template shared<unsigned char>() + at) + block.thread()),
        at_(first_),
        stride_(l.lanes * l.tile) {}
  MR_DEVICE_INLINE void put(const Raw<T>& raw) { *next() = raw; }
  MR_DEVICE_INLINE Raw<T> get() { return *next(); }
  MR_DEVICE_INLINE void rewind() { at_ = first_; }

 private:
  MR_DEVICE_INLINE Raw<T>* next() {
    Raw<T>* const at = at_;
    at_ += stride_;
    return at;
  }
  Raw<T>*const first_, *at_;
  const int stride_;
};

// Waits until the sums of the channels of the block's tile are known. finished: this block has computed them.
template <class Block>
MR_DEVICE_INLINE void meet(Block& block, unsigned* gate, unsigned before, bool finished) {
  if (finished)
    block.open(gate);
  else
    block.pass(gate, before);
}
template <class Block>
MR_DEVICE_INLINE unsigned* gate_of(const Block& block, const Layout& l, const SumTree& t) {
  return t.gates + (l.width == l.channels ? unsigned(block.index()) % unsigned(l.tiles) : 0);
}

template <class T, bool has_residual>
struct ResidentForward {
  Statistics<T> statistics;
  Normalise<T, has_residual> normalise;
  std::size_t kept_at;  // in shared memory

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const Layout& l = statistics.l;
    unsigned* const gate = gate_of(block, l, statistics.tree);
    const unsigned before = block.gate(gate);
    Kept<T> x(block, l, kept_at);
    const bool finished = statistics.template sum_up<at_once<T, has_residual ? 2 : 1>, false>(
        block, [&](const Raw<T>& raw) { x.put(raw); });
    meet(block, gate, before, finished);
    x.rewind();
    normalise.write(block, [&](std::int64_t, int) { return x.get(); });
  }
};

template <class T, bool masked>
struct ResidentBackward {
  GradientSums<T, masked> sums;
  Gradient<T, masked> gradient;
  std::size_t kept_at, x_at;  // of diff_dst and of x in shared memory

  template <class Block>
  MR_DEVICE_INLINE void operator()(Block& block) const {
    const Layout& l = sums.l;
    unsigned* const gate = gate_of(block, l, sums.tree);
    const unsigned before = block.gate(gate);
    Kept<T> dy(block, l, kept_at), x(block, l, x_at);
    const bool finished = sums.template sum_up<false>(block, [&](const Gradients<T>& in) {
      dy.put(in.dy);
      x.put(in.x);
    });
    meet(block, gate, before, finished);
    dy.rewind();
    x.rewind();
    const std::uint8_t* const bits = sums.inputs.bits;
    gradient.write(block, [&](std::int64_t e, int) {
      return Gradients<T>{dy.get(), x.get(), masked ? bits[e / pack] : 0xffu};
    });
  }
};

}  // namespace millrace::cuda::batch_norm
