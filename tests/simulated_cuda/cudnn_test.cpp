// The rules of the simulated cuDNN, broken by a convolution of src/cuda.
#include "cuda/dnn/cudnn.hpp"

#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "cuda/dnn/conv.hpp"
#include "simulated_cuda/rules.hpp"

namespace millrace::cuda {
namespace cudnn_test {

// A convolution with its arguments, which a test makes wrong. Without a change it runs.
struct Convolution {
  cudaStream_t stream = nullptr;
  ConvSpec spec;
  std::unique_ptr<cudnn::Cudnn> library;
  std::unique_ptr<Op> op;
  OpArgs args;

  Convolution() {
    cudaSetDevice(0);
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudnn::Options options;
    options.choices.autotune = false;
    library = std::make_unique<cudnn::Cudnn>(LaunchContext{stream, 4}, options);
    spec.src = {2, 8, 8, 8};
    spec.out_channels = 8;
    spec.dtype = DType::f16;
    spec.window.kernel = {3, 3, 1};
    spec.window.pad = {1, 1, 0};
    op = make_conv(spec, LaunchContext{stream, 4}, *library);
    const auto tensor = [](const Shape& shape, DType type) {
      return Tensor{memory(std::size_t(shape.count()) * size_of(type)), type, shape};
    };
    args.src[0] = tensor(spec.src, DType::f16);
    args.dst = tensor(spec.dst(), DType::f16);
    args.weight[0] = tensor(spec.weight(), DType::f16);
    args.workspace = memory(op->memory_requirements().workspace);
    args.packed_weights = memory(op->memory_requirements().packed_weights);
  }
  static void* memory(std::size_t bytes) {
    void* p = nullptr;
    EXPECT_EQ(cudaMalloc(&p, bytes + 256), cudaSuccess);
    return p;
  }
  void run() {
    op->forward(args);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  }
};

TEST(SimulatedCudnn, RunsAConvolutionThatObeysTheRules) { Convolution().run(); }

TEST(SimulatedCudnn, RefusesWhatTheDocumentationForbids) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto broken = [](const std::function<void(Convolution&)>& change) {
    Convolution c;
    change(c);
    c.run();
  };
  EXPECT_VIOLATION(broken([](Convolution& c) { c.args.src[0].data = c.args.src[0].as<char>() + 2; }),
                   "cudnnBackendExecute on stream .*: the tensor at .* is not aligned to [0-9]+ bytes");
  EXPECT_VIOLATION(broken([](Convolution& c) { c.args.dst.data = c.args.dst.as<char>() + (1 << 20); }),
                   "cudnnBackendExecute on stream .* are not in one allocation");
  EXPECT_VIOLATION(broken([](Convolution&) { cudaSetDevice(1); }),
                   "the handle belongs to GPU 0, the thread uses GPU 1");
  EXPECT_VIOLATION(broken([](Convolution& c) { std::thread([&] { c.op->forward(c.args); }).join(); }),
                   "cudnnBackendExecute");
  EXPECT_VIOLATION(broken([](Convolution& c) { cudnnDestroy(c.library->handle()); }), "the handle does not exist");
  EXPECT_VIOLATION(broken([](Convolution& c) { cudaStreamDestroy(c.stream); }), "the stream does not exist");
  EXPECT_VIOLATION(broken([](Convolution& c) {
                     cudaStream_t other = nullptr;
                     cudaSetDevice(1);
                     cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
                     cudaSetDevice(0);
                     cudnnSetStream(c.library->handle(), other);
                   }),
                   "cudnnSetStream on stream .*: the stream belongs to GPU 1, the handle to GPU 0");
  EXPECT_VIOLATION(broken([](Convolution& c) {
                     cudnnHandle_t second = nullptr;
                     cudaStreamBeginCapture(c.stream, cudaStreamCaptureModeThreadLocal);
                     cudnnCreate(&second);
                   }),
                   "cudnnCreate: is not allowed while this thread captures");
}

}  // namespace cudnn_test
}  // namespace millrace::cuda
