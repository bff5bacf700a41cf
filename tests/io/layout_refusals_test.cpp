// Data sets that are refused with a reason: types, filters, files of values that are elsewhere. Some are readable after
// a conversion by the HDF5 library.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "files.hpp"
#include "millrace/base/error.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace::io {
namespace layout_refusals_test {

using test::Recipe;
using test::TemporaryFolder;

std::string refusal_of(const std::string& path) { return File::open(path).info("x").unsupported_reason; }

TEST(Layout, UnsupportedTypesAreRefusedWithAReason) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  struct Case {
    hid_t type;
    const char* words;
  };
  const hid_t text = H5Tcopy(H5T_C_S1), pair = H5Tcreate(H5T_COMPOUND, 8), boolean = H5Tenum_create(H5T_NATIVE_INT8),
              list = H5Tvlen_create(H5T_NATIVE_INT32);
  H5Tset_size(text, 7);
  H5Tinsert(pair, "a", 0, H5T_NATIVE_INT32);
  H5Tinsert(pair, "b", 4, H5T_NATIVE_FLOAT);
  const signed char no = 0, yes = 1;
  H5Tenum_insert(boolean, "FALSE", &no);
  H5Tenum_insert(boolean, "TRUE", &yes);
  for (const Case& c : {Case{text, "string"}, Case{pair, "compound"}, Case{list, "variable-length"},
                        Case{H5T_NATIVE_UINT32, "unsigned integers of 32 bits"}, Case{H5T_NATIVE_UINT64, "64 bits"},
                        Case{H5T_NATIVE_LDOUBLE, "floating point"}}) {
    Recipe recipe;
    recipe.type = c.type;
    test::write_foreign(path, recipe, c.type, nullptr);
    EXPECT_NE(refusal_of(path).find(c.words), std::string::npos) << c.words << ": " << refusal_of(path);
    std::int32_t out[105];
    EXPECT_THROW(File::open(path).read_rows("x", 0, 7, DType::i32, out), Error) << c.words;
  }
  Recipe recipe;
  recipe.type = boolean;
  recipe.shape = {3};
  const signed char values[3] = {1, 0, 1};
  test::write_foreign(path, recipe, boolean, values);
  EXPECT_EQ(refusal_of(path), "");
  EXPECT_EQ(File::open(path).info("x").dtype, DType::i8);
  signed char read[3] = {};
  File::open(path).read_rows("x", 0, 3, DType::i8, read);
  EXPECT_TRUE(std::equal(values, values + 3, read));
  for (const hid_t type : {text, pair, boolean, list}) H5Tclose(type);
}

TEST(Layout, ConvertingFilesReadUnsupportedTypes) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  Recipe recipe;
  recipe.shape = {3};
  const std::uint32_t whole[3] = {7, 4000000000u, 1};
  const long double broken[3] = {0.5L, -3, 1e30L};
  recipe.type = H5T_STD_U32BE;
  test::write_foreign(path, recipe, H5T_NATIVE_UINT32, whole);
  std::int64_t read[3] = {};
  EXPECT_EQ(File::open_converting(path).info("x").dtype, DType::i64);
  File::open_converting(path).read_rows("x", 0, 3, DType::i64, read);
  EXPECT_TRUE(std::equal(whole, whole + 3, read));
  recipe.type = H5T_NATIVE_LDOUBLE;
  test::write_foreign(path, recipe, H5T_NATIVE_LDOUBLE, broken);
  double real[3] = {};
  EXPECT_EQ(File::open_converting(path).info("x").dtype, DType::f64);
  File::open_converting(path).read_rows("x", 0, 3, DType::f64, real);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(real[i], double(broken[i]));
}

// A virtual data set with rows of two files, and a data set whose values are in two external files.
TEST(Layout, ConvertingFilesReadExternalValuesOrNameTheMissingFile) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5", source = folder / "source.h5", raw = folder / "outside.raw";
  const std::int32_t values[4] = {3, -1, 4, 1};
  Recipe recipe;
  recipe.shape = {2};
  test::write_foreign(source, recipe, H5T_NATIVE_INT32, values);
  std::ofstream(raw, std::ios::binary).write(reinterpret_cast<const char*>(values), sizeof values);
  const hsize_t four = 4, two = 2, nothing = 0;
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t space = H5Screate_simple(1, &four, nullptr), half = H5Screate_simple(1, &two, nullptr);
  const hid_t external = H5Pcreate(H5P_DATASET_CREATE), virtuel = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_external(external, "outside.raw", 0, 8);
  H5Pset_external(external, "outside.raw", 8, 8);
  H5Sselect_hyperslab(space, H5S_SELECT_SET, &nothing, nullptr, &two, nullptr);
  H5Pset_virtual(virtuel, space, "source.h5", "x", half);
  H5Sselect_all(space);
  for (const auto& [name, dcpl] : {std::pair{"outside", external}, std::pair{"made_up", virtuel}})
    H5Dclose(H5Dcreate2(file, name, H5T_NATIVE_INT32, space, H5P_DEFAULT, dcpl, H5P_DEFAULT));
  H5Pclose(external);
  H5Pclose(virtuel);
  H5Sclose(space);
  H5Sclose(half);
  H5Fclose(file);
  std::int32_t read[4] = {};
  File::open_converting(path).read_rows("outside", 0, 4, DType::i32, read);
  EXPECT_TRUE(std::equal(values, values + 4, read));
  File::open_converting(path).read_rows("made_up", 0, 4, DType::i32, read);
  EXPECT_TRUE(read[0] == 3 && read[1] == -1 && read[2] == 0 && read[3] == 0);
  std::filesystem::resize_file(raw, 15);
  EXPECT_NE(File::open_converting(path).info("outside").unsupported_reason.find("15 bytes, not the 16"),
            std::string::npos);
  std::filesystem::remove(raw);
  std::filesystem::remove(source);
  EXPECT_NE(File::open_converting(path).info("outside").unsupported_reason.find("outside.raw is missing"),
            std::string::npos);
  EXPECT_NE(File::open_converting(path).info("made_up").unsupported_reason.find("source.h5 is missing"),
            std::string::npos);
  EXPECT_THROW(File::open_converting(path).read_rows("made_up", 0, 4, DType::i32, read), Error);
}

TEST(Layout, ScalarsVirtualExternalAndUnknownFiltersAreRefused) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  Recipe recipe;
  recipe.shape = {};
  test::write_foreign(path, recipe, H5T_NATIVE_INT32, nullptr);
  EXPECT_NE(refusal_of(path).find("single value"), std::string::npos);

  recipe.shape = {7, 5, 3};
  recipe.chunk = {7, 5, 3};
  recipe.filters = {32013, 32100};
  test::write_foreign(path, recipe, H5T_NATIVE_INT32, nullptr);
  EXPECT_NE(refusal_of(path).find("zfp (HDF5 filter 32013)"), std::string::npos) << refusal_of(path);

  const hsize_t shape[2] = {4, 2};
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t space = H5Screate_simple(2, shape, nullptr);
  const hid_t external = H5Pcreate(H5P_DATASET_CREATE), virtuel = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_external(external, "elsewhere.raw", 0, 32);
  H5Pset_virtual(virtuel, space, "source.h5", "x", space);
  for (const auto& [name, dcpl] : {std::pair{"outside", external}, std::pair{"made_up", virtuel}})
    H5Dclose(H5Dcreate2(file, name, H5T_NATIVE_INT32, space, H5P_DEFAULT, dcpl, H5P_DEFAULT));
  H5Pclose(external);
  H5Pclose(virtuel);
  H5Sclose(space);
  H5Fclose(file);
  const File reader = File::open(path);
  EXPECT_NE(reader.info("outside").unsupported_reason.find("external files"), std::string::npos);
  EXPECT_FALSE(reader.info("outside").offset);
  EXPECT_NE(reader.info("made_up").unsupported_reason.find("virtual data set"), std::string::npos);
}

TEST(Layout, EmptyMatlabArraysAreRefused) {
  const TemporaryFolder folder;
  File file = File::create(folder / "a.mat");
  file.create_dataset("x", DType::i64, {2});
  file.set("x", "MATLAB_class", std::string("double"));
  file.set("x", "MATLAB_empty", std::int64_t(1));
  file.close();
  EXPECT_NE(refusal_of(folder / "a.mat").find("empty MATLAB array"), std::string::npos);
}

}  // namespace layout_refusals_test
}  // namespace millrace::io
