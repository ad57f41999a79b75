// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <charconv>
#include <utility>

#include "data/format/npy_header_internal.h"
#include "data/little_endian_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::int64_t kMaxHeaderBytes = 64 << 10;
constexpr std::size_t kMaxDimensions = 64;

struct Code {
  std::string_view text;  // kind and bytes
  NumberType type;
};
constexpr std::array<Code, 12> kCodes = {{{"b1", {DType::kBool}},
                                          {"i1", {DType::kInt8}},
                                          {"i2", {DType::kInt16}},
                                          {"i4", {DType::kInt32}},
                                          {"i8", {DType::kInt64}},
                                          {"u1", {DType::kUInt8}},
                                          {"u2", {DType::kUInt16}},
                                          {"u4", {DType::kUInt32}},
                                          {"u8", {DType::kInt64, false, true}},
                                          {"f2", {DType::kFloat16}},
                                          {"f4", {DType::kFloat32}},
                                          {"f8", {DType::kFloat64}}}};

StatusOr<NumberType> TypeOf(std::string_view descr) {
  if (descr.size() >= 2) {
    const char order = descr.front();
    for (const Code& code : kCodes) {
      if (code.text != descr.substr(1)) continue;
      const bool has_order = code.text.back() != '1';
      if (order != '<' && order != '>' && order != '=' && !(order == '|' && !has_order)) break;
      NumberType type = code.type;
      type.is_big_endian = order == '>' && has_order;
      return type;
    }
  }
  if (descr.find('O') != std::string_view::npos) {
    return UnimplementedError("it holds Python objects (dtype '", descr,
                              "'), which only pickle can read: save numbers instead");
  }
  return UnimplementedError("its dtype '", descr,
                            "' is not read: only booleans, integers and floats are");
}

// '{' key ':' value {',' key ':' value} [','] '}', where a value is a text, a boolean or a tuple.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  StatusOr<NpyHeader> Parse() {
    bool has_descr = false;
    bool has_order = false;
    bool has_shape = false;
    NpyHeader header;
    std::string_view descr;
    bool is_fortran = false;
    if (!Take('{')) return Bad("'{'");
    while (!Take('}')) {
      std::string_view key;
      if (!TakeText(key)) return Bad("a key or '}'");
      if (!Take(':')) return Bad("':'");
      if (key == "descr" && !has_descr) {
        has_descr = true;
        if (Peek('[')) return UnimplementedError("it is an array of structures, which is not read");
        if (!TakeText(descr)) return Bad("a dtype in quotes");
      } else if (key == "fortran_order" && !has_order) {
        has_order = true;
        if (!TakeBoolean(is_fortran)) return Bad("True or False");
      } else if (key == "shape" && !has_shape) {
        has_shape = true;
        if (!TakeShape(header.shape)) return Bad("a tuple of sizes");
      } else {
        return DataLossError("its header has the key \"", key, "\", unknown or repeated");
      }
      if (!Take(',') && !Peek('}')) return Bad("',' or '}'");
    }
    SkipSpaces();
    if (text_.substr(at_) != "\n") return Bad("spaces and a line end");
    if (!has_descr || !has_order || !has_shape) {
      return DataLossError("its header lacks descr, fortran_order or shape");
    }
    AIT_ASSIGN_OR_RETURN(header.type, TypeOf(descr));
    if (is_fortran && header.shape.size() > 1) {
      return UnimplementedError(
          "it is in Fortran order, so that a row is not in one place: save "
          "numpy.ascontiguousarray(a)");
    }
    if (ArrayBytes(header.type.dtype, header.shape) < 0) {
      return DataLossError("its shape has more numbers than a file can hold");
    }
    return header;
  }

 private:
  Status Bad(std::string_view wanted) const {
    return DataLossError("its header is damaged: ", wanted, " is missing at character ", at_);
  }
  void SkipSpaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool Peek(char wanted) {
    SkipSpaces();
    return at_ < text_.size() && text_[at_] == wanted;
  }
  bool Take(char wanted) {
    if (!Peek(wanted)) return false;
    ++at_;
    return true;
  }
  bool TakeText(std::string_view& text) {
    const char quote = Peek('"') ? '"' : '\'';
    if (!Take(quote)) return false;
    const std::size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) return false;
    text = text_.substr(at_, end - at_);
    at_ = end + 1;
    return text.find('\\') == std::string_view::npos;
  }
  bool TakeBoolean(bool& value) {
    SkipSpaces();
    for (const bool meaning : {true, false}) {
      const std::string_view word = meaning ? "True" : "False";
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      value = meaning;
      return true;
    }
    return false;
  }
  bool TakeShape(std::vector<std::int64_t>& shape) {
    if (!Take('(')) return false;
    while (!Take(')')) {
      SkipSpaces();
      std::int64_t size = 0;
      const auto result = std::from_chars(text_.data() + at_, text_.data() + text_.size(), size);
      if (result.ec != std::errc() || size < 0 || shape.size() == kMaxDimensions) return false;
      at_ = static_cast<std::size_t>(result.ptr - text_.data());
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2 wrote long integers so
      shape.push_back(size);
      const bool has_comma = Take(',');
      if (!has_comma && (!Peek(')') || shape.size() == 1)) return false;  // (3) is no tuple
    }
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

StatusOr<NpyHeader> ReadNpyHeader(const StoredObject& object) {
  constexpr std::int64_t kLimit = kMaxHeaderBytes;
  AIT_ASSIGN_OR_RETURN(const ByteView start, ReadRange(object, 0, 10, kLimit));
  if (!BeginsWith(start.bytes(), kMagic)) {
    return InvalidArgumentError(object.info().url, " is no npy file: its magic is missing");
  }
  const auto major = LoadLittleEndian<std::uint8_t>(start.bytes(), 6);
  const auto minor = LoadLittleEndian<std::uint8_t>(start.bytes(), 7);
  if (major < 1 || major > 3 || minor != 0) {
    return UnimplementedError(object.info().url, ": npy version ", major, ".", minor,
                              " is not known, only 1.0, 2.0 and 3.0");
  }
  std::int64_t begin = 10;
  std::int64_t length = LoadLittleEndian<std::uint16_t>(start.bytes(), 8);
  if (major > 1) {
    AIT_ASSIGN_OR_RETURN(const ByteView size, ReadRange(object, 8, 4, kLimit));
    begin = 12;
    length = LoadLittleEndian<std::uint32_t>(size.bytes(), 0);
  }
  AIT_ASSIGN_OR_RETURN(const ByteView text, ReadRange(object, begin, length, kLimit));
  StatusOr<NpyHeader> header = ParseNpyDictionary(text.text());
  if (!header.ok()) return Annotate(header.status(), object.info().url);
  header->header_bytes = begin + length;
  return header;
}

}  // namespace

StatusOr<NpyHeader> ParseNpyDictionary(std::string_view text) { return Parser(text).Parse(); }

StatusOr<StoredArray> OpenNpyArray(std::shared_ptr<const StoredObject> object, std::string name) {
  AIT_ASSIGN_OR_RETURN(NpyHeader header, ReadNpyHeader(*object));
  const std::int64_t stated = ArrayBytes(header.type.dtype, header.shape);
  const std::int64_t there = object->info().size_bytes - header.header_bytes;
  if (there != stated) {
    return DataLossError(object->info().url, " is truncated or too long: its header states ",
                         stated, " bytes of numbers, ", there, " are there");
  }
  return StoredArray{.name = std::move(name),
                     .type = header.type,
                     .shape = std::move(header.shape),
                     .object = std::move(object),
                     .offset_bytes = header.header_bytes};
}

std::string FormatNpyHeader(DType dtype, const std::vector<std::int64_t>& shape) {
  std::string_view code;
  for (const Code& known : kCodes) {
    if (known.type.dtype == dtype && !known.type.is_uint64) code = known.text;
  }
  std::string text = StrCat("{'descr': '", code.back() == '1' ? "|" : "<", code,
                            "', 'fortran_order': False, 'shape': (");
  for (std::size_t i = 0; i < shape.size(); ++i) text += StrCat(i == 0 ? "" : ", ", shape[i]);
  text += shape.size() == 1 ? ",), }" : "), }";
  // numpy leaves room for a first number of 21 digits, then pads the whole to 64 bytes.
  constexpr std::size_t kDigits = 21;
  if (!shape.empty()) text.append(kDigits - StrCat(shape.front()).size(), ' ');
  constexpr std::size_t kStart = 10;
  const std::size_t padded = (kStart + text.size() + 1 + 63) / 64 * 64;
  text.append(padded - kStart - text.size() - 1, ' ');
  text += '\n';
  std::string header(kMagic);
  header += '\x01';
  header += '\x00';
  header += static_cast<char>(text.size() & 0xFF);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

}  // namespace internal
}  // namespace ait::inline v0
