// The link model and the simulated step.
#include "millrace/advisor/rules/scaling_model.hpp"

#include <algorithm>
#include <cmath>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

constexpr double sync_bytes = 40;         // all-reduced after each step: five doubles
constexpr double shard_alignment = 4096;  // elements; a shard of ZeRO is a multiple of it
constexpr double bucket_alignment = 64;   // elements; a bucket is a multiple of it

double messages(int ranks, bool ring) { return ring ? ranks - 1 : std::ceil(std::log2(double(ranks))); }
// The share of a rank's data that it sends in a reduce-scatter, and again in an all-gather.
double part_sent(int ranks) { return double(ranks - 1) / ranks; }

double half_all_reduce(double bytes, int ranks, const LinkModel& link, bool ring) {
  if (ranks < 2) return 0;
  return messages(ranks, ring) * link.latency +
         (link.bytes_per_second > 0 ? part_sent(ranks) * bytes / link.bytes_per_second : 0);
}

// What a rank computes in a step.
struct Work {
  double micro_batches = 1;
  double rows = 1;  // of a micro-batch, relative to the measured run
};
Work work_of(const StepProfile& s, int ranks, Scaling scaling) {
  const double all = double(s.micro_batches) * s.ranks / ranks;
  if (scaling == Scaling::weak || ranks == s.ranks) return {double(s.micro_batches), 1};
  if (s.fixed_micro_batch) return {std::max(1.0, std::ceil(all)), 1};
  return {double(s.micro_batches), double(s.ranks) / ranks};
}

// Seconds from the start of the last backward pass until the last `bytes` bytes of the gradient are final. Interpolates
// linearly between measured points.
double ready_at(const std::vector<ReadyBytes>& curve, double bytes) {
  ReadyBytes before{0, 0};
  for (const ReadyBytes& here : curve) {
    if (double(here.bytes) >= bytes && here.bytes > before.bytes)
      return before.seconds +
             (here.seconds - before.seconds) * (bytes - double(before.bytes)) / double(here.bytes - before.bytes);
    before = here;
  }
  return before.seconds;
}

struct TimedBucket {
  double bytes = 0;  // of float32
  double ready = 0;  // seconds since the last backward pass began
};
// The same split as that of train/distributed/buckets.hpp.
std::vector<TimedBucket> buckets_of(const StepProfile& s, int ranks) {
  std::vector<TimedBucket> out;
  const double all = s.ready.empty() ? 0 : double(s.ready.back().bytes);
  const double unit = 4 * (s.zero && ranks > 1 ? shard_alignment * ranks : bucket_alignment);
  const double size = std::max(unit, std::floor(s.bucket_bytes / unit) * unit);
  for (double end = 0; end < all;) {
    const double bytes = std::min(size, all - end);
    end += bytes;
    out.push_back({bytes, ready_at(s.ready, end)});
  }
  return out;
}

// The simulated time of a rank and of its link, in seconds since the step began.
struct Clock {
  double now = 0;     // of the rank
  double link = 0;    // when the link becomes free
  double busy = 0;    // the link's total work
  double waited = 0;  // the rank's total wait for the link

  // Queues a transfer on the link; returns when it ends.
  double begin(double earliest, double seconds) {
    busy += seconds;
    link = std::max(link, earliest) + seconds;
    return link;
  }
  void wait(double until) {
    if (until <= now) return;
    waited += until - now;
    now = until;
  }
};

// The first forward pass with ZeRO. The weights are all-gathered bucket by bucket from the front. An operation needs
// its weights at the point that mirrors where the backward pass made their gradients.
void gathered_forward(Clock& clock, const StepProfile& s, const Interconnect& interconnect, int ranks, double seconds) {
  const auto buckets = buckets_of(s, ranks);
  const double began = clock.now, backward = std::max(1e-12, s.last_backward);
  double waited = 0;
  for (std::size_t b = buckets.size(); b-- > 0;) {
    const double bytes = buckets[b].bytes * s.weight_bytes / 4;
    const double here = clock.begin(began, reduce_scatter_seconds(bytes, ranks, interconnect));
    if (!s.beside) {
      clock.wait(here);
      continue;
    }
    clock.now = std::max(clock.now, began + waited + seconds * std::max(0.0, 1 - buckets[b].ready / backward));
    const double before = clock.waited;
    clock.wait(here);
    waited += clock.waited - before;
  }
  clock.now = s.beside ? began + waited + seconds : clock.now + seconds;
}

// The last backward pass with its all-reduces. Returns whether they are fully overlapped.
bool backward_with_all_reduces(Clock& clock, const StepProfile& s, const Interconnect& interconnect, int ranks,
                               double seconds) {
  const double began = clock.now, slower = s.last_backward > 0 ? seconds / s.last_backward : 1;
  const bool overlapped = s.overlap && s.beside;
  clock.link = std::max(clock.link, began);
  if (s.stats_bytes > 0)
    clock.begin(overlapped ? began : began + seconds, all_reduce_seconds(s.stats_bytes, ranks, interconnect));
  const auto buckets = buckets_of(s, ranks);
  const double last = buckets.empty() ? 0 : buckets.back().ready - 0.01 * s.last_backward;
  // Was the link free when the last gradients became ready? Those of one parameter may fill several buckets.
  bool free = true;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const TimedBucket& bucket = buckets[b];
    const double ready = began + (overlapped ? std::min(seconds, bucket.ready * slower) : seconds);
    if (b == 0 || buckets[b - 1].ready < last) free = clock.link <= ready + 1e-9;
    const double bytes = bucket.bytes * s.element_bytes / 4;
    clock.begin(ready, s.zero ? reduce_scatter_seconds(bytes, ranks, interconnect)
                              : all_reduce_seconds(bytes, ranks, interconnect));
  }
  clock.now = began + seconds;
  clock.wait(clock.link);
  return free && overlapped;
}

// Seconds of the phases of a step on the slowest rank.
struct Phases {
  double input = 0, forward = 0, backward = 0, last_backward = 0, optimizer = 0,
         other = 0;  // backward: without the last
  double sum() const { return input + forward + backward + last_backward + optimizer + other; }
};

Phases phases_of(const StepProfile& s, const Work& work, int ranks, double slower) {
  const double batches = work.micro_batches / s.micro_batches, scale = slower * work.rows;
  const double rest = s.micro_batches > 1 ? (s.backward - s.last_backward) / (s.micro_batches - 1) : s.last_backward;
  return {.input = s.input * batches * scale,
          .forward = s.forward * batches * scale,
          .backward = rest * (work.micro_batches - 1) * scale,
          .last_backward = s.last_backward * scale,
          .optimizer = slower * (s.zero ? s.optimizer * s.ranks / ranks : s.optimizer),
          .other = slower * s.other};
}

Prediction simulate(const StepProfile& s, const Interconnect& interconnect, int ranks, Scaling scaling) {
  const Work work = work_of(s, ranks, scaling);
  const double mean = expected_longest(s.own, 1);
  const double slower = mean > 0 ? expected_longest(s.own, ranks) / mean : 1;  // the slowest rank, relative to the mean
  const Phases phases = phases_of(s, work, ranks, slower);

  Prediction out;
  out.ranks = ranks;
  out.samples = scaling == Scaling::weak ? s.samples * ranks / s.ranks : s.samples;
  const double slow_own = phases.sum();
  out.own = slow_own / slower;
  out.straggling = slow_own - out.own;
  Clock clock;
  if (ranks > 1) {
    const double first = phases.forward / work.micro_batches;
    clock.now = phases.input;
    if (s.zero)
      gathered_forward(clock, s, interconnect, ranks, first);
    else
      clock.now += first;
    clock.now += phases.forward - first + phases.backward;
    out.fully_overlapped = backward_with_all_reduces(clock, s, interconnect, ranks, phases.last_backward);
    if (s.zero && !s.ready.empty()) {  // the squared norm of each piece of a shard
      const double squares = double(s.ready.back().bytes) / 4 / shard_alignment * sizeof(double);
      clock.wait(clock.begin(clock.now, all_reduce_seconds(squares, ranks, interconnect)));
    }
    if (s.meets) out.meeting = all_reduce_seconds(sync_bytes, ranks, interconnect);
  }
  out.sums = clock.busy;
  out.exposed = clock.waited;
  out.step = slow_own + out.exposed + out.meeting;
  return out;
}

}  // namespace

double reduce_scatter_seconds(double bytes, int ranks, const Interconnect& w) {
  const int per_node = std::min(ranks, std::max(1, w.ranks_per_node)), nodes = (ranks + per_node - 1) / per_node;
  return half_all_reduce(bytes, per_node, w.intra_node, w.ring) + half_all_reduce(bytes, nodes, w.inter_node, w.ring);
}

double all_reduce_seconds(double bytes, int ranks, const Interconnect& w) {
  return 2 * reduce_scatter_seconds(bytes, ranks, w);
}

// Fits seconds = a + b * bytes by minimising the sum of (a / t + b * n / t - 1)^2.
LinkModel fit_link(const std::vector<AllReduceTime>& times, int ranks, bool ring) {
  double aa = 0, ab = 0, bb = 0, a1 = 0, b1 = 0;
  for (const AllReduceTime& t : times) {
    if (t.seconds <= 0) continue;
    const double one = 1 / t.seconds, n = t.bytes / t.seconds;
    aa += one * one;
    ab += one * n;
    bb += n * n;
    a1 += one;
    b1 += n;
  }
  if (bb <= 0 || ranks < 2) fail(Exit::data, "no all-reduce was measured. give --link");
  const double determinant = aa * bb - ab * ab;
  double a = 0, b = b1 / bb;
  if (determinant > 1e-6 * aa * bb) {
    a = (a1 * bb - b1 * ab) / determinant;
    b = (b1 * aa - a1 * ab) / determinant;
  }
  if (a < 0) {
    a = 0;
    b = b1 / bb;
  }
  if (b <= 0) {
    a = a1 / aa;
    b = 0;
  }
  return {b > 0 ? 2 * part_sent(ranks) / b : 0, a / (2 * messages(ranks, ring))};
}

// For independent draws, the distribution function of the maximum is that of one draw to the power of their number.
double expected_longest(const std::vector<TimeBin>& bins, double draws) {
  double all = 0, seen = 0, below = 0, sum = 0;
  for (const TimeBin& bin : bins) all += double(bin.count);
  for (const TimeBin& bin : bins) {
    seen += double(bin.count);
    const double here = std::pow(seen / all, draws);
    sum += bin.seconds * (here - below);
    below = here;
  }
  return sum;
}

Prediction predict(const StepProfile& shape, const Interconnect& interconnect, int ranks, Scaling scaling) {
  Prediction out = simulate(shape, interconnect, ranks, scaling);
  const Prediction alone = simulate(shape, interconnect, 1, scaling);
  out.efficiency = (out.samples / out.step) / (ranks * alone.samples / alone.step);
  return out;
}

}  // namespace millrace
