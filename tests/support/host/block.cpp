// Runs the kernels of src/cuda on the host: each thread of a block is a fiber.
#include "cuda/block/block.hpp"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>

#include "millrace/base/error.hpp"

namespace millrace::cuda {
namespace {

constexpr std::size_t stack_bytes = 64 << 10;

struct Fiber {
  ucontext_t context;
  jmp_buf at;  // where the fiber continues
  std::unique_ptr<char[]> stack{new char[stack_bytes]};
  bool started = false, done = false;
};

// Reused for all blocks, because stacks are expensive to create.
struct Fibers {
  std::vector<std::unique_ptr<Fiber>> all;
  ucontext_t scheduler;
  jmp_buf scheduler_at;
  const std::function<void()>* body = nullptr;
  int current = 0;
};
thread_local Fibers fibers;

// swapcontext() makes a system call for the signal mask each time, which takes longer than most threads run. So fibers
// are switched by jumps. Sanitizers understand only swapcontext().
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
[[gnu::noinline]] void enter(Fibers& f, Fiber& to) { swapcontext(&f.scheduler, &to.context); }
[[gnu::noinline]] void leave(Fibers& f, Fiber& from) { swapcontext(&from.context, &f.scheduler); }
#else
[[gnu::noinline]] void enter(Fibers& f, Fiber& to) {
  if (_setjmp(f.scheduler_at) != 0) return;
  if (to.started) _longjmp(to.at, 1);
  to.started = true;
  setcontext(&to.context);
}
[[gnu::noinline]] void leave(Fibers& f, Fiber& from) {
  if (_setjmp(from.at) == 0) _longjmp(f.scheduler_at, 1);
}
#endif

// A fiber runs one thread of each block, one block after the other.
void fiber_main() {
  Fibers& f = fibers;
  Fiber& mine = *f.all[std::size_t(f.current)];
  for (;;) {
    (*f.body)();
    mine.done = true;
    leave(f, mine);
  }
}

std::unique_ptr<Fiber> make_fiber() {
  auto fiber = std::make_unique<Fiber>();
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = fiber->stack.get();
  fiber->context.uc_stack.ss_size = stack_bytes;
  fiber->context.uc_link = nullptr;
  makecontext(&fiber->context, fiber_main, 0);
  return fiber;
}

void prepare(int threads) {
  Fibers& f = fibers;
  while (int(f.all.size()) < threads) f.all.push_back(make_fiber());
  for (int t = 0; t < threads; ++t) f.all[std::size_t(t)]->done = false;
}

}  // namespace

HostBlock::HostBlock(std::int64_t index, std::int64_t blocks, int threads, std::size_t shared_bytes, int first_fiber)
    : index_(index),
      blocks_(blocks),
      threads_(threads),
      first_fiber_(first_fiber),
      shared_(shared_bytes > 0 ? (shared_bytes + 7) / 8 + 4 : 0),
      exchange_(std::size_t(threads)) {
  if (!shared_.empty()) std::memset(static_cast<void*>(shared_.data()), 0xff, shared_.size() * sizeof(double));
}

void HostBlock::sync() {
  Fibers& f = fibers;
  leave(f, *f.all[std::size_t(first_fiber_ + thread_)]);
}

bool HostBlock::is_last(unsigned* counter, unsigned count) {
  sync();
  if (count == 1) return true;
  if (thread_ == 0) {  // runs before the others, after each barrier
    last_ = *counter == count - 1;
    *counter = last_ ? 0 : *counter + 1;
  }
  const bool last = last_;
  sync();
  return last;
}

std::vector<std::int64_t> shuffled_blocks(std::int64_t blocks) {
  static thread_local std::minstd_rand generator;
  std::vector<std::int64_t> order(static_cast<std::size_t>(blocks));
  std::iota(order.begin(), order.end(), std::int64_t(0));
  std::shuffle(order.begin(), order.end(), generator);
  return order;
}

bool HostBlock::run_to_barrier(const std::function<void()>& body) {
  Fibers& f = fibers;
  f.body = &body;
  int done = 0;
  for (int t = 0; t < threads_; ++t) {
    Fiber& fiber = *f.all[std::size_t(first_fiber_ + t)];
    f.current = first_fiber_ + t;
    thread_ = t;
    enter(f, fiber);
    done += fiber.done;
  }
  if (done > 0 && done < threads_) f.all.clear();  // the other fibers are in the middle of a block
  MR_CHECK(done == 0 || done == threads_, "{} of {} threads did not reach a barrier of the others", done, threads_);
  return done > 0;
}

// In each round, every fiber runs to its next barrier or to the end. All threads of a block must reach the same
// barriers.
void HostBlock::run(const std::function<void()>& body) {
  prepare(first_fiber_ + threads_);
  while (!run_to_barrier(body)) continue;
}

void run_together(std::vector<HostBlock>& blocks, const std::function<void(HostBlock&)>& body) {
  constexpr int most_rounds = 1000000;
  std::vector<std::function<void()>> bodies;
  for (HostBlock& block : blocks) bodies.push_back([&body, &block] { body(block); });
  prepare(int(blocks.size()) * blocks.front().threads());
  std::vector<bool> done(blocks.size());
  std::size_t open = blocks.size();
  for (int round = 0; open > 0; ++round) {
    MR_CHECK(round < most_rounds, "blocks that are launched together wait for each other");
    for (std::size_t b = 0; b < blocks.size(); ++b)
      if (!done[b] && blocks[b].run_to_barrier(bodies[b])) {
        done[b] = true;
        --open;
      }
  }
}

}  // namespace millrace::cuda
