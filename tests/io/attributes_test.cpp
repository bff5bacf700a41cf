#include <gtest/gtest.h>

#include "files.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace::io {
namespace attributes_test {

using test::TemporaryFolder;

TEST(Attributes, AreReadBackFromRootGroupAndDataset) {
  const TemporaryFolder folder;
  const std::string long_text(200000, 'j');  // more than the 64 KiB of a plain object header
  {
    File file = File::create(folder / "a.h5");
    file.create_dataset("deep/x", DType::u8, {3});
    for (const char* object : {"/", "deep", "/deep/x"}) {
      file.set(object, "name", std::string("Zürich"));
      file.set(object, "empty", std::string());
      file.set(object, "long", long_text);
      file.set(object, "scale", 0.1);
      file.set(object, "rows", std::int64_t(1) << 53);
      file.set(object, "mean", std::vector<double>{1.5, -2, 3e-300});
      file.set(object, "nothing", std::vector<double>{});
    }
    file.close();
  }
  const File file = File::open(folder / "a.h5");
  for (const char* object : {"/", "deep", "/deep/x"}) {
    EXPECT_EQ(file.get_string(object, "name"), "Zürich");
    EXPECT_EQ(file.get_string(object, "empty"), "");
    EXPECT_EQ(file.get_string(object, "long"), long_text);
    EXPECT_EQ(file.get_numbers(object, "scale"), std::vector<double>{0.1});
    EXPECT_EQ(file.get_int(object, "rows"), std::int64_t(1) << 53);
    EXPECT_EQ(file.get_numbers(object, "mean"), (std::vector<double>{1.5, -2, 3e-300}));
    EXPECT_EQ(file.get_numbers(object, "nothing"), std::vector<double>{});
  }
}

TEST(Attributes, CanBeReplaced) {
  const TemporaryFolder folder;
  File file = File::create(folder / "a.h5");
  file.set("/", "key", std::int64_t(1));
  file.set("/", "key", std::string("two"));
  EXPECT_EQ(file.get_string("/", "key"), "two");
  EXPECT_FALSE(file.get_int("/", "key"));
}

TEST(Attributes, MissingAttributesAreNullopt) {
  const TemporaryFolder folder;
  const File file = File::create(folder / "a.h5");
  EXPECT_FALSE(file.get_string("/", "key"));
  EXPECT_FALSE(file.get_numbers("/nowhere", "key"));
  EXPECT_FALSE(file.get_int("/nowhere/at/all", "key"));
}

// h5py writes str attributes in this way.
TEST(Attributes, VariableLengthStringsAreRead) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.h5";
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), space = H5Screate(H5S_SCALAR);
  const hid_t type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, H5T_VARIABLE);
  H5Tset_cset(type, H5T_CSET_UTF8);
  const hid_t attribute = H5Acreate2(file, "layout", type, space, H5P_DEFAULT, H5P_DEFAULT);
  const char* text = "channels_first";
  H5Awrite(attribute, type, &text);
  H5Aclose(attribute);
  H5Tclose(type);
  H5Sclose(space);
  H5Fclose(file);
  EXPECT_EQ(File::open(path).get_string("/", "layout"), "channels_first");
}

}  // namespace attributes_test
}  // namespace millrace::io
