// Reading and writing of safetensors files, and headers that lie.
#include "millrace/weights/safetensors.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/types.hpp"
#include "support/expect_error.hpp"
#include "support/temporary_folder.hpp"

namespace millrace {
namespace safetensors_test {

using test::expect_error;

void write_file(const std::filesystem::path& path, const std::string& header, const std::string& data) {
  std::ofstream out(path, std::ios::binary);
  const std::uint64_t length = header.size();
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out << header << data;
}

template <class T>
std::string bytes_of(std::initializer_list<T> values) {
  std::string out(values.size() * sizeof(T), '\0');
  std::memcpy(out.data(), std::data(values), out.size());
  return out;
}

TEST(Safetensors, WhatIsWrittenIsRead) {
  const test::TemporaryFolder folder;
  const auto path = folder.path / "model.safetensors";
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const std::int64_t count = 7;
  SafetensorsWriter writer(path, {{"a.weight", "F32", {2, 3}}, {"steps", "I64", {}}},
                           {{"format", "pt"}, {written_by_key, "1"}});
  writer.write(values.data(), 16);
  writer.write(values.data() + 4, 8);
  writer.write(&count, sizeof count);
  EXPECT_FALSE(std::filesystem::exists(path));
  writer.finish();
  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  ASSERT_EQ(file.tensors().size(), 2u);
  const StoredTensor& a = file.tensors().at("a.weight");
  EXPECT_EQ(a.shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(file.tensors().at("steps").count(), 1);
  std::vector<float> read(4);
  file.read(a, 2, read);
  EXPECT_EQ(read, (std::vector<float>{3, 4, 5, 6}));
  EXPECT_EQ(a.begin % 64, 0u);
  expect_error(Exit::data, "type I64", [&] { file.read(file.tensors().at("steps"), 0, std::span(read).first(1)); });
}

TEST(Safetensors, OtherFloatingPointTypesAreConverted) {
  const test::TemporaryFolder folder;
  const auto path = folder.path / "types.safetensors";
  const std::string data = bytes_of<double>({0.5, -2}) + bytes_of<std::uint16_t>({0x3c00, 0xc100}) +
                           bytes_of<std::uint16_t>({0x3f80, 0xc020});
  write_file(path,
             R"({"d":{"dtype":"F64","shape":[2],"data_offsets":[0,16]},"h":{"dtype":"F16","shape":[2],)"
             R"("data_offsets":[16,20]},"b":{"dtype":"BF16","shape":[2],"data_offsets":[20,24]}})",
             data);
  const SafetensorsFile file(path);
  std::vector<float> read(2);
  file.read(file.tensors().at("d"), 0, read);
  EXPECT_EQ(read, (std::vector<float>{0.5f, -2}));
  file.read(file.tensors().at("h"), 0, read);
  EXPECT_EQ(read, (std::vector<float>{1, -2.5f}));
  file.read(file.tensors().at("b"), 0, read);
  EXPECT_EQ(read, (std::vector<float>{1, -2.5f}));
}

TEST(Safetensors, HeadersThatLieAreRefused) {
  const test::TemporaryFolder folder;
  const auto path = folder.path / "bad.safetensors";
  const auto refuses = [&](const std::string& header, const std::string& data, const char* why) {
    write_file(path, header, data);
    expect_error(Exit::data, why, [&] { SafetensorsFile file(path); });
  };
  const std::string eight(8, '\0');
  refuses(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", eight, "do not agree");
  refuses(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "abcd", "is larger than the file");
  refuses(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})", eight, "do not agree");
  refuses(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})", eight, "is larger than");
  refuses(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", eight, "not of whole numbers");
  refuses(R"({"a":{"dtype":"Q4","shape":[2],"data_offsets":[0,8]}})", eight, "the unknown type Q4");
  refuses(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", eight, "do not begin where");
  refuses(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", eight, "4 bytes at its end");
  refuses(
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
      eight, "do not begin where");
  refuses(
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
      eight, "it has 'a' twice");
  refuses("[1, 2]", eight, "not an object");
  refuses("{", eight, "not as the format has it");
  refuses(std::string(100000, '['), eight, "not as the format has it");
  refuses(R"({"a":7})", eight, "not as the format has it");
  std::ofstream(path, std::ios::binary) << "abc";
  expect_error(Exit::data, "too short", [&] { SafetensorsFile file(path); });
  std::ofstream(path, std::ios::binary) << bytes_of<std::uint64_t>({~0ull});
  expect_error(Exit::data, "the length of its header", [&] { SafetensorsFile file(path); });
  expect_error(Exit::data, "cannot open", [&] { SafetensorsFile file(folder.path / "gone"); });
}

TEST(Safetensors, FilesOfOthersAreNotReplaced) {
  const test::TemporaryFolder folder;
  const auto path = folder.path / "model.safetensors";
  const auto write = [&] {
    SafetensorsWriter writer(path, {{"a", "F32", {1}}}, {{written_by_key, "1"}});
    const float value = 1;
    writer.write(&value, sizeof value);
    writer.finish();
  };
  std::ofstream(path) << "precious";
  expect_error(Exit::data, "was not written by millrace", write);
  EXPECT_EQ(read_file(path), "precious");
  write_file(path, "{}", "");
  expect_error(Exit::data, "was not written by millrace", write);
  std::filesystem::remove(path);
  write();
  write();
  { SafetensorsWriter unfinished(folder.path / "other.safetensors", {{"a", "F32", {1}}}, {}); }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path), {}), 1);
}

}  // namespace safetensors_test
}  // namespace millrace
