// The operations made of kernels of our own, one maker per Spec, each in the .cu file of its name. backend.cpp calls
// them; so does the tests' backend that runs the same files on the host. f32, bf16 and f16.
#pragma once
#include <memory>

#include "cuda/runtime/block.hpp"
#include "millrace/ops/backend.hpp"

namespace millrace::cuda {

std::unique_ptr<Op> make_batch_norm(const BatchNormSpec&, const LaunchContext&);
std::unique_ptr<Op> make_pool(const PoolSpec&, const LaunchContext&);
std::unique_ptr<Op> make_activation(const ActivationSpec&, const LaunchContext&);
std::unique_ptr<Op> make_add(const AddSpec&, const LaunchContext&);
std::unique_ptr<Op> make_dropout(const DropoutSpec&, const LaunchContext&);
std::unique_ptr<Op> make_input(const InputSpec&, const LaunchContext&, Device&);
std::unique_ptr<Op> make_cross_entropy(const CrossEntropySpec&, const LaunchContext&);
std::unique_ptr<Op> make_mse(const MseSpec&, const LaunchContext&);
std::unique_ptr<Op> make_embedding(const EmbeddingSpec&, const LaunchContext&);
std::unique_ptr<OptimizerOp> make_optimizer(const OptimizerSpec&, const LaunchContext&, Device&);
// dst <- src, between f32, bf16 and f16 (any pair).
void convert(const LaunchContext&, void* dst, DType dst_type, const void* src, DType src_type, std::int64_t count);
// dst <- src (GradMode::write) or dst <- dst + src: 16-bit weight gradients on their way into the flat float32 one.
void accumulate(const LaunchContext&, float* dst, const void* src, DType src_type, std::int64_t count, GradMode);
// sum[c] <- or += sum over rows of values[r, c]: gradients of a bias. workspace: row_sums_bytes().
std::size_t column_sums_bytes(std::int64_t rows, std::int64_t columns, const LaunchContext&);
void column_sums(const LaunchContext&, float* sum, const void* values, DType, std::int64_t rows, std::int64_t columns,
                 GradMode, void* workspace);

}  // namespace millrace::cuda
