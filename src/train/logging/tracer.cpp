#include "train/logging/tracer.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/log.hpp"
#include "millrace/comm/clock_offset.hpp"
#include "millrace/train/distributed/buckets.hpp"

namespace millrace {
namespace {

// Limit over all ranks: rank 0 holds the trace of all ranks in memory, and a browser must be able to load it.
constexpr std::size_t max_spans = 500'000;

std::string all_reduce_name(const CommSpan& span) {
  const int tag = span.tag;
  if (tag >= 0)
    return fmt::format("bucket {}{}", tag,
                       span.op == CollectiveOp::all_reduce ? std::string() : fmt::format(", {}", name_of(span.op)));
  return tag == stats_tag         ? "statistics"
         : tag == squares_tag     ? "norm"
         : tag == loss_weight_tag ? "weight of the loss"
         : tag == updates_tag     ? "updates of muon"
         : is_norm_tag(tag)       ? "exchange of norms"
                                  : "other";
}

}  // namespace

Tracer::Tracer(Session& s, Loader& loader, std::filesystem::path file, std::int64_t begin)
    : s_(s), loader_(loader), file_(std::move(file)) {
  const std::int64_t left = std::max<std::int64_t>(0, s.total_steps() - begin);
  const std::int64_t length = std::min<std::int64_t>(s.config.log.profile_steps, left);
  first_ = begin + std::min(usual_first, (left - length) / 2);
  end_ = first_ + length;
  done_ = length == 0;
  mine_.host = s.world.host();
}

void Tracer::before_enqueue(std::int64_t step) {
  if (done_ || step != first_) return;
  began_ = true;
  loader_.trace(true);
}

void Tracer::collected(std::int64_t step, const StepRunner& runner) {
  if (done_ || !active(step)) return;
  runner.timer().append_phase_spans(mine_.spans);
  for (const CommSpan& span : runner.timer().comm_spans())
    mine_.spans.push_back(
        {"sums",
         all_reduce_name(span),
         span.started,
         span.ended,
         {{"bytes", double(span.bytes)}, {"queued_us", std::max(0.0, span.started - span.queued) * 1e6}}});
  if (step + 1 == end_) write();
}

void Tracer::phase(Phase phase, double began, double ended) {
  if (began_ && !done_) mine_.spans.push_back({"step", name_of(phase), began, ended});
}

void Tracer::end() {
  if (began_ && !done_) write();
}

void Tracer::write() {
  done_ = true;
  loader_.trace(false);
  for (const LoaderSpan& s : loader_.take_spans())
    mine_.spans.push_back({fmt::format("loader {}", s.worker + 1),
                           fmt::format("batch {}", (long long)s.batch),
                           s.began,
                           s.ended,
                           {{"batch", double(s.batch)}}});
  limit(mine_, std::max<std::size_t>(64, max_spans / std::size_t(s_.world.size())));
  const ClockOffset offset = clock_offset(s_.world);
  mine_.clock_offset = offset.seconds;
  mine_.clock_error = offset.error;
  std::vector<RankTrace> all;
  const auto texts = s_.world.gather_to_root(mine_.json());
  mine_.spans = {};
  if (s_.world.rank() != 0) return;
  for (const std::string& text : texts) all.push_back(RankTrace::from_json(text));
  try {
    replace_file(file_, trace_json(all));  // without a flush to the disk, because the training waits
  } catch (const Error& e) {
    log::warn(fmt::format("{} (the steps sampled for log.profile_steps are lost). free disk space", e.what()));
  }
}

}  // namespace millrace
