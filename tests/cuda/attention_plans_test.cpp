// The graphs of attention, for the description of an H200. cuDNN compiles their engines when a plan is made, so that
// there are no plans without a GPU: all is well until the module is loaded.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <set>

#include "cuda/dnn/attention_graph.hpp"
#include "millrace/base/files.hpp"

namespace millrace {
namespace attention_plans_test {

using namespace cuda;
using cudnn::AttentionProblem;

std::string h200() { return read_file(MILLRACE_SOURCE_DIR "/tests/cuda/h200.json"); }

AttentionSpec attention(std::int64_t rows, std::int64_t positions, std::int64_t heads, std::int64_t key_heads,
                        std::int64_t size, bool causal, DType dtype = DType::bf16) {
  return {{rows, positions, (heads + 2 * key_heads) * size}, heads, key_heads, causal, dtype, Mode::train};
}

// GPT-2, a vision transformer, grouped queries, one key head, few positions, the smallest and the largest heads.
const AttentionSpec supported[] = {
    attention(32, 1024, 12, 12, 64, true), attention(64, 197, 12, 12, 64, false, DType::f16),
    attention(8, 2048, 32, 8, 128, true),  attention(8, 256, 12, 1, 64, false),
    attention(3, 5, 2, 2, 8, true),        attention(4, 128, 4, 4, 256, true)};

// GPT-2 and few positions also with dropout and with documents.
std::vector<AttentionProblem> problems(const AttentionSpec& s) {
  std::vector<AttentionProblem> out;
  const bool all = s.src[0] == 32 || s.src[0] == 3;
  for (const float dropout : {0.0f, 0.1f})
    for (const bool documents : {false, true}) {
      if (!all && (dropout > 0 || documents)) continue;
      AttentionSpec variant = s;
      variant.dropout = dropout;
      variant.documents = documents;
      for (const AttentionProblem& p : {AttentionProblem{variant}, {variant, true, false}, {variant, true, true}})
        out.push_back(p);
    }
  return out;
}

TEST(AttentionGraphs, CudnnAcceptsTheOperations) {
  const auto target = cudnn::DeviceTarget::described_by(h200());
  for (const AttentionSpec& s : supported)
    for (const AttentionProblem& p : problems(s)) EXPECT_NO_THROW(cudnn::AttentionGraph(target, p)) << p.key();
}

TEST(AttentionGraphs, HaveKeysAndArgumentsOfTheirOwn) {
  std::set<std::string> keys;
  for (const AttentionSpec& s : supported)
    for (const AttentionProblem& p : problems(s)) {
      EXPECT_TRUE(keys.insert(p.key()).second) << p.key();
      EXPECT_EQ(p.arguments().size(), (!p.backward    ? 5u
                                       : p.accumulate ? 11u
                                                      : 10u) +
                                          (p.spec.drops() ? 2 : 0) + p.spec.documents);
    }
  // Keys and values lie in the memory of the queries, behind those of all heads.
  const auto arguments = AttentionProblem{attention(2, 5, 4, 2, 8, true)}.arguments();
  EXPECT_EQ(arguments[1].part_of, arguments[0].role);
  EXPECT_EQ(arguments[1].offset, 2u * 4 * 8);
  EXPECT_EQ(arguments[2].offset, 2u * 6 * 8);
}

// With the toolkit's libcuda.so.1, as in plans_test.cpp.
TEST(RunTimePlansLong, AttentionIsCompiledForAnH200) {
  const auto target = cudnn::DeviceTarget::described_by(h200());
  for (const AttentionSpec& s : supported)
    for (const AttentionProblem& p : problems(s)) {
      const auto engines = cudnn::AttentionGraph(target, p).runtime_compiled({.deterministic = !p.accumulate});
      if (&s == supported && engines.proposed == 0) GTEST_SKIP() << "no libcuda.so.1 here, not even the stub";
      std::printf("%s: %d proposed, %s\n", p.key().c_str(), engines.proposed, engines.why_not.c_str());
      EXPECT_GT(engines.proposed, 0) << p.key();
      EXPECT_NE(engines.why_not.find("cuLibraryLoadData"), std::string::npos) << p.key() << engines.why_not;
    }
}

// Which is why kernels compute these.
TEST(RunTimePlansLong, CudnnHasNoEngineForOtherHeadsAndTypes) {
  const auto target = cudnn::DeviceTarget::described_by(h200());
  for (const AttentionSpec& s : {attention(4, 128, 4, 4, 20, true), attention(4, 128, 4, 4, 264, true),
                                 attention(4, 128, 4, 4, 64, true, DType::f32)})
    EXPECT_EQ(cudnn::AttentionGraph(target, {s, true}).runtime_compiled({.tf32 = true}).proposed, 0) << s.src.str();
}

}  // namespace attention_plans_test
}  // namespace millrace
