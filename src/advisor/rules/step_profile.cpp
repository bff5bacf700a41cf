// From the account of a run to the step profile and the all-reduce times of the scaling model.
#include <algorithm>
#include <map>

#include "millrace/advisor/rules/scaling_model.hpp"
#include "millrace/base/error.hpp"

namespace millrace {

StepProfile step_profile_of(const Account& account) {
  StepProfile out;
  const auto& ranks = account.ranks;
  if (ranks.empty() || ranks[0].pace.steps == 0 || ranks[0].pace.ready.empty())
    fail(Exit::data,
         "the run has no timing of full steps after its first ones (it was too short, or made by an older version). "
         "run a few dozen steps");
  const StepTimingStats& first = ranks[0].pace;
  out.ranks = int(ranks.size());
  out.micro_batches = first.micro_batches;
  out.samples = first.samples;
  out.stats_bytes = double(first.stats_bytes);
  out.beside = first.beside;
  out.meets = first.meets;
  out.ready = first.ready;
  for (ReadyBytes& r : out.ready) r.seconds = 0;
  double working = 0;  // ranks with steps: one may have nothing to do
  for (const RankAccount& r : ranks) working += r.pace.steps > 0;
  for (const RankAccount& rank : ranks) {
    const StepTimingStats& p = rank.pace;
    if (p.steps == 0) continue;
    out.step += p.step / working;
    out.input += p.input / working;
    out.forward += p.forward / working;
    out.backward += p.backward / working;
    out.last_backward += p.last_backward / working;
    out.optimizer += p.optimizer / working;
    out.other += p.other / working;
    for (std::size_t i = 0; i < out.ready.size() && i < p.ready.size(); ++i)
      out.ready[i].seconds += p.ready[i].seconds / working;
    out.own.insert(out.own.end(), p.own.begin(), p.own.end());
  }
  if (out.ranks == 1) out.other += first.sums;  // a single rank only checks that it has nothing to all-reduce
  std::sort(out.own.begin(), out.own.end(), [](const TimeBin& a, const TimeBin& b) { return a.seconds < b.seconds; });
  return out;
}

std::vector<AllReduceTime> all_reduce_times(const Account& account, bool zero) {
  std::vector<AllReduceTime> out;
  if (account.ranks.size() < 2) return out;
  std::map<int, AllReduceTime> by_tag;
  for (const RankAccount& r : account.ranks)
    for (const CollectiveOpStats& s : r.sums) {
      if (s.tag < 0 || s.times == 0) continue;
      AllReduceTime& mean = by_tag[s.tag];
      const double each = double(s.times) * double(account.ranks.size());
      // With ZeRO an all-reduce is split into two collectives. Older summaries list both as one all-reduce that ran
      // twice as often.
      const bool whole = s.op == CollectiveOp::all_reduce;
      mean.bytes += (whole ? 1 : 0.5) * double(s.bytes) / each;
      mean.seconds += (whole && zero ? 2 : 1) * s.busy / each;
    }
  for (const auto& [tag, mean] : by_tag) out.push_back(mean);
  return out;
}

}  // namespace millrace
