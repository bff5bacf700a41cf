// Fibers for the blocks of src/cuda's kernels on the host.
#include <ucontext.h>

#include <cstring>
#include <memory>

#include "../../src/cuda/block.hpp"
#include "millrace/base/error.hpp"

namespace millrace::cuda {
namespace {

constexpr std::size_t stack_bytes = 64 << 10;

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack{new char[stack_bytes]};
  bool done = false;
};

// Kept from block to block: stacks are costly to make.
struct Fibers {
  std::vector<std::unique_ptr<Fiber>> all;
  ucontext_t scheduler;
  const std::function<void()>* body = nullptr;
  int current = 0;
};
thread_local Fibers fibers;

void fiber_main() {
  Fibers& f = fibers;
  Fiber& mine = *f.all[std::size_t(f.current)];
  (*f.body)();
  mine.done = true;
  swapcontext(&mine.context, &f.scheduler);
}

}  // namespace

HostBlock::HostBlock(std::int64_t index, std::int64_t blocks, int threads, std::size_t shared_bytes)
    : index_(index),
      blocks_(blocks),
      threads_(threads),
      shared_((shared_bytes + 7) / 8),
      exchange_(std::size_t(threads)) {
  if (!shared_.empty()) std::memset(static_cast<void*>(shared_.data()), 0xff, shared_.size() * sizeof(double));
}

void HostBlock::sync() {
  Fibers& f = fibers;
  const int mine = thread_;
  swapcontext(&f.all[std::size_t(mine)]->context, &f.scheduler);
}

// Rounds: every fiber runs to its next barrier, or to the end. All threads of a block must meet the same barriers.
void HostBlock::run(const std::function<void()>& body) {
  Fibers& f = fibers;
  f.body = &body;
  while (int(f.all.size()) < threads_) f.all.push_back(std::make_unique<Fiber>());
  for (int t = 0; t < threads_; ++t) {
    Fiber& fiber = *f.all[std::size_t(t)];
    fiber.done = false;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = stack_bytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, fiber_main, 0);
  }
  for (int done = 0; done == 0;) {
    for (int t = 0; t < threads_; ++t) {
      Fiber& fiber = *f.all[std::size_t(t)];
      f.current = thread_ = t;
      swapcontext(&f.scheduler, &fiber.context);
      done += fiber.done;
    }
    MR_CHECK(done == 0 || done == threads_, "a barrier that ", done, " of ", threads_, " threads never met");
  }
}

}  // namespace millrace::cuda
