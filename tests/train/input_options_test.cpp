#include "../../src/train/input_options.hpp"

#include <gtest/gtest.h>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

TEST(InputOptions, SamplesDoNotMoveAwayFromTheirTargets) {
  ShardIndex fields;
  fields.sample = {8, 8, 1}, fields.target = {8, 8}, fields.labels = false;
  FeedOptions feed;
  feed.augment = true;
  for (const auto& [pad, flip, zoom, refused] :
       {std::tuple{0, false, 0.0, false}, {1, false, 0.0, true}, {0, true, 0.0, true}, {0, false, 0.5, true}}) {
    feed.crop_pad = pad, feed.flip = flip, feed.zoom = zoom;
    std::string message;
    try {
      input_spec(feed, fields, 1);
    } catch (const Error& e) {
      message = e.what();
    }
    EXPECT_EQ(message.find("their targets of 8x8 would not be") != message.npos, refused) << message;
    EXPECT_EQ(message.empty(), !refused) << message;
  }
  ShardIndex labels = fields;
  labels.target = {}, labels.labels = true;
  feed.zoom = 0, feed.flip = true;
  EXPECT_NO_THROW(input_spec(feed, labels, 1));
}

}  // namespace
}  // namespace millrace
