// Rules against waiting for all-reduces.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "advisor/rules/rule_lists.hpp"
#include "advisor/rules/rule_text.hpp"
#include "millrace/base/units.hpp"

namespace millrace {
namespace {

std::string bucket_evidence(const BottleneckMetrics& e) {
  const auto& c = e.config.communication;
  return fmt::format("all-reduces in buckets of {}, as {}", format_bytes(c.bucket_size),
                     c.grad_dtype == "none" ? "float32" : c.grad_dtype.c_str());
}

double bucket_count(const BottleneckMetrics& e, std::uint64_t bucket_size) {
  return std::ceil(e.communication.gradient_bytes / double(bucket_size));
}

Rule overlap() {
  return {.bound = Bound::communication,
          .key = "comm.overlap",
          .from = [](const BottleneckMetrics&) { return std::string("off"); },
          .to = [](const BottleneckMetrics& e) { return e.config.communication.overlap ? Values{} : Values{"on"}; },
          .evidence =
              [](const BottleneckMetrics&) {
                return std::string("no all-reduce starts before the backward pass has ended");
              }};
}

Rule send_bf16() {
  return {.bound = Bound::communication,
          .key = "comm.grad_dtype",
          .from = [](const BottleneckMetrics& e) { return e.config.communication.grad_dtype; },
          .to =
              [](const BottleneckMetrics& e) {
                return e.config.communication.grad_dtype == "none" ? Values{"bf16"} : Values{};
              },
          .evidence = bucket_evidence,
          .caution = rounds_more_coarsely};
}

// A quarter and four times the size, unless the gradient would be split into as many buckets as before.
Values other_bucket_sizes(const BottleneckMetrics& e) {
  const std::uint64_t now = e.config.communication.bucket_size;
  Values out;
  for (const std::uint64_t to : {std::max<std::uint64_t>(64 << 10, now / 4), now * 4})
    if (e.communication.gradient_bytes <= 0 || bucket_count(e, to) != bucket_count(e, now))
      out.push_back(as_key_value(to));
  return out;
}

Rule another_bucket_size() {
  return {.bound = Bound::communication,
          .key = "comm.bucket_size",
          .from = [](const BottleneckMetrics& e) { return format_bytes(e.config.communication.bucket_size); },
          .to = other_bucket_sizes,
          .evidence = bucket_evidence};
}

Rule fewer_all_reduces() {
  Rule rule = larger_global_batch(Bound::communication, Rule::Proof::hint);
  rule.evidence = [](const BottleneckMetrics& e) {
    return fmt::format("one all-reduce per {:.0f} samples; {}", e.run.batch, makes_larger_steps);
  };
  return rule;
}

std::string launch_option_for(const BottleneckMetrics& e) {
  const NetworkLink& link = e.communication.link;
  if (link.kind == NetworkLink::Kind::nvlink)
    return "without NCCL_P2P_DISABLE (NCCL_DEBUG=INFO shows the transport in use)";
  if (link.kind == NetworkLink::Kind::infiniband) return "UCX_NET_DEVICES=" + link.name + ":1";
  return e.config.machine.gpu ? "NCCL_SOCKET_IFNAME=" + link.name : "--mca btl_tcp_if_include " + link.name;
}

// The all-reduces reach less than a quarter of what the link is rated at: they may use another one.
Rule use_the_fast_link() {
  return {.bound = Bound::communication,
          .key = "mpirun",
          .from = [](const BottleneckMetrics&) { return std::string("as launched"); },
          .to =
              [](const BottleneckMetrics& e) {
                const double rate = e.communication.link_rate;
                return rate > 0 && 4 * rate < e.communication.link.rate ? Values{launch_option_for(e)} : Values{};
              },
          .evidence =
              [](const BottleneckMetrics& e) {
                const NetworkLink& link = e.communication.link;
                const bool one_host = link.kind == NetworkLink::Kind::nvlink;
                return fmt::format("all-reduces between {} reach {:.3f} GB/s; {} {} rated at {:.2f} GB/s",
                                   one_host ? "GPUs" : "hosts", e.communication.link_rate * 1e-9, link.name,
                                   one_host ? "are" : "is", link.rate * 1e-9);
              },
          .proof = Rule::Proof::hint};
}

}  // namespace

std::vector<Rule> communication_rules() {
  return {fewer_ranks(Bound::communication, Rule::Proof::time, "each rank then computes a larger share of a step"),
          fix_binding(Bound::communication, Rule::Proof::time),
          overlap(),
          send_bf16(),
          another_bucket_size(),
          fewer_all_reduces(),
          use_the_fast_link()};
}

}  // namespace millrace
