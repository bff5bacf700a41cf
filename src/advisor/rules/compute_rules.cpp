// Rules against computing itself.
#include <fmt/core.h>

#include "advisor/rules/rule_lists.hpp"
#include "advisor/rules/rule_text.hpp"
#include "millrace/base/units.hpp"

namespace millrace {
namespace {

double optimizer_share(const BottleneckMetrics& e) { return e.times.step > 0 ? e.times.optimizer / e.times.step : 0; }

// As many threads as cores. Where other work shares the cores, fewer threads are tried: all threads wait for the one
// whose core is taken.
Values fewer_threads(const BottleneckMetrics& e) {
  const auto& machine = e.config.machine;
  if (machine.gpu) return {};
  if (machine.threads > machine.cores) return {std::to_string(machine.cores)};
  if (!e.machine.contended() || machine.threads < 2) return {};
  Values to{std::to_string(machine.threads / 2)};
  if (machine.threads > 3) to.emplace_back("1");
  return to;
}

Rule reduce_threads() {
  return {.bound = Bound::compute,
          .key = "run.threads",
          .from = [](const BottleneckMetrics& e) { return std::to_string(e.config.machine.threads); },
          .to = fewer_threads,
          .evidence =
              [](const BottleneckMetrics& e) {
                return fmt::format("{} compute threads on the {} cores of a rank; preempted {:.0f} times per second",
                                   e.config.machine.threads, e.config.machine.cores, e.machine.preempted_per_second);
              },
          .caution = "floating-point sums may round differently"};
}

Rule no_other_work() {
  return {.bound = Bound::compute,
          .key = "other work on the host",
          .from =
              [](const BottleneckMetrics& e) {
                const CoreContention& c = e.machine.contention;
                return fmt::format("{:.1f} of {:.0f} cores of a rank", c.others + c.stolen, c.cores);
              },
          .to =
              [](const BottleneckMetrics& e) {
                return e.machine.contended() ? Values{"none (srun --exclusive)"} : Values{};
              },
          .evidence =
              [](const BottleneckMetrics& e) {
                const CoreContention& c = e.machine.contention;
                return fmt::format("other processes used {:.1f} of them on average", c.others) +
                       (c.stolen > 0.05 ? fmt::format(", other virtual machines {:.1f}", c.stolen) : "");
              },
          .proof = Rule::Proof::hint};
}

Rule capture_steps() {
  return {.bound = Bound::compute,
          .key = "cuda.graph",
          .from = [](const BottleneckMetrics&) { return std::string("off"); },
          .to =
              [](const BottleneckMetrics& e) {
                return e.config.machine.gpu && !e.config.training.cuda_graph ? Values{"on"} : Values{};
              },
          .evidence =
              [](const BottleneckMetrics& e) {
                return fmt::format("every operation is launched separately, in steps of {:.2f} ms", ms(e.times.step));
              }};
}

Rule larger_micro_batch() {
  return {.bound = Bound::compute,
          .key = "train.micro_batch",
          .from = [](const BottleneckMetrics& e) { return std::to_string(e.config.training.micro_batch); },
          .to =
              [](const BottleneckMetrics& e) {
                const auto& training = e.config.training;
                return training.accumulation > 1 ? Values{std::to_string(2 * training.micro_batch)} : Values{};
              },
          .evidence =
              [](const BottleneckMetrics& e) {
                return fmt::format("{} micro-batches per step and rank", e.config.training.accumulation);
              },
          .caution = changes_batch_norm};
}

Rule compute_in_bf16() {
  return {.bound = Bound::compute,
          .key = "run.precision",
          .from = [](const BottleneckMetrics& e) { return e.config.training.precision; },
          .to =
              [](const BottleneckMetrics& e) {
                const bool applies = e.config.training.precision == "fp32" && e.config.machine.native_bf16;
                return applies ? Values{"bf16"} : Values{};
              },
          .evidence = [](const BottleneckMetrics&) { return std::string("this device computes in bf16 natively"); },
          .caution = rounds_more_coarsely,
          .min_gain = 1.1};
}

constexpr double short_step = 0.002;  // seconds

Values larger_batch_where_it_is_small(const BottleneckMetrics& e) {
  const bool memory_left = e.config.machine.gpu && e.memory.planned > 0 && 4 * e.memory.planned < e.memory.limit;
  const bool small = e.times.step < short_step || memory_left || optimizer_share(e) > 0.4;
  if (!small || e.config.training.accumulation != 1) return {};
  return {std::to_string(4 * e.config.training.global_batch)};
}

std::string small_batch_evidence(const BottleneckMetrics& e) {
  if (e.times.step < short_step)
    return fmt::format("a step takes {:.2f} ms, much of which is fixed overhead", ms(e.times.step));
  if (optimizer_share(e) > 0.4)
    return fmt::format("the optimizer takes {:.2f} ms of each step, whatever the batch size", ms(e.times.optimizer));
  return fmt::format("training uses {} of the device's {}", format_bytes(std::uint64_t(e.memory.planned)),
                     format_bytes(std::uint64_t(e.memory.limit)));
}

Rule larger_steps() {
  Rule rule = larger_global_batch(Bound::compute, Rule::Proof::trial);
  rule.to = larger_batch_where_it_is_small;
  rule.evidence = small_batch_evidence;
  rule.caution = makes_larger_steps;
  rule.min_gain = 1.5;
  return rule;
}

Rule shard_the_optimizer() {
  return {.bound = Bound::compute,
          .key = "optim.zero",
          .from = [](const BottleneckMetrics&) { return std::string("0"); },
          .to =
              [](const BottleneckMetrics& e) {
                const auto& training = e.config.training;
                const bool possible = e.config.machine.ranks > 1 && !training.zero;
                return possible && optimizer_share(e) > 0.1 ? Values{"1"} : Values{};
              },
          .evidence =
              [](const BottleneckMetrics& e) {
                return fmt::format("the optimizer takes {:.2f} ms per step; each of {} ranks would update one shard",
                                   ms(e.times.optimizer), e.config.machine.ranks);
              }};
}

Rule fuse_more() {
  return {.bound = Bound::compute,
          .key = "model.fusion",
          .from = [](const BottleneckMetrics& e) { return std::to_string(e.config.training.fusion); },
          .to =
              [](const BottleneckMetrics& e) {
                const auto& training = e.config.training;
                return training.fusion >= 0 && training.fusion < training.max_fusion
                           ? Values{e.config.machine.gpu ? std::to_string(training.max_fusion) : "auto"}
                           : Values{};
              },
          .evidence =
              [](const BottleneckMetrics& e) {
                return fmt::format("memory-bound layers are fused up to level {} of {}", e.config.training.fusion,
                                   e.config.training.max_fusion);
              }};
}

Rule no_throttling() {
  return {
      .bound = Bound::compute,
      .key = "clock",
      .from =
          [](const BottleneckMetrics& e) {
            return fmt::format("{:.0f} % of the maximum clock", 100 * e.machine.clock_share);
          },
      .to =
          [](const BottleneckMetrics& e) {
            return e.machine.throttle_reason.empty() ? Values{} : Values{"not throttled"};
          },
      .evidence = [](const BottleneckMetrics& e) { return "the device is throttled: " + e.machine.throttle_reason; },
      .proof = Rule::Proof::time,
      .gain =
          [](const BottleneckMetrics& e) { return 1 / (1 - e.share(Bound::compute) * (1 - e.machine.clock_share)); }};
}

}  // namespace

std::vector<Rule> compute_rules() {
  return {reduce_threads(),
          fix_binding(Bound::compute, Rule::Proof::hint),
          fewer_ranks(Bound::compute, Rule::Proof::hint, ""),
          no_other_work(),
          capture_steps(),
          larger_micro_batch(),
          compute_in_bf16(),
          larger_steps(),
          shard_the_optimizer(),
          fuse_more(),
          no_throttling()};
}

}  // namespace millrace
