// The file config.json of a model of Hugging Face transformers.
#pragma once
#include <filesystem>
#include <string>

#include "millrace/model/graph.hpp"

namespace millrace {

// Error(config): the file describes another network than the graph (before any rewrite): other heads, epsilons or
// frequencies, which the shapes of the weights do not show, or another size. The message says which keys of model give
// that network. Error(data): it cannot be read. network: ModelSpec::name; only gpt2 and llama are compared.
void require_same_network(const std::filesystem::path& config, const Graph& graph, const std::string& network);

}  // namespace millrace
