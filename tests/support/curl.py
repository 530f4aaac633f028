"""What ``curl URL`` does with the options that pages use, for machines without it."""

import argparse
import sys
import urllib.request
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("url")
parser.add_argument("-H", "--header", action="append", default=[])
parser.add_argument("-s", "--silent", action="store_true")
parser.add_argument("--output")
parser.add_argument("--data-binary")
options = parser.parse_args()
given = options.data_binary
data = None if given is None else Path(given[1:]).read_bytes() if given.startswith("@") else given.encode()
request = urllib.request.Request(options.url, data, dict(header.split(": ", 1) for header in options.header))
with urllib.request.urlopen(request, timeout=60) as response:
    answer = response.read()
if options.output:
    Path(options.output).write_bytes(answer)
else:
    sys.stdout.buffer.write(answer)
