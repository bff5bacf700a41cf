// Networks of the zoo for volumes, as lines of text.
#pragma once
#include "millrace/model/zoo.hpp"

namespace millrace {

std::vector<std::string> cosmoflow_layers(const ModelSpec&);
std::vector<std::string> hyperspectral_layers(const ModelSpec&);

}  // namespace millrace
