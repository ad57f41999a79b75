// SPDX-License-Identifier: Apache-2.0
#include "ait/data/storage/aws_credentials.h"

#include <cstdlib>
#include <map>
#include <utility>

#include "data/input_file_internal.h"
#include "data/storage/instance_credentials_internal.h"

namespace ait::inline v0 {
namespace {

constexpr std::int64_t kMaxFileBytes = std::int64_t{1} << 20;

class FixedCredentials final : public AwsCredentialSource {
 public:
  FixedCredentials(std::string name, AwsCredentials credentials)
      : name_(std::move(name)), credentials_(std::move(credentials)) {}
  std::string name() const override { return name_; }
  StatusOr<AwsCredentials> Get() override { return credentials_; }

 private:
  const std::string name_;
  const AwsCredentials credentials_;
};

Status CheckKeys(const AwsCredentials& credentials, std::string_view where) {
  if (credentials.access_key_id.empty() || credentials.secret_access_key.empty()) {
    return InvalidArgumentError(where, " has ",
                                credentials.access_key_id.empty() ? "a secret access key and no "
                                                                    "access key id"
                                                                  : "an access key id and no "
                                                                    "secret access key",
                                "; both are needed");
  }
  for (const std::string* text :
       {&credentials.access_key_id, &credentials.secret_access_key, &credentials.session_token}) {
    for (const char c : *text) {
      if (c <= ' ' || c > '~') {
        return InvalidArgumentError(where, " has a key with a space or a control character in it");
      }
    }
  }
  return OkStatus();
}

std::string_view Trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

using Settings = std::map<std::string, std::string, std::less<>>;

// Adds the settings of a section ("[name]") of an INI file. **Errors.** InvalidArgument. Indented
// lines are nested settings, of which none is used here.
StatusOr<bool> ReadSection(const std::string& path, std::string_view section, Settings& settings) {
  StatusOr<std::string> text = internal::ReadSmallFile(path, kMaxFileBytes);
  if (text.status().code() == StatusCode::kNotFound) return false;
  if (!text.ok()) return text.status();
  bool is_inside = false, is_found = false;
  int number = 0;
  for (std::string_view rest = *text; !rest.empty();) {
    ++number;
    const std::string_view raw = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), raw.size() + 1));
    const std::string_view line = Trim(raw);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[') {
      const std::size_t end = line.find(']');
      if (end == std::string_view::npos) {
        return InvalidArgumentError(path, ", line ", number, ": '[' without ']'");
      }
      is_inside = Trim(line.substr(1, end - 1)) == section;
      is_found = is_found || is_inside;
      continue;
    }
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) {
      return InvalidArgumentError(path, ", line ", number, ": neither [section] nor name = value");
    }
    if (!is_inside || raw.front() == ' ' || raw.front() == '\t') continue;
    settings.insert_or_assign(std::string(Trim(line.substr(0, equals))),
                              std::string(Trim(line.substr(equals + 1))));
  }
  return is_found;
}

std::string Take(const Settings& settings, std::string_view name) {
  const auto found = settings.find(name);
  return found == settings.end() ? std::string() : found->second;
}

std::string FilePath(const AwsEnvironment& environment, const AwsEnvironment::Value& named,
                     std::string_view file) {
  if (named) return *named;
  return environment.home ? StrCat(*environment.home, "/.aws/", file) : std::string();
}

}  // namespace

StatusOr<std::shared_ptr<AwsCredentialSource>> FixedAwsCredentials(AwsCredentials credentials) {
  AIT_RETURN_IF_ERROR(CheckKeys(credentials, "the program"));
  return std::make_shared<FixedCredentials>("the program", std::move(credentials));
}

std::shared_ptr<AwsCredentialSource> AnonymousAwsCredentials() {
  return std::make_shared<FixedCredentials>("nobody (anonymous)", AwsCredentials{});
}

AwsEnvironment AwsEnvironment::From(const std::function<Value(const char* name)>& lookup) {
  const auto get = [&](const char* name, const char* other = nullptr) {
    Value value = lookup(name);
    if (value && value->empty()) value.reset();
    if (!value && other != nullptr) {
      value = lookup(other);
      if (value && value->empty()) value.reset();
    }
    return value;
  };
  return {.access_key_id = get("AWS_ACCESS_KEY_ID"),
          .secret_access_key = get("AWS_SECRET_ACCESS_KEY"),
          .session_token = get("AWS_SESSION_TOKEN"),
          .profile = get("AWS_PROFILE"),
          .credentials_file = get("AWS_SHARED_CREDENTIALS_FILE"),
          .config_file = get("AWS_CONFIG_FILE"),
          .region = get("AWS_REGION", "AWS_DEFAULT_REGION"),
          .endpoint = get("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
          .ca_file = get("AWS_CA_BUNDLE"),
          .metadata_disabled = get("AWS_EC2_METADATA_DISABLED"),
          .metadata_endpoint = get("AWS_EC2_METADATA_SERVICE_ENDPOINT"),
          .home = get("HOME")};
}

AwsEnvironment AwsEnvironment::FromProcess() {
  return From([](const char* name) -> Value {
    const char* const value = std::getenv(name);
    return value == nullptr ? Value() : Value(value);
  });
}

StatusOr<AwsProfile> ReadAwsProfile(const AwsCredentialOptions& options) {
  const AwsEnvironment& environment = options.environment;
  const bool is_named = !options.profile.empty() || environment.profile;
  const std::string name =
      options.profile.empty() ? environment.profile.value_or("default") : options.profile;
  const std::string config_path = FilePath(environment, environment.config_file, "config");
  const std::string keys_path = FilePath(environment, environment.credentials_file, "credentials");
  Settings settings;
  bool is_found = false;
  if (!config_path.empty()) {
    AIT_ASSIGN_OR_RETURN(
        is_found, ReadSection(config_path, name == "default" ? name : "profile " + name, settings));
  }
  if (!keys_path.empty()) {
    // Its keys go before those of the other file.
    AIT_ASSIGN_OR_RETURN(const bool has_keys, ReadSection(keys_path, name, settings));
    is_found = is_found || has_keys;
  }
  if (!is_found && is_named) {
    return NotFoundError("no profile '", name, "' in '", keys_path, "' or '", config_path,
                         "'; add it, or unset AWS_PROFILE");
  }
  AwsProfile profile = {
      .credentials = {.access_key_id = Take(settings, "aws_access_key_id"),
                      .secret_access_key = Take(settings, "aws_secret_access_key"),
                      .session_token = Take(settings, "aws_session_token")},
      .region = Take(settings, "region"),
      .endpoint = Take(settings, "endpoint_url")};
  if (profile.credentials.access_key_id.empty() && profile.credentials.secret_access_key.empty()) {
    for (const char* setting : {"credential_process", "role_arn", "sso_session", "sso_start_url",
                                "web_identity_token_file"}) {
      if (settings.contains(setting)) {
        return UnimplementedError("profile '", name, "' gets its keys by ", setting,
                                  ", which ait does not do; put keys into the environment, as by "
                                  "'aws configure export-credentials --format env'");
      }
    }
    profile.credentials = {};
    return profile;
  }
  AIT_RETURN_IF_ERROR(CheckKeys(profile.credentials, StrCat("profile '", name, "'")));
  return profile;
}

StatusOr<std::shared_ptr<AwsCredentialSource>> FindAwsCredentials(
    const AwsCredentialOptions& options) {
  const AwsEnvironment& environment = options.environment;
  if (options.profile.empty() && (environment.access_key_id || environment.secret_access_key)) {
    AwsCredentials credentials = {.access_key_id = environment.access_key_id.value_or(""),
                                  .secret_access_key = environment.secret_access_key.value_or(""),
                                  .session_token = environment.session_token.value_or("")};
    AIT_RETURN_IF_ERROR(CheckKeys(credentials,
                                  "the environment (AWS_ACCESS_KEY_ID, "
                                  "AWS_SECRET_ACCESS_KEY)"));
    return std::make_shared<FixedCredentials>("the environment", std::move(credentials));
  }
  AIT_ASSIGN_OR_RETURN(AwsProfile profile, ReadAwsProfile(options));
  if (!profile.credentials.is_anonymous()) {
    return std::make_shared<FixedCredentials>("a profile of ~/.aws",
                                              std::move(profile.credentials));
  }
  if (environment.metadata_disabled == "true") {
    return FailedPreconditionError(
        "no keys for S3: none in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, none in the profile, "
        "and AWS_EC2_METADATA_DISABLED is set; for public buckets, ask for anonymous access");
  }
  std::string endpoint = options.metadata_endpoint;
  if (endpoint.empty()) endpoint = environment.metadata_endpoint.value_or("http://169.254.169.254");
  return internal::InstanceCredentials(endpoint, options.metadata_timeout);
}

}  // namespace ait::inline v0
