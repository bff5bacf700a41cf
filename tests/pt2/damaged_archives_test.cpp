// Archives that are damaged, or made to harm: each is refused in one line, and nothing is written.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "millrace/pt2/exported_program.hpp"
#include "support/expect_error.hpp"
#include "support/temporary_folder.hpp"
#include "support/zip_writer.hpp"

namespace millrace::pt2 {
namespace damaged_archives_test {

using test::ZipRecords;
using Pairs = std::vector<std::pair<const char*, const char*>>;
using Triples = std::vector<std::tuple<const char*, const char*, const char*>>;

// y = relu(x), with a weight w of 2 x 3 float32 that nothing reads.
constexpr const char* graph = R"({"schema_version": {"major": 8, "minor": 20}, "torch_version": "2.15.0",
"graph_module": {"graph": {"nodes": [{"target": "torch.ops.aten.relu.default",
"inputs": [{"name": "self", "arg": {"as_tensor": {"name": "x"}}, "kind": 1}], "outputs": [{"as_tensor": {"name": "y"}}],
"metadata": {}}], "tensor_values": {"x": {"dtype": 7, "sizes": [{"as_expr": {"expr_str": "s0", "hint": {"as_int": 4}}},
{"as_int": 3}]}}}, "signature": {"input_specs": [{"parameter": {"arg": {"name": "p_w"}, "parameter_name": "w"}},
{"user_input": {"arg": {"as_tensor": {"name": "x"}}}}], "output_specs": [{"user_output": {"arg": {"as_tensor":
{"name": "y"}}}}]}}})";
constexpr const char* weights = R"({"config": {"w": {"path_name": "weight_0", "is_param": true, "use_pickle": false,
"tensor_meta": {"dtype": 7, "sizes": [{"as_int": 2}, {"as_int": 3}], "requires_grad": true,
"strides": [{"as_int": 3}, {"as_int": 1}], "storage_offset": {"as_int": 0}}}}})";

class DamagedArchives : public ::testing::Test {
 protected:
  ZipRecords records() const {
    return {{"net/models/model.json", graph},
            {"net/data/weights/model_weights_config.json", weights},
            {"net/data/weights/weight_0", std::string(24, 'a')}};
  }
  // The records with one text in the place of another.
  ZipRecords with(const std::string& old, const std::string& by) const {
    ZipRecords out = records();
    int found = 0;
    for (auto& [name, content] : out)
      for (std::string* text : {&name, &content})
        if (const auto at = text->find(old); at != text->npos) {
          text->replace(at, old.size(), by);
          ++found;
        }
    EXPECT_GT(found, 0) << old;
    return out;
  }
  ExportedProgram read(const std::string& bytes) const {
    std::ofstream(folder_ / "net.pt2", std::ios::binary) << bytes;
    return read_exported_program(folder_ / "net.pt2");
  }
  void expect_refused(const std::string& bytes, const std::string& words) const {
    const std::string message = test::message_of([&] { read(bytes); });
    EXPECT_NE(message.find(words), message.npos) << message;
    EXPECT_NE(message.find("net.pt2"), message.npos) << message;
    EXPECT_EQ(message.find('\n'), message.npos) << message;
  }
  const test::TemporaryFolder folder_;
};

TEST_F(DamagedArchives, ThoseThatTheTestsChangeAreGood) {
  const ExportedProgram program = read(test::zip_of(records()));
  EXPECT_EQ(program.nodes.size(), 1u);
  std::vector<float> w(6);
  TensorReader(program).read(program.tensors.at(0), w);
  EXPECT_NE(w[5], 0);
}

TEST_F(DamagedArchives, NamesThatLeaveTheFolderAreRefused) {
  for (const char* name : {"/net/x", "net/../x", "../net/x", "net\\x", "c:/x", "other/x", "x"}) {
    ZipRecords all = records();
    all.emplace_back(name, "1");
    SCOPED_TRACE(name);
    expect_refused(test::zip_of(all), "the record '");
  }
  expect_refused(test::zip_of(with("\"weight_0\"", "\"../../../../etc/passwd\"")), "no record");
}

TEST_F(DamagedArchives, RecordsThatOccurTwiceAreRefused) {
  ZipRecords all = records();
  all.push_back(all[0]);
  expect_refused(test::zip_of(all), "twice");
}

TEST_F(DamagedArchives, CompressedRecordsAreRefused) {
  ZipRecords all = records();
  all.emplace_back("net/zeros", std::string(1 << 20, '\0'));
  expect_refused(test::zip_of(all, true), "is compressed");
}

TEST_F(DamagedArchives, SizesThatLieAreRefused) {
  std::string bytes = test::zip_of(records());
  const auto entry = bytes.rfind("PK\1\2");  // of the last record
  ASSERT_NE(entry, bytes.npos);
  std::string larger = bytes;
  for (const std::size_t at : {entry + 20, entry + 24}) larger.replace(at, 4, test::little(1 << 30, 4));
  expect_refused(larger, "is larger than the file");
  bytes[bytes.find(std::string(24, 'a')) + 5] = 'b';
  const ExportedProgram program = read(bytes);  // the values are not read yet
  std::vector<float> w(6);
  test::expect_error(Exit::data, "cannot be read (CRC", [&] { TensorReader(program).read(program.tensors.at(0), w); });
}

TEST_F(DamagedArchives, TruncatedFilesAreRefused) {
  const std::string bytes = test::zip_of(records());
  for (std::size_t size = 0; size < bytes.size(); size += size < bytes.size() - 200 ? 53 : 1)
    expect_refused(bytes.substr(0, size), "net.pt2");
  expect_refused("no zip archive at all, but long enough to be one", "cannot be read as an exported network");
}

TEST_F(DamagedArchives, TensorsBeyondTheirRecordAreRefused) {
  for (const auto& [old, by] :
       Pairs{{"[{\"as_int\": 2}", "[{\"as_int\": 3}"},
             {"[{\"as_int\": 2}", "[{\"as_int\": 9000000000000000000}"},
             {"[{\"as_int\": 2}", "[{\"as_int\": -2}"},
             {"\"strides\": [{\"as_int\": 3}", "\"strides\": [{\"as_int\": 4}"},
             {"\"strides\": [{\"as_int\": 3}", "\"strides\": [{\"as_int\": -3}"},
             {"\"strides\": [{\"as_int\": 3}", "\"strides\": [{\"as_int\": 9000000000000000000}"},
             {"\"storage_offset\": {\"as_int\": 0}", "\"storage_offset\": {\"as_int\": 1}"},
             {"\"storage_offset\": {\"as_int\": 0}", "\"storage_offset\": {\"as_int\": -1}"},
             {"\"strides\": [{\"as_int\": 3}, ", "\"strides\": ["}}) {
    SCOPED_TRACE(by);
    expect_refused(test::zip_of(with(old, by)), "the tensor 'w' has");
  }
}

TEST_F(DamagedArchives, WrongJsonIsRefused) {
  for (const auto& [old, by, words] :
       Triples{{"\"major\": 8", "\"major\": 9", "version 9.20"},
               {"\"major\": 8", "\"major\": 8.5", "no integer"},
               {"\"name\": \"y\"}}]", "\"name\": \"x\"}}]", "two values are called 'x'"},
               {"{\"name\": \"x\"}}, \"kind\"", "{\"name\": \"z\"}}, \"kind\"", "before it is"},
               {"\"use_pickle\": false", "\"use_pickle\": true", "is pickled"},
               {"\"parameter_name\": \"w\"", "\"parameter_name\": \"v\"", "'v' has no values"},
               {"\"user_output\"", "\"buffer_mutation\"", "run_decompositions"},
               {"{\"schema_version\"", "{{", "is damaged"},
               {"\"nodes\": [", "\"nodes\": [7, ", "is damaged"},
               {"net/models/model.json", "net/models/other.json", "models/model.json is missing"},
               {"/model_weights_config.json", "/model.pt", "pickles the weights"},
               {"net/models/model.json", "net/data.pkl", "torch.save"}}) {
    SCOPED_TRACE(by);
    expect_refused(test::zip_of(with(old, by)), words);
  }
}

// torch.autocast(enabled=False) around what returns its input, a result, and that result once more.
TEST_F(DamagedArchives, ResultsOfInnerGraphsHaveNamesOfTheirOwn) {
  const std::string inner = R"({"nodes": [{"target": "torch.ops.aten.tanh.default", "inputs": [{"name": "self",
"arg": {"as_tensor": {"name": "i"}}}], "outputs": [{"as_tensor": {"name": "t"}}]}],
"inputs": [{"as_tensor": {"name": "i"}}],
"outputs": [{"as_tensor": {"name": "i"}}, {"as_tensor": {"name": "t"}}, {"as_tensor": {"name": "t"}}]})";
  const std::string autocast =
      R"({"target": "torch.ops.higher_order.wrap_with_autocast", "inputs": [{"name": "", "arg": {"as_string": "cpu"}},
{"name": "", "arg": {"as_none": true}}, {"name": "", "arg": {"as_bool": false}}, {"name": "", "arg": {"as_bool": true}},
{"name": "", "arg": {"as_graph": {"name": "g", "graph": )" +
      inner + R"(}}}, {"name": "", "arg": {"as_tensor": {"name": "x"}}}],
"outputs": [{"as_tensor": {"name": "a"}}, {"as_tensor": {"name": "b"}}, {"as_tensor": {"name": "c"}}]}, )";
  const ExportedProgram program = read(test::zip_of(with("\"nodes\": [", "\"nodes\": [" + autocast)));
  ASSERT_EQ(program.nodes.size(), 4u);
  const auto reads = [&](std::size_t i) { return std::get<TensorName>(*program.nodes[i].find("self")).name; };
  EXPECT_EQ(program.nodes[0].target, "aten.tanh.default");
  EXPECT_EQ(program.nodes[0].results, std::vector<std::string>{"b"});
  EXPECT_EQ(program.nodes[1].target, "aten.alias.default");
  EXPECT_EQ(program.nodes[1].results, std::vector<std::string>{"a"});
  EXPECT_EQ(reads(1), "x");
  EXPECT_EQ(program.nodes[2].results, std::vector<std::string>{"c"});
  EXPECT_EQ(reads(2), "b");
}

TEST_F(DamagedArchives, DeepJsonIsRefused) {
  const std::string open(1 << 20, '['), close(1 << 20, ']');
  expect_refused(test::zip_of(with("\"metadata\": {}", "\"metadata\": " + open + close)), "more than 64 levels");
}

}  // namespace damaged_archives_test
}  // namespace millrace::pt2
