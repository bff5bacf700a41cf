// The keys of [data] that divide the samples into parts.
#include <fmt/core.h>

#include "config/key_groups.hpp"
#include "millrace/config/key_types.hpp"

namespace millrace {
namespace {

Key split_key() {
  Key key =
      numbers_key(MR_FIELD(data.split), between(0, 1),
                  "divides the samples of data.train: shares of training, validation and test, such as 0.8,0.1,0.1, "
                  "or of the first two. The rest of a sum below 1 is not used. Takes the place of data.valid; "
                  "empty: no split");
  key.set = [any = key.set](RunConfig& c, const std::vector<std::string>& words) {
    any(c, words);
    const auto& shares = c.data.split;
    if (shares.empty()) return;
    if (shares.size() < 2 || shares.size() > 3)
      fail(Exit::config, "there are {} shares. give those of training, validation and, if wanted, test: 0.8,0.1,0.1",
           shares.size());
    double sum = 0;
    for (const double share : shares) sum += share;
    if (sum > 1 + 1e-6) fail(Exit::config, "the shares sum to {:g}, which is more than 1. lower them", sum);
    if (shares[0] == 0) fail(Exit::config, "the first share, of training, is 0. raise it");
  };
  return key;
}

Key fold_key() {
  return {.name = "data.fold",
          .value_format = "number/number or none",
          .help =
              "cross-validation: 2/5 divides the samples of data.train, without those for the test, into five equal "
              "parts, validates on the second and trains on the others",
          .set =
              [](RunConfig& c, const std::vector<std::string>& words) {
                const std::string& text = single_word(words);
                if (text == "none") return void(c.data.fold = {});
                const std::size_t slash = text.find('/');
                if (slash == text.npos) fail(Exit::config, "'{}' is not a fold such as 2/5, nor none", text);
                const auto number = parse_number<std::int64_t>(text.substr(0, slash)),
                           of = parse_number<std::int64_t>(text.substr(slash + 1));
                if (of < 2 || of > 1000) fail(Exit::config, "'{}' is of {} folds. use 2 to 1000", text, of);
                if (number < 1 || number > of)
                  fail(Exit::config, "'{}': folds are numbered from 1 to {}. choose one of them", text, of);
                c.data.fold = {number, of};
              },
          .get =
              [](const RunConfig& c) {
                const Fold& fold = c.data.fold;
                return std::vector<std::string>{fold.of == 0 ? "none" : fmt::format("{}/{}", fold.number, fold.of)};
              }};
}

}  // namespace

void add_split_keys(Keys& k) {
  k.push_back(split_key());
  k.push_back(choice_key(
      MR_FIELD(data.split_by),
      Choices<SplitBy>{{"rows", SplitBy::rows}, {"labels", SplitBy::labels}, {"group", SplitBy::group}},
      "what data.split and data.fold divide. rows: all samples at random; labels: the samples of each class at random, "
      "so that all parts have the same shares of each class; group: rows with the same value of data.group stay "
      "together"));
  k.push_back(text_key(MR_FIELD(data.group), "name",
                       "split_by = group: data set of the files with an integer for each row, such as the number of a "
                       "patient"));
  k.push_back(fold_key());
  k.push_back(number_key(MR_FIELD(data.split_seed), at_least(0),
                         "of the random choice of data.split and data.fold; another run.seed leaves the parts as they "
                         "are"));
  k.push_back(choice_key(
      MR_FIELD(data.eval_split),
      Choices<SplitPart>{{"train", SplitPart::train}, {"valid", SplitPart::valid}, {"test", SplitPart::test}},
      "part of data.split that millrace eval and predict take, unless data.valid names other files; their option "
      "--split is the same. A training always validates on valid"));
}

}  // namespace millrace
