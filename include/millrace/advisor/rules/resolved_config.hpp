// ResolvedConfig: the configuration that a run really uses, after every `auto` was resolved. The values are those of
// rank 0. The rules of the verdict read it beside the measured times.
#pragma once
#include <cstdint>
#include <string>

namespace millrace {

struct ResolvedConfig {
  struct Machine {
    int ranks = 1;
    int cores = 1;    // that one rank may use
    int threads = 1;  // compute threads of one rank
    bool gpu = false;
    bool native_bf16 = false;       // the device computes in bf16 instead of emulating it
    bool oversubscribed = false;    // a host has more ranks than cores
    std::string placement_problem;  // what is wrong with the cores that the ranks are bound to; empty: nothing
  };

  struct Input {
    int workers = 0;   // loader threads of one rank
    int prefetch = 0;  // batches that are read ahead; 0: the queue adapts its depth
    std::string reader, shuffle, cache;
    std::uint64_t sample_bytes = 0;  // of one sample, decoded
    std::string value_type;          // of the values that are copied to the device: "u8"
    int value_bytes = 1;             // size of value_type
    std::string codec;               // what decodes the samples: "gzip", "JPEG or PNG"; empty: they are stored decoded
    bool chunked = false;            // the samples lie in HDF5 chunks
    std::int64_t chunk_rows = 0;     // samples of a chunk
    std::uint64_t chunk_cache = 0;   // bytes of data.chunk_cache
  };

  struct Communication {
    bool overlap = true;                                       // all-reduces start during the backward pass
    std::string grad_dtype;                                    // "none": gradients are sent as float32
    std::uint64_t bucket_size = 0;                             // bytes
    bool nccl = false;                                         // NCCL reduces the gradients
    std::string nccl_max_ctas, nccl_cta_policy, nccl_windows;  // the keys
  };

  struct Training {
    std::int64_t global_batch = 0, micro_batch = 0;  // samples
    int accumulation = 1;                            // micro-batches of a rank and step
    std::string precision;
    bool zero = false;      // optim.zero: each rank updates one shard of the weights
    bool balanced = false;  // train.balance is not `even`
    bool cuda_graph = true;
    int fusion = -1, max_fusion = 0;  // the requested fusion level (-1: the default) and the highest that exists
    std::string checkpoint_every;
    bool needs_evaluations = false;  // train.patience or the schedule plateau depends on them
  };

  Machine machine;
  Input input;
  Communication communication;
  Training training;
};

}  // namespace millrace
