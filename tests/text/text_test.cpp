#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/text/parallel_encoder.hpp"

namespace millrace {
namespace text_test {

using Tokens = std::vector<std::int32_t>;

std::string fixture(const char* name) {
  return read_file(std::string(MILLRACE_SOURCE_DIR "/tests/fixtures/text/") + name);
}

const Tokenizer& small() {
  static const Tokenizer tokenizer =
      Tokenizer::gpt2({"vocab.json", fixture("vocab.json")}, {"merges.txt", fixture("merges.txt")});
  return tokenizer;
}

std::string decode(const Tokenizer& tokenizer, const Tokens& tokens) {
  TextDecoder decoder(tokenizer);
  std::string text;
  for (const std::int32_t token : tokens) text += decoder.add(token);
  return text + decoder.finish();
}

std::string message(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

// tokens.json: recorded with transformers, tokenizers and tiktoken (tests/text/record.py).
TEST(Tokenizer, TokensEqualThoseOfThePythonLibraries) {
  const auto recorded = nlohmann::json::parse(fixture("tokens.json")).at("tokens").get<Tokens>();
  EXPECT_EQ(encode(small(), fixture("text.txt")), recorded);
}

TEST(Tokenizer, TokensDoNotDependOnHowTheTextIsCut) {
  const std::string text = fixture("text.txt");
  const Tokens whole = encode(small(), text);
  for (const std::size_t bytes : {1, 2, 3, 7, 64}) {
    TextEncoder encoder(small());
    Tokens tokens;
    for (std::size_t at = 0; at < text.size(); at += bytes)
      encoder.add(std::string_view(text).substr(at, bytes), tokens);
    encoder.finish(tokens);
    EXPECT_EQ(tokens, whole) << bytes << " bytes at a time";
  }
}

// Merges across white space, so that a piece that is cut has other tokens.
Tokenizer of_spaces() {
  Tokenizer::Vocabulary v;
  for (int byte = 0; byte < 256; ++byte) v.tokens.emplace_back(1, char(byte));
  const auto merge = [&](std::int32_t left, std::int32_t right) {
    v.merges.emplace_back(left, right);
    v.tokens.push_back(v.tokens[std::size_t(left)] + v.tokens[std::size_t(right)]);
    return std::int32_t(v.tokens.size()) - 1;
  };
  const std::int32_t no_break = merge(0xC2, 0xA0);
  for (const std::int32_t left : {no_break, std::int32_t(' '), std::int32_t('\n')})
    for (const std::int32_t right : {no_break, std::int32_t(' '), std::int32_t('\n'), std::int32_t('w')})
      merge(left, right);
  v.special.push_back(std::int32_t(v.tokens.size()));
  v.tokens.push_back("<|endoftext|>");
  return Tokenizer(v);
}

// Also at other spaces than ASCII, invalid bytes, contractions and special tokens, and with text that cannot be cut.
TEST(Tokenizer, TokensDoNotDependOnTheNumberOfThreads) {
  const char* const parts[] = {" ",  "\n",           "  ",       "\u00A0", "\u3000",        "word", "don't",
                               "42", "\u6c34\u3002", "\xE6\xB0", "\xFF",   "<|endoftext|>", "?!"};
  std::uint32_t random = 1;
  const Tokenizer spaces = of_spaces();
  for (int round = 0; round < 40; ++round) {
    std::string text;
    for (int i = 0; i < 300; ++i)
      text += parts[((random = random * 1664525 + 1013904223) >> 16) % (round < 20 ? 13 : 4 + std::size_t(round) % 9)];
    const Tokenizer& tokenizer = round % 2 ? small() : spaces;
    const Tokens whole = encode(tokenizer, text);
    for (const std::size_t bytes : {5, 100, 100000})
      for (const std::size_t kept : {50, 100000}) {
        ParallelEncoder encoder(tokenizer, 3, kept);
        Tokens tokens;
        for (std::size_t at = 0; at < text.size(); at += bytes)
          encoder.add(std::string_view(text).substr(at, bytes), tokens);
        encoder.finish(tokens);
        ASSERT_EQ(tokens, whole) << "round " << round << ", " << bytes << " bytes at a time, at most " << kept
                                 << " kept";
      }
  }
}

TEST(Tokenizer, TheParsedJsonIsTheSameTokenizer) {
  const Tokenizer again = Tokenizer::parse({"tokenizer.json", small().to_json()});
  EXPECT_EQ(again.size(), small().size());
  EXPECT_EQ(again.end_of_text(), small().end_of_text());
  EXPECT_EQ(encode(again, fixture("text.txt")), encode(small(), fixture("text.txt")));
}

TEST(Tokenizer, DecodedTokensAreTheText) {
  const std::string text = "Don't stop,   na\xC3\xAFve \xF0\x9F\x98\x80!\n";
  EXPECT_EQ(decode(small(), encode(small(), text)), text);
  EXPECT_EQ(encode(small(), "<|endoftext|>"), Tokens{*small().end_of_text()});
}

TEST(Tokenizer, DecoderGivesWholeCharactersOnly) {
  const Tokenizer bytes = Tokenizer::bytes();
  TextDecoder decoder(bytes);
  EXPECT_EQ(decoder.add(0xC3), "");
  EXPECT_EQ(decoder.add(0xAF), "\xC3\xAF");
  EXPECT_EQ(decoder.add(0xFF), "\xEF\xBF\xBD");
  EXPECT_EQ(decoder.add(0xE2), "");
  EXPECT_EQ(decoder.add('a'),
            "\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(decoder.add(0xE2), "");
  EXPECT_EQ(decoder.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(decoder.add(256), "\xEF\xBF\xBD");
}

TEST(Tokenizer, BytesAreTokensOfTheirNumberEvenIfInvalid) {
  EXPECT_EQ(encode(Tokenizer::bytes(), "a\xFF\n"), (Tokens{'a', 0xFF, '\n'}));
  const Tokenizer again = Tokenizer::parse({"", Tokenizer::bytes().to_json()});
  EXPECT_EQ(again.size(), 256);
  EXPECT_FALSE(again.end_of_text());
  const std::string text = fixture("text.txt");
  const Tokens tokens = encode(again, text);
  EXPECT_TRUE(std::equal(text.begin(), text.end(), tokens.begin(), tokens.end(),
                         [](char byte, std::int32_t token) { return std::uint8_t(byte) == token; }));
}

TEST(Tokenizer, InvalidUtf8IsCounted) {
  TextEncoder encoder(small());
  Tokens tokens;
  encoder.add("a\xFF\xE2\x82", tokens);
  encoder.finish(tokens);
  EXPECT_EQ(encoder.replaced(), 2);
  EXPECT_EQ(decode(small(), tokens), "a\xEF\xBF\xBD\xEF\xBF\xBD");
}

// Merging takes n log n steps, not n^2: this would take minutes otherwise.
TEST(Tokenizer, LongPiecesAreMergedQuickly) {
  const std::string text(3000000, 'e');
  EXPECT_EQ(decode(small(), encode(small(), text)), text);
}

TEST(Tokenizer, DamagedFilesAreRefusedByName) {
  const auto gpt2 = [](const std::string& vocab, const std::string& merges) {
    return message([&] { Tokenizer::gpt2({"V", vocab}, {"M", merges}); });
  };
  EXPECT_NE(gpt2("{", "").find("V is not a vocabulary"), std::string::npos);
  EXPECT_NE(gpt2("{\"a\": -1}", "").find("the token 'a' has the number -1"), std::string::npos);
  EXPECT_NE(gpt2("{\"a\": 1, \"b\": 1}", "").find("'a' and 'b' are both token 1"), std::string::npos);
  EXPECT_NE(gpt2("{\"a\": 0}", "a a").find("no token for the byte 0"), std::string::npos);
  EXPECT_NE(gpt2(fixture("vocab.json"), "a \xC5\x84\n").find("'a \xC5\x84' does not consist of two tokens"),
            std::string::npos);
  EXPECT_NE(gpt2(fixture("vocab.json"), "! !\n").find("M is not a list of merges"), std::string::npos);
  EXPECT_NE(gpt2(fixture("vocab.json"), "#version: 0.2\n").find("no merges"), std::string::npos);
}

TEST(Tokenizer, OtherKindsOfTokenizersAreRefused) {
  const auto with = [](const char* path, const nlohmann::json& value) {
    auto j = nlohmann::json::parse(Tokenizer::bytes().to_json());
    j[nlohmann::json::json_pointer(path)] = value;
    return message([&] { Tokenizer::parse({"T", j.dump()}); });
  };
  EXPECT_NE(with("/model/type", "Unigram").find("the model \"Unigram\" is not supported"), std::string::npos);
  EXPECT_NE(with("/model/byte_fallback", true).find("byte_fallback"), std::string::npos);
  EXPECT_NE(with("/normalizer", {{"type", "NFC"}}).find("a normalizer"), std::string::npos);
  EXPECT_NE(with("/pre_tokenizer/add_prefix_space", true).find("pre_tokenizer"), std::string::npos);
  EXPECT_NE(message([] { Tokenizer::parse({"T", "{}"}); }).find("T is not a tokenizer"), std::string::npos);
  EXPECT_EQ(with("/model/byte_fallback", false), "no error");
}

}  // namespace text_test
}  // namespace millrace
