// Rules against waiting for samples.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "advisor/rules/rule_lists.hpp"
#include "advisor/rules/rule_text.hpp"
#include "millrace/base/units.hpp"

namespace millrace {
namespace {

// Samples/s that the steps could consume if they never waited for the loader.
double demand(const BottleneckMetrics& e) { return e.without.input > 0 ? e.run.batch / e.without.input : 0; }

// The loaders are much faster than the step. Its waits then come in bursts, or other work takes its cores; faster
// reading would not help.
bool fast_enough(const BottleneckMetrics& e) { return demand(e) > 0 && e.input.loader_rate > 2 * demand(e); }

bool decodes_mostly(const BottleneckMetrics& e) { return e.input.decoding_share > 0.5; }

bool decodes_repeatedly(const BottleneckMetrics& e) {
  return e.config.input.chunked && (e.probed || e.input.decodes_per_chunk > 1.5);
}

// Samples below 64 KiB, read from storage one by one: neighbouring samples could share a read. Reads from mapped memory
// are left to trials, because only those could tell.
bool reads_are_tiny(const BottleneckMetrics& e) {
  constexpr std::uint64_t tiny = 64 << 10;
  const auto& input = e.config.input;
  if (!e.probed && (input.reader == "mmap" || fast_enough(e))) return false;
  return !input.chunked && input.codec.empty() && input.reader != "synthetic" && input.sample_bytes > 0 &&
         input.sample_bytes < tiny;
}

std::string chunk_evidence(const BottleneckMetrics& e) {
  if (e.input.decodes_per_chunk <= 0) return "the samples are stored in compressed chunks";
  return fmt::format("each chunk is decoded {:.1f} times per pass over its rows", e.input.decodes_per_chunk);
}

std::string read_evidence(const BottleneckMetrics& e) {
  const auto& input = e.config.input;
  const bool unaligned = input.reader == "uring" && !input.chunked && input.sample_bytes % 4096 != 0;
  return fmt::format("reader {}, reads of {}{}", input.reader, format_bytes(input.sample_bytes),
                     unaligned ? ", which are not whole 4 KiB blocks of the disk" : "");
}

std::string present_shuffle(const BottleneckMetrics& e) { return e.config.input.shuffle; }

Rule larger_chunk_cache() {
  return {.bound = Bound::input,
          .key = "data.chunk_cache",
          .from = [](const BottleneckMetrics& e) { return format_bytes(e.config.input.chunk_cache); },
          .to =
              [](const BottleneckMetrics& e) {
                const std::uint64_t now = e.config.input.chunk_cache;
                return decodes_repeatedly(e) && now ? Values{as_key_value(now * 4)} : Values{};
              },
          .evidence = chunk_evidence};
}

Rule block_shuffle_of_chunks() {
  return {.bound = Bound::input,
          .key = "data.shuffle",
          .from = present_shuffle,
          .to =
              [](const BottleneckMetrics& e) {
                return decodes_repeatedly(e) && e.config.input.shuffle == "global" ? Values{"block"} : Values{};
              },
          .evidence = chunk_evidence,
          .caution = changes_sample_order};
}

Rule deeper_prefetch() {
  return {.bound = Bound::input,
          .key = "data.prefetch",
          .from = [](const BottleneckMetrics& e) { return std::to_string(e.config.input.prefetch); },
          .to =
              [](const BottleneckMetrics& e) {
                const int now = e.config.input.prefetch;
                if (now == 0) return Values{};  // auto
                return e.probed || e.input.mean_queue_depth > 0.5 * now ? Values{std::to_string(now * 4)} : Values{};
              },
          .evidence =
              [](const BottleneckMetrics& e) {
                return fmt::format("{:.1f} of {} batches were ready on average: waits come in bursts",
                                   e.input.mean_queue_depth, e.config.input.prefetch);
              }};
}

// Trials try 2, 4 and 8 times as many workers. Without trials: as many as the step needs at their present rate.
Values more_workers(const BottleneckMetrics& e) {
  const int workers = e.config.input.workers, now = std::max(1, workers);
  const int max_workers = 2 * std::max(2, e.config.machine.cores);
  if (e.probed) {
    Values to;
    for (int w = std::max(1, workers * 2), n = 0; w <= max_workers && n < 3; w *= 2, ++n)
      to.push_back(std::to_string(w));
    return to;
  }
  const double needed =
      e.input.loader_rate > 0 ? std::ceil(1.1 * double(now) * demand(e) / e.input.loader_rate) : 2.0 * now;
  const int to = int(std::clamp(needed, 0.0, double(max_workers)));
  return to > workers ? Values{std::to_string(to)} : Values{};
}

Rule add_workers() {
  return {.bound = Bound::input,
          .key = "data.workers",
          .from = [](const BottleneckMetrics& e) { return std::to_string(e.config.input.workers); },
          .to = more_workers,
          .evidence =
              [](const BottleneckMetrics& e) {
                const int workers = e.config.input.workers, cores = e.config.machine.cores;
                return fmt::format("{} worker{} per rank on {} core{} kept {:.1f} batches ready on average", workers,
                                   plural(workers), cores, plural(cores), e.input.mean_queue_depth);
              }};
}

Rule another_reader() {
  return {.bound = Bound::input,
          .key = "data.reader",
          .from = [](const BottleneckMetrics& e) { return e.config.input.reader; },
          .to =
              [](const BottleneckMetrics& e) {
                const auto& input = e.config.input;
                Values to;
                if ((!e.probed && (decodes_mostly(e) || fast_enough(e))) || input.reader == "synthetic") return to;
                for (const char* name : {"direct", "mmap", "uring"})
                  if (!input.chunked && input.reader.find(name) == std::string::npos) to.emplace_back(name);
                return to;
              },
          .evidence = read_evidence};
}

Rule cache_in_memory() {
  return {.bound = Bound::input,
          .key = "data.cache",
          .from = [](const BottleneckMetrics& e) { return e.config.input.cache; },
          .to =
              [](const BottleneckMetrics& e) {
                const bool applies = e.config.input.cache == "none" && e.config.input.reader != "synthetic" &&
                                     !decodes_mostly(e) && !fast_enough(e);
                return applies ? Values{"memory"} : Values{};
              },
          .evidence = read_evidence,
          .proof = Rule::Proof::time};
}

Rule block_shuffle_of_tiny_samples() {
  return {.bound = Bound::input,
          .key = "data.shuffle",
          .from = present_shuffle,
          .to =
              [](const BottleneckMetrics& e) {
                return reads_are_tiny(e) && e.config.input.shuffle == "global" ? Values{"block"} : Values{};
              },
          .evidence = read_evidence,
          .caution = changes_sample_order};
}

Rule pack_decoded_samples() {
  return {.bound = Bound::input,
          .key = "pack",
          .from = [](const BottleneckMetrics& e) { return e.config.input.codec; },
          .to =
              [](const BottleneckMetrics& e) {
                return e.config.input.codec.empty() || !decodes_mostly(e)
                           ? Values{}
                           : Values{"decoded, at the size used for training"};
              },
          .evidence =
              [](const BottleneckMetrics& e) {
                return fmt::format("decoding is {:.0f} % of the loader's work; the files become larger",
                                   100 * e.input.decoding_share);
              },
          .proof = Rule::Proof::hint};
}

}  // namespace

std::vector<Rule> input_rules() {
  return {larger_chunk_cache(), block_shuffle_of_chunks(),       deeper_prefetch(),     add_workers(), another_reader(),
          cache_in_memory(),    block_shuffle_of_tiny_samples(), pack_decoded_samples()};
}

}  // namespace millrace
