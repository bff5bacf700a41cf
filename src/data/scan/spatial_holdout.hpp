// One scene for training and for validation. Private to the data room.
#pragma once
#include <vector>

#include "millrace/data/index/shards.hpp"

namespace millrace {

// The pixels of a scene that train or, held_out, validate. Patches of neighbours overlap, so a random half of the
// pixels would be seen almost whole in training: instead square blocks of the scene are held out, of four patches a
// side, at random places that depend on the labelled pixels alone, until view.holdout of these are in them. Pixels
// outside whose patch overlaps that of a pixel held out, which is a margin of a patch less one around the blocks, are
// in neither part.
std::vector<Pixel> spatial_holdout(std::vector<Pixel> labelled, const SampleView& view, bool validation_part);

}  // namespace millrace
