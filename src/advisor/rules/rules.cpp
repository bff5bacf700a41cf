// The table of rules: what may help against a bound, when, and what speaks for it.
#include <algorithm>
#include <cmath>

#include "millrace/advisor/rules/verdict.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/units.hpp"
#include "millrace/telemetry/text.hpp"

namespace millrace {
namespace {

const char* const new_order = "the order of samples is another";
const char* const new_rounding = "numbers are rounded more coarsely: watch the loss";
const char* const new_batch = "fewer, larger steps: the learning rate has to follow";

std::string as_key(std::uint64_t bytes) {
  return bytes >> 20 << 20 == bytes ? cat(bytes >> 20, "MiB") : cat(bytes >> 10, "KiB");
}
double demand(const BottleneckMetrics& e) { return e.without_input > 0 ? e.batch / e.without_input : 0; }
// Waits for samples that loaders so much faster than the step leave are no lack of speed: they come in bursts, or the
// step's cores are taken.
bool fast_enough(const BottleneckMetrics& e) { return demand(e) > 0 && e.loader_rate > 2 * demand(e); }
double ms(double seconds) { return seconds * 1e3; }

// As many as the step needs at the rate of those there are; to be tried: 2, 4, 8 times as many.
Values more_workers(const BottleneckMetrics& e) {
  const int most = 2 * std::max(2, e.cores), now = std::max(1, e.workers);
  if (e.probed) {
    Values to;
    for (int w = std::max(1, e.workers * 2), n = 0; w <= most && n < 3; w *= 2, ++n) to.push_back(std::to_string(w));
    return to;
  }
  const double needed = e.loader_rate > 0 ? std::ceil(1.1 * double(now) * demand(e) / e.loader_rate) : 2.0 * now;
  const int to = int(std::clamp(needed, 0.0, double(most)));
  return to > e.workers ? Values{std::to_string(to)} : Values{};
}
std::string of_workers(const BottleneckMetrics& e) {
  return text("%d worker%s a rank on %d core%s kept %.1f batches ready on average", e.workers,
              e.workers == 1 ? "" : "s", e.cores, e.cores == 1 ? "" : "s", e.depth);
}

bool decodes_most(const BottleneckMetrics& e) { return e.decoding > 0.5; }
bool decoded_often(const BottleneckMetrics& e) { return e.chunked && (e.probed || e.decodes > 1.5); }
std::string of_chunks(const BottleneckMetrics& e) {
  return e.decodes > 0 ? text("each chunk is decoded %.1f times for one reading of its rows", e.decodes)
                       : std::string("the samples are in compressed chunks");
}

Values other_readers(const BottleneckMetrics& e) {
  Values to;
  if (!e.probed && (decodes_most(e) || fast_enough(e))) return to;
  for (const char* name : {"direct", "mmap", "uring"})
    if (!e.chunked && e.reader.find(name) == std::string::npos) to.emplace_back(name);
  return e.reader == "synthetic" ? Values{} : to;
}
std::string of_reads(const BottleneckMetrics& e) {
  const bool unaligned = e.reader == "uring" && !e.chunked && e.sample_bytes % 4096 != 0;
  return text("%s, reads of %s%s", e.reader.c_str(), format_bytes(e.sample_bytes).c_str(),
              unaligned ? ", no whole blocks of 4 KiB of the disk" : "");
}

// Where neighbouring samples are asked for together, one read gets many.
bool tiny_reads(const BottleneckMetrics& e) {
  constexpr std::uint64_t tiny = 64 << 10;
  if (!e.probed && (e.reader == "mmap" || fast_enough(e))) return false;  // from memory: only a trial could tell
  return !e.chunked && e.stored.empty() && e.reader != "synthetic" && e.sample_bytes > 0 && e.sample_bytes < tiny;
}
std::uint64_t bytes_a_step(const BottleneckMetrics& e) {
  return std::uint64_t(e.batch / std::max(1, e.ranks)) * e.sample_bytes;
}
bool much_memory_left(const BottleneckMetrics& e) { return e.gpu && e.memory > 0 && 4 * e.memory < e.memory_limit; }
double optimizing(const BottleneckMetrics& e) { return e.step > 0 ? e.optimizer / e.step : 0; }  // share of the step
bool slow_link(const BottleneckMetrics& e) { return e.link_rate > 0 && 4 * e.link_rate < e.link.rate; }
std::string network_link(const BottleneckMetrics& e) {
  if (e.link.kind == NetworkLink::Kind::nvlink) return "without NCCL_P2P_DISABLE (NCCL_DEBUG=INFO names the way taken)";
  if (e.link.kind == NetworkLink::Kind::infiniband) return "UCX_NET_DEVICES=" + e.link.name + ":1";
  return e.gpu ? "NCCL_SOCKET_IFNAME=" + e.link.name : "--mca btl_tcp_if_include " + e.link.name;
}

std::string of_sums(const BottleneckMetrics& e) {
  return text("sums in buckets of %s, %s", format_bytes(e.bucket).c_str(),
              e.grad_dtype == "none" ? "of 32 bits" : "compressed");
}

// Checkpoints that checkpoint.every decides on, and their share of the time.
int regular(const BottleneckMetrics& e) { return e.checkpoints - e.needed_checkpoints; }
double share_of_regular(const BottleneckMetrics& e) {
  return e.share(Bound::checkpoint) * regular(e) / std::max(1, e.checkpoints);
}
// So seldom that they are a hundredth of the time, or none but those that are needed.
int rarer(const BottleneckMetrics& e) { return std::min(regular(e) + 1, int(std::ceil(100 * share_of_regular(e)))); }
Values rarer_checkpoints(const BottleneckMetrics& e) {
  const auto unit = e.checkpoint_every.find_first_not_of("0123456789.");
  const std::string number = e.checkpoint_every.substr(0, unit);
  if (e.checkpoints < 2 || rarer(e) < 2 || number.empty()) return {};
  char value[32];
  if (unit != std::string::npos &&
      e.checkpoint_every.find_first_of("0123456789", unit) != std::string::npos) {  // 1m30s
    std::snprintf(value, sizeof value, "%.0fs", parse_seconds(e.checkpoint_every) * rarer(e));
    return {value};
  }
  std::snprintf(value, sizeof value, "%.6g", std::stod(number) * rarer(e));
  return {value + (unit == std::string::npos ? "" : e.checkpoint_every.substr(unit))};
}
double of_rarer_checkpoints(const BottleneckMetrics& e) {
  const int all = regular(e), left = all / std::max(1, rarer(e));
  return 1 / (1 - share_of_regular(e) * (1 - double(left) / std::max(1, all)));
}

// As many as cores; where others are at work on these, too, a sum of all threads waits for the one whose core was
// taken.
Values fewer_threads(const BottleneckMetrics& e) {
  if (e.gpu) return {};
  if (e.threads > e.cores) return {std::to_string(e.cores)};
  if (!e.contended() || e.threads < 2) return {};
  Values to{std::to_string(e.threads / 2)};
  if (e.threads > 3) to.emplace_back("1");
  return to;
}

const char* const as_cores = "as many as there are cores";
std::string of_ranks(const BottleneckMetrics&) {
  return "there are more ranks than cores, so each waits while another computes";
}

double buckets(const BottleneckMetrics& e, std::uint64_t bytes) { return std::ceil(e.gradient_bytes / double(bytes)); }

Values rebound(const BottleneckMetrics& e) { return e.misplaced.empty() ? Values{} : Values{"--bind-to none"}; }
std::string of_binding(const BottleneckMetrics& e) { return e.misplaced; }

using From = std::string (*)(const BottleneckMetrics&);
const From as_started = [](const BottleneckMetrics&) { return std::string("as it was started"); };
const From workers_now = [](const BottleneckMetrics& e) { return std::to_string(e.workers); };

std::vector<Rule> table() {
  using enum Rule::Proof;
  return {
      {Bound::input, "data.chunk_cache", [](const BottleneckMetrics& e) { return format_bytes(e.chunk_cache); },
       [](const BottleneckMetrics& e) {
         return decoded_often(e) && e.chunk_cache ? Values{as_key(e.chunk_cache * 4)} : Values{};
       },
       of_chunks},
      {Bound::input, "data.shuffle", [](const BottleneckMetrics& e) { return e.shuffle; },
       [](const BottleneckMetrics& e) {
         return decoded_often(e) && e.shuffle == "global" ? Values{"block"} : Values{};
       },
       of_chunks, trial, new_order},
      {Bound::input, "data.prefetch", [](const BottleneckMetrics& e) { return std::to_string(e.prefetch); },
       [](const BottleneckMetrics& e) {
         if (e.prefetch == 0) return Values{};  // auto
         return e.probed || e.depth > 0.5 * e.prefetch ? Values{std::to_string(e.prefetch * 4)} : Values{};
       },
       [](const BottleneckMetrics& e) {
         return text("%.1f of %d batches were ready on average: waits come in bursts", e.depth, e.prefetch);
       }},
      {Bound::input, "data.workers", workers_now, more_workers, of_workers},
      {Bound::input, "data.reader", [](const BottleneckMetrics& e) { return e.reader; }, other_readers, of_reads},
      {Bound::input, "data.cache", [](const BottleneckMetrics& e) { return e.cache; },
       [](const BottleneckMetrics& e) {
         return e.cache == "none" && e.reader != "synthetic" && !decodes_most(e) && !fast_enough(e) ? Values{"memory"}
                                                                                                    : Values{};
       },
       of_reads, time},
      {Bound::input, "data.shuffle", [](const BottleneckMetrics& e) { return e.shuffle; },
       [](const BottleneckMetrics& e) { return tiny_reads(e) && e.shuffle == "global" ? Values{"block"} : Values{}; },
       of_reads, trial, new_order},
      {Bound::input, "pack", [](const BottleneckMetrics& e) { return e.stored; },
       [](const BottleneckMetrics& e) {
         return e.stored.empty() || !decodes_most(e) ? Values{} : Values{"as they are, of the size that is trained"};
       },
       [](const BottleneckMetrics& e) {
         return text("decoding is %.0f %% of the loader's work; files grow", 100 * e.decoding);
       },
       hint},
      {Bound::copy, "pack", [](const BottleneckMetrics& e) { return "samples of " + e.of_values; },
       [](const BottleneckMetrics& e) {
         return e.value_bytes > 2 ? Values{"u8, or i16 with data.scale and data.offset"} : Values{};
       },
       [](const BottleneckMetrics& e) {
         return text("%s a rank and step on the bus", format_bytes(bytes_a_step(e)).c_str());
       },
       time, "values are stored more coarsely"},
      {Bound::copy, "the GPU's link", [](const BottleneckMetrics& e) { return e.pcie; },
       [](const BottleneckMetrics& e) { return e.pcie.empty() ? Values{} : Values{e.top_pcie}; },
       [](const BottleneckMetrics&) { return std::string("its slot, riser or power saving holds PCI Express down"); },
       hint},
      {Bound::sums, "ranks", [](const BottleneckMetrics& e) { return std::to_string(e.ranks); },
       [](const BottleneckMetrics& e) { return e.oversubscribed ? Values{as_cores} : Values{}; }, of_ranks, time,
       "a step takes a share of as many samples from each"},
      {Bound::sums, "mpirun", as_started, rebound, of_binding, time},
      {Bound::sums, "comm.overlap", [](const BottleneckMetrics&) { return std::string("off"); },
       [](const BottleneckMetrics& e) { return e.overlap ? Values{} : Values{"on"}; },
       [](const BottleneckMetrics&) { return std::string("no sum starts before the backward pass has ended"); }},
      {Bound::sums, "comm.grad_dtype", [](const BottleneckMetrics& e) { return e.grad_dtype; },
       [](const BottleneckMetrics& e) { return e.grad_dtype == "none" ? Values{"bf16"} : Values{}; }, of_sums, trial,
       new_rounding},
      {Bound::sums, "comm.bucket_size", [](const BottleneckMetrics& e) { return format_bytes(e.bucket); },
       [](const BottleneckMetrics& e) {
         Values out;
         for (const std::uint64_t to : {std::max<std::uint64_t>(64 << 10, e.bucket / 4), e.bucket * 4})
           if (e.gradient_bytes <= 0 || buckets(e, to) != buckets(e, e.bucket)) out.push_back(as_key(to));
         return out;
       },
       of_sums},
      {Bound::sums, "train.global_batch", [](const BottleneckMetrics& e) { return std::to_string(e.global_batch); },
       [](const BottleneckMetrics& e) { return Values{std::to_string(4 * e.global_batch)}; },
       [](const BottleneckMetrics& e) { return text("a sum for each %.0f samples; %s", e.batch, new_batch); }, hint},
      {Bound::sums, "mpirun", as_started,
       [](const BottleneckMetrics& e) { return slow_link(e) ? Values{network_link(e)} : Values{}; },
       [](const BottleneckMetrics& e) {
         const bool inside = e.link.kind == NetworkLink::Kind::nvlink;
         return text("sums between %s have %.3f GB/s; %s %s made for %.2f", inside ? "GPUs" : "hosts",
                     e.link_rate * 1e-9, e.link.name.c_str(), inside ? "are" : "is", e.link.rate * 1e-9);
       },
       hint},
      {Bound::compute, "run.threads", [](const BottleneckMetrics& e) { return std::to_string(e.threads); },
       fewer_threads,
       [](const BottleneckMetrics& e) {
         return text("%d compute threads on the %d cores of a rank; cores taken away %.0f times a second", e.threads,
                     e.cores, e.preempted);
       },
       trial, "sums of floats may be rounded otherwise"},
      {Bound::compute, "mpirun", as_started, rebound, of_binding, hint},
      {Bound::compute, "ranks", [](const BottleneckMetrics& e) { return std::to_string(e.ranks); },
       [](const BottleneckMetrics& e) { return e.oversubscribed ? Values{as_cores} : Values{}; }, of_ranks, hint},
      {Bound::compute, "other work on the host",
       [](const BottleneckMetrics& e) {
         return text("%.1f of %.0f cores of a rank", e.taken.others + e.taken.stolen, e.taken.of);
       },
       [](const BottleneckMetrics& e) { return e.contended() ? Values{"none (srun --exclusive)"} : Values{}; },
       [](const BottleneckMetrics& e) {
         return text("other processes ran on %.1f of them on average", e.taken.others) +
                (e.taken.stolen > 0.05 ? text(", other virtual machines on %.1f", e.taken.stolen) : "");
       },
       hint},
      {Bound::compute, "cuda.graph", [](const BottleneckMetrics&) { return std::string("off"); },
       [](const BottleneckMetrics& e) { return e.gpu && !e.graph ? Values{"on"} : Values{}; },
       [](const BottleneckMetrics& e) {
         return text("every operation is launched by itself, in steps of %.2f ms", ms(e.step));
       }},
      {Bound::compute, "train.micro_batch", [](const BottleneckMetrics& e) { return std::to_string(e.micro_batch); },
       [](const BottleneckMetrics& e) {
         return e.accumulation > 1 ? Values{std::to_string(2 * e.micro_batch)} : Values{};
       },
       [](const BottleneckMetrics& e) { return text("%d micro-batches a step and rank", e.accumulation); }, trial,
       "batch norm sees other batches"},
      {Bound::compute, "run.precision", [](const BottleneckMetrics& e) { return e.precision; },
       [](const BottleneckMetrics& e) { return e.precision == "fp32" && e.half ? Values{"bf16"} : Values{}; },
       [](const BottleneckMetrics&) { return std::string("this device computes with bf16 as such"); }, trial,
       new_rounding, 1.1},
      {Bound::compute, "train.global_batch", [](const BottleneckMetrics& e) { return std::to_string(e.global_batch); },
       [](const BottleneckMetrics& e) {
         const bool small = e.step < 0.002 || much_memory_left(e) || optimizing(e) > 0.4;
         return small && e.accumulation == 1 ? Values{std::to_string(4 * e.global_batch)} : Values{};
       },
       [](const BottleneckMetrics& e) {
         if (e.step < 0.002) return text("a step takes %.2f ms, much of it for beginning", ms(e.step));
         return optimizing(e) > 0.4
                    ? text("the optimizer takes %.2f ms of each step, however large its batch is", ms(e.optimizer))
                    : text("it takes %s of the device's %s", format_bytes(std::uint64_t(e.memory)).c_str(),
                           format_bytes(std::uint64_t(e.memory_limit)).c_str());
       },
       trial, new_batch, 1.5},
      {Bound::compute, "optim.zero", [](const BottleneckMetrics&) { return std::string("0"); },
       [](const BottleneckMetrics& e) {
         return e.ranks > 1 && !e.zero && optimizing(e) > 0.1 ? Values{"1"} : Values{};
       },
       [](const BottleneckMetrics& e) {
         return text("the optimizer takes %.2f ms of a step; %d ranks would update a share each", ms(e.optimizer),
                     e.ranks);
       }},
      {Bound::compute, "model.fusion", [](const BottleneckMetrics& e) { return std::to_string(e.fusion); },
       [](const BottleneckMetrics& e) {
         return e.fusion >= 0 && e.fusion < e.most_fusion ? Values{std::to_string(e.most_fusion)} : Values{};
       },
       [](const BottleneckMetrics& e) {
         return text("layers bound by memory are fused up to level %d of %d", e.fusion, e.most_fusion);
       }},
      {Bound::imbalance, "mpirun", as_started, rebound, of_binding, time},
      {Bound::imbalance, "rank", [](const BottleneckMetrics& e) { return cat(e.slow.rank, " on ", e.slow.host); },
       [](const BottleneckMetrics& e) { return e.slow.rank >= 0 ? Values{"as fast as the others"} : Values{}; },
       [](const BottleneckMetrics& e) { return e.slow.cause; }, time},
      {Bound::imbalance, "train.balance", [](const BottleneckMetrics&) { return std::string("even"); },
       [](const BottleneckMetrics& e) {
         return e.balanced || e.uneven <= 0 || !e.misplaced.empty() ? Values{} : Values{"auto"};
       },
       [](const BottleneckMetrics& e) {
         return text("shares as large as the ranks are fast spare %.1f ms of a step (%s)", ms(e.uneven),
                     e.slow.cause.c_str());
       },
       trial, "micro-batches of an eighth of a share: batch norm sees other batches", 1.05,
       [](const BottleneckMetrics& e) { return e.step / std::max(1e-9, e.step - e.uneven); }},
      {Bound::checkpoint, "checkpoint.every", [](const BottleneckMetrics& e) { return e.checkpoint_every; },
       rarer_checkpoints,
       [](const BottleneckMetrics& e) {
         return text("%d checkpoints of %.1f ms each", e.checkpoints, ms(e.checkpoint * e.steps / e.checkpoints)) +
                (e.needed_checkpoints > 1 ? text(", %d of them the best so far or the last", e.needed_checkpoints)
                                          : "");
       },
       time, "", 1.05, of_rarer_checkpoints},
      {Bound::evaluation, "train.evaluate", [](const BottleneckMetrics&) { return std::string("on"); },
       [](const BottleneckMetrics& e) { return e.evaluations > 1 ? Values{"off"} : Values{}; },  // one is none too many
       [](const BottleneckMetrics& e) { return text("%.2f ms for each step of training", ms(e.evaluation)); }, time,
       "no figures of validation between; millrace eval gives them"},
      {Bound::host, "train.global_batch", [](const BottleneckMetrics& e) { return std::to_string(e.global_batch); },
       [](const BottleneckMetrics& e) { return Values{std::to_string(4 * e.global_batch)}; },
       [](const BottleneckMetrics& e) {
         return text("%.2f ms of each step are spent outside of the device", ms(e.host));
       },
       time, new_batch},
      {Bound::compute, "clock",
       [](const BottleneckMetrics& e) { return text("%.0f %% of the top clock", 100 * e.clock); },
       [](const BottleneckMetrics& e) { return e.slowed.empty() ? Values{} : Values{"not held down"}; },
       [](const BottleneckMetrics& e) { return "the device is held down: " + e.slowed; }, time, "", 1.05,
       [](const BottleneckMetrics& e) { return 1 / (1 - e.share(Bound::compute) * (1 - e.clock)); }},
      {Bound::startup, "train.epochs", [](const BottleneckMetrics&) { return std::string("one start"); },
       [](const BottleneckMetrics& e) { return e.wall > 60 ? Values{"more of the run in a start"} : Values{}; },
       [](const BottleneckMetrics& e) {
         return text("%.1f s of %.1f s pass before the first step", e.startup, e.wall);
       },
       time},
  };
}

}  // namespace

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = table();
  return all;
}

}  // namespace millrace
