#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The red path of lint.sh: without its tools it must fail and name the one that is missing.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bare=$(mktemp -d)
trap 'rm -rf "$bare"' EXIT
for tool in bash dirname git xargs grep nproc env; do ln -s "$(command -v $tool)" "$bare/$tool"; done
for check in format tree tidy; do
  out=$(PATH=$bare bash "$here/lint.sh" $check 2>&1) && { echo "lint.sh $check passed without its tool"; exit 1; }
  case "$out" in *"is missing"*) ;; *) echo "lint.sh $check does not name the tool: $out"; exit 1 ;; esac
done
echo "a missing tool is an error"
