// The keys of [comm], [cpu] and [cuda].
#include "config/key_groups.hpp"
#include "millrace/config/key_types.hpp"

namespace millrace {

void add_comm_keys(Keys& k) {
  using Progress = CollectiveOptions::Progress;
  using Backend = CudaOptions::CollectiveBackend;
  k.push_back(
      size_key(MR_FIELD(comm.bucket_size), Range{.low = 1024, .high = double(1ull << 40)},
               "gradients are all-reduced in buckets of this size. Small buckets start earlier, large ones have "
               "less overhead"));
  k.push_back(choice_key(MR_FIELD(comm.grad_dtype),
                         Choices<DType>{{"none", DType::f32}, {"bf16", DType::bf16}, {"fp16", DType::f16}},
                         "type of gradients during the all-reduce; bf16 and fp16 send half the bytes, with less "
                         "precision; none: they stay fp32"));
  k.push_back(
      switch_key(MR_FIELD(comm.overlap), "start all-reduces during the backward pass; the result is bitwise the same"));
  k.push_back(choice_key(
      MR_FIELD(comm.progress),
      Choices<Progress>{{"auto", Progress::automatic}, {"thread", Progress::thread}, {"inline", Progress::inline_}},
      "what drives communication progress. thread: a separate thread; inline: the training step itself; "
      "auto: a thread if a core is free"));
  k.push_back(
      choice_key(MR_FIELD(comm.backend),
                 Choices<Backend>{{"auto", Backend::automatic}, {"nccl", Backend::nccl}, {"mpi", Backend::mpi}},
                 "on GPUs: library of the all-reduce. mpi copies gradients through host memory and also works for "
                 "ranks that share a GPU; auto: NCCL if each rank has its own GPU"));
  k.push_back(duration_key(
      MR_FIELD(comm.timeout), above(0),
      "a rank that is stopped or stuck in a file system for longer ends the run with exit code 5, as does a "
      "wait of all ranks"));
}

void add_cpu_keys(Keys& k) {
  using Winograd = CpuOptions::Winograd;
  k.push_back(
      choice_key(MR_FIELD(cpu.winograd), Choices<Winograd>{{"auto", Winograd::automatic}, {"off", Winograd::off}},
                 "with fp32 and fp16, and with bf16 on processors without AMX: compute 3x3 convolutions of stride 1 by "
                 "Winograd's filtering in float32, with a quarter of the "
                 "multiplications, where that is faster. Rounding errors are up to 9 times as "
                 "large, and copies of the weights, where they are kept, four times"));
  k.push_back(switch_key(MR_FIELD(cpu.autotune),
                         "with run.deterministic = off: time the methods of each convolution at the first start, for "
                         "at most 5 s, and keep the fastest in ~/.cache/millrace (or $XDG_CACHE_HOME/millrace); remove "
                         "the file to time again; off: choose by fixed rules"));
}

void add_cuda_keys(Keys& k) {
  using Breadcrumbs = CudaOptions::Breadcrumbs;
  using Policy = CudaOptions::NcclCtaPolicy;
  k.push_back(switch_key(MR_FIELD(cuda.graph),
                         "capture a step once as a CUDA graph and replay it with one launch; off: launch each kernel, "
                         "for debugging"));
  k.push_back(number_key(MR_FIELD(cuda.graph_micro_batches), at_least(1),
                         "most micro-batches in one graph. A step with more of them uses several graphs. The input of "
                         "this many micro-batches is kept on the GPU as it was read"));
  k.push_back(choice_key(
      MR_FIELD(cuda.breadcrumbs),
      Choices<Breadcrumbs>{{"on", Breadcrumbs::each}, {"some", Breadcrumbs::some}, {"off", Breadcrumbs::none}},
      "what the error message of a failed captured step names. on: two operations that follow each other, or one with "
      "cuda.graph = off; some: a group of up to 17; off: only the step"));
  k.push_back(switch_key(MR_FIELD(cuda.autotune),
                         "time the candidates for each convolution and matrix product, and keep the fastest"));
  k.push_back(
      switch_key(MR_FIELD(cuda.tf32), "with fp32: use TF32 tensor cores, which round factors to 10 bits of mantissa"));
  k.push_back(switch_key(MR_FIELD(cuda.dependent_launch),
                         "launch millrace's own kernels while the kernel before them still runs; they wait on the GPU "
                         "until it has ended. Needs compute capability 9.0. Not tried on a GPU yet"));
  k.push_back(switch_key(MR_FIELD(cuda.persistent_norm),
                         "batch norms whose tensors fit into the shared memory of the GPU read them once, not twice. "
                         "With one rank only. Not tried on a GPU yet"));
  k.push_back(size_key(MR_FIELD(cuda.workspace), Range{.low = 0, .high = double(1ull << 40)},
                       "largest workspace that one operation of cuDNN may use"));
  k.push_back(
      number_key(MR_FIELD(cuda.nccl_max_ctas), between(1, 32),
                 "most thread blocks that NCCL may occupy; auto: NCCL chooses. Fewer disturb computing less, but "
                 "take longer",
                 auto_is_zero));
  k.push_back(choice_key(MR_FIELD(cuda.nccl_cta_policy),
                         Choices<Policy>{{"default", Policy::automatic}, {"efficiency", Policy::efficiency}},
                         "how NCCL (2.27 or newer) chooses its number of thread blocks. default: for the highest "
                         "bandwidth; efficiency: as few as give a decent one"));
  k.push_back(switch_key(MR_FIELD(cuda.nccl_windows),
                         "let GPUs access each other's gradients as symmetric windows, if NCCL (2.27 or newer) can on "
                         "all ranks; off: registered memory"));
}

}  // namespace millrace
