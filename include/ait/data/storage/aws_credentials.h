// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_STORAGE_AWS_CREDENTIALS_H_
#define AIT_DATA_STORAGE_AWS_CREDENTIALS_H_

// Who asks: the keys that requests to S3 are signed with, and where they are found.
//
// By default they are looked for where other programs look: in the environment, in the files of
// ~/.aws, and at the metadata service of a cloud instance (IMDSv2). The first that has keys wins.
//
//   auto keys = FindAwsCredentials({.profile = "training"});
//   auto storage = S3Storage::Create({.credentials = *keys});
//   auto open = S3Storage::Create({.credentials = AnonymousAwsCredentials()});   // public buckets
//
// Keys never appear in a message. The variables are those of AwsEnvironment, not of `Env`, whose
// values may be shown.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "ait/base/status.h"

namespace ait::inline v0 {

struct AwsCredentials {
  std::string access_key_id = {};
  std::string secret_access_key = {};
  std::string session_token = {};  // of temporary keys
  /// When temporary keys end, where this is known.
  std::optional<std::chrono::system_clock::time_point> expires = {};

  bool is_anonymous() const { return access_key_id.empty(); }
};

/// **Thread-safety.** All calls may come from any thread.
class AwsCredentialSource {
 public:
  virtual ~AwsCredentialSource() = default;
  /// Where the keys come from, for messages.
  virtual std::string name() const = 0;
  /// Keys that are valid now. **Blocks.** Where they must be asked for.
  virtual StatusOr<AwsCredentials> Get() = 0;
  /// A server refused the keys as too old. True if the next `Get` asks for new ones.
  virtual bool Forget() { return false; }
};

/// These keys. **Errors.** InvalidArgument: a half of them is missing.
StatusOr<std::shared_ptr<AwsCredentialSource>> FixedAwsCredentials(AwsCredentials credentials);
/// No keys: requests are not signed.
std::shared_ptr<AwsCredentialSource> AnonymousAwsCredentials();

/// The environment variables of S3, as other programs name them.
struct AwsEnvironment {
  using Value = std::optional<std::string>;
  Value access_key_id;      // AWS_ACCESS_KEY_ID
  Value secret_access_key;  // AWS_SECRET_ACCESS_KEY
  Value session_token;      // AWS_SESSION_TOKEN
  Value profile;            // AWS_PROFILE: default "default"
  Value credentials_file;   // AWS_SHARED_CREDENTIALS_FILE: default ~/.aws/credentials
  Value config_file;        // AWS_CONFIG_FILE: default ~/.aws/config
  Value region;             // AWS_REGION, else AWS_DEFAULT_REGION
  Value endpoint;           // AWS_ENDPOINT_URL_S3, else AWS_ENDPOINT_URL
  Value ca_file;            // AWS_CA_BUNDLE
  Value metadata_disabled;  // AWS_EC2_METADATA_DISABLED: "true"
  Value metadata_endpoint;  // AWS_EC2_METADATA_SERVICE_ENDPOINT
  Value home;               // HOME

  /// Reads the environment of this process. Not safe while another thread calls setenv.
  static AwsEnvironment FromProcess();
  /// Reads from any source; `lookup` returns nullopt for an unset variable.
  static AwsEnvironment From(const std::function<Value(const char* name)>& lookup);
};

/// A profile in the files of ~/.aws.
struct AwsProfile {
  AwsCredentials credentials = {};  // anonymous if it has none
  std::string region = {};
  std::string endpoint = {};
};

struct AwsCredentialOptions {
  /// A profile named here is used even if the environment holds keys; empty: AWS_PROFILE.
  std::string profile = {};
  AwsEnvironment environment = AwsEnvironment::FromProcess();
  /// Where instances ask for their keys; empty: AWS_EC2_METADATA_SERVICE_ENDPOINT, else
  /// http://169.254.169.254.
  std::string metadata_endpoint = {};
  std::chrono::milliseconds metadata_timeout{1'000};  // of each request, of which it makes three
};

/// Reads a profile; one that is named and does not exist is NotFound. **Errors.** InvalidArgument:
/// a line that is none; Unimplemented: keys that are to be got by a program, a role or SSO.
StatusOr<AwsProfile> ReadAwsProfile(const AwsCredentialOptions& options);

/// The first of environment, profile and metadata service that has keys. Those of the service are
/// asked for at the first `Get`, and again ten minutes before they end.
StatusOr<std::shared_ptr<AwsCredentialSource>> FindAwsCredentials(
    const AwsCredentialOptions& options);

}  // namespace ait::inline v0

#endif  // AIT_DATA_STORAGE_AWS_CREDENTIALS_H_
