// Splits the labelled pixels of one scene into a training and a validation part. Private to the data room.
#pragma once
#include <vector>

#include "millrace/data/index/shards.hpp"

namespace millrace {

// Returns the pixels of the validation part or of the training part. The patches of neighbouring pixels overlap, so a
// random choice of pixels would leak the validation part into training. Instead, square blocks of the scene are held
// out until they contain the fraction view.holdout of the labelled pixels. A block is four patches wide; the choice
// depends on the labelled pixels only. Pixels near a block are in neither part if their patches overlap the patch of a
// held-out pixel: the margin is one pixel less than a patch.
std::vector<Pixel> spatial_holdout(std::vector<Pixel> labelled, const SampleView& view, bool validation_part);

}  // namespace millrace
