#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes signatures.json, which sigv4_test.cc reads: make_signatures.py SUITE >signatures.json

"suite": the published test suite of AWS Signature Version 4 (Apache-2.0, Copyright 2019 Amazon.com, Inc. or its
affiliates), as it lies unpacked in SUITE: all of it but the requests that only a signer which normalises paths can
sign, which S3 forbids, and two whose hashes are not those of their own canonical requests. "s3": requests of S3 as botocore's S3SigV4Auth signs them.
"""
import datetime
import json
import pathlib
import random
import re
import sys
import urllib.parse
from unittest import mock

import botocore
import botocore.auth
import botocore.awsrequest
import botocore.credentials

KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"


def from_suite(folder):
    for request in sorted(folder.rglob("*.req")):
        name = request.stem
        read = lambda suffix: request.with_suffix(suffix).read_text(encoding="utf-8").replace("\r\n", "\n").rstrip("\n")
        head, _, body = read(".req").partition("\n\n")
        lines = re.sub(r"\n[ \t]+", ",", head).split("\n")  # AWS joins the lines of a value by commas
        method, target = lines[0].removesuffix(" HTTP/1.1").split(" ", 1)
        path, _, query = target.partition("?")
        if "normalize-path" in str(request) and name != "get-space":
            continue
        if name.startswith("post-x-www-form-urlencoded"):  # their files contradict each other
            continue
        authorization = read(".authz")
        signed = re.search("SignedHeaders=([^,]*)", authorization).group(1).split(";")
        headers = [line.split(":", 1) for line in lines[1:]]
        yield {
            "name": name,
            "method": method,
            "path": urllib.parse.quote(path, safe="/-_.~"),
            "query": [(pair.split("=", 1) + [""])[:2] for pair in query.split("&") if pair],
            "headers": [h for h in headers if h[0].lower() in signed],
            "body": body,
            "canonical": read(".creq"),
            "to_sign": read(".sts"),
            "authorization": authorization,
        }


def from_botocore():
    now = datetime.datetime(2026, 2, 28, 23, 59, 58)
    rng = random.Random(7)
    keys = ["a.tar", "dir/a b+c=d%e&f.tar", "käse/ŝalt/日本.tar", "a//b/./../c", "~-_.!*'()", "\x01\x7f;:@$,?#[]",
            "".join(chr(rng.randrange(32, 0x2FFF)) for _ in range(40))]
    cases = [("GET", key, {}, {"Range": "bytes=0-9", "If-Match": '"abc"'}, b"", token)
             for key in keys for token in (None, "to/ken+=")]
    cases.append(("GET", "", {"list-type": "2", "prefix": "käse/a b+c=d%e&f", "continuation-token": "1/+==",
                              "encoding-type": "url"}, {}, b"", None))
    cases.append(("POST", "a b", {"uploads": ""}, {}, b"", None))
    cases.append(("PUT", "a b", {"partNumber": "10", "uploadId": "x+/="}, {}, bytes(range(256)).hex().encode(), None))
    for method, key, query, headers, body, token in cases:
        path = "/" + urllib.parse.quote("bucket/" + key, safe="/-_.~")
        url = "http://127.0.0.1:9000" + path
        if query:
            url += "?" + "&".join(urllib.parse.quote(k, safe="-_.~") + "=" + urllib.parse.quote(v, safe="-_.~")
                                  for k, v in sorted(query.items()))
        request = botocore.awsrequest.AWSRequest(method, url, headers=headers, data=body)
        request.context["payload_signing_enabled"] = True
        signer = botocore.auth.S3SigV4Auth(botocore.credentials.Credentials(KEY, SECRET, token), "s3", "eu-west-1")
        with mock.patch("botocore.auth.get_current_datetime", return_value=now):
            signer.add_auth(request)
        signed = dict(request.headers.items())
        authorization = signed.pop("Authorization")
        names = re.search("SignedHeaders=([^,]*)", authorization).group(1).split(";")
        signed["Host"] = "127.0.0.1:9000"
        yield {
            "name": f"{method} {key}", "method": method, "path": path, "query": list(query.items()),
            "headers": [[k, v] for k, v in signed.items() if k.lower() in names],
            "body": body.decode(), "token": token or "", "authorization": authorization,
        }


def main():
    json.dump({"botocore": botocore.__version__, "access_key_id": KEY, "secret_access_key": SECRET,
               "suite": list(from_suite(pathlib.Path(sys.argv[1]))), "s3": list(from_botocore())},
              sys.stdout, indent=1, ensure_ascii=True)
    print()


if __name__ == "__main__":
    main()
