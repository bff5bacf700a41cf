// Metrics, accounts and configurations that the tests of the advisor share.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "millrace/advisor/rules/rules.hpp"
#include "millrace/advisor/rules/verdict.hpp"

namespace millrace {

// Half of the step waits for samples, a tenth for all-reduces.
inline BottleneckMetrics starved() {
  BottleneckMetrics e;
  e.times.step = 0.020;
  e.without.input = 0.010;
  e.without.communication = 0.008;
  e.run.batch = 128;
  e.input.loader_rate = 6400;
  e.config.machine.ranks = 2;
  e.config.input.workers = 1;
  e.config.machine.cores = 4;
  e.config.training.precision = "fp32";
  e.config.communication.grad_dtype = "none";
  e.config.input.reader = "direct";
  e.config.communication.bucket_size = 4 << 20;
  e.config.input.prefetch = 4;
  e.config.input.chunk_cache = 256 << 20;
  e.config.input.shuffle = "global";
  e.probed = true;
  return e;
}

inline bool tries(const std::vector<Change>& changes, const std::string& key, const std::string& to) {
  return std::any_of(changes.begin(), changes.end(), [&](const Change& c) { return c.key == key && c.to == to; });
}

// A CPU run in which every bound takes some time.
inline BottleneckMetrics everything_slow() {
  BottleneckMetrics e;
  e.times.step = 0.001;
  e.without.input = 0.0008;
  e.without.communication = 0.0006;
  e.times.imbalance = 0.0001;
  e.run.steps = 1000;
  e.times.checkpoint = 0.0005;
  e.times.evaluation = 0.0004;
  e.run.evaluations = 3;
  e.times.host = 0.0001;
  e.run.batch = 64;
  e.input.loader_rate = 1000;
  e.config.machine.ranks = 2;
  e.config.input.workers = 1;
  e.config.machine.cores = 2;
  e.config.machine.threads = 8;
  e.config.input.prefetch = 4;
  e.input.mean_queue_depth = 3;
  e.config.input.chunk_cache = 1 << 20;
  e.run.checkpoints = 9;
  e.config.training.checkpoint_every = "1e";
  e.run.wall_seconds = 100;
  e.run.startup_seconds = 50;
  e.machine.clock_share = 0.7;
  e.machine.throttle_reason = "power cap";
  e.config.training.precision = "fp32";
  e.config.communication.grad_dtype = "none";
  e.config.input.reader = "direct";
  e.config.input.cache = "none";
  e.config.communication.bucket_size = 1 << 20;
  e.config.machine.native_bf16 = true;
  e.config.communication.overlap = false;
  e.config.machine.placement_problem = "bound to one core";
  e.config.machine.oversubscribed = true;
  e.config.training.global_batch = 64;
  e.config.input.sample_bytes = 784;
  e.straggler = {1, "node7", "a slow disk", 0.0001, 0};
  e.times.balance_gain_seconds = 0.00005;
  e.times.optimizer = 0.0004;
  e.machine.contention = {2, 0.5, 0.1};
  return e;
}

// Each rule applies to at least one of these.
inline std::vector<BottleneckMetrics> all_kinds() {
  const BottleneckMetrics e = everything_slow();
  BottleneckMetrics chunked = e;
  chunked.config.machine.placement_problem.clear();
  chunked.config.input.chunked = true;
  chunked.config.input.shuffle = "global";
  chunked.input.decodes_per_chunk = 5;
  chunked.config.input.codec = "zstd";
  chunked.input.decoding_share = 0.8;
  BottleneckMetrics launched = e;
  launched.config.input.shuffle = "global";
  launched.config.machine.gpu = true;
  launched.config.training.cuda_graph = false;
  launched.config.training.accumulation = 2;
  launched.config.training.micro_batch = 32;
  launched.times.copy = 0.0001;
  launched.config.input.value_type = "f32";
  launched.config.input.value_bytes = 4;
  launched.config.training.fusion = 0;
  launched.config.training.max_fusion = 2;
  launched.communication.link = {"eth0", 1.25e9};
  launched.communication.link_rate = 1e8;
  launched.machine.pcie = "generation 3 x4";
  launched.machine.max_pcie = "generation 4 x16";
  return {e, chunked, launched};
}

// 100 steps of 10 ms on each of two ranks: 9.6 ms of computing, 0.2 ms of communication.
inline Account healthy() {
  Account a;
  for (const char* host : {"node1", "node2"}) {
    RankAccount r;
    r.host = host;
    r.steps = 100;
    r.samples = 6400;
    r.wall_seconds = 1.1;
    r.step_times.mean = 0.010;
    r.cores = r.threads = 4;
    r.loader = {.batches = 100, .samples = 3200, .bytes_read = 3200000, .read_seconds = 0.2, .workers = 2};
    r.seconds[std::size_t(Phase::startup)] = 0.1;
    r.seconds[std::size_t(Phase::forward)] = r.seconds[std::size_t(Phase::backward)] = 0.48;
    r.seconds[std::size_t(Phase::communication)] = r.seconds[std::size_t(Phase::other)] = 0.02;
    a.ranks.push_back(r);
  }
  return a;
}

// The configuration of that account.
inline ResolvedConfig plain() {
  ResolvedConfig s;
  s.machine.ranks = 2;
  s.input.workers = 2;
  s.machine.cores = s.machine.threads = 4;
  s.input.prefetch = 4;
  s.input.reader = "direct";
  s.training.precision = "fp32";
  s.communication.grad_dtype = s.input.cache = "none";
  s.training.checkpoint_every = "1";
  s.training.global_batch = 64;
  s.training.micro_batch = 32;
  s.communication.bucket_size = 8 << 20;
  s.input.sample_bytes = 1000;
  return s;
}

inline double& of(RankAccount& r, Phase p) { return r.seconds[std::size_t(p)]; }

}  // namespace millrace
