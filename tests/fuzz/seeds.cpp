// seeds FOLDER: writes small valid inputs for each fuzzer into a folder with its name. libFuzzer starts from them.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "data/files.hpp"
#include "data/image_files.hpp"
#include "millrace/io/chunks.hpp"
#include "millrace/io/hdf5.hpp"
#include "support/zip_bytes.hpp"

namespace {

using namespace millrace;
using test::little;
std::filesystem::path root;

std::string path_of(const std::string& fuzzer, const std::string& name) {
  std::filesystem::create_directories(root / fuzzer);
  return (root / fuzzer / name).string();
}
void put(const std::string& fuzzer, const std::string& name, const std::string& content) {
  std::ofstream(path_of(fuzzer, name), std::ios::binary) << content;
}
std::string zeros(int count) { return std::string(std::size_t(count), '\0'); }

std::string zip(const std::string& name, const std::string& content, bool deflate) {
  const std::string stored = deflate ? millrace::test::deflated(content, -MAX_WBITS) : content;
  const auto crc = std::uint64_t(::crc32(0, reinterpret_cast<const Bytef*>(content.data()), uInt(content.size())));
  const std::string common = little(0, 2) + little(deflate ? 8 : 0, 2) + little(0, 4) + little(crc, 4) +
                             little(stored.size(), 4) + little(content.size(), 4) + little(name.size(), 2);
  const std::string member = "PK\3\4" + little(20, 2) + common + little(0, 2) + name + stored;
  const std::string entry = "PK\1\2" + little(20, 2) + little(20, 2) + common + zeros(4 + 8) + little(0, 4) + name;
  return member + entry + "PK\5\6" + zeros(4) + little(1, 2) + little(1, 2) + little(entry.size(), 4) +
         little(member.size(), 4) + zeros(2);
}

void tables() {
  const std::string images =
      zeros(2) + "\x08\x03" + zeros(3) + "\x02" + zeros(3) + "\x02" + zeros(3) + "\x02" + "abcdefgh";
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n";
  const std::string npy = "\x93NUMPY" + std::string("\1\0", 2) + little(header.size(), 2) + header + zeros(24);
  const std::string csv = "a,b,y\n1,2.5,cat\n3,4e1,\"dog\"\n";
  put("tables", "idx", zeros(1) + images), put("tables", "idx.gz", zeros(1) + millrace::test::deflated(images, 31));
  put("tables", "npy", "\1" + npy);
  put("tables", "npz", "\2" + zip("x.npy", npy, false)), put("tables", "npz-deflated", "\2" + zip("x.npy", npy, true));
  put("tables", "csv", "\3" + csv), put("tables", "csv.gz", "\3" + millrace::test::deflated(csv, 31));
  const std::string of_weights =
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"BF16","shape":[],)"
      R"("data_offsets":[8,10]},"__metadata__":{"format":"pt"}})";
  put("tables", "safetensors", "\5" + std::string(1, char(of_weights.size())) + zeros(7) + of_weights + zeros(10));
  put("tables", "csv-numbers", "\3x;y\n1;2\n"), put("tables", "tokens", "\4some tokens of text");
}

void images() {
  const auto pixel = [](int y, int x, int c) { return (y * 9 + x * 5 + c * 40) % 256; };
#ifdef MILLRACE_WITH_PNG
  for (const int type : {PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGBA, PNG_COLOR_TYPE_GRAY})
    test::write_png(path_of("images", fmt::format("png-{}", type)), 12, 17, type, pixel);
  test::write_png(path_of("images", "png-16"), 9, 9, PNG_COLOR_TYPE_RGB, pixel, 16);
#endif
#ifdef MILLRACE_WITH_JPEG
  test::write_jpeg(path_of("images", "jpeg"), 33, 40, 3, pixel);
  test::write_jpeg(path_of("images", "jpeg-progressive"), 33, 40, 3, pixel, {.progressive = true, .quality = 60});
  test::write_jpeg(path_of("images", "jpeg-grey"), 20, 20, 1, pixel);
  test::write_jpeg(path_of("images", "jpeg-cmyk"), 20, 20, 4, pixel);
#endif
}

void chunks() {
  const std::string plain(4 * 16, 'm');
  const std::string layout = zeros(1) + "\x0f" + zeros(1);  // bytes in chunks of 4 x 16
  put("chunks", "gzip", layout + zeros(1) + "\0\0\0\0"[0] + zeros(2) + millrace::test::deflated(plain, 15));
  for (const auto& [codec, at] : {std::pair{"zstd", '\x08'}, std::pair{"lz4", '\x06'}}) try {
      io::ByteBuffer out;
      io::encode_chunk(io::make_encoder(codec, std::nullopt), plain.data(), plain.size(), out);
      put("chunks", codec, layout + zeros(1) + at + zeros(3) + std::string(out.data(), out.size()));
    } catch (const Error&) {  // not in this build
    }
  put("chunks", "lzf", layout + zeros(1) + "\4" + zeros(3) + std::string("\x1f", 1) + plain.substr(0, 32));
}

void heap() {
  const std::string object = little(1, 2) + little(1, 2) + zeros(4) + little(5, 8) + "hello" + zeros(3);
  const std::string second = little(2, 2) + little(1, 2) + zeros(4) + little(3, 8) + "you" + zeros(5);
  const std::string collection =
      "GCOL\1" + zeros(3) + little(16 + object.size() + second.size() + 16, 8) + object + second + zeros(16);
  put("global_heap", "first", little(5, 4) + little(0, 8) + little(1, 4) + collection);
  put("global_heap", "second", little(3, 4) + little(0, 8) + little(2, 4) + collection);
}

void hdf5() {
  std::vector<std::uint8_t> x(10 * 3 * 4);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::uint8_t(i * 7);
  const std::vector<std::int32_t> y{0, 1, 2, 0, 1, 2, 0, 1, 2, 0};
  const test::Column labels{"y", H5T_STD_I32LE, H5T_NATIVE_INT32, {10}, y.data()};
  test::write_file(path_of("files", "contiguous.h5"),
                   {{"x", H5T_STD_U8LE, H5T_NATIVE_UINT8, {10, 3, 4}, x.data()}, labels});
  test::write_file(path_of("files", "chunked.h5"),
                   {{"x", H5T_STD_U8LE, H5T_NATIVE_UINT8, {10, 3, 4}, x.data(), {4, 3, 2}}, labels});
  const std::string sequences = path_of("files", "sequences.h5");
  test::write_file(sequences, {labels});
  const hid_t file = H5Fopen(sequences.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), type = H5Tvlen_create(H5T_NATIVE_UINT8);
  const hsize_t rows = 10;
  const hid_t space = H5Screate_simple(1, &rows, nullptr);
  const hid_t dataset = H5Dcreate2(file, "x", type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  std::vector<hvl_t> images(rows, {12, x.data()});
  H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, images.data());
  H5Dclose(dataset), H5Sclose(space), H5Tclose(type), H5Fclose(file);
}

// Archives of PyTorch, and one with its records of JSON alone.
void exported_networks() {
  const std::string folder = std::string(MILLRACE_SOURCE_DIR) + "/tests/fixtures/pt2/";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(in), {});
    put("pt2", entry.path().filename().string(), zeros(1) + bytes);
  }
  put("pt2", "json",
      R"({"schema_version": {"major": 8, "minor": 20}, "torch_version": "2.15.0", "graph_module": {"graph":
{"nodes": [{"target": "torch.ops.aten.relu.default", "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "x"}}}],
"outputs": [{"as_tensor": {"name": "y"}}], "metadata": {"stack_trace": "File \"a.py\", line 3", "nn_module_stack": "a,b,c"}}],
"tensor_values": {"x": {"dtype": 7, "sizes": [{"as_expr": {"hint": {"as_int": 4}}}, {"as_int": 3}]}}},
"signature": {"input_specs": [{"parameter": {"arg": {"name": "p"}, "parameter_name": "w"}},
{"user_input": {"arg": {"as_tensor": {"name": "x"}}}}], "output_specs": [{"user_output": {"arg": {"as_tensor":
{"name": "y"}}}}]}}})" +
          zeros(1) + R"({"config": {"w": {"path_name": "weight_0", "is_param": true, "use_pickle": false,
"tensor_meta": {"dtype": 7, "sizes": [{"as_int": 2}, {"as_int": 3}], "requires_grad": true,
"strides": [{"as_int": 3}, {"as_int": 1}], "storage_offset": {"as_int": 0}}}}})");
}

}  // namespace

int main(int, char** argv) {
  root = argv[1];
  tables(), images(), chunks(), heap(), hdf5(), exported_networks();
  put("layers", "net",
      "conv 16 3 pad=same as=a\nbatchnorm\nrelu\nconv 16 3 pad=same\nbatchnorm\nadd a\nrelu\nglobalpool\nlinear "
      "outputs\n");
  put("layers", "pools",
      "conv 8 3x3 stride=2 groups=1 dilation=1 bias=on\nmaxpool 2\navgpool 2 stride=1 pad=1\ndropout 0.5\nlinear 7 "
      "bias=off\ntanh\nlinear outputs from=input\n");
  put("config", "file",
      "# a comment\n[train]\nepochs = 20\nglobal_batch = 256\n[data]\ntrain = a.h5 b\\ c.h5\nread_timeout = "
      "1h30m\n[model]\nname = layers\nlayers = linear 4\nlayers = linear outputs\n[comm]\nbucket_size = 8MiB\n");
}
