// SPDX-License-Identifier: Apache-2.0
#include "ait/launch/error_file.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::TempDir;
using ::testing::HasSubstr;

TEST(WriteErrorFile, HoldsWhatTorchrunShows) {
  const TempDir folder;
  Env env;
  env.torchelastic_error_file = folder / "error.json";
  ASSERT_OK(WriteErrorFile(UnavailableError("rank 1 \"died\"\n\xff in bucket 3"), env));
  std::ifstream file(folder / "error.json");
  const auto json = nlohmann::json::parse(file);
  const std::string text = json["message"]["message"];
  EXPECT_THAT(text, HasSubstr("UNAVAILABLE: rank 1 \"died\"\n"));
  EXPECT_EQ(json["message"]["extraInfo"]["py_callstack"], text) << "the report shows this one";
  EXPECT_GT(std::stoll(json["message"]["extraInfo"]["timestamp"].get<std::string>()),
            1'700'000'000);
}

TEST(WriteErrorFile, DoesNothingWithoutFailureOrFile) {
  const TempDir folder;
  Env env;
  EXPECT_OK(WriteErrorFile(UnavailableError("x"), env));
  env.torchelastic_error_file = folder / "error.json";
  EXPECT_OK(WriteErrorFile(OkStatus(), env));
  EXPECT_FALSE(std::filesystem::exists(folder / "error.json"));
}

TEST(WriteErrorFile, TellsThatItCannotWrite) {
  const TempDir folder;
  Env env;
  env.torchelastic_error_file = folder / "gone/error.json";
  EXPECT_THAT(WriteErrorFile(UnavailableError("x"), env),
              ::ait::testing::StatusIs(StatusCode::kNotFound, HasSubstr("gone")));
}

}  // namespace
}  // namespace ait
