// Copies of archives with other values of some tensors.
#include "millrace/pt2/archive_copy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "millrace/base/files.hpp"
#include "support/expect_error.hpp"
#include "support/temporary_folder.hpp"

namespace millrace::pt2 {
namespace archive_copy_test {

// With tied weights, a number of batches (int64), and buffers of which one is double precision.
const std::string archive = std::string(MILLRACE_SOURCE_DIR) + "/tests/fixtures/pt2/versions/v2.15_dyn.pt2";

std::vector<double> values_of(const ExportedProgram& program, const StoredTensor& t) {
  TensorReader reader(program);
  if (t.is_integer()) {
    std::vector<std::int64_t> out(std::size_t(t.count()));
    reader.read(t, out);
    return {out.begin(), out.end()};
  }
  std::vector<float> out(std::size_t(t.count()));
  reader.read(t, out);
  return {out.begin(), out.end()};
}

bool is_trained(const StoredTensor& t) { return t.parameter || t.name == "bn.num_batches_tracked"; }

TEST(ArchiveCopy, WithTheSameValuesDiffersInItsCommentAlone) {
  const test::TemporaryFolder folder;
  const ExportedProgram program = read_exported_program(archive);
  write_archive_copy(program, folder / "copy.pt2", "1.0, step 7", [&](const StoredTensor& t, auto& values) {
    values = values_of(program, t);
    return is_trained(t);
  });
  const std::string before = read_file(archive), after = read_file(folder / "copy.pt2");
  const std::string comment = "millrace 1.0, step 7";
  EXPECT_EQ(after.size(), before.size() + comment.size());
  EXPECT_EQ(after.substr(0, before.size() - 2), before.substr(0, before.size() - 2));  // then the size of the comment
  EXPECT_TRUE(after.ends_with(comment));
}

// libzip compares the checksums when it reads the copy.
TEST(ArchiveCopy, HasTheNewValuesAndTheOldOnesOfAllOthers) {
  const test::TemporaryFolder folder;
  const ExportedProgram program = read_exported_program(archive);
  const auto value = [](const StoredTensor& t, std::size_t i) { return double(t.sizes.size() + 3 * i); };
  write_archive_copy(program, folder / "copy.pt2", "", [&](const StoredTensor& t, auto& values) {
    values.resize(std::size_t(t.count()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(t, i);
    return is_trained(t);
  });
  const ExportedProgram copy = read_exported_program(folder / "copy.pt2");
  ASSERT_EQ(copy.tensors.size(), program.tensors.size());
  int trained = 0;
  for (std::size_t n = 0; n < copy.tensors.size(); ++n) {
    const StoredTensor& t = copy.tensors[n];
    if (t.type == ScalarType::boolean) continue;
    std::vector<double> expected = values_of(program, program.tensors[n]);
    if (is_trained(t))
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = value(t, i);
    trained += int(is_trained(t));
    EXPECT_EQ(values_of(copy, t), expected) << t.name;
  }
  EXPECT_EQ(trained, 8);
}

// The first rows of a table of positions are trained if the data has no more of them.
TEST(ArchiveCopy, FirstRowsLeaveTheOthers) {
  const test::TemporaryFolder folder;
  const ExportedProgram program = read_exported_program(archive);
  const StoredTensor& t = *std::ranges::find(program.tensors, "fc.weight", &StoredTensor::name);
  write_archive_copy(program, folder / "copy.pt2", "", [&](const StoredTensor& one, auto& values) {
    values.assign(128, 0.5);
    return one.name == t.name;
  });
  const auto before = values_of(program, t), after = values_of(read_exported_program(folder / "copy.pt2"), t);
  EXPECT_EQ(std::vector(after.begin(), after.begin() + 128), std::vector(128, 0.5));
  EXPECT_EQ(std::vector(after.begin() + 128, after.end()), std::vector(before.begin() + 128, before.end()));
}

TEST(ArchiveCopy, ReplacesOnlyFilesOfMillrace) {
  const test::TemporaryFolder folder;
  const ExportedProgram program = read_exported_program(archive);
  const auto copy = [&](const std::string& name, const std::string& note) {
    write_archive_copy(program, folder / name, note, [](const StoredTensor&, auto&) { return false; });
  };
  copy("own.pt2", "1");
  copy("own.pt2", "2");
  EXPECT_TRUE(read_file(folder / "own.pt2").ends_with("millrace 2"));
  std::filesystem::copy(archive, folder / "net.pt2");
  std::ofstream(folder / "text.pt2") << "precious";
  for (const char* name : {"net.pt2", "text.pt2"})
    test::expect_error(Exit::data, std::string(name) + " exists and was not written by millrace",
                       [&] { copy(name, "3"); });
  EXPECT_EQ(read_file(folder / "net.pt2"), read_file(archive));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path), {}), 3);  // no temporary file
}

}  // namespace archive_copy_test
}  // namespace millrace::pt2
