// GpuModel: the rates of a GPU, for predictions on machines without one.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/types.hpp"

namespace millrace::roofline {

// Shares of the data sheet's rates that kernels reach. They are assumptions, not measurements of millrace.
//
// Kernels that stream large tensors reach 4.1 of an H200's 4.8 TB/s.
constexpr double default_memory_efficiency = 0.85;
// An H200 sustains about 800 of its 989 TFLOP/s under load, because its clock falls; convolutions reach 70 % of that.
constexpr double default_tensor_efficiency = 0.57;
// Bus bandwidth of large all-reduces in NCCL's own tests, as a share of NVLink's rate in one direction.
constexpr double default_link_efficiency = 0.8;
// From the end of a kernel to the start of the next one in a CUDA graph: 1 to 2 us by what is known of small kernels.
constexpr double default_launch_gap = 1.5e-6;

struct GpuModel {
  std::string name;
  double memory_bandwidth = 0;  // B/s
  // FLOP/s of products without sparsity, by the type of the factors. The 16-bit types and tf32 use tensor cores.
  double fp16 = 0, bf16 = 0, tf32 = 0, fp32 = 0;
  double nvlink = 0;  // B/s in one direction; 0: unknown
  double memory_efficiency = default_memory_efficiency, tensor_efficiency = default_tensor_efficiency;
  double link_efficiency = default_link_efficiency;
  double launch_gap = default_launch_gap;  // seconds
  double multiprocessors = 0;              // with cuda.persistent_norm; 0: unknown
  double shared_memory = 0;                // bytes of a multiprocessor, likewise

  double product_rate(DType factors, bool use_tf32) const;  // FLOP/s by the data sheet
};

// Data-sheet rates of the SXM modules: a100 (80 GB), b200, h100, h200. Null: none has this name.
const GpuModel* find_gpu(std::string_view name);
std::string gpu_names();  // "a100, b200, h100, h200"

// A GPU from text, one `key = value` a line; # begins a comment. Error(config) names `path`, the line and the key.
//   name, memory_bandwidth (4.8TB/s), fp16 (989e12, in FLOP/s), bf16, tf32, fp32, nvlink (450GB/s), launch_gap (1.5us),
//   memory_efficiency, tensor_efficiency, link_efficiency (0 to 1), multiprocessors, shared_memory (228KiB)
// memory_bandwidth and fp16 are required. bf16 defaults to fp16, tf32 to half of fp16, fp32 to tf32 / 8.
GpuModel parse_gpu(const std::string& path, const std::string& text);

}  // namespace millrace::roofline
