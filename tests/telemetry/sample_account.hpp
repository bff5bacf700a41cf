// An account with a value in every field, for tests that write it and read it back.
#pragma once
#include <string>

#include "millrace/telemetry/account.hpp"

namespace millrace::test {

// An account whose values differ between fields and between ranks. Most values are not round.
inline RankAccount sample_account(int rank) {
  RankAccount r;
  r.host = "node" + std::to_string(rank);
  for (int p = 0; p < phase_count; ++p) r.seconds[std::size_t(p)] = (p + 1) / 7.0 + (rank * 5 % 3) * 10;
  for (const double seconds : r.seconds) r.wall_seconds += seconds;
  r.loader = {.batches = 11u + unsigned(rank),
              .samples = 99u + unsigned(rank),
              .bytes_read = 5'000'000'000u + unsigned(rank),
              .queue_depth_sum = 37u + unsigned(rank),
              .queue_depths = {5, 6u + unsigned(rank)},
              .wait_seconds = 0.1 + rank,
              .read_seconds = 1 / 3.0 + rank,
              .decoded = {11u + unsigned(rank), 1 / 13.0 + rank},
              .room_seconds = 1 / 7.0 + rank,
              .copy_seconds = 1 / 17.0 + rank,
              .copied_bytes = 12'345u + unsigned(rank),
              .copied_samples = 77u + unsigned(rank),
              .first_batch_seconds = 1 / 9.0 + rank,
              .workers = 3 + rank,
              .clock_reads = 17u + unsigned(rank)};
  r.step_times = {0.1 + rank, 0.2, 0.3, 0.4, 0.5};
  r.sums = {{0, 42, 4200, 0.1, 0.3 + rank, 0.2, CollectiveOp::all_reduce, 0.4 + rank, 0.7}, {-1, 42, 84, 0, 1e-3, 0}};
  r.process = {12.5 + rank, 0.25, 77, 3u << 29, 1u << 29, "0-" + std::to_string(rank), 99.5 + rank, 0.125};
  r.network_link = {"eth" + std::to_string(rank), 1.25e9,
                    rank == 0 ? NetworkLink::Kind::interface : NetworkLink::Kind::infiniband};
  r.pace.steps = 40;
  r.pace.step = 0.1 / 3;
  r.pace.ready = {{4096, 1e-3}, {8192, 2e-3 + rank}};
  r.pace.own = {{0.03, 39}, {0.05, 1}};
  r.pace.meets = false;
  r.pace.micro_batches = 2;
  r.pace.input_pass = 1e-6 / 3;
  r.cores = 4;
  r.threads = 3 + rank;
  r.checkpoints = 2;
  r.evaluations = 5 + rank;
  r.skipped_steps = 7;
  r.scales.add(1, 65536);
  r.scales.add(9, 32768);
  r.flops = 1e9 / 3;
  r.marks = 24;
  r.mark_seconds = 3e-8;
  r.memory_limit = 8e9;
  r.faults.retries = 3u + unsigned(rank);
  r.faults.skipped_samples = 4u + unsigned(rank);
  r.faults.files = {
      {"a" + std::to_string(rank) + ".h5", 3u + unsigned(rank), 4u + unsigned(rank), rank == 1, "no luck"}};
  r.comm_busy_seconds = 2 / 3.0 + rank;
  r.comm_bytes = 6'000'000'000u + unsigned(rank);
  r.steps = 42;
  r.samples = 1500u + unsigned(rank);
  r.memory_bytes = 7'000'000'000u + unsigned(rank);
  return r;
}

}  // namespace millrace::test
