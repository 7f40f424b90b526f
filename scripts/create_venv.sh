#!/usr/bin/env bash
# Make .venv with the first Python of 3.10 or newer on the path. PYTHON=/path/to/python3 chooses one.
set -euo pipefail
cd "$(dirname "$0")/.."

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null
}

for python in "${PYTHON:-python3}" python3.14 python3.13 python3.12 python3.11 python3.10; do
    if is_new_enough "$python"; then
        if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
            echo "error: $python cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv" >&2
            exit 1
        fi
        exec "$python" -m venv .venv
    fi
done
found=$("${PYTHON:-python3}" --version 2>/dev/null || echo "no ${PYTHON:-python3}")
echo "error: Python 3.10 or newer is needed, found $found; name one with PYTHON=/path/to/python3" >&2
exit 1
