#!/usr/bin/env bash
# Install a requirements file: scripts/install_requirements.sh PYTHON FILE
#
# torch is taken from PyTorch's own CPU index when that answers within seconds: on Linux the default index brings
# gigabytes of CUDA libraries along. A torch of the right version that is already there is kept.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1
file=$2
cpu_index=https://download.pytorch.org/whl/cpu
torch=$(grep -m 1 -o '^torch==[0-9.]*' requirements.txt)

has_torch() {
    "$python" - "${torch#torch==}" <<'PY' 2>/dev/null
import importlib.metadata, sys
sys.exit(importlib.metadata.version("torch").split("+")[0] != sys.argv[1])
PY
}

# The alarm also ends a look-up of the name that hangs, which a socket's timeout does not.
answers() {
    "$python" - "$1/torch/" <<'PY' 2>/dev/null
import signal, sys, urllib.request
signal.alarm(6)
urllib.request.urlopen(sys.argv[1], timeout=5).close()
PY
}

pip() {
    "$python" -m pip --disable-pip-version-check install "$@"
}

if ! has_torch; then
    echo "Setting up; the first time this takes a few minutes."
    if ! answers "$cpu_index" || ! pip --no-deps --index-url "$cpu_index" "$torch"; then
        echo "PyTorch's CPU index cannot be used from here; taking torch from the default index."
    fi
fi
pip -r "$file"
