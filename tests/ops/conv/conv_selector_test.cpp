// The choice of the methods of a convolution, by rule and by timing.
#include "cpu/choice/conv_selector.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "cpu/winograd/tiles.hpp"
#include "millrace/base/files.hpp"
#include "support/temporary_folder.hpp"

namespace millrace {
namespace conv_selector_test {

using cpu::ConvMethod, cpu::ConvMethods, cpu::ConvSelector;
namespace fs = std::filesystem;

ConvSpec conv() {
  ConvSpec s;
  s.src = {4, 8, 8, 64};
  s.out_channels = 64;
  s.window = {.kernel = {3, 3, 1}, .pad = {1, 1, 0}};
  return s;
}

// The user's cache folder is a new one while it lives.
class ConvSelectorFile : public ::testing::Test {
 protected:
  ConvSelectorFile() { setenv("XDG_CACHE_HOME", own_.path.c_str(), 1); }
  ~ConvSelectorFile() override { unsetenv("XDG_CACHE_HOME"); }
  fs::path file() const {
    for (const auto& entry : fs::directory_iterator(own_.path / "millrace")) return entry.path();
    return {};
  }
  bool has_file() const { return fs::exists(own_.path / "millrace"); }
  const test::TemporaryFolder own_;
};

TEST_F(ConvSelectorFile, RulesReadAndWriteNoFile) {
  ConvSelector selector({});
  const ConvMethods m = selector.methods(conv());
  EXPECT_EQ(m.forward, ConvMethod::rule);
  EXPECT_TRUE(m.winograd);
  EXPECT_FALSE(ConvSelector({.winograd = false}).methods(conv()).winograd);
  EXPECT_FALSE(has_file());
}

TEST_F(ConvSelectorFile, TimedChoicesAreKept) {
  if (!cpu::winograd::supports(conv())) GTEST_SKIP() << "this processor has no other methods";
  const ConvMethods timed = ConvSelector({.timing = true}).methods(conv());
  EXPECT_NE(timed.forward, ConvMethod::tiles);
  ASSERT_TRUE(has_file());
  // What is in the file is used, so the second start does not time.
  std::string text = read_file(file());
  const auto begin = text.find("\"plan\":\"") + 8;
  const auto with = [&](const std::string& plan) {
    std::string changed = text;
    changed.replace(begin, text.find('"', begin) - begin, plan);
    write_file_atomically(file(), changed);
    return ConvSelector({.timing = true}).methods(conv());
  };
  const ConvMethods kept = with("F(2x2) kn2row direct");
  EXPECT_EQ(kept.forward, ConvMethod::winograd_2);
  EXPECT_EQ(kept.data, ConvMethod::kn2row);
  EXPECT_EQ(kept.weights, ConvMethod::direct);
  EXPECT_EQ(with("unknown").forward, ConvMethod::rule);
}

TEST_F(ConvSelectorFile, IsNotAskedWhileTimingIsOff) {
  ConvSelector selector({.timing = true});
  selector.set_timing(false);
  EXPECT_EQ(selector.methods(conv()).forward, ConvMethod::rule);
  EXPECT_FALSE(has_file());
}

TEST_F(ConvSelectorFile, WinogradIsNoCandidateIfItIsOff) {
  const ConvMethods m = ConvSelector({.winograd = false, .timing = true}).methods(conv());
  for (const ConvMethod method : {m.forward, m.data, m.weights}) {
    EXPECT_NE(method, ConvMethod::winograd_2);
    EXPECT_NE(method, ConvMethod::winograd_4);
  }
}

}  // namespace conv_selector_test
}  // namespace millrace
