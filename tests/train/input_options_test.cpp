#include "train/session/input_options.hpp"

#include <gtest/gtest.h>

#include "millrace/base/error.hpp"

namespace millrace {
namespace input_options_test {

TEST(InputOptions, AugmentationThatWouldNotMatchTheTargetsIsRefused) {
  ShardIndex fields;
  fields.sample = {8, 8, 1};
  fields.y.target = {8, 8};
  fields.y.labels = false;
  DataConfig feed;
  feed.augment = true;
  for (const auto& [pad, flip, zoom, refused] :
       {std::tuple{0, false, 0.0, false}, {1, false, 0.0, true}, {0, true, 0.0, true}, {0, false, 0.5, true}}) {
    feed.crop_pad = pad;
    feed.flip = flip;
    feed.random_resized_crop = zoom;
    std::string message;
    try {
      input_spec(feed, fields, 1);
    } catch (const Error& e) {
      message = e.what();
    }
    EXPECT_EQ(message.find("without their targets of 8x8") != message.npos, refused) << message;
    EXPECT_EQ(message.empty(), !refused) << message;
  }
  ShardIndex labels = fields;
  labels.y.target = {};
  labels.y.labels = true;
  feed.random_resized_crop = 0;
  feed.flip = true;
  EXPECT_NO_THROW(input_spec(feed, labels, 1));
}

std::string refusal(const DataConfig& feed, const Shape& sample) {
  ShardIndex index;
  index.sample = sample;
  try {
    input_spec(feed, index, 1);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(InputOptions, AugmentationThatWouldHideASampleIsRefused) {
  DataConfig feed;
  feed.augment = true;
  feed.crop_pad = 8;
  EXPECT_NE(refusal(feed, {8, 12, 3}).find("data.crop_pad: with 8 on each side"), std::string::npos);
  feed.crop_pad = 7;
  EXPECT_EQ(refusal(feed, {8, 12, 3}), "");
  feed.cutout = 12;
  EXPECT_NE(refusal(feed, {8, 12, 3}).find("data.cutout: a square of 12 covers whole samples"), std::string::npos);
  feed.cutout = 11;
  EXPECT_EQ(refusal(feed, {8, 12, 3}), "");
}

TEST(InputOptions, ColourJitterNeedsThreeChannelsAndAugmentation) {
  DataConfig feed;
  feed.hue = 0.1;
  EXPECT_NE(refusal(feed, {8, 8, 3}).find("no effect without data.augment = on"), std::string::npos);
  feed.augment = true;
  EXPECT_EQ(refusal(feed, {8, 8, 3}), "");
  EXPECT_NE(refusal(feed, {8, 8, 4}).find("the network takes 4 channels"), std::string::npos);
  feed.channels = {"0-2"};
  EXPECT_EQ(refusal(feed, {8, 8, 4}), "");
}

}  // namespace input_options_test
}  // namespace millrace
