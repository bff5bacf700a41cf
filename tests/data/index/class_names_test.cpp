// Class names from the input through the shards to a run.
#include "millrace/data/index/class_names.hpp"

#include <gtest/gtest.h>

#include "data/files.hpp"
#include "millrace/data/index/shards.hpp"
#include "millrace/data/pack/pack.hpp"
#include "millrace/data/scan/index_shards.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {
namespace class_names_test {

using test::TemporaryFolder;
using Names = std::vector<std::string>;

struct Named : test::Rows {
  Names names;
  explicit Named(Names n) : names(std::move(n)) {}
  Names class_names() const override { return names; }
};

std::string packed(const Importer& in, const std::filesystem::path& out) {
  const auto world = solo_world();
  return pack(*world, in, {.out = out}).files.at(0);
}

ShardIndex index_of(const std::vector<std::string>& paths) {
  const auto world = solo_world();
  return index_shards(*world, {.paths = paths});
}

TEST(ClassNames, JoinedNamesAreParsedBack) {
  for (const Names& names : {Names{}, Names{"one"}, Names{"a", "b c", "\xc3\xa9"}})
    EXPECT_EQ(parse_class_names(join_class_names(names)), names);
}

TEST(ClassNames, TheFirstMismatchIsDescribed) {
  EXPECT_EQ(first_class_mismatch({"a", "b"}, {"a", "b"}), "");
  EXPECT_EQ(first_class_mismatch({}, {"a", "b"}), "");
  EXPECT_EQ(first_class_mismatch({"a", "c"}, {"a", "b", "c"}), "label 1 is 'c', not 'b' as");
  EXPECT_EQ(first_class_mismatch({"a", "b", "c"}, {"a", "b"}), "label 2 is 'c', not nothing as");
}

TEST(ClassNames, RepackedShardsKeepTheNames) {
  const TemporaryFolder folder;
  const Names seven{"a", "b", "c", "d", "e", "f", "g"};
  ImportOptions again;
  again.x = {packed(Named(seven), folder.path / "first")};
  const std::string second = packed(*make_importer(again), folder.path / "second");
  EXPECT_EQ(io::File::open(second).get_string("/", "class_names"), "a\nb\nc\nd\ne\nf\ng");
  EXPECT_EQ(index_of({second}).classes.names, seven);
}

TEST(ClassNames, NamesLargerThanAnObjectHeaderAreStored) {
  const TemporaryFolder folder;
  Names many;
  for (int i = 0; i < 22000; ++i) many.push_back("n" + std::to_string(10000000 + i));
  EXPECT_EQ(index_of({packed(Named(many), folder.path)}).classes.names, many);
}

TEST(ClassNames, ShardsWithOtherClassNumbersAreRefused) {
  const TemporaryFolder folder;
  const std::string a = packed(Named({"cat", "dog"}), folder.path / "a"), b = packed(Named({"dog"}), folder.path / "b"),
                    none = packed(test::Rows(), folder.path / "none");
  const std::string message = test::message_of([&] { index_of({a, b}); });
  EXPECT_NE(message.find("in " + b + " label 0 is 'dog', not 'cat' as in " + a), std::string::npos) << message;
  EXPECT_EQ(index_of({none, a}).classes.names.size(), 2u);
}

}  // namespace class_names_test
}  // namespace millrace
