// A data set without files: generated images from which a network can learn their class. Example of a spec:
// "synthetic:images:rows=50000,shape=32x32x3,classes=10,seed=1".
#pragma once
#include <memory>
#include <string>

#include "millrace/data/read/source.hpp"

namespace millrace {

ShardIndex synthetic_index(const std::string& spec);  // Error(config)
std::unique_ptr<Source> make_synthetic_source(const ShardIndex&);

}  // namespace millrace
